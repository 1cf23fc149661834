"""What waits for a commit: one object and one callback for each run, however many messages it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.broker.fragment.settlement import PartDone, RunDone, Verb
from busway.message.message import Message
from busway.store.contract import CommitBatch, CommitUnknown, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.flow import Flow
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.origin import Origin
    from busway.broker.transaction.transaction import Transaction


def broker_error(error: StoreError) -> BrokerError:
    """What a client is told when a commit failed: an unknown outcome is never called a refusal."""
    if isinstance(error, CommitUnknown):
        return StoreOutcomeUnknown()
    return ServerBusy("The store refused to write just now: nothing was stored. Please try again.")


class SentRun:
    """Messages of one send, from admission until they are durable."""

    __slots__ = (
        "active",
        "active_bytes",
        "admitted_at",
        "admitted_bytes",
        "bytes",
        "count",
        "done",
        "dropped",
        "fragment",
        "ids",
        "is_admitted",
        "is_atomic",
        "last_number",
        "messages",
        "origin",
        "places",
        "refused",
        "transaction",
    )

    def __init__(
        self,
        fragment: Fragment,
        messages: list[Message],
        message_bytes: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
        is_atomic: bool,
        origin: Origin | None = None,
    ) -> None:
        self.fragment = fragment
        #: Whom to tell when it joins a batch: it comes from another place.
        self.origin = origin
        #: Joins together with what else the transaction does.
        self.transaction: Transaction | None = None
        #: Those that were admitted.
        self.messages = messages
        self.bytes = message_bytes
        #: Duplicates that were among them; None when there were none.
        self.dropped: list[Message] | None = None
        #: What is to be remembered of them where duplicates are detected; None elsewhere.
        self.ids: list[str] | None = None
        #: Where `messages` stood in the send; None: they are all those that were not refused.
        self.places: list[int] | None = None
        #: How many the sender handed over.
        self.count = count
        self.refused = refused
        self.done = done
        self.is_atomic = is_atomic
        #: It was accepted before: no topic refuses it for what it has become.
        self.is_admitted = False
        #: For the entity's counts: when it came, and its bytes with the duplicates that are dropped later.
        self.admitted_at = fragment.runtime.clock.monotonic()
        self.admitted_bytes = message_bytes
        # Filled when the run joins a batch: what becomes receivable at its commit.
        self.active: list[Message] = messages
        self.active_bytes = message_bytes
        self.last_number = 0

    def refuse(self, faults: list[tuple[Message, BrokerError]]) -> None:
        """Some of the admitted messages are refused after all."""
        places = self.message_places()
        place = {id(message): index for message, index in zip(self.messages, places, strict=True)}
        gone = {id(message) for message, _ in faults}
        self.refused += [(place[id(message)], error) for message, error in faults]
        if self.dropped is not None and faults:  # perhaps for the sake of one that is refused now
            self.refused += [(index, faults[0][1]) for index in self.dropped_places()]
            self.dropped = None
        if self.places is not None:
            self.places = [place[id(message)] for message in self.messages if id(message) not in gone]
        if self.ids is not None:
            named = [message for message in self.messages if message.message_id is not None]
            pairs = zip(named, self.ids, strict=True)
            self.ids = [identity for message, identity in pairs if id(message) not in gone] or None
        self.messages = self.active = [message for message in self.messages if id(message) not in gone]
        self.bytes = self.active_bytes = sum(message.size() for message in self.messages)
        self.admitted_bytes -= sum(message.size() for message, _ in faults)

    def message_places(self) -> list[int]:
        """Where each of the messages stood in the send."""
        if self.places is not None:
            return self.places
        refused = {index for index, _ in self.refused}
        return [index for index in range(self.count) if index not in refused]

    def dropped_places(self) -> list[int]:
        """The same of the duplicates."""
        if self.dropped is None or self.places is None:
            return []
        others = {index for index, _ in self.refused}
        others.update(self.places)
        return [index for index in range(self.count) if index not in others]

    def joined(self, batch: CommitBatch) -> None:
        """Its rows are in the batch: whatever goes with them joins in the same step."""
        if self.ids is not None:
            self.fragment.duplicates.remember(batch, self.ids)
        if self.origin is not None:
            self.origin.joined(batch, self.messages, self.fragment.store.name)
        batch.callbacks.append(self.committed)

    def fail(self, error: BrokerError) -> None:
        """Nothing of it is stored (or nobody knows)."""
        if self.is_atomic:
            self.done([(0, error)])
            return
        refused = dict(self.refused)
        self.done([(index, refused.get(index, error)) for index in range(self.count)])

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            self.fail(broker_error(error))
            fragment.commit_failed(error)
            return
        self.landed()
        waited_s = fragment.runtime.clock.monotonic() - self.admitted_at
        fragment.flow.taken_in(self.count - len(self.refused), self.admitted_bytes, waited_s)
        self.done(self.refused)

    def landed(self) -> None:
        """It is durable: receivers may have it."""
        fragment = self.fragment
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        if self.active:
            fragment.sent(self.active, self.active_bytes)


class RunPart(SentRun):
    """A part of a send. Places are those in the whole."""

    __slots__ = ()

    def fail(self, error: BrokerError) -> None:
        self.done(self.refused + [(index, error) for index in self.message_places()])


class PartedRun:
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
    ) -> RunPart:
        size = sum([message.size() for message in messages])
        count = len(messages) + len(refused)
        part = RunPart(run.fragment, messages, size, count, refused, self._part_over, False, run.origin)
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
        self._done(sorted(self._refused, key=_place_of))


class DealtRun:
    """The slices of one send that went to fragments of one store: one callback and one report for all of them."""

    __slots__ = ("_bytes", "_done", "_places", "_refused", "_slices")

    def __init__(self, done: PartDone) -> None:
        self._done = done
        self._slices: list[SentRun] = []
        #: Of all its messages, and of the refused ones, in the send.
        self._places: list[int] = []
        self._refused: list[tuple[int, BrokerError]] = []
        self._bytes = 0

    def add(self, run: SentRun, places: list[int]) -> None:
        """A slice with these places in the send has joined, but for what it refuses."""
        self._slices.append(run)
        self._places += places
        self._bytes += run.bytes
        if run.refused:
            self._refused += [(places[index], error) for index, error in run.refused]

    def join(self) -> None:
        """All of its slices have been added."""
        if len(self._refused) == len(self._places):
            self._done(self._places, self._refused)
        else:
            self._slices[0].fragment.batch().callbacks.append(self.committed)

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        for run in self._slices:
            run.landed()
        first = self._slices[0]
        waited_s = first.fragment.runtime.clock.monotonic() - first.admitted_at
        first.fragment.flow.taken_in(len(self._places) - len(self._refused), self._bytes, waited_s)
        self._done(self._places, self._refused)

    def _fail(self, error: StoreError) -> None:
        refused = dict(self._refused)
        failure = broker_error(error)
        self._done(self._places, [(place, refused.get(place, failure)) for place in self._places])
        for run in self._slices:
            run.fragment.commit_failed(error)


class SettledRun:
    """Settlements of one call, until they are durable."""

    __slots__ = ("count", "done", "fragment", "refused", "verb")

    def __init__(
        self,
        fragment: Fragment,
        verb: Verb,
        count: int,
        refused: list[tuple[int, BrokerError]],
        done: RunDone,
    ) -> None:
        self.fragment = fragment
        self.verb = verb
        self.count = count
        self.refused = refused
        self.done = done

    def committed(self, error: StoreError | None) -> None:
        if error is None:
            self.fragment.flow.settled(self.verb, self.count - len(self.refused))
            self.done(self.refused)
            return
        refused = dict(self.refused)
        failure = broker_error(error)
        self.done([(index, refused.get(index, failure)) for index in range(self.count)])
        self.fragment.commit_failed(error)


class CompletedRun:
    """Messages of several fragments, completed in one call, until the commits of all their stores are over."""

    __slots__ = ("_count", "_done", "_flow", "_left", "_parts", "refused")

    def __init__(self, count: int, flow: Flow, done: RunDone) -> None:
        self._count = count
        self._flow = flow
        self._done = done
        #: One for each store, by its batch, until all are there: a batch and what waits for it must not hold one
        #: another. How many of them are not over; 1 more until all are there.
        self._parts: dict[CommitBatch, CompletedPart] = {}
        self._left = 1
        self.refused: list[tuple[int, BrokerError]] = []

    def add(
        self,
        fragment: Fragment,
        batch: CommitBatch,
        start: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
    ) -> None:
        """So many from this place on are of that fragment."""
        if refused:
            self.refused += [(start + index, error) for index, error in refused]
            if len(refused) == count:
                return
        part = self._parts.get(batch)
        if part is None:
            part = self._parts[batch] = CompletedPart(self)
            self._left += 1
            batch.callbacks.append(part.committed)
        part.spans.append((fragment, start, count))

    def all_added(self) -> None:
        self._parts.clear()
        self.part_over()

    def part_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._flow.settled(Verb.COMPLETE, self._count - len(self.refused))
            self._done(sorted(self.refused, key=_place_of))


class CompletedPart:
    """The share of one store."""

    __slots__ = ("_run", "spans")

    def __init__(self, run: CompletedRun) -> None:
        self._run = run
        #: (fragment, first place, count)
        self.spans: list[tuple[Fragment, int, int]] = []

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(broker_error(error))
        self._run.part_over()
        if error is not None:
            for fragment, _, _ in self.spans:
                fragment.commit_failed(error)

    def _fail(self, failure: BrokerError) -> None:
        refused = dict(self._run.refused)
        for _, start, count in self.spans:
            places = range(start, start + count)
            self._run.refused += [(place, failure) for place in places if place not in refused]


class ArrivedRun:
    """Rows that enter a fragment by a move, or are put back: receivable once that is durable."""

    __slots__ = ("entries", "fragment", "last_number")

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        #: (number, session id)
        self.entries: list[tuple[int, str | None]] = []
        #: The highest number newly given out for the run; 0 when none was.
        self.last_number = 0

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            fragment.commit_failed(error)
            return
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        fragment.arrived(self.entries)


class WrittenRun:
    """A write nobody waits for; only its failure matters."""

    __slots__ = ("fragment",)

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self.fragment.commit_failed(error)


def _place_of(refused: tuple[int, BrokerError]) -> int:
    return refused[0]
