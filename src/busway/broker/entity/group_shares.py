"""What stands between the fragments of a partitioned entity and those who work with all of them at once.

`ReceiverShare` is a receiver of the entity as one of its fragments sees it, `ReceiverShares` are those of all
receivers. `GroupSettling` leads settlements to the fragments whose locks they end. The reports are what several
fragments tell of one request, told to whoever asked: one callback for each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.entity.fragment_choice import Members, index_of_token
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.runtime import broker_error
from busway.broker.fragment.sent_run import SentRun
from busway.broker.fragment.write import FragmentWrite
from busway.clock import Clock
from busway.message.message import NEVER_MS
from busway.model.errors import BrokerError, MessageLockLost
from busway.model.flow import FlowCounts
from busway.model.settlement import PartDone, RunDone, Settlement, Verb
from busway.store.contract import CommitBatch, FragmentIndex, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


class ReceiverShare(Receiver):
    """Stands on a lane of its fragment in the receiver's place."""

    def __init__(
        self, shares: ReceiverShares, member: Fragment, receiver: Receiver, *, holds_session: bool = False
    ) -> None:
        self._shares = shares
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
        others = (share for share in self._shares.of(self.receiver) if share is not self)
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
        if not self._shares.is_fetching(self.receiver):
            self.receiver.caught_up()

    def evict(self, error: BrokerError) -> None:
        self._shares.lost(self, error)


#: What one fragment hands to a receiver before the next one's turn, at least: little, so that all stay equally old.
_TURN_MESSAGES: Final = 4


