"""Claims: many messages taken, held and settled together, for those who work in large batches.

Theory of operation. A claim has a name, its *stamp*, that the client chose, and goes through three steps, each of
which may be repeated after a lost answer:

  take     up to so many messages are locked, as a receiver's are (R-2). Only memory knows of it: the locks end by
           themselves, and a restart ends them. Taking again under a stamp that is taken gives the same messages.
  hold     what is still locked is deferred, marked with the stamp. This happens once: whoever asks again is told
           what bears the stamp. So a batch that was planned has the same messages whenever it is planned again.
  settle   what bears the stamp goes.

What a claim holds in one fragment (`ClaimRows`) is deferred rows that bear its stamp. The rows themselves are the
only memory of a held claim, so everything about them may be repeated after any crash and gives the same. Rows are
read in pages, in order of their numbers, and a page is worked on in the very step in which it was read. Other
deferred rows may lie between those that are asked for; where a page holds nothing else, the walk goes on at the
next number that is. Rows that somebody has locked by number (R-51) are his for the moment: they are read, neither
settled nor released.

In `Claims` lie only claims that are taken and not yet held, and the sessions of those that are: a session is
claimed as a whole and stays locked until it is settled, or until nobody renews it, so that nobody gets its later
messages meanwhile (X-13). Both are bounded by what a lock lasts.

A row is written a thousand at a time: a commit of many thousand would hold up everybody else.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from busway.broker.entity.entity import Queue
from busway.broker.entity.fragment_choice import index_of_number
from busway.broker.entity.group_requests import settle_durably
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.message_states import EXPIRED, MessageInput, MessageState, step_of
from busway.broker.fragment.outlet import Outlet
from busway.broker.fragment.property_changes import CLAIM_PROPERTY as CLAIM_PROPERTY
from busway.broker.fragment.property_changes import stamp_of
from busway.broker.fragment.property_changes import stamped as stamped
from busway.broker.fragment.property_changes import unstamped as unstamped
from busway.broker.fragment.read_requests import read
from busway.broker.fragment.sent_run import nobody_waits
from busway.clock import Clock
from busway.message.message import PLACE_DEFERRED, Message
from busway.model.errors import (
    BrokerError,
    MessageLockLost,
    MessageNotFound,
    OperationTimedOut,
    ServerBusy,
    SessionLockLost,
)
from busway.model.settlement import Settlement, Verb
from busway.store.contract import FragmentIndex, Page

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: One page: what is decoded, or written, without anybody else's turn.
_PAGE_MESSAGES: Final = 1_000
_PAGE_BYTES: Final = 4 * 1024 * 1024
_COMPLETED: Final = step_of(MessageState.DEFERRED, MessageInput.COMPLETED)


#: Awaited before each page behind the first: others have their turn. Whoever does much waits for its own.
Pace = Callable[[], Awaitable[None]]


async def next_turn() -> None:
    """The pace of whoever waits for nobody."""
    await asyncio.sleep(0)


class ClaimRows:
    """The rows of one claim in one fragment."""

    __slots__ = ("_fragment", "_fresh", "_pace", "_stamp", "locked")

    def __init__(self, fragment: Fragment, stamp: str, pace: Pace = next_turn) -> None:
        self._fragment = fragment
        self._pace = pace
        self._stamp = stamp
        self._fresh = stamped(stamp)
        #: How many rows that were asked for somebody else has locked.
        self.locked = 0

    async def pages(self, numbers: list[int] | None) -> AsyncIterator[list[Message]]:
        """Those of the numbers, which ascend, that the claim holds; None: all that it holds. Raises ServerBusy."""
        wanted = None if numbers is None else frozenset(numbers)
        stamp, fresh = self._stamp, self._fresh
        async for page in _deferred(self._fragment, numbers, self._pace):
            yield [
                message
                for message in page
                if (wanted is None or message.sequence_number in wanted)
                and (message.changes == fresh or stamp_of(message.changes) == stamp)
            ]

    async def settle(self, numbers: list[int]) -> int:
        """The rows go. How many of them were there."""
        fragment, count = self._fragment, 0
        async for page in self.pages(numbers):
            free = self._unlocked(page)
            if free:
                write = fragment.write()
                write.remove(_COMPLETED, free)
                write.join()
                count += len(free)
        await fragment.durable()
        fragment.flow.settled(Verb.COMPLETE, count)
        return count

    async def release(self) -> int:
        """The rows are available again under their numbers, without the stamp; those whose time has passed meanwhile
        expire (M-42). How many it were."""
        fragment, count = self._fragment, 0
        async for page in self.pages(None):
            free = self._unlocked(page)
            if free:
                _release(fragment, free)
                count += len(free)
        await fragment.durable()
        return count

    def _unlocked(self, page: list[Message]) -> list[Message]:
        locked = self._fragment.locks.deferred
        free = [message for message in page if message.sequence_number not in locked] if locked else page
        self.locked += len(page) - len(free)
        return free


async def held_stamps(fragment: Fragment) -> dict[str, int]:
    """Every stamp that rows bear, and how many do. Looks at all deferred rows: for people, not for programs."""
    found: dict[str, int] = {}
    async for page in _deferred(fragment, None, next_turn):
        for message in page:
            stamp = stamp_of(message.changes)
            if stamp is not None:
                found[stamp] = found.get(stamp, 0) + 1
    return found


async def _deferred(
    fragment: Fragment, numbers: list[int] | None, pace: Pace
) -> AsyncIterator[list[Message]]:
    """Deferred rows by number; of those that are not asked for only such as lie between the others."""
    after, left = 0, _PAGE_MESSAGES
    if numbers is not None:
        if not numbers:
            return
        after, left = numbers[0] - 1, len(numbers)
    while True:
        fragment.check_readable()
        rows = fragment.store.messages(
            fragment.key, PLACE_DEFERRED, after, min(left, _PAGE_MESSAGES), _PAGE_BYTES
        )
        page = await read(fragment.settings.path, rows)
        fragment.check_readable()
        yield page.messages
        if not page.more:
            return
        await pace()  # a read may have ended without anybody else's turn
        after = _last_number(page, after)
        if numbers is not None:
            place = bisect_right(numbers, after)
            if place == len(numbers):
                return
            after, left = numbers[place] - 1, len(numbers) - place


def _last_number(page: Page, after: int) -> int:
    last = page.messages[-1].sequence_number if page.messages else after
    return max(last, *page.damaged) if page.damaged else last


def _release(fragment: Fragment, messages: list[Message]) -> None:
    now_ms = fragment.runtime.clock.wall_ms()
    write = fragment.write()
    if not fragment.settings.is_dead_letter:
        expired = [message for message in messages if message.expires_at_ms <= now_ms]
        if expired:
            write.expire(MessageState.DEFERRED, expired, {**EXPIRED, CLAIM_PROPERTY: None})
            messages = [message for message in messages if message.expires_at_ms > now_ms]
    for message in messages:
        write.release_claimed(message, unstamped(message.changes))
    write.join()


#: Messages of one claim.
COUNT_MAX: Final = 100_000
#: Claims that are taken, or hold sessions, over all entities.
OPEN_MAX: Final = 1_000
#: Of one session at once; the rest of it comes when these are settled.
SESSION_MESSAGES_MAX: Final = 1_000
_SLICE_MESSAGES: Final = 1_000
#: Behind the first messages: how long to wait for more, and for the next session, in all.
_LINGER_S: Final = 0.05
#: How long a store may take to finish a read.
_READ_S: Final = 30.0


class _Gathering(Receiver):
    """Stands in line as a link does, and keeps tokens and numbers of what it is given, never the payload."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.tokens: list[bytes] = []
        self.numbers: list[int] = []
        self.session_id: str | None = None
        self.oldest_ms = 1 << 62
        #: Somebody has changed properties of one of them before.
        self.has_changes = False
        self.news = asyncio.Event()
        self.error: BrokerError | None = None

    def room(self) -> int:
        return self._left

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        if self._left < len(deliveries):
            return deliveries
        self._left -= len(deliveries)
        self.tokens += [delivery.token for delivery in deliveries]
        self.numbers += [delivery.message.sequence_number for delivery in deliveries]
        self.oldest_ms = min(self.oldest_ms, *[delivery.message.enqueued_at_ms for delivery in deliveries])
        self.has_changes |= any([delivery.message.changes is not None for delivery in deliveries])
        self.news.set()
        return []

    def caught_up(self) -> None:
        self.news.set()

    def evict(self, error: BrokerError) -> None:
        self.error = error
        self._left = 0
        self.news.set()

    def close(self) -> None:
        """Takes nothing more."""
        self._left = 0

    def keep(self, outlet: Outlet, wanted: frozenset[int]) -> None:
        """What is not among them is available again."""
        if wanted.issuperset(self.numbers):
            return
        pairs = list(zip(self.tokens, self.numbers, strict=True))
        others = [token for token, number in pairs if number not in wanted]
        outlet.settle(others, Settlement(Verb.RELEASE), nobody_waits, self.session_id)
        self.tokens = [token for token, number in pairs if number in wanted]
        self.numbers = [number for number in self.numbers if number in wanted]


