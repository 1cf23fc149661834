"""Timers for wall times.

Timers run on monotonic time; expiry and schedules are wall times, and the wall clock may be set while we wait. So all
alarms of a process lie in one heap by wall time, and one timer looks at the clock for all of them: when the earliest
should ring, and at least once a second, so a step is noticed within that second however many alarms there are. An
alarm rings only when the wall clock says so: never early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from busway.clock import Clock
from busway.message.message import NEVER_MS
from busway.timers import Timer, Timers

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
