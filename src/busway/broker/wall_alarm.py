"""A timer for a wall time.

Timers run on monotonic time; expiry and schedules are wall times, and the wall clock may be set while we wait.
So an alarm looks again at least every few minutes, and rings only when the wall clock says so: never early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.timers import Timer
from busway.message import NEVER_MS

if TYPE_CHECKING:
    from busway.broker.runtime import BrokerRuntime

_LOOK_AGAIN_S: Final = 300.0


class WallAlarm:
    """Rings once at the earliest time it was set to; then it is unset until it is set again."""

    __slots__ = ("_ring", "_runtime", "_timer", "at_ms")

    def __init__(self, runtime: BrokerRuntime, ring: Callable[[], None]) -> None:
        self._runtime = runtime
        self._ring = ring
        self._timer: Timer | None = None
        #: NEVER_MS while unset.
        self.at_ms = NEVER_MS

    def no_later_than(self, at_ms: int) -> None:
        if at_ms < self.at_ms:
            self.at_ms = at_ms
            self._arm()

    def stop(self) -> None:
        self.at_ms = NEVER_MS
        self._runtime.timers.cancel(self._timer)
        self._timer = None

    def _arm(self) -> None:
        runtime = self._runtime
        runtime.timers.cancel(self._timer)
        delay_s = min(_LOOK_AGAIN_S, max(0.0, (self.at_ms - runtime.clock.wall_ms()) / 1000))
        self._timer = runtime.timers.at(runtime.clock.monotonic() + delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._runtime.clock.wall_ms() < self.at_ms:
            self._arm()
            return
        self.at_ms = NEVER_MS
        self._ring()
