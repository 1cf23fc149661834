"""Dead letters that go back to work: each leaves the dead-letter queue in the commit that stores it where it goes.

Theory of operation. Whoever asks names dead letters by their numbers. A slice of them is read, and in the very step
in which the read returns everything happens: those that nobody holds join the store's open batch as new messages,
and their rows leave with that batch. So a dead letter is in one place at any moment, whatever is killed, and the dead
letter itself is the token: a request that is made again, by whomever, finds those that have gone gone, and moves the
others. No lock is needed for that, and nothing lies in memory between requests.

That step needs a place beside the dead letters, in the same fragment's store, that takes messages without looking
anything up. A plain queue is one for its own dead letters. All others go by way of the entity's transfer queue, which
moves them on (`send_via`): to other entities, to topics, to where duplicates are detected, into partitions.

Letters that somebody holds, by a lock or by a claim, stay; so do those that the destination refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from busway.broker.bulk.claims import Pace, by_fragment
from busway.broker.forward.send_via import SendVia
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.property_changes import DEAD_LETTER_DESCRIPTION as DEAD_LETTER_DESCRIPTION
from busway.broker.fragment.property_changes import DEAD_LETTER_REASON as DEAD_LETTER_REASON
from busway.broker.fragment.property_changes import stamp_of
from busway.broker.fragment.read_requests import read
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, Message
from busway.model.errors import (
    BrokerError,
    InvalidOperation,
    MessageNotFound,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.model.settlement import Verb
from busway.store.contract import CommitBatch, FragmentIndex, Page

if TYPE_CHECKING:
    from busway.broker.entity.entity import Queue
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Outlet

#: One step: so many as they are, or a fifth of that where each is made anew; and their bytes.
_SLICE_WEIGHT: Final = 250
_CHANGED_WEIGHT: Final = 5
_SLICE_BYTES: Final = 2 * 1024 * 1024
#: What a request has in memory beside its letters: one slice that is read, and one that is being committed.
HELD_BYTES: Final = 2 * _SLICE_BYTES

#: By the place of the dead letter.
_RESUBMITTED: Final = {
    PLACE_ACTIVE: step_of(MessageState.ACTIVE, MessageInput.RESUBMITTED),
    PLACE_DEFERRED: step_of(MessageState.DEFERRED, MessageInput.RESUBMITTED),
}

#: The message that a dead letter becomes, with its changes; raises BrokerError.
Remake = Callable[[Message, bytes], Message]


@dataclass(frozen=True)
class Letter:
    number: int
    #: An encoded map of what is changed; empty: nothing.
    changes: bytes = b""


@dataclass
class Moved:
    """What became of the letters of a request, by their numbers; all others of it were moved."""

    #: No such dead letter, or no more.
    gone: list[int] = field(default_factory=list)
    #: Somebody holds them.
    locked: list[int] = field(default_factory=list)
    refused: list[tuple[int, BrokerError]] = field(default_factory=list)
    #: Not tried, or not stored: the server is busy.
    later: list[int] = field(default_factory=list)
    #: The store failed in the middle of it.
    unknown: list[int] = field(default_factory=list)


class LetterTarget(Protocol):
    def beside(self, index: FragmentIndex) -> Fragment:
        """What takes messages in the store where the dead letters of that fragment lie. Raises ServerBusy."""

    def check(self, message: Message) -> None:
        """Raises why it cannot be taken."""


class OwnQueue:
    """The plain queue whose dead letters they are."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def beside(self, index: FragmentIndex) -> Fragment:
        return self._queue.inlet.member(index)

    def check(self, message: Message) -> None:
        """The queue's intake does."""


class ByTransfer:
    """Any other destination."""

    def __init__(self, via: SendVia) -> None:
        self._via = via

    def beside(self, index: FragmentIndex) -> Fragment:
        return self._via.inlet.member(index)

    def check(self, message: Message) -> None:
        self._via.address(message)


class _Departure:
    """A slice that joins a batch (`origin`): its rows leave with it."""

    def __init__(self, fragment: Fragment, place: int, rows: dict[int, Message]) -> None:
        self._fragment = fragment
        self._place = place
        #: By the identity of the message that each becomes.
        self._rows = rows
        self.ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        fragment = self._fragment
        assert store_name == fragment.store.name, "it was looked at before"
        rows = [self._rows[id(message)] for message in messages]
        if self._place == PLACE_ACTIVE:
            fragment.withdraw(rows)
        write = fragment.write(batch)
        write.remove(_RESUBMITTED[self._place], rows)
        write.join()

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        if not self.ended.done():
            self.ended.set_result(refused)


class LetterMoves:
    """`remake` is the gateway's: it knows how messages are encoded."""

    def __init__(self, remake: Remake) -> None:
        self._remake = remake

    async def move(
        self, dead_letters: Outlet, target: LetterTarget, letters: Sequence[Letter], pace: Pace
    ) -> Moved:
        """Each of them, once. Raises why none can be moved."""
        told = Moved()
        changes = {letter.number: letter.changes for letter in letters}
        for index, numbers in by_fragment(sorted(changes)):
            try:
                fragment = dead_letters.member(index)
            except MessageNotFound:  # no such fragment, so no such message
                told.gone += numbers
                continue
            except ServerBusy:
                told.later += numbers
                continue
            fragment.check_receivable()
            work = _FragmentMove(fragment, target, changes, self._remake, told)
            try:
                await work.run(numbers, pace)
            except ServerBusy:
                told.later += sorted(set(numbers) - work.known)
        return told


