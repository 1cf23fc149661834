"""Messages whose time to live is over leave, also when nobody receives (M-42…M-46).

Delivery never shows an expired message; this is the background sweep that M-44 demands. Two kinds:

  HeadExpiry     of one fragment: messages that expire in order of their numbers. It reads from the head until
                 the first that has not expired and sets its alarm to that one's time.
  ExpirySweeper  of one store: messages with an expiry entry of their own, of any fragment, by time.

Both look into the store, which does not show what has joined and is not committed yet: they wait for it before they
look, or before they ask for the next time. They also wait after each page: however many expire at once, a batch stays
small. Whatever goes wrong, with one fragment or with all of them, they look again.

Locked messages are left alone: their expiry takes effect when the lock ends (M-43). Dead letters do not expire
(M-46), deferred messages are not swept (M-45).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.message_states import MessageState
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.store_sweep import StoreSweep
from busway.broker.fragment.wall_alarm import WallAlarm
from busway.message.message import NEVER_MS, PLACE_ACTIVE, Message
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, Page, Store, StoreError, TimedRow

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_log = logging.getLogger(__name__)

_PAGE_BYTES_MAX: Final = 1024 * 1024
#: Rows are read with their payloads: so many at once.
_READ_ROWS_MAX: Final = 100
#: After a start heads are looked at over this time, not all at once.
_FIRST_LOOK_SPREAD_S: Final = 55
_FIRST_LOOK_MS: Final = 5_000
#: When something is in the way (a lock, an open commit, a failed read) we look again.
_LOOK_AGAIN_MS: Final = 1_000

FragmentOf = Callable[[FragmentKey], "Awaitable[Fragment | None]"]


class HeadExpiry:
    """In-order expiry of one fragment."""

    __slots__ = ("_alarm", "_fragment", "_is_sweeping")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._alarm = WallAlarm(fragment.runtime.wall_timers, self._ring)
        self._is_sweeping = False

    def start(self) -> None:
        """Loaded from the store: the head's time is not known yet."""
        fragment = self._fragment
        if fragment.counters.active > 0 and not fragment.settings.is_dead_letter:
            spread_ms = fragment.key % _FIRST_LOOK_SPREAD_S * 1000
            self._alarm.no_later_than(fragment.runtime.clock.wall_ms() + _FIRST_LOOK_MS + spread_ms)

    def stop(self) -> None:
        self._alarm.stop()

    def joined(self, expires_at_ms: int) -> None:
        if expires_at_ms < self._alarm.at_ms:
            self._alarm.no_later_than(expires_at_ms)

    def _ring(self) -> None:
        fragment = self._fragment
        if self._is_sweeping:  # it may have passed the rows this is about
            self._alarm.no_later_than(fragment.runtime.clock.wall_ms() + _LOOK_AGAIN_MS)
        elif fragment.is_usable():
            self._is_sweeping = True
            fragment.runtime.spawn(self._sweep())

    async def _sweep(self) -> None:
        fragment = self._fragment
        after = 0
        is_over = False
        try:
            # What had joined when the alarm rang may have set none of its own: from here on a read shows it.
            await fragment.store.flush()
            while after >= 0 and fragment.is_usable():
                rows_max = fragment.runtime.limits.sweep_rows_max
                page = await fragment.store.messages(
                    fragment.key, PLACE_ACTIVE, after, rows_max, _PAGE_BYTES_MAX
                )
                after = self._sweep_page(page, after)
                if not page.more:
                    break
                await fragment.store.flush()
            is_over = True
        except (StoreError, BrokerError) as error:
            _log.warning("Cannot sweep expired messages of %s: %s", fragment.settings.path, error)
        finally:
            self._is_sweeping = False
            if not is_over and fragment.is_usable():
                self._alarm.no_later_than(fragment.runtime.clock.wall_ms() + _LOOK_AGAIN_MS)

    def _sweep_page(self, page: Page, after: int) -> int:
        """Expires what it may; the number to read on from, or -1 when the first unexpired one was met."""
        fragment = self._fragment
        now_ms = fragment.runtime.clock.wall_ms()
        expired: list[Message] = []
        for message in page.messages:
            if message.expires_at_ms > now_ms:
                if message.expires_at_ms < NEVER_MS:
                    self._alarm.no_later_than(message.expires_at_ms)
                expire_rows(fragment, expired)
                return -1
            expired.append(message)
        if expire_rows(fragment, expired) < len(expired):
            # Locks see to their own; a commit on its way needs another look.
            self._look_again_for_hidden(expired, now_ms)
        return expired[-1].sequence_number if expired else max(page.damaged, default=after)

    def _look_again_for_hidden(self, expired: list[Message], now_ms: int) -> None:
        horizon = self._fragment.horizon
        numbers = [message.sequence_number for message in expired]
        if any(horizon.hides(number) and not horizon.holds_back(number) for number in numbers):
            self._alarm.no_later_than(now_ms + _LOOK_AGAIN_MS)


