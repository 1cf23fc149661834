"""What stands between the fragments of a partitioned entity and those who work with all of them at once.

`ReceiverShare` is a receiver of the entity as one of its fragments sees it. The reports are what several fragments
tell of one request, told to whoever asked: one callback for each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.runtime import broker_error
from busway.broker.fragment.sent_run import SentRun
from busway.broker.fragment.write import FragmentWrite
from busway.model.errors import BrokerError
from busway.model.flow import FlowCounts
from busway.model.settlement import PartDone, RunDone, Verb
from busway.store.contract import CommitBatch, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


class ShareOwner(Protocol):
    """The group of fragments."""

    def shares_of(self, receiver: Receiver) -> list[ReceiverShare]: ...
    def is_fetching(self, receiver: Receiver) -> bool: ...
    def share_lost(self, share: ReceiverShare, error: BrokerError) -> None: ...


class ReceiverShare(Receiver):
    """Stands on a lane of its fragment in the receiver's place."""

    def __init__(
        self, owner: ShareOwner, member: Fragment, receiver: Receiver, *, holds_session: bool = False
    ) -> None:
        self._owner = owner
        self.member = member
        self.receiver = receiver
        self.deletes = receiver.deletes
        #: Without its fragment it has nothing to wait for.
        self.holds_session = holds_session

    def room(self) -> int:
        room = self.receiver.room()
        if not self.deletes:
            return room
        # What other fragments are deleting for it is not handed over yet, but will be.
        others = (share for share in self._owner.shares_of(self.receiver) if share is not self)
        return room - sum(share.promised() for share in others)

    def first_enqueued_ms(self) -> int:
        return self.member.lane.window.first_enqueued_ms()

    def take(self, limit: int) -> int:
        """Up to so many messages of its fragment that are in memory. How many it was."""
        return self.member.lane.offer(self, limit)

    def wake(self) -> None:
        """Unless it waits in line already, and there is nothing to hand out."""
        lane = self.member.lane
        if self.holds_session or self not in lane.waiting or not lane.window.is_drained():
            self.member.wake(self)

    def promised(self) -> int:
        return self.member.lane.promised.get(self, 0)

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        return self.receiver.deliver(deliveries)

    def caught_up(self) -> None:
        if not self._owner.is_fetching(self.receiver):
            self.receiver.caught_up()

    def evict(self, error: BrokerError) -> None:
        self._owner.share_lost(self, error)


class GatheredReport:
    """One report out of the reports of several fragments."""

    __slots__ = ("_done", "_left", "_refused")

    def __init__(self, parts: int, done: RunDone) -> None:
        self._left = parts
        self._done = done
        self._refused: list[tuple[int, BrokerError]] = []

    def part(self, places: list[int]) -> RunDone:
        def report(refused: list[tuple[int, BrokerError]]) -> None:
            self._refused += [(places[at], error) for at, error in refused]
            self._left -= 1
            if self._left == 0:
                self._done(sorted(self._refused, key=_place_of))

        return report


class PartReport:
    """What one fragment reports, told by places in the run."""

    __slots__ = ("_done", "_places")

    def __init__(self, places: list[int], done: PartDone) -> None:
        self._places = places
        self._done = done

    def report(self, refused: list[tuple[int, BrokerError]]) -> None:
        places = self._places
        self._done(places, [(places[at], error) for at, error in refused])


class DealtSlices:
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


class Completion:
    """Messages of several fragments, completed in one call, until the commits of all their stores are over."""

    __slots__ = ("_count", "_done", "_flow", "_left", "_parts", "refused")

    def __init__(self, count: int, flow: FlowCounts, done: RunDone) -> None:
        self._count = count
        self._flow = flow
        self._done = done
        #: One for each store, by its batch, until all are there: it and its parts must not hold one another. How many
        #: of them are not over; 1 more until all are there.
        self._parts: dict[CommitBatch, _CompletedInStore] = {}
        self._left = 1
        self.refused: list[tuple[int, BrokerError]] = []

    def add(
        self,
        write: FragmentWrite,
        start: int,
        count: int,
        refused: list[tuple[int, BrokerError]],
    ) -> None:
        """So many from this place on are of the fragment that this writes."""
        if refused:
            self.refused += [(start + index, error) for index, error in refused]
            if len(refused) == count:
                return
        part = self._parts.get(write.batch)
        if part is None:
            part = self._parts[write.batch] = _CompletedInStore(self)
            self._left += 1
            write.batch.callbacks.append(part.committed)
        write.write_counters()
        part.spans.append((write, start, count))

    def all_added(self) -> None:
        self._parts.clear()
        self.part_over()

    def part_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._flow.settled(Verb.COMPLETE, self._count - len(self.refused))
            self._done(sorted(self.refused, key=_place_of))


class _CompletedInStore:
    """The share of one store."""

    __slots__ = ("_run", "spans")

    def __init__(self, run: Completion) -> None:
        self._run = run
        #: (what was written, first place, count)
        self.spans: list[tuple[FragmentWrite, int, int]] = []

    def committed(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(broker_error(error))
        else:
            for write, _, _ in self.spans:
                write.tell_journal()
        self._run.part_over()
        if error is not None:
            for write, _, _ in self.spans:
                write.fragment.commit_failed(error)

    def _fail(self, failure: BrokerError) -> None:
        refused = dict(self._run.refused)
        for _, start, count in self.spans:
            places = range(start, start + count)
            self._run.refused += [(place, failure) for place in places if place not in refused]


def _place_of(refused: tuple[int, BrokerError]) -> int:
    return refused[0]