class _FragmentMove:
    def __init__(
        self, fragment: Fragment, target: LetterTarget, changes: dict[int, bytes], remake: Remake, told: Moved
    ) -> None:
        self._fragment = fragment
        self._target = target
        self._changes = changes
        self._remake = remake
        self._told = told
        #: Numbers of which it is, or will be, told what became of them.
        self.known: set[int] = set()
        self._under_way: list[tuple[_Departure, list[int]]] = []

    async def run(self, numbers: list[int], pace: Pace) -> None:
        """Raises ServerBusy when it cannot go on: what is not known then was not tried."""
        try:
            for place in (PLACE_ACTIVE, PLACE_DEFERRED):
                await self._run(place, [number for number in numbers if number not in self.known], pace)
            await self._look_for([number for number in numbers if number not in self.known])
        finally:
            await self._wait_for(0)

    async def _run(self, place: int, numbers: list[int], pace: Pace) -> None:
        for some in self._slices(await self._sizes(place, numbers)):
            await pace()
            fragment = self._fragment
            page = await read(fragment.settings.path, fragment.store.by_number(fragment.key, place, some))
            self._step(place, page)  # nothing may come between
            await self._wait_for(1)

    async def _sizes(self, place: int, numbers: list[int]) -> dict[int, int]:
        fragment = self._fragment
        if not numbers or (place == PLACE_DEFERRED and not fragment.counters.deferred):
            return {}
        return await read(fragment.settings.path, fragment.store.sizes(fragment.key, place, numbers))

    def _slices(self, sizes: dict[int, int]) -> Iterator[list[int]]:
        some: list[int] = []
        weight = size = 0
        for number in sorted(sizes):
            own = _CHANGED_WEIGHT if self._changes[number] else 1
            if some and (weight + own > _SLICE_WEIGHT or size + sizes[number] > _SLICE_BYTES):
                yield some
                some, weight, size = [], 0, 0
            some.append(number)
            weight += own
            size += sizes[number]
        if some:
            yield some

    def _step(self, place: int, page: Page) -> None:
        """Everything that happens to a slice, without a wait."""
        fragment, told = self._fragment, self._told
        fragment.check_receivable()
        beside = self._target.beside(fragment.index)
        _check_place(fragment, beside)
        held = fragment.locks.numbers() if place == PLACE_ACTIVE else fragment.locks.deferred
        rows: list[Message] = []
        messages: list[Message] = []
        for row in page.messages:
            number = row.sequence_number
            if number in held or fragment.horizon.hides(number) or stamp_of(row.changes) is not None:
                told.locked.append(number)
                continue
            try:
                message = self._remake(row, self._changes[number])
                self._target.check(message)
            except BrokerError as error:
                told.refused.append((number, error))
                continue
            rows.append(row)
            messages.append(message)
        self.known.update(row.sequence_number for row in page.messages)
        if messages:
            paired = {id(message): row for message, row in zip(messages, rows, strict=True)}
            departure = _Departure(fragment, place, paired)
            self._under_way.append((departure, [row.sequence_number for row in rows]))
            beside.intake.append(messages, departure.done, False, departure)

    async def _wait_for(self, left: int) -> None:
        """Until so few slices are under way."""
        while len(self._under_way) > left:
            departure, numbers = self._under_way.pop(0)
            refused = await departure.ended
            self._fragment.flow.settled(Verb.COMPLETE, len(numbers) - len(refused))
            for at, error in refused:
                self._refuse(numbers[at], error)

    def _refuse(self, number: int, error: BrokerError) -> None:
        if isinstance(error, StoreOutcomeUnknown):
            self._told.unknown.append(number)
        elif isinstance(error, ServerBusy):
            self._told.later.append(number)
        else:
            self._told.refused.append((number, error))

    async def _look_for(self, numbers: list[int]) -> None:
        """Found in neither place. One that has just changed places was missed: it is there."""
        if not numbers:
            return
        there: set[int] = set()
        for place in (PLACE_ACTIVE, PLACE_DEFERRED):
            there.update(await self._sizes(place, numbers))
        self._told.locked += sorted(there)
        self._told.gone += [number for number in numbers if number not in there]
        self.known.update(numbers)


def _check_place(fragment: Fragment, beside: Fragment) -> None:
    """Raises why nothing can join there in this very step."""
    if beside.store.name != fragment.store.name:
        raise InvalidOperation(f"What '{fragment.settings.path}' is moved by lies in another store.")
    if not beside.intake.takes_slices():
        fault = beside.intake.refusal()
        raise ServerBusy() if fault is None else fault


def target_of(queue: Queue, is_own: bool, via: SendVia | None) -> LetterTarget:
    """`is_own`: they go back to where they were. `via` is needed for everything but a plain queue's own."""
    if is_own and takes_directly(queue):
        return OwnQueue(queue)
    assert via is not None, "it was made ready"
    return ByTransfer(via)


def takes_directly(queue: Queue) -> bool:
    """Whether its own dead letters may join it in one step."""
    settings = queue.settings
    return not settings.is_partitioned and not settings.detects_duplicates
