"""The one timer that drives a namespace, on a loop whose time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

import pytest

from busway.event_loop import PAUSE_MAX_S, PAUSE_MIN_S, Ticker
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock


class Clockwork:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.timers = Timers()
        self.ticks = 0

    def next_deadline(self) -> float | None:
        return self.timers.next_deadline()

    def watch_deadlines(self, earlier: Callable[[], None]) -> None:
        self.timers.on_earlier = earlier

    def tick(self) -> None:
        self.ticks += 1
        self.timers.run(self._clock.monotonic())


class StillLoop(asyncio.SelectorEventLoop):
    """Remembers what was asked of it; nothing rings by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.armed: list[asyncio.TimerHandle] = []

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.pauses.append(delay)
        self.armed.append(handle)
        return handle

    def live(self) -> list[asyncio.TimerHandle]:
        return [handle for handle in self.armed if not handle.cancelled()]

    def ring(self) -> None:
        """What is armed rings."""
        (handle,) = self.live()
        self.armed.remove(handle)
        handle._run()


@pytest.fixture
def loop() -> Iterator[StillLoop]:
    loop = StillLoop()
    yield loop
    loop.close()


def started(loop: StillLoop, clock: ManualClock) -> tuple[Clockwork, Ticker]:
    clockwork = Clockwork(clock)
    ticker = Ticker(clockwork, clock)

    async def start() -> None:
        ticker.start()

    loop.run_until_complete(start())
    return clockwork, ticker


def test_without_a_deadline_it_looks_once_a_second(loop: StillLoop) -> None:
    """The namespace's time: no polling while nothing is due."""
    started(loop, ManualClock())
    assert loop.pauses == [PAUSE_MAX_S]


def test_an_earlier_deadline_moves_the_timer(loop: StillLoop) -> None:
    """R-18: a lock ends when its time is over, not at the next look."""
    clock = ManualClock()
    clockwork, _ = started(loop, clock)
    rang: list[str] = []
    clockwork.timers.at(clock.monotonic() + 0.5, lambda: rang.append("first"))
    clockwork.timers.at(clock.monotonic() + 0.2, lambda: rang.append("earlier"))
    clockwork.timers.at(clock.monotonic() + 0.3, lambda: rang.append("between"))
    assert loop.pauses == pytest.approx([PAUSE_MAX_S, 0.5, 0.2])
    clock.advance(0.2)
    loop.ring()
    assert rang == ["earlier"]
    assert loop.pauses[-1] == pytest.approx(0.1)
    assert len(loop.live()) == 1


def test_a_deadline_in_the_past_does_not_spin(loop: StillLoop) -> None:
    """The namespace's time: work that arms itself for now leaves the loop to others in between."""
    clock = ManualClock()
    clockwork, _ = started(loop, clock)

    def again() -> None:
        clockwork.timers.at(clock.monotonic(), again)

    again()
    for _ in range(3):
        loop.ring()
        assert loop.pauses[-1] == PAUSE_MIN_S
        assert len(loop.live()) == 1
    assert clockwork.ticks == 3


def test_a_far_deadline_is_looked_at_on_the_way(loop: StillLoop) -> None:
    """The namespace's time: a machine that slept wakes up to what is overdue within a second."""
    clock = ManualClock()
    clockwork, _ = started(loop, clock)
    clockwork.timers.at(clock.monotonic() + 3600, lambda: None)
    assert loop.pauses[-1] == PAUSE_MAX_S


def test_a_failing_deadline_does_not_stop_time(loop: StillLoop) -> None:
    """The namespace's time: one mistake must not leave every lock standing for ever."""
    clock = ManualClock()
    clockwork, _ = started(loop, clock)
    loop.set_exception_handler(lambda _loop, _context: None)

    def fail() -> None:
        raise RuntimeError("a mistake of ours")

    rang: list[str] = []
    clockwork.timers.at(clock.monotonic(), fail)
    clockwork.timers.at(clock.monotonic(), lambda: rang.append("the next one"))
    loop.ring()
    assert rang == []
    loop.ring()
    assert rang == ["the next one"]


def test_a_stopped_ticker_stays_silent(loop: StillLoop) -> None:
    """The namespace's time: deadlines armed while the server goes down wake nobody."""
    clock = ManualClock()
    clockwork, ticker = started(loop, clock)
    ticker.stop()
    clockwork.timers.at(clock.monotonic(), lambda: None)
    assert loop.live() == []
