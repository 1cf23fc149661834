"""Drives a namespace's deadlines from the event loop: one timer, armed for the earliest deadline.

A deadline that becomes the earliest while the loop sleeps is told by the namespace and moves the timer.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from busway.clock import Clock
from busway.loop_entries import LOOP

#: A machine may sleep or its clocks may run apart: look at least this often.
PAUSE_MAX_S: Final = 1.0
#: Loops round to milliseconds: one that wakes a little early must not spin, and work that arms itself for now
#: must not hold the loop.
PAUSE_MIN_S: Final = 0.001


class Clockwork(Protocol):
    """What has deadlines: the namespace."""

    def next_deadline(self) -> float | None: ...
    def watch_deadlines(self, earlier: Callable[[], None]) -> None: ...
    def tick(self) -> None: ...


class Ticker:
    def __init__(self, clockwork: Clockwork, clock: Clock) -> None:
        self._clockwork = clockwork
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clockwork.watch_deadlines(self._arm)
        self._arm()

    def stop(self) -> None:
        self._loop = None
        self._disarm()

    def _arm(self) -> None:
        self._disarm()
        if self._loop is None:
            return
        deadline = self._clockwork.next_deadline()
        pause_s = PAUSE_MAX_S if deadline is None else deadline - self._clock.monotonic()
        self._handle = self._loop.call_later(min(max(pause_s, PAUSE_MIN_S), PAUSE_MAX_S), self._rang)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        began_s = LOOP.now()
        try:
            self._clockwork.tick()
        finally:
            self._arm()
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, "timers of the broker")
