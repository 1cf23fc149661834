"""Whoever cannot join a topic's fragment at once: large publishes, and all that comes behind them, in order (S-4).

The line moves in turns of the loop (`turns`), and stands still while the open batch is full; only what has begun
goes on then, so that it comes to an end. Those who know best themselves what to join stand in it with nothing but a
wish to be told: a look into the history of ids, and a transaction, which joins together with what else it does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.entity.publication import Publication
from busway.broker.fragment.intake import Prepared
from busway.broker.fragment.sent_run import SentRun
from busway.message.message import Message
from busway.model.errors import BrokerError, InternalError, ServerBusy

if TYPE_CHECKING:
    from busway.broker.entity.distribution import Distribution
    from busway.broker.fragment.turns import TurnShare

_log = logging.getLogger(__name__)

#: Told once: that it can join in this very step, or why it cannot.


class Waiting:
    """Somebody in line."""

    __slots__ = ("has_begun",)

    def __init__(self) -> None:
        #: It goes on, full batch or not.
        self.has_begun = False

    def work(self, share: TurnShare) -> bool:
        """Goes on. True when it is over."""
        raise NotImplementedError

    def fail(self, error: BrokerError) -> None:
        """It has no chance any more."""
        raise NotImplementedError


class TopicLine:
    """Of one fragment of a topic."""

    __slots__ = ("_distribution", "_is_lined_up", "_turns", "_waiting", "is_turn", "waits")

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution
        self._turns = distribution.turns
        self._waiting: deque[Waiting] = deque()
        #: There is somebody.
        self.waits = False
        #: One who wanted to be told is being told: he may join now.
        self.is_turn = False
        self._is_lined_up = False

    def append(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        self.waits = True
        if waiting.has_begun or not self._distribution.is_batch_full():
            self.go_on()

    def begin(self, waiting: Waiting) -> None:
        """It is his turn, before all others: as much as this turn of the loop has room for is done at once."""
        share = self._turns.share()
        is_over = share.left > 0 and self._is_over(waiting, share)
        self._turns.used(share)
        if not is_over:
            self._waiting.appendleft(waiting)
            self.waits = True
            self.go_on()

    def go_on(self) -> None:
        """From the next turn of the loop on."""
        if self.waits and not self._is_lined_up:
            self._is_lined_up = True
            self._turns.line_up(self)

    def work(self, share: TurnShare) -> bool:
        """`turns.Worker`."""
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.has_begun and self._distribution.is_batch_full():
                self._is_lined_up = False  # its end goes on
                return False
            if not self._is_over(waiting, share):
                return True
            self._waiting.remove(waiting)
            self.waits = bool(self._waiting)
            if share.left <= 0:
                break
        self._is_lined_up = bool(self._waiting)
        return self._is_lined_up

    def _is_over(self, waiting: Waiting, share: TurnShare) -> bool:
        if isinstance(waiting, WaitingTurn):
            self.is_turn = True
            try:
                return waiting.work(share)
            finally:
                self.is_turn = False
        try:
            return waiting.work(share)
        except BrokerError as error:
            waiting.fail(error)
            return True
        except Exception:  # those behind it can do nothing for it
            _log.exception("A publish to %s failed.", self._distribution.path())
            waiting.fail(InternalError())
            return True

    def give_up(self) -> None:
        """`turns.Worker`: the server stops."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self.waits = self._is_lined_up = False
        for each in waiting:
            each.fail(ServerBusy("The server is stopping. Please try again."))


