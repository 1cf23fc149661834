"""The loop on which waiting costs nothing."""

import asyncio
import time

import pytest

from tests.simulator.virtual_time import NoEnd, NothingWillHappen, TimeStandsStill, VirtualClock, VirtualLoop


def test_time_jumps_to_the_next_timer() -> None:
    """Simulator: an hour passes at once, and exactly."""
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    began, wall_ms, real = loop.time(), clock.wall_ms(), time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    loop.close()
    assert loop.time() - began == pytest.approx(3600)
    assert clock.wall_ms() - wall_ms == 3_600_000
    assert time.monotonic() - real < 5


def test_timers_run_in_the_order_of_their_times() -> None:
    """Simulator: whoever asked for what first."""
    loop = VirtualLoop()
    told: list[str] = []
    loop.call_later(2, told.append, "second")
    loop.call_later(1, told.append, "first")
    loop.run_until_complete(asyncio.sleep(3))
    loop.close()
    assert told == ["first", "second"]


def test_a_wait_that_nothing_can_end_is_an_error() -> None:
    """Simulator: a lost wake-up does not hang the test."""
    loop = VirtualLoop()
    with pytest.raises(NothingWillHappen):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_work_that_never_lets_time_pass_is_an_error() -> None:
    """Simulator: nor does a livelock."""
    loop = VirtualLoop()

    def spin() -> None:
        loop.call_soon(spin)

    spin()
    with pytest.raises(TimeStandsStill):
        loop.run_forever()
    loop.close()


def test_a_run_that_finds_no_end_is_an_error() -> None:
    """Simulator: time passes, and nothing comes of it."""
    loop = VirtualLoop()
    loop.ends_at_s = loop.time() + 100

    def tick() -> None:
        loop.call_later(1, tick)

    tick()
    with pytest.raises(NoEnd):
        loop.run_forever()
    loop.close()


def test_there_are_no_threads() -> None:
    """Simulator: whatever runs elsewhere would not be repeated."""
    loop = VirtualLoop()
    with pytest.raises(RuntimeError, match="no threads"):
        loop.run_in_executor(None, time.monotonic)
    loop.close()


def test_only_the_wall_clock_can_be_set() -> None:
    """Simulator: and the latest time that anybody can have read is remembered."""
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    wall_ms, monotonic = clock.wall_ms(), clock.monotonic()
    clock.step(-10)
    assert (clock.wall_ms(), clock.monotonic()) == (wall_ms - 10_000, monotonic)
    assert clock.high_ms() == wall_ms
    loop.close()