class ReceiverShares:
    """Who receives from the fragments of one entity, with a share in each."""

    __slots__ = ("_by_receiver", "_turn")

    def __init__(self) -> None:
        self._by_receiver: dict[Receiver, list[ReceiverShare]] = {}
        #: Counts wake-ups: each begins with another fragment.
        self._turn = 0

    def receivers(self) -> list[Receiver]:
        return list(self._by_receiver)

    def of(self, receiver: Receiver) -> list[ReceiverShare]:
        return self._by_receiver.get(receiver, [])

    def add(self, receiver: Receiver, members: list[Fragment]) -> None:
        """It stands on the lanes of all of them. Raises why one does not want it: then on none."""
        shares: list[ReceiverShare] = []
        self._by_receiver[receiver] = shares
        try:
            for member in members:
                share = ReceiverShare(self, member, receiver)
                member.add_receiver(share)
                shares.append(share)
        except BrokerError:
            self.remove(receiver)
            raise

    def hold_session(self, share: ReceiverShare) -> None:
        """It was given a session of that fragment, and stands there alone."""
        self._by_receiver[share.receiver] = [share]

    def add_member(self, member: Fragment) -> None:
        """Whoever waits, waits there too."""
        for receiver, shares in list(self._by_receiver.items()):
            if not any(share.holds_session for share in shares):
                share = ReceiverShare(self, member, receiver)
                try:
                    member.add_receiver(share)
                except BrokerError:  # it goes on with the fragments it has
                    continue
                shares.append(share)
                member.wake(share)

    def remove(self, receiver: Receiver) -> None:
        for share in self._by_receiver.pop(receiver, []):
            share.member.remove_receiver(share)

    def remove_all(self) -> list[Receiver]:
        """Whoever was there: each is to be evicted once, not by every fragment."""
        by_receiver, self._by_receiver = self._by_receiver, {}
        for shares in by_receiver.values():
            for share in shares:
                share.member.remove_receiver(share)
        return list(by_receiver)

    def lost(self, share: ReceiverShare, error: BrokerError) -> None:
        """A fragment, or a session's lock, has let go of a receiver."""
        shares = self.of(share.receiver)
        if share not in shares:
            return
        shares.remove(share)
        if share.holds_session:
            del self._by_receiver[share.receiver]
            share.receiver.evict(error)

    def is_fetching(self, receiver: Receiver) -> bool:
        return any([share.member.is_fetching(share) for share in self.of(receiver)])

    def next_turn(self, count: int) -> int:
        """Which of so many begins this time."""
        self._turn += 1
        return self._turn % count

    def wake(self, receiver: Receiver) -> None:
        """P-40: fair over the fragments: the one whose first message is the oldest begins, and none gives much
        before it is the next one's turn."""
        shares = self.of(receiver)
        if not shares:
            return
        shares[0].member.lanes.touch()
        if len(shares) > 1:
            self._offer(shares, max(_TURN_MESSAGES, receiver.room() // len(shares)))
            if receiver.room() <= 0:
                return
        for share in shares:
            share.wake()

    def _offer(self, shares: list[ReceiverShare], turn: int) -> None:
        """What is in memory. Those that must read first start to. Of equally old ones another begins each time."""
        start = self.next_turn(len(shares))
        turns: list[ReceiverShare] = []
        for share in shares[start:] + shares[:start]:
            first_ms = share.first_enqueued_ms()
            if first_ms == 0:
                share.wake()
            elif first_ms < NEVER_MS:
                turns.append(share)
        turns.sort(key=_first_enqueued_ms)
        while turns:
            turns = [share for share in turns if share.take(turn) == turn]


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
    """The parts of one send that went to fragments of one store: one callback and one report for all of them."""

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
        """All of its slices have been added. Outcomes are told in the order of the send: few ranges of it."""
        self._places.sort()
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


class GroupSettling:
    """How locks end that fragments of one entity have given out: each token finds its own."""

    __slots__ = ("_clock", "_flow", "_members")

    def __init__(self, members: Members, flow: FlowCounts, clock: Clock) -> None:
        self._members = members
        self._flow = flow
        self._clock = clock

    def settle(
        self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None
    ) -> None:
        if settlement.verb is Verb.COMPLETE:
            self._complete(tokens, done, session_id)
            return
        parts = _places(tokens)
        if len(parts) == 1:
            self._settle_part(next(iter(parts)), tokens, settlement, done, session_id)
            return
        gathered = GatheredReport(len(parts), done)
        for index, places in parts.items():
            some = [tokens[place] for place in places]
            self._settle_part(index, some, settlement, gathered.part(places), session_id)

    def _complete(self, tokens: list[bytes], done: RunDone, session_id: str | None) -> None:
        """The usual settlement: in one pass, neighbours of one fragment together."""
        run = Completion(len(tokens), self._flow, done)
        start = 0
        while start < len(tokens):
            index = index_of_token(tokens[start])
            end = start + 1
            while end < len(tokens) and index_of_token(tokens[end]) == index:
                end += 1
            refused: list[tuple[int, BrokerError]] = []
            try:
                member = self._members.of_lock(index)
                write = member.settling.complete(tokens[start:end], session_id, refused)
                run.add(write, start, end - start, refused)
            except BrokerError as error:
                run.refused += [(place, error) for place in range(start, end)]
            start = end
        run.all_added()

    def _settle_part(
        self,
        index: FragmentIndex,
        tokens: list[bytes],
        settlement: Settlement,
        done: RunDone,
        session_id: str | None,
    ) -> None:
        try:
            member = self._members.of_lock(index)
        except BrokerError as error:
            done([(place, error) for place in range(len(tokens))])
        else:
            member.settle(tokens, settlement, done, session_id)

    async def renew(self, tokens: list[bytes]) -> list[int]:
        """R-30: all of them or none."""
        parts = _places(tokens)
        members = {index: self._members.of_lock(index) for index in parts}
        if len(parts) > 1 and not any(member.settings.requires_session for member in members.values()):
            now = self._clock.monotonic()
            for index, places in parts.items():
                if not all(members[index].locks.renewable(tokens[place], now) for place in places):
                    raise MessageLockLost
        ends = [0] * len(tokens)
        for index, places in parts.items():
            renewed = await members[index].renew([tokens[place] for place in places])
            for place, end in zip(places, renewed, strict=True):
                ends[place] = end
        return ends


def _places(tokens: list[bytes]) -> dict[FragmentIndex, list[int]]:
    """By fragment the places of its tokens."""
    parts: dict[FragmentIndex, list[int]] = {}
    for place, token in enumerate(tokens):
        parts.setdefault(index_of_token(token), []).append(place)
    return parts


def _place_of(refused: tuple[int, BrokerError]) -> int:
    return refused[0]


def _first_enqueued_ms(share: ReceiverShare) -> int:
    return share.first_enqueued_ms()
