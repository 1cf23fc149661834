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

from busway.broker.fragment.claim_stamp import CLAIM_PROPERTY, stamp_of, stamped, unstamped
from busway.broker.fragment.dead_letter import EXPIRED
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.read_requests import read
from busway.message.message import PLACE_DEFERRED, Message
from busway.model.settlement import Verb
from busway.store.contract import Page

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
