"""The stall meter: how long the loop served nobody, whose fault it was, and what ran."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from busway.amqp.performatives import Properties
from busway.amqp.sections import AmqpMessage, encode_message
from busway.broker.entity.entity import Queue
from busway.event_loop import ENTRY_S, LOOP, BackgroundWork, Steps, Ticker, shown
from busway.gateway.amqp.nodes.management_node import ManagementNode
from busway.gateway.http.router import Router
from busway.model.descriptions import QueueDescription
from busway.signals.exposition import Exposition
from busway.signals.measured_process import (
    IDLE_PULSE_S,
    LOG_EVERY_S,
    PULSE_S,
    WINDOW_S,
    MeasuredProcess,
    StallMeter,
)
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.http_exchange import Exchange
from tests.unit.gateway.test_http_metrics import ManyQueues


class Bench:
    """A meter with clocks and a timer of the test's own."""

    def __init__(self) -> None:
        self.wall_s = 1_000.0
        self.cpu_s = 5.0
        self.due_s = 0.0
        self.pauses_s: list[float] = []
        self.beat: Callable[[], None] = lambda: None
        self.meter = StallMeter(self._call_later, lambda: self.cpu_s)

    def _call_later(self, delay_s: float, beat: Callable[[], None]) -> Any:
        self.due_s = self.wall_s + delay_s
        self.pauses_s.append(delay_s)
        self.beat = beat
        return Cancelled(self)

    def works(self, seconds: float, cpu_s: float | None = None) -> None:
        """Time passes in the midst of whatever runs."""
        self.wall_s += seconds
        self.cpu_s += seconds if cpu_s is None else cpu_s

    def visit(self, seconds: float, what: str, cpu_s: float | None = None) -> None:
        """The loop enters our code."""
        began_s = LOOP.now()
        self.works(seconds, cpu_s)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, what)

    def turn_ends(self) -> None:
        """The loop looks at its timers."""
        if self.wall_s >= self.due_s:
            self.beat()

    def sleeps(self, seconds: float) -> None:
        until_s = self.wall_s + seconds
        while self.due_s <= until_s:
            self.wall_s = max(self.wall_s, self.due_s)
            self.beat()
        self.wall_s = until_s


class Cancelled:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def cancel(self) -> None:
        self._bench.due_s = float("inf")


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    LOOP.now, before = (lambda: made.wall_s), LOOP.now
    made.meter.start()
    yield made
    made.meter.stop()
    LOOP.now = before


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "busway.loop"]