class OpenClaim:
    """A claim while memory knows something of it."""

    def __init__(self, queue: Queue, outlet: Outlet, stamp: str) -> None:
        self.queue = queue
        self.outlet = outlet
        self.stamp = stamp
        #: One; or one for each session, which keeps it locked.
        self.parts: list[_Gathering] = []
        #: One step at a time.
        self.turn = asyncio.Lock()
        self.is_held = False
        #: When the first of its locks ends, monotonic and for clients; not known before something is taken.
        self.deadline = 0.0
        self.locked_until_ms = 0

    def count(self) -> int:
        return sum(len(part.numbers) for part in self.parts)

    def oldest_ms(self) -> int:
        return min((part.oldest_ms for part in self.parts), default=0)

    def is_over(self, now: float) -> bool:
        """Nothing is locked by it any more."""
        if self.turn.locked():
            return False
        if self.outlet.requires_session:
            return not self.parts or all(part.error is not None for part in self.parts)
        return self.is_held or self.deadline <= now

    def leave_sessions(self) -> None:
        """Others may have them; what is still locked in them is available again (X-11)."""
        if self.outlet.requires_session:
            for part in self.parts:
                self.outlet.remove_receiver(part)
                self.queue.detach(part)


class Claims:
    """All claims of a process. `queue` is the entity, `outlet` its messages or its dead letters."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[tuple[Outlet, str], OpenClaim] = {}

    # -- take

    async def take(self, queue: Queue, outlet: Outlet, stamp: str, count: int, wait_s: float) -> OpenClaim:
        """Waits for the first message only. The claim may be empty; then nothing remembers it. Raises ServerBusy,
        EntityDisabled, InvalidOperation."""
        claim = self._open.get((outlet, stamp))
        if claim is None or claim.is_over(self._clock.monotonic()):
            self._make_room()
            claim = self._open[outlet, stamp] = OpenClaim(queue, outlet, stamp)
        async with claim.turn:
            if claim.parts:
                return claim
            try:
                if outlet.requires_session:
                    await self._take_sessions(claim, count, wait_s)
                else:
                    await self._take_plain(claim, count, wait_s)
            except BaseException:
                self._give_back(claim)
                raise
        if not claim.parts:
            self._forget(claim)
        return claim

    def _make_room(self) -> None:
        now = self._clock.monotonic()
        for claim in [claim for claim in self._open.values() if claim.is_over(now)]:
            self._forget(claim)
        if len(self._open) >= OPEN_MAX:
            raise ServerBusy(f"{OPEN_MAX} claims are open already. Please try again later.")

    def _forget(self, claim: OpenClaim) -> None:
        if self._open.pop((claim.outlet, claim.stamp), None) is not None:
            claim.leave_sessions()

    async def _take_plain(self, claim: OpenClaim, count: int, wait_s: float) -> None:
        part = _Gathering(count)
        self._start_locks(claim)
        claim.queue.attach(part, sends=False)
        claim.parts.append(part)
        try:
            claim.outlet.add_receiver(part)
            await _gather(claim.outlet, part, wait_s, _LINGER_S)
        finally:
            part.close()
            claim.outlet.remove_receiver(part)  # the locks outlive it
            claim.queue.detach(part)
        if part.error is not None and not part.tokens:
            raise part.error
        if not part.tokens:
            claim.parts.clear()

    async def _take_sessions(self, claim: OpenClaim, count: int, wait_s: float) -> None:
        while claim.count() < count:
            part = _Gathering(min(SESSION_MESSAGES_MAX, COUNT_MAX - claim.count()))
            claim.queue.attach(part, sends=False)
            try:
                left_s = _LINGER_S if claim.parts else max(wait_s, _LINGER_S)  # looking takes some time, too
                session = await claim.outlet.accept_session(part, None, left_s)
            except OperationTimedOut:
                claim.queue.detach(part)
                return
            except BaseException:
                claim.queue.detach(part)
                raise
            claim.parts.append(part)
            part.session_id = session.session_id
            if len(claim.parts) == 1:
                self._start_locks(claim)
            await _gather(claim.outlet, part, 0.0, 0.0)
            part.close()
            if not part.tokens:
                claim.parts.pop()
                claim.outlet.remove_receiver(part)
                claim.queue.detach(part)
                return

    def _start_locks(self, claim: OpenClaim) -> None:
        """Before the first of them: none ends earlier."""
        duration_ms = claim.outlet.settings.lock_duration_ms
        claim.deadline = self._clock.monotonic() + duration_ms / 1000
        claim.locked_until_ms = self._clock.wall_ms() + duration_ms

    def _give_back(self, claim: OpenClaim) -> None:
        """Nobody will be told of it: available again, without a count."""
        for part in claim.parts:
            if part.tokens:
                release = Settlement(Verb.RELEASE)
                claim.outlet.settle(part.tokens, release, nobody_waits, part.session_id)
        self._forget(claim)

    # -- keep

    async def renew(self, outlet: Outlet, stamp: str) -> int:
        """R-30, X-9: one whole duration from now on. Raises MessageLockLost when it is over."""
        claim = self._open.get((outlet, stamp))
        if claim is None or claim.is_over(self._clock.monotonic()):
            raise MessageLockLost(f"Nothing is locked under the claim '{stamp}'.")
        async with claim.turn:
            if outlet.requires_session:
                await self._renew_sessions(claim)
            elif not claim.is_held:
                await outlet.renew([token for part in claim.parts for token in part.tokens])
            self._start_locks(claim)
        return claim.locked_until_ms

    async def _renew_sessions(self, claim: OpenClaim) -> None:
        """One that was lost keeps no other from being kept."""
        for part in claim.parts:
            if part.error is None and part.session_id is not None:
                try:
                    await claim.outlet.renew_session(part.session_id)
                except SessionLockLost:
                    continue

    # -- hold

    async def hold(self, outlet: Outlet, stamp: str, numbers: list[int], pace: Pace = next_turn) -> list[int]:
        """What is locked under the stamp becomes the claim's own. Those of the numbers, which ascend, that it holds:
        the same whenever it is asked. Raises ServerBusy, StoreOutcomeUnknown: ask again."""
        claim = self._open.get((outlet, stamp))
        if claim is not None:
            async with claim.turn:
                if not claim.is_held:
                    claim.is_held = True
                    held = await self._defer(claim, frozenset(numbers), pace)
                    if not outlet.requires_session:
                        self._forget(claim)
                    if held is not None:
                        return sorted(held)
        return [
            message.sequence_number
            async for page in self.read(outlet, stamp, numbers, pace)
            for message in page
        ]

    async def _defer(self, claim: OpenClaim, wanted: frozenset[int], pace: Pace) -> list[int] | None:
        """The numbers of what is held now; None when only the rows know."""
        settlement = Settlement(Verb.HOLD, {CLAIM_PROPERTY: claim.stamp})
        held: list[int] = []
        is_certain = True
        for part in claim.parts:
            is_certain &= not part.has_changes
            part.keep(claim.outlet, wanted)
            for start in range(0, len(part.tokens), _SLICE_MESSAGES):
                tokens = part.tokens[start : start + _SLICE_MESSAGES]
                numbers = part.numbers[start : start + _SLICE_MESSAGES]
                await pace()
                refused = await settle_durably(claim.outlet, tokens, settlement, part.session_id)
                for _, error in refused:
                    if not isinstance(error, MessageLockLost | SessionLockLost):
                        raise error
                lost = {place for place, _ in refused}
                held += (
                    [number for place, number in enumerate(numbers) if place not in lost] if lost else numbers
                )
            part.tokens = []
        return held if is_certain else None

    # -- what is held

    async def read(
        self, outlet: Outlet, stamp: str, numbers: list[int], pace: Pace = next_turn
    ) -> AsyncIterator[list[Message]]:
        """Those of the numbers, which ascend, that the claim holds, in pages. Raises ServerBusy."""
        for index, some in by_fragment(numbers):
            try:
                fragment = outlet.member(index)
            except MessageNotFound:  # no such fragment, so no such message
                continue
            async for page in ClaimRows(fragment, stamp, pace).pages(some):
                yield page

    async def settle(
        self, outlet: Outlet, stamp: str, numbers: list[int], pace: Pace = next_turn
    ) -> tuple[int, int]:
        """Those of the numbers, which ascend, that the claim holds go. How many it were, and how many somebody else
        has locked, which stay. Raises ServerBusy, StoreOutcomeUnknown: ask again."""
        count = locked = 0
        for index, some in by_fragment(numbers):
            try:
                rows = ClaimRows(outlet.member(index), stamp, pace)
            except MessageNotFound:
                continue
            count += await rows.settle(some)
            locked += rows.locked
        claim = self._open.get((outlet, stamp))
        if claim is not None and claim.is_held:
            self._forget(claim)
        return count, locked

    async def release(self, outlet: Outlet, stamp: str, pace: Pace = next_turn) -> tuple[int, int]:
        """Everything that the claim has taken or holds is available again; as `settle` otherwise."""
        claim = self._open.get((outlet, stamp))
        if claim is not None:
            async with claim.turn:
                self._give_back(claim)
        count = locked = 0
        for fragment in outlet.fragments():
            rows = ClaimRows(fragment, stamp, pace)
            count += await rows.release()
            locked += rows.locked
        return count, locked

    async def stamps(self, outlet: Outlet) -> dict[str, int]:
        """Every claim that holds messages here, and how many."""
        found: dict[str, int] = {}
        for fragment in outlet.fragments():
            for stamp, count in (await held_stamps(fragment)).items():
                found[stamp] = found.get(stamp, 0) + count
        return found


def available(outlet: Outlet) -> int:
    """Messages that nobody has locked, about: from memory, without a look at sessions or expiry."""
    return sum(
        max(0, fragment.counters.active - len(fragment.locks.live) + len(fragment.locks.deferred))
        for fragment in outlet.fragments()
    )


def by_fragment(numbers: Iterable[int]) -> list[tuple[FragmentIndex, list[int]]]:
    """Numbers by the index of their fragment, each in its order."""
    parts: dict[FragmentIndex, list[int]] = {}
    for number in numbers:
        parts.setdefault(index_of_number(number), []).append(number)
    return list(parts.items())


async def _gather(outlet: Outlet, part: _Gathering, wait_s: float, linger_s: float) -> None:
    """Until it is full, or nothing more is there; waits for the first, and behind it for such as come at once."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    linger_end = 0.0
    outlet.wake(part)
    while part.room() > 0:
        part.news.clear()
        if outlet.is_fetching(part):
            left_s = _READ_S
        elif not part.tokens:
            left_s = end - loop.time()
        else:
            linger_end = linger_end or loop.time() + linger_s
            left_s = linger_end - loop.time()
        if left_s <= 0 or not await _happens(part.news, left_s):
            return


async def _happens(news: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await news.wait()
    except TimeoutError:
        return False
    return True
