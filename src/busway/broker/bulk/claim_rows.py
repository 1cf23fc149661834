"""What a claim holds in one fragment: deferred rows that bear its stamp.

Theory of operation. The rows themselves are the only memory of a claim, so everything here may be repeated after any
crash and gives the same. Rows are read in pages, in order of their numbers, and a page is acted upon in the very step
in which it was read. Other deferred rows may lie between those that are asked for; where a page holds nothing else,
the walk goes on at the next number that is.

Rows that somebody has locked by number (R-51) are his for the moment: they are read, neither settled nor released.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from busway.broker.bulk.claim_stamp import CLAIM_PROPERTY, stamp_of, stamped, unstamped
from busway.broker.fragment.commit_runs import ArrivedRun, WrittenRun
from busway.broker.fragment.dead_letter import EXPIRED, DeadLetterRun
from busway.broker.fragment.journal import COMPLETE, EXPIRE, note_messages
from busway.broker.fragment.read_requests import read
from busway.broker.fragment.settlement import Verb
from busway.message.message import DEFERRED, NEVER_MS, Message
from busway.store.contract import PLACE_ACTIVE, PLACE_DEFERRED, CommitBatch, Move, Page

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

#: One page: what is decoded, or written, without anybody else's turn.
_PAGE_MESSAGES: Final = 1_000
_PAGE_BYTES: Final = 4 * 1024 * 1024


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
                _delete(fragment, fragment.batch(), free, COMPLETE)
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


def _delete(fragment: Fragment, batch: CommitBatch, messages: list[Message], operation: int) -> None:
    batch.deletes.append((fragment.key, PLACE_DEFERRED, [message.sequence_number for message in messages]))
    for message in messages:
        fragment.uncount(DEFERRED, message.size())
    batch.counters[fragment.key] = fragment.counters
    note_messages(fragment, batch, operation, messages)


def _release(fragment: Fragment, messages: list[Message]) -> None:
    batch = fragment.batch()
    now_ms = fragment.runtime.clock.wall_ms()
    expired: list[Message] = []
    if not fragment.settings.is_dead_letter:
        expired = [message for message in messages if message.expires_at_ms <= now_ms]
        if expired:
            _expire(fragment, batch, expired)
            messages = [message for message in messages if message.expires_at_ms > now_ms]
    if messages:
        _activate(fragment, batch, messages)
    if expired:
        batch.callbacks.append(WrittenRun(fragment).committed)


def _expire(fragment: Fragment, batch: CommitBatch, messages: list[Message]) -> None:
    """D-11, or dropped."""
    if not fragment.settings.dead_letters_expired or fragment.dead_letter is None:
        _delete(fragment, batch, messages, EXPIRE)
        return
    properties: dict[str, object] = {**EXPIRED, CLAIM_PROPERTY: None}
    dead_letters = DeadLetterRun(fragment, batch)
    for message in messages:
        number, size = message.sequence_number, message.size()
        dead_letters.add(
            PLACE_DEFERRED,
            number,
            size,
            message.delivery_count,
            message.changes,
            properties,
            message.enqueued_at_ms,
            message.session_id,
            message.partition_key,
        )
    dead_letters.join()


def _activate(fragment: Fragment, batch: CommitBatch, messages: list[Message]) -> None:
    """From the deferred rows back to the active ones."""
    run = ArrivedRun(fragment)
    requires_session = fragment.settings.requires_session
    sweeper = fragment.runtime.sweepers.get(fragment.store.name)
    for message in messages:
        number, size, changes = message.sequence_number, message.size(), unstamped(message.changes)
        session_id = (message.session_id or "") if requires_session else None
        expires = message.expires_at_ms < NEVER_MS and not fragment.settings.is_dead_letter
        batch.moves.append(
            Move(
                fragment.key,
                PLACE_DEFERRED,
                number,
                fragment.key,
                PLACE_ACTIVE,
                number,
                changes=changes,
                session_id=session_id,
                with_expiry_entry=expires,
            )
        )
        if expires and sweeper is not None:
            sweeper.joined(message.expires_at_ms)
        fragment.uncount(DEFERRED, size)
        fragment.expect(number, size + len(changes) - len(message.changes or b""))
        run.entries.append((number, message.session_id))
    batch.counters[fragment.key] = fragment.counters
    batch.callbacks.append(run.committed)
