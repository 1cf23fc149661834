"""What time does to messages: they expire (M-42…M-46), and scheduled ones become active (S-30…S-36).

Wall times. Timers run on monotonic time; expiry and schedules are wall times, and the wall clock may be set while
we wait. So all alarms of a process lie in one heap by wall time, and one timer looks at the clock for all of them:
when the earliest should ring, and at least once a second, so a step is noticed within that second however many
alarms there are. An alarm rings only when the wall clock says so: never early.

Sweeps. A `StoreSweep` walks over the rows of one store whose time has come. It sleeps until the earliest time that
it knows of. Whoever joins a row with an earlier one tells it. Each walk sets the alarm anew; whatever ends a walk
before its end, there is a next one.

Expiry. Delivery never shows an expired message; messages whose time to live is over leave also when nobody
receives. This is the background sweep that M-44 demands. Two kinds:

  HeadExpiry     of one fragment: messages that expire in order of their numbers. It reads from the head until
                 the first that has not expired and sets its alarm to that one's time.
  ExpirySweeper  of one store: messages with an expiry entry of their own, of any fragment, by time.

Both look into the store, which does not show what has joined and is not committed yet: they wait for it before
they look, or before they ask for the next time. They also wait after each page: however many expire at once, a
batch stays small. Whatever goes wrong, with one fragment or with all of them, they look again. Locked messages are
left alone: their expiry takes effect when the lock ends (M-43). Dead letters do not expire (M-46), deferred
messages are not swept (M-45).

Schedule. Scheduled messages become active at their time: never early, less than a second late. One `Activator` for
each store sleeps until the earliest scheduled time in the store, walks the rows that are due by their time, a page
at a time, and hands them to their fragments, which give them new numbers. Fragments tell it when an earlier time
joins.

A fragment may refuse: one of its topic's subscriptions is being updated, there are no numbers left. It is left
alone for this walk, which goes on to the others, and tried again soon. So are rows that an open transaction will
cancel. The time of the next row that is not due yet is kept exactly all the while.

A row that has joined and is not committed yet is not shown by a look at the store, and its time may have been
later than the one the look was made for, or have come meanwhile. So the activator waits for all that has joined
before the first look, and again before it asks for the next time; and after each page, so that a crowd that is due
at once does not become one huge batch.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from busway.broker.fragment.message_states import MessageState
from busway.clock import Clock
from busway.message.message import NEVER_MS, PLACE_ACTIVE, PLACE_SCHEDULED, Message
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, Page, Store, StoreError, StoreState, TimedRow
from busway.timers import Timer, Timers

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.runtime import BrokerRuntime

_LOOK_EVERY_S: Final = 1.0


class WallTimers:
    """What rings by the wall clock, driven by `timers`. While nothing is armed nobody looks at the clock."""

    __slots__ = ("_by_wall", "_clock", "_look_timer", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        #: Its deadlines are wall times in milliseconds.
        self._by_wall = Timers()
        self._by_wall.on_earlier = self._arm
        self._look_timer: Timer | None = None

    def at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        return self._by_wall.at(float(at_ms), callback)

    def cancel(self, timer: Timer | None) -> None:
        self._by_wall.cancel(timer)

    def _arm(self) -> None:
        self._timers.cancel(self._look_timer)
        self._look_timer = None
        earliest_ms = self._by_wall.next_deadline()
        if earliest_ms is not None:
            wait_s = min(_LOOK_EVERY_S, max(0.0, (earliest_ms - self._clock.wall_ms()) / 1000))
            self._look_timer = self._timers.at(self._clock.monotonic() + wait_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        try:
            self._by_wall.run(float(self._clock.wall_ms()))
        finally:
            self._arm()


class WallAlarm:
    """Rings once at the earliest time it was set to; then it is unset until it is set again."""

    __slots__ = ("_ring", "_timer", "_wall_timers", "at_ms")

    def __init__(self, wall_timers: WallTimers, ring: Callable[[], None]) -> None:
        self._wall_timers = wall_timers
        self._ring = ring
        self._timer: Timer | None = None
        #: NEVER_MS while unset.
        self.at_ms = NEVER_MS

    def no_later_than(self, at_ms: int) -> None:
        if at_ms < self.at_ms:
            self.at_ms = at_ms
            self._wall_timers.cancel(self._timer)
            self._timer = self._wall_timers.at(at_ms, self._rang)

    def stop(self) -> None:
        self.at_ms = NEVER_MS
        self._wall_timers.cancel(self._timer)
        self._timer = None

    def _rang(self) -> None:
        self._timer = None
        self.at_ms = NEVER_MS
        self._ring()


_log = logging.getLogger(__name__)
_RETRY_MS: Final = 1_000


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreSweep:
    """What is swept (`what`, for the log), and how soon it looks again after a ring in the middle of a walk."""

    def __init__(
        self,
        what: str,
        store: Store,
        wall_timers: WallTimers,
        clock: Clock,
        spawn: Callable[[Coroutine[None, None, None]], object],
        again_ms: int = _RETRY_MS,
    ) -> None:
        self._what = what
        self._store = store
        self._clock = clock
        self._spawn = spawn
        self._again_ms = again_ms
        self._alarm = WallAlarm(wall_timers, self._ring)
        self._is_walking = False
        self._is_stopped = False

    def start(self) -> None:
        """The store has been opened, or opened again."""
        self._alarm.no_later_than(0)

    def stop(self) -> None:
        """The store is out of service; another one is made when it is back."""
        self._is_stopped = True
        self._alarm.stop()

    def joined(self, at_ms: int) -> None:
        """A row has joined whose time this is."""
        self._alarm.no_later_than(at_ms)

    def look_at(self, at_ms: int | None) -> None:
        if at_ms is not None and not self._is_stopped:
            self._alarm.no_later_than(at_ms)

    def look_in(self, delay_ms: int) -> None:
        self.look_at(self._clock.wall_ms() + delay_ms)

    def _ring(self) -> None:
        if self._is_walking:  # it may have passed the rows this is about
            self.look_in(self._again_ms)
        elif self._store.state is StoreState.OPEN:
            self._is_walking = True
            self._spawn(self._run())

    async def _run(self) -> None:
        is_over = False
        try:
            await self.walk()
            is_over = True
        except StoreError as error:
            _log.warning("Cannot %s of store %s: %s", self._what, self._store.name, error)
        finally:
            self._is_walking = False
            if not is_over:
                self.look_in(_RETRY_MS)

    async def walk(self) -> None:
        """Once over everything whose time has come; then the alarm is set for what has not, and for what is left."""
        raise NotImplementedError


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


#: Something that is due could not become active: soon again, within S-35's second, and less and less often.
_ACTIVATE_AGAIN_MS: Final = 50
_ACTIVATE_AGAIN_MS_MAX: Final = 1_000
#: Rows are read with their payloads: so many at once.
_ACTIVATE_ROWS_MAX: Final = 100


class Activator(StoreSweep):
    """See the head of this file. `fragment_of` loads a fragment if need be; None when there is none."""

    def __init__(self, store: Store, fragment_of: FragmentOf, runtime: BrokerRuntime) -> None:
        super().__init__(
            "activate scheduled messages",
            store,
            runtime.wall_timers,
            runtime.clock,
            runtime.spawn,
            again_ms=_ACTIVATE_AGAIN_MS,
        )
        self._fragment_of = fragment_of
        self._rows_max = runtime.limits.sweep_rows_max
        #: Until the next look at what could not become active.
        self._pause_ms = _ACTIVATE_AGAIN_MS
        runtime.activators[store.name] = self

    async def walk(self) -> None:
        now_ms = self._clock.wall_ms()
        rows_max = self._rows_max
        refusing: set[FragmentKey] = set()
        activated, left = 0, 0
        after: TimedRow | None = None
        await self._store.flush()  # a commit may take longer than the time that its rows wait for
        while True:
            due = await self._store.due(now_ms, rows_max, after)
            for key, numbers in by_fragment(due).items():
                count = await self._activate(key, numbers, refusing)
                activated += count
                left += len(numbers) - count
            await self._store.flush()
            if len(due) < rows_max:
                break
            after = due[-1]
        self.look_at(await self._store.next_due_ms(now_ms))
        if activated or not left:
            self._pause_ms = _ACTIVATE_AGAIN_MS
        if left:
            self.look_in(self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, _ACTIVATE_AGAIN_MS_MAX)

    async def _activate(self, key: FragmentKey, numbers: list[int], refusing: set[FragmentKey]) -> int:
        """How many of them became active."""
        activated = 0
        for start in range(0, len(numbers), _ACTIVATE_ROWS_MAX):
            fragment = None if key in refusing else await self._fragment_of(key)
            if fragment is None:
                break
            movable = [n for n in numbers[start : start + _ACTIVATE_ROWS_MAX] if fragment.intake.may_leave(n)]
            if not movable:
                continue
            page = await self._store.by_number(key, PLACE_SCHEDULED, movable)
            page.messages.sort(key=_time_and_number)
            try:
                if fragment.is_usable():
                    activated += await fragment.intake.activate(page.messages)
            except BrokerError as error:
                refusing.add(key)
                if self._pause_ms == _ACTIVATE_AGAIN_MS:  # once, not at each try
                    path = fragment.settings.path
                    _log.warning(
                        "Scheduled messages of %s wait although it is time: %s", path, error.sentence
                    )
        return activated


def _time_and_number(message: Message) -> tuple[int, int]:
    """Messages become active in the order of their times; those of one instant as they were sent."""
    return message.scheduled_at_ms, message.sequence_number