def test_a_long_visit_is_told_with_its_name_and_both_clocks(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Stall meter: what held everybody up is in the log, with how long and whose fault it was."""
    caplog.set_level(logging.INFO)
    bench.sleeps(0.01)
    bench.visit(0.3, "a peek at 'q'")
    bench.turn_ends()
    assert lines(caplog) == [
        "the event loop served nobody for 300 ms (300 ms of CPU): 300 ms of it in a peek at 'q'"
    ]
    assert caplog.records[-1].levelno == logging.WARNING
    wall_s, cpu_s = bench.meter.longest_s()
    assert (round(wall_s, 3), round(cpu_s, 3)) == (0.3, 0.3)
    assert bench.meter.long_turns == [1, 1, 0]


def test_a_busy_machine_is_told_from_our_own_fault(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Stall meter: little processor time in a long turn means that somebody else had it."""
    caplog.set_level(logging.INFO)
    bench.visit(0.3, "a peek at 'q'", cpu_s=0.02)
    bench.turn_ends()
    [line] = lines(caplog)
    assert "(20 ms of CPU, the machine or another thread was busy)" in line
    assert caplog.records[-1].levelno == logging.INFO
    assert bench.meter.longest_s()[1] == pytest.approx(0.02)


def test_very_many_short_visits_in_one_turn_are_a_stall_too(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Stall meter: a thousand connections with a little each hold up the thousand and first."""
    for _ in range(1_000):
        bench.visit(0.0003, "never told")
    bench.turn_ends()
    [line] = lines(caplog)
    assert line.endswith("many short steps")
    assert bench.meter.longest_s()[0] == pytest.approx(0.3, abs=PULSE_S + 0.001)


def test_the_inner_visit_names_the_turn_unless_it_is_the_smaller_part(bench: Bench) -> None:
    """Stall meter: not "a tick", but the timer in it."""
    outer_s = LOOP.now()
    bench.visit(0.1, "a timer")
    bench.works(0.05)
    LOOP.note(outer_s, "a tick")
    assert (LOOP.what, round(LOOP.longest_s, 2)) == ("a timer", 0.15)
    bench.turn_ends()
    outer_s = LOOP.now()
    bench.visit(0.02, "a timer")
    bench.works(0.1)
    LOOP.note(outer_s, "a tick")
    assert LOOP.what == "a tick"


def test_the_log_is_not_flooded_and_tells_of_what_it_left_out(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack: who can make the server slow cannot fill its disk by that."""
    for _ in range(50):
        bench.visit(0.12, "x")
        bench.turn_ends()
    assert len(lines(caplog)) == 1
    bench.visit(0.2, "y")
    bench.turn_ends()
    bench.sleeps(LOG_EVERY_S)
    bench.visit(0.15, "z")
    bench.turn_ends()
    [_, last] = lines(caplog)
    assert last.endswith("in z; 50 others since the last such line, the longest of 200 ms")
    assert bench.meter.long_turns == [52, 52, 0]


def test_the_longest_turn_is_forgotten_after_two_minutes_by_no_matter_how_many_readers(bench: Bench) -> None:
    """Stall meter: a figure of the last minute or two, whoever looks at it and however often."""
    bench.visit(0.4, "x")
    bench.turn_ends()
    for _ in range(3):
        assert bench.meter.longest_s()[0] == pytest.approx(0.4)
    bench.sleeps(WINDOW_S)
    assert bench.meter.longest_s()[0] == pytest.approx(0.4)
    bench.sleeps(WINDOW_S)
    assert bench.meter.longest_s() == (0.0, 0.0)
    assert bench.meter.long_turns == [1, 1, 0]


def test_the_pulse_slows_down_while_nothing_happens(bench: Bench) -> None:
    """Stall meter: an idle server is left alone, and a busy one looked at closely."""
    bench.sleeps(2.0)
    assert set(bench.pauses_s[2:]) == {IDLE_PULSE_S}
    bench.works(0.005)
    bench.sleeps(IDLE_PULSE_S)
    assert PULSE_S in bench.pauses_s[-3:]


def test_without_a_meter_nothing_is_noted_and_afterwards_neither(bench: Bench) -> None:
    """House style: what is off costs nothing and keeps nothing."""
    bench.visit(0.1, "x")
    assert LOOP.what == "x"
    bench.meter.stop()
    bench.meter.stop()
    assert LOOP.what == ""
    bench.visit(10.0, "y")
    assert LOOP.what == ""
    assert bench.due_s == float("inf")


def test_a_collection_of_garbage_has_a_name(bench: Bench) -> None:
    """Stall meter: it stops the loop as anything else does."""
    bench.meter._collecting("start", {"generation": 2})
    bench.works(0.05)
    bench.meter._collecting("stop", {"generation": 2})
    assert LOOP.what == "a collection of garbage, generation 2"


def test_names_in_the_log_are_short_and_cannot_forge_a_line() -> None:
    """Attack: whoever chooses a name writes no line of the log with it."""
    assert shown("q") == "'q'"
    assert "\n" not in shown("q\n2026-01-01 ERROR forged")
    assert len(shown("x" * 100_000)) < 130
    assert shown(b"bytes") == "'b'bytes''"


# -- what ran, where the loop enters our code


def test_steps_pass_results_errors_and_cancellation_through(bench: Bench) -> None:
    """House style: a coroutine that is measured does what it did."""

    async def works() -> int:
        await asyncio.sleep(0)
        bench.works(0.05)
        return 7

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def waits() -> None:
        await asyncio.sleep(3_600)

    async def scenario() -> None:
        assert await Steps(works(), lambda: "works") == 7
        assert LOOP.what == "works"
        assert await asyncio.get_running_loop().create_task(Steps(works(), lambda: "works")) == 7
        with pytest.raises(ValueError, match="no"):
            await Steps(fails(), lambda: "fails")
        waiting = asyncio.get_running_loop().create_task(Steps(waits(), lambda: "waits"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        Steps(waits(), lambda: "waits").close()

    asyncio.run(scenario())


def test_background_work_and_timers_are_named(bench: Bench) -> None:
    """Stall meter: background jobs and timers by the name of what ran."""

    async def tidy_up() -> None:
        await asyncio.sleep(0)
        bench.works(0.05)

    async def scenario() -> None:
        work = BackgroundWork()
        work.spawn(tidy_up())
        await work.idle()

    asyncio.run(scenario())
    assert LOOP.what.startswith("background work: ")
    assert LOOP.what.endswith("tidy_up")
    LOOP.begin()
    timers = Timers()
    timers.at(1.0, lambda: bench.works(0.05))
    ticker = Ticker(_Clockwork(timers), ManualClock())
    ticker._rang()
    assert LOOP.what.startswith("a timer of the broker: ")


class _Clockwork:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def next_deadline(self) -> float | None:
        return self._timers.next_deadline()

    def watch_deadlines(self, earlier: Callable[[], None]) -> None: ...

    def tick(self) -> None:
        self._timers.run(2.0)


def test_a_send_is_named_by_entity_and_connection(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stall meter: verb, entity and connection of what a client sent."""
    send = Queue.send_in_parts

    def slow(self: Queue, *given: Any) -> None:
        bench.works(0.05)
        send(self, *given)

    async def scenario(room: Room) -> None:
        peer = await room.client(address="10.1.2.3")
        sender = await peer.sender("orders")
        LOOP.begin()
        monkeypatch.setattr(Queue, "send_in_parts", slow)
        await peer.sent(sender, payload(b"one"), payload(b"two"))
        assert LOOP.what == "AMQP input: 2 × DeliveriesArrived at 'orders', from 10.1.2.3"
        LOOP.begin()
        await peer.sent(sender, payload(b"one"), payload(b"two"), payload(b"three"))
        assert LOOP.what == "AMQP input: 3 × DeliveriesArrived at 'orders', from 10.1.2.3"

    in_room(scenario, QueueDescription("orders"))


def test_a_request_is_named_by_operation_entity_and_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stall meter: each operation of `$management`."""
    answer = ManagementNode._answer

    async def slow(self: ManagementNode, *given: Any) -> Any:
        bench.works(0.05)
        return await answer(self, *given)

    async def scenario(room: Room) -> None:
        peer = await room.client(address="10.1.2.3")
        links = await peer.request_links("orders/$management")
        LOOP.begin()
        monkeypatch.setattr(ManagementNode, "_answer", slow)
        message = AmqpMessage(
            {},
            properties=Properties(message_id="1", reply_to="answers"),
            application_properties={"operation": "com.microsoft:enumerate-rules"},
        )
        assert encode_message(message)
        await peer.request(links, message)
        assert LOOP.what == (
            "a request 'com.microsoft:enumerate-rules' at 'orders/$management', from 10.1.2.3"
        )

    in_room(scenario, QueueDescription("orders"))


def test_an_http_request_is_named_by_method_and_path_without_its_query(
    bench: Bench, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stall meter: what HTTP asks for, without what may be secret in it."""
    answer = Router.answer

    async def slow(self: Router, *given: Any) -> Any:
        bench.works(0.05)
        return await answer(self, *given)

    monkeypatch.setattr(Router, "answer", slow)
    LOOP.begin()
    exchange.request("GET", "/no-such-queue?api-version=2024-05&sig=secret")
    assert LOOP.what == "GET '/no-such-queue' by HTTP, from 127.0.0.1"


def test_the_figures_are_exposed(bench: Bench) -> None:
    """Stall meter: the longest turn by both clocks, and how many were long."""
    bench.visit(0.3, "x", cpu_s=0.2)
    bench.turn_ends()
    text = asyncio.run(Exposition(ManyQueues(0), process=MeasuredProcess(turns=bench.meter)).text()).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("busway_loop_"))
    assert float(found['busway_loop_longest_turn_seconds{clock="wall"}']) == pytest.approx(0.3)
    assert float(found['busway_loop_longest_turn_seconds{clock="cpu"}']) == pytest.approx(0.2)
    assert found['busway_loop_long_turns_total{above="0.1"}'] == "1.0"
    assert found['busway_loop_long_turns_total{above="0.5"}'] == "0.0"


def test_visits_below_ten_milliseconds_are_not_put_into_words(bench: Bench) -> None:
    """House style: words cost more than an ordinary visit does."""
    bench.visit(ENTRY_S / 2, "never")
    assert LOOP.what == ""