class ExpirySweeper(StoreSweep):
    """Expiry entries of one store. `fragment_of` loads a fragment if need be; None when there is none."""

    def __init__(self, store: Store, fragment_of: FragmentOf, runtime: BrokerRuntime) -> None:
        super().__init__("sweep expired messages", store, runtime.wall_timers, runtime.clock, runtime.spawn)
        self._fragment_of = fragment_of
        self._rows_max = runtime.limits.sweep_rows_max
        runtime.sweepers[store.name] = self

    async def walk(self) -> None:
        now_ms = self._clock.wall_ms()
        are_any_left = False
        after: TimedRow | None = None
        await self._store.flush()  # as the Activator: an entry that joined may be due before it is committed
        while True:
            entries = await self._store.expired_entries(now_ms, self._rows_max, after)
            for key, numbers in by_fragment(entries).items():
                if await self._expire(key, numbers) < len(numbers):
                    are_any_left = True
            await self._store.flush()
            if len(entries) < self._rows_max:
                break
            after = entries[-1]
        self.look_at(await self._store.next_expiry_ms(now_ms))
        if are_any_left:
            self.look_in(_LOOK_AGAIN_MS)

    async def _expire(self, key: FragmentKey, numbers: list[int]) -> int:
        """How many of them need no other look. What somebody holds is not even read."""
        gone = 0
        for start in range(0, len(numbers), _READ_ROWS_MAX):
            fragment = await self._fragment_of(key)
            if fragment is None:
                break
            held, horizon = _held_numbers(fragment), fragment.horizon
            some = numbers[start : start + _READ_ROWS_MAX]
            known = [number for number in some if not horizon.holds_back(number)]
            gone += len(some) - len(known)  # of those held back we are told
            free = [number for number in known if number not in held]
            if not free:
                continue
            page = await self._store.by_number(key, PLACE_ACTIVE, free)
            try:
                gone += expire_rows(fragment, page.messages)
            except BrokerError as error:
                _log.warning(
                    "Cannot sweep expired messages of %s: %s", fragment.settings.path, error.sentence
                )
                break
        return gone


def by_fragment(rows: list[TimedRow]) -> dict[FragmentKey, list[int]]:
    grouped: dict[FragmentKey, list[int]] = {}
    for key, number, _ in rows:
        grouped.setdefault(key, []).append(number)
    return grouped


def expire(fragment: Fragment, messages: list[Message]) -> None:
    """Active rows that nobody holds and that no window shows leave: dropped, or dead-lettered (D-11)."""
    write = fragment.write()
    write.expire(MessageState.ACTIVE, messages)
    write.join()


def expire_rows(fragment: Fragment, messages: list[Message]) -> int:
    """Of rows just read, those that have expired and that nobody holds leave. Returns how many."""
    if fragment.settings.is_dead_letter or not fragment.is_usable():
        return 0
    now_ms = fragment.runtime.clock.wall_ms()
    held = _held_numbers(fragment)
    expired = [
        message
        for message in messages
        if message.expires_at_ms <= now_ms
        and message.sequence_number not in held
        and not fragment.horizon.hides(message.sequence_number)
    ]
    if expired:
        fragment.withdraw(expired)
        expire(fragment, expired)
    return len(expired)


def _held_numbers(fragment: Fragment) -> set[int]:
    """Active rows that are locked, or on their way to another entity."""
    held = fragment.locks.numbers()
    if fragment.forwarder is not None:
        held |= fragment.forwarder.moving
    return held