class WaitingTurn(Waiting):
    """One who joins by himself, and is told when he may."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def work(self, share: TurnShare) -> bool:
        share.spend(1)
        self._tell()
        return True

    def fail(self, error: BrokerError) -> None:
        """He will find out."""
        del error
        self._tell()


class WaitingSend(Waiting):
    """A send. One whose messages need not stay together may join in parts."""

    __slots__ = ("_distribution", "_parted", "_publication", "_run")

    def __init__(self, distribution: Distribution, run: SentRun, publication: Publication | None) -> None:
        super().__init__()
        self._distribution = distribution
        self._run = run
        #: None before its turn.
        self._publication = publication
        self._parted: PartedSend | None = None
        self.has_begun = publication is not None
        distribution.pending_bytes += run.bytes

    def work(self, share: TurnShare) -> bool:
        distribution, run = self._distribution, self._run
        publication = self._publication
        if publication is None:
            publication = self._publication = distribution.publication(run, must_be_whole=run.is_atomic)
            self.has_begun = True
        while publication.advance(share):
            if not distribution.can_join(publication):
                continue
            is_last = publication.next_message() is None
            self._join_part(publication)
            if is_last:
                return True
            publication.begin_next_part()
        return False

    def _join_part(self, publication: Publication) -> None:
        distribution, run = self._distribution, self._run
        faults = publication.part_refused()
        if faults:
            before = run.bytes
            run.refuse(faults)
            distribution.pending_bytes -= before - run.bytes
        part = run
        following = publication.next_message()
        if following is not None:
            count = _place_of(following, run)
            if count == 0:
                return  # all of them were refused
            if self._parted is None:
                self._parted = PartedSend(run)
            part = self._parted.cut(count)
            self._run = self._parted.rest
        distribution.pending_bytes -= part.bytes
        if part.messages:
            distribution.join_published(part, publication)
        else:
            part.done(part.refused)

    def fail(self, error: BrokerError) -> None:
        self._distribution.pending_bytes -= self._run.bytes
        self._run.fail(error)


class WaitingActivation(Waiting):
    """Scheduled messages that are due. They join in parts."""

    __slots__ = ("_activated", "_distribution", "_ended", "_publication")

    def __init__(self, distribution: Distribution, publication: Publication) -> None:
        super().__init__()
        self._distribution = distribution
        self._publication = publication
        self._activated = 0
        self._ended = distribution.turns.outcome()

    def work(self, share: TurnShare) -> bool:
        publication, distribution = self._publication, self._distribution
        self.has_begun = True
        while publication.advance(share):
            if not distribution.can_join(publication):
                continue
            distribution.join_activated(publication)
            self._activated += len(publication.part())
            if publication.next_message() is None:
                self._ended.set(self._activated)
                return True
            publication.begin_next_part()
        return False

    async def ended(self) -> int:
        """How many there were. Raises why there are no more."""
        return await self._ended.wait()

    def fail(self, error: BrokerError) -> None:
        self._ended.fail(error)


class WaitingTransaction(Waiting):
    """What a transaction publishes, while it is prepared."""

    __slots__ = ("_distribution", "_prepared", "_publication")

    def __init__(self, distribution: Distribution, publication: Publication, prepared: Prepared) -> None:
        super().__init__()
        self.has_begun = True
        self._distribution = distribution
        self._publication = publication
        self._prepared = prepared

    def work(self, share: TurnShare) -> bool:
        while self._publication.advance(share):
            if self._distribution.can_join(self._publication):
                self._prepared(self._publication, None)
                return True
        return False

    def fail(self, error: BrokerError) -> None:
        self._prepared(self._publication, error)


class PartedSend:
    """A send that takes several commits, since its messages make too many copies for one. Told when all are over."""

    __slots__ = ("_done", "_dropped", "_failure", "_fragment", "_left", "_refused", "rest")

    def __init__(self, run: SentRun) -> None:
        self._fragment = run.fragment
        self._done = run.done
        #: Duplicates among the messages, which stand or fall with the others.
        self._dropped = run.dropped_places()
        self._refused = run.refused
        self._failure: BrokerError | None = None
        self._left = 1
        #: What no part has taken yet; in the end the last one.
        self.rest = self._part(run, run.messages, run.message_places(), [])
        self.rest.dropped = run.dropped
        self.rest.ids = run.ids

    def _part(
        self, run: SentRun, messages: list[Message], places: list[int], refused: list[tuple[int, BrokerError]]
    ) -> SentRun:
        size = sum([message.size() for message in messages])
        count = len(messages) + len(refused)
        part = SentRun(run.fragment, messages, size, count, refused, self._part_over, False, run.origin)
        part.is_part = True
        part.places = places
        part.admitted_at = run.admitted_at
        return part

    def cut(self, count: int) -> SentRun:
        """The first of the messages, which the rest is without from now on."""
        rest = self.rest
        assert rest.places is not None
        assert 0 < count < len(rest.messages)
        part = self._part(rest, rest.messages[:count], rest.places[:count], rest.refused)
        self.rest = self._part(rest, rest.messages[count:], rest.places[count:], [])
        part.dropped = rest.dropped  # it is told of them
        if rest.ids is not None:
            named = len([message for message in part.messages if message.message_id is not None])
            part.ids, self.rest.ids = rest.ids[:named] or None, rest.ids[named:] or None
        self._left += 1
        return part

    def _part_over(self, refused: list[tuple[int, BrokerError]]) -> None:
        self._refused = self._refused + refused
        if refused:
            self._failure = refused[0][1]
        self._left -= 1
        if self._left > 0:
            return
        if self._failure is not None:  # one of them may repeat a message that was refused
            self._refused = self._refused + [(place, self._failure) for place in self._dropped]
        elif self._dropped:
            self._fragment.flow.taken_in(len(self._dropped), 0, 0.0)
        self._done(sorted(self._refused, key=_place))


def _place_of(message: Message, run: SentRun) -> int:
    place = 0
    for each in run.messages:
        if each is message:
            break
        place += 1
    return place


def _place(refused: tuple[int, BrokerError]) -> int:
    return refused[0]
