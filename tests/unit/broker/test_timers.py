"""Deadlines as data, and alarms on the wall clock."""

from busway.broker.fragment.expiry_and_schedule import WallAlarm
from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.runtime import BrokerRuntime
from busway.message.message import NEVER_MS
from busway.model.limits import Limits
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock, SeededEntropy


def test_timers_run_in_the_order_of_their_deadlines() -> None:
    """R-4: each once, when its time has come."""
    timers, ran = Timers(), list[str]()
    timers.at(3.0, lambda: ran.append("c"))
    timers.at(1.0, lambda: ran.append("a"))
    timers.at(1.0, lambda: ran.append("b"))
    assert timers.next_deadline() == 1.0
    assert timers.run(0.9) == 0
    assert timers.run(2.0) == 2
    assert timers.run(9.0) == 1
    assert ran == ["a", "b", "c"]
    assert timers.next_deadline() is None


def test_a_cancelled_timer_does_not_run() -> None:
    """R-30: also when another one cancels it in the same instant, and after it has run."""
    timers, ran = Timers(), list[str]()
    first = timers.at(1.0, lambda: timers.cancel(second))
    second = timers.at(1.0, lambda: ran.append("no"))
    third = timers.at(1.0, lambda: ran.append("yes"))
    assert timers.run(1.0) == 2
    timers.cancel(first)
    timers.cancel(third)
    timers.cancel(None)
    assert (ran, len(timers)) == (["yes"], 0)


def test_a_timer_that_arms_itself_for_the_past_cannot_hold_the_loop() -> None:
    """L-22: a timer that arms itself for the past cannot hold the loop."""
    timers = Timers()

    def again() -> None:
        timers.at(0.0, again)

    again()
    assert timers.run(5.0) == 1
    assert timers.next_deadline() == 0.0


def test_cancelled_timers_do_not_pile_up() -> None:
    """L-22: memory follows the live ones."""
    timers = Timers()
    kept = timers.at(1.0, lambda: None)
    for n in range(10_000):
        timers.cancel(timers.at(2.0 + n, lambda: None))
    assert len(timers) == 1
    assert len(timers._heap) < 1_000
    assert timers.next_deadline() == kept.deadline


def test_an_alarm_rings_by_the_wall_clock() -> None:
    """S-35: never early, whatever happens to the clock; M-44: a clock set forward is noticed."""
    clock, timers, rang = ManualClock(), Timers(), list[int]()
    budget = WindowBudget(1)
    runtime = BrokerRuntime(clock, SeededEntropy(), Limits(), timers, budget, lambda work: work.close())
    alarm = WallAlarm(runtime.wall_timers, lambda: rang.append(clock.wall_ms()))
    at_ms = clock.wall_ms() + 1_000_000
    alarm.no_later_than(at_ms + 5)
    alarm.no_later_than(at_ms)
    alarm.no_later_than(at_ms + 9)
    clock.step_wall(-100)
    for _ in range(4):
        clock.advance(300)
        timers.run(clock.monotonic())
    assert rang == [at_ms + 100_000]
    assert alarm.at_ms == NEVER_MS
    alarm.no_later_than(clock.wall_ms() + 3_600_000)
    clock.step_wall(7_200)
    clock.advance(300)
    timers.run(clock.monotonic())
    assert len(rang) == 2
    alarm.no_later_than(clock.wall_ms() + 1)
    alarm.stop()
    clock.advance(10)
    timers.run(clock.monotonic())
    assert len(rang) == 2
