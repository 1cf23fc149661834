"""A clock that is set: schedules and times to live follow it, only the time that clients see never goes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from busway.broker.fragment.expiry_and_schedule import ExpirySweeper, WallAlarm
from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.runtime import BrokerRuntime
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import NEVER_MS, Message
from busway.model.entity_path import subscription_path
from busway.model.limits import Limits
from busway.store.contract import CommitBatch, FragmentKey, Page
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.rig import Rig, bodies, play, text
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

HOUR_S = 3_600.0
S = subscription_path("t", "s")


async def _ahead_once(rig: Rig, *, restarts: bool) -> None:
    """The clock was an hour ahead while something was sent, and is right again."""
    rig.clock.step_wall(HOUR_S)
    await rig.send_texts("from the future")
    assert bodies(await rig.receive(deletes=True)) == ["from the future"]
    rig.clock.step_wall(-HOUR_S)
    if restarts:
        await rig.restart()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_schedule_follows_the_wall_clock_after_it_was_ahead(restarts: bool) -> None:
    """Found by review: S-35, S-30: it became active at once, also over a restart."""

    async def scenario(rig: Rig) -> None:
        await _ahead_once(rig, restarts=restarts)
        await rig.send(text("x", scheduled_at_ms=rig.clock.wall_ms() + 10_000))
        await rig.advance(9.999)
        assert await rig.receive() == []
        await rig.advance(0.001)
        assert bodies(await rig.receive()) == ["x"]

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_time_to_live_follows_the_wall_clock_after_it_was_ahead(restarts: bool) -> None:
    """Found by review: M-40, M-42: 60 s were an hour, also over a restart; with a schedule too (S-34)."""

    async def scenario(rig: Rig) -> None:
        await _ahead_once(rig, restarts=restarts)
        await rig.send(text("own", ttl_ms=60_000), text("default"))
        await rig.send(text("later", ttl_ms=30_000, scheduled_at_ms=rig.clock.wall_ms() + 30_000))
        await rig.advance(30)
        await rig.advance(29)
        assert rig.queue.counts().active == 3
        await rig.advance(1.5)
        assert rig.queue.counts().active == 1
        await rig.advance(30)
        assert rig.queue.counts().active == 0

    play(scenario, default_message_time_to_live_ms=90_000)


def test_the_shown_time_never_goes_back() -> None:
    """M-16: not in a queue, and not where a message became active."""

    async def scenario(rig: Rig) -> None:
        rig.clock.step_wall(HOUR_S)
        await rig.send_texts("a")
        high_ms = rig.clock.wall_ms()
        rig.clock.step_wall(-HOUR_S)
        await rig.restart()
        await rig.send(text("b"), text("c", scheduled_at_ms=rig.clock.wall_ms() + 5_000))
        await rig.advance(5)
        shown = [message.enqueued_at_ms for message in await rig.main.peek(0, 10)]
        assert shown == [high_ms, high_ms, high_ms]

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_follows_the_wall_clock_after_it_was_ahead(restarts: bool) -> None:
    """Found by review: S-35, M-42, T-1: what is published, and what waits in the topic."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        bench.clock.step_wall(HOUR_S)
        await bench.publish("t", encoded("from the future"))
        bench.clock.step_wall(-HOUR_S)
        if restarts:
            await bench.restart()
        later, short = message_of(encoded("later"), False), message_of(encoded("short"), False)
        later.scheduled_at_ms = bench.clock.wall_ms() + 10_000
        short.ttl_ms = 60_000
        bench.namespace.sender("t").send([later, short], lambda _refused: None)
        await settle()
        assert await bench.bodies(S) == ["from the future", "short"]
        await bench.advance(9.9)
        assert await bench.bodies(S) == ["from the future", "short"]
        await bench.advance(0.2)
        assert await bench.bodies(S) == ["from the future", "short", "later"]
        await bench.advance(50)
        assert await bench.bodies(S) == ["from the future", "later"]
        times = [seen.message.enqueued_at_ms for seen in await bench.peek(S)]
        assert times == sorted(times)

    on_a_topic_bench(test)


def test_a_step_forward_is_noticed_within_a_second() -> None:
    """Found by review: S-35, M-44: it took up to five minutes."""

    async def scenario(rig: Rig) -> None:
        now_ms = rig.clock.wall_ms()
        await rig.send(text("scheduled", scheduled_at_ms=now_ms + 3_000_000))
        await rig.send(text("head", ttl_ms=3_100_000), text("forever"), text("own", ttl_ms=3_000_000))
        await rig.advance(100)  # the looks that a start makes are over
        rig.clock.step_wall(HOUR_S)
        await rig.advance(1)
        assert rig.queue.counts().active == 2
        assert sorted(bodies(await rig.receive())) == ["forever", "scheduled"]

    play(scenario)


def test_a_step_back_makes_nothing_early() -> None:
    """S-35: a timer that was armed by the old time finds that it is not yet time."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("x", scheduled_at_ms=rig.clock.wall_ms() + 10_000))
        rig.clock.step_wall(-HOUR_S)
        await rig.advance(10)
        assert await rig.receive() == []
        await rig.advance(HOUR_S - 0.001)
        assert await rig.receive() == []
        await rig.advance(0.001)
        assert bodies(await rig.receive()) == ["x"]

    play(scenario)


def test_alarms_are_exact_and_looking_at_the_clock_costs_the_same_for_any_number_of_them() -> None:
    """S-35, L-22: one look a second for all of them, and each rings at its own millisecond."""
    clock, timers, rang = ManualClock(), Timers(), list[int]()
    runtime = BrokerRuntime(
        clock, SeededEntropy(), Limits(), timers, WindowBudget(1), lambda work: work.close()
    )
    first_ms = clock.wall_ms() + 1_000_000
    alarms = [WallAlarm(runtime.wall_timers, lambda: rang.append(clock.wall_ms())) for _ in range(10_000)]
    for number, alarm in enumerate(alarms):
        alarm.no_later_than(first_ms + number * 1_000)
        alarm.no_later_than(first_ms + number)
    ran = 0
    while clock.wall_ms() < first_ms:
        deadline = timers.next_deadline()
        assert deadline is not None
        assert deadline <= clock.monotonic() + 1.0
        clock.advance(deadline - clock.monotonic())
        ran += timers.run(clock.monotonic())
    assert ran <= 1_001
    assert rang == [first_ms]
    clock.advance(0.001)
    timers.run(clock.monotonic())
    assert rang == [first_ms, first_ms + 1]
    for alarm in alarms:
        alarm.stop()
    clock.advance(5)
    timers.run(clock.monotonic())
    assert timers.next_deadline() is None, "nobody looks at the clock for nothing"


class _TickingClock(ManualClock):
    """Every look at it takes a millisecond."""

    def wall_ms(self) -> int:
        self.advance(0.001)
        return super().wall_ms()


def test_a_message_whose_time_comes_while_it_is_published_is_not_lost() -> None:
    """Found by review: S-30, T-9: copied or kept for later, by one look at the clock."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        started_ms = bench.clock.wall_ms()
        for number in range(60):
            message = message_of(encoded(f"{number}"), False)
            message.scheduled_at_ms = bench.clock.wall_ms() + number % 20
            bench.namespace.sender("t").send([message], lambda _refused: None)
            await settle(5)
        await bench.advance(5, step_s=0.1)
        assert sorted(map(int, await bench.bodies(S))) == list(range(60))
        assert bench.clock.wall_ms() > started_ms

    class Ticking(TopicBench):
        def __init__(self) -> None:
            super().__init__(1, None)
            self.clock = _TickingClock()
            self.namespace = self.new_namespace()

    async def run() -> None:
        bench = Ticking()
        await bench.namespace.open()
        await test(bench)
        await bench.namespace.close()

    asyncio.run(run())


def test_a_clock_that_is_set_back_in_the_middle_of_an_activation_makes_no_second_schedule() -> None:
    """T-7, S-34: the copies of a message that was due are due."""

    class SetBack(ManualClock):
        """Set back by a minute after some looks."""

        looks_left = 1 << 30

        def wall_ms(self) -> int:
            self.looks_left -= 1
            if self.looks_left == 0:
                self.step_wall(-60)
            return super().wall_ms()

    async def test(bench: TopicBench, clock: SetBack, looks: int) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s")
        message = message_of(encoded("x"), False)
        message.scheduled_at_ms = clock.wall_ms() + 1_000
        bench.namespace.sender("t").send([message], lambda _refused: None)
        await settle()
        clock.looks_left = looks
        await bench.advance(1)
        counts = await bench.namespace.counts(S)
        assert counts.scheduled == 0
        assert counts.active + (await bench.namespace.counts("t")).scheduled == 1

    async def run(looks: int) -> None:
        bench = TopicBench(1, None)
        bench.clock = clock = SetBack()
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await test(bench, clock, looks)
        await bench.namespace.close()

    for looks in range(1, 14):
        asyncio.run(run(looks))


# -- a step back by more than every time to live: all expiries are out of order for its whole length


def test_messages_after_a_step_back_expire_at_their_time_behind_those_from_the_future() -> None:
    """M-44, M-42: those from before the step stand at the head and are not yet over."""

    async def scenario(rig: Rig) -> None:
        rig.clock.step_wall(HOUR_S)
        await rig.send(text("future"))
        rig.clock.step_wall(-HOUR_S)
        for number in range(30):
            await rig.send(text(f"{number}"))
        await rig.advance(59)
        assert rig.queue.counts().active == 31
        await rig.advance(1.5)
        assert rig.queue.counts().active == 1
        await rig.advance(HOUR_S)
        assert rig.queue.counts().active == 0
        await rig.send_texts("in order again")
        assert rig.store.batch().expiry_entries == []

    play(scenario, Limits(sweep_rows_max=4), default_message_time_to_live_ms=60_000)


class _ManyEntries(MemoryStore):
    """A store that says it has a million messages of one fragment, each with an expiry entry of its own, without
    having them. Counts what it is asked for."""

    def __init__(self, fragment: FragmentKey, count: int) -> None:
        super().__init__("many")
        self._key = fragment
        self._count = count
        self.deleted: bytearray = bytearray(count + 1)
        self.most_asked = 0
        self.most_blocks = 0
        self.looks = 0
        self.largest_batch = 0

    def _apply(self, batch: CommitBatch) -> None:
        going = [number for _, _, numbers in batch.deletes for number in numbers]
        self.largest_batch = max(self.largest_batch, len(going))
        for number in going:
            assert not self.deleted[number], "deleted twice"
            self.deleted[number] = 1

    async def expired_entries(self, now_ms: int, limit: int, after: Any = None) -> list[Any]:
        del now_ms
        await asyncio.sleep(0)
        self.looks += 1
        self.most_blocks = max(self.most_blocks, sys.getallocatedblocks())
        self.most_asked = max(self.most_asked, limit)
        first = 1 if after is None else after[1] + 1
        pending = {n for batch in self._gathered() for _, _, numbers in batch.deletes for n in numbers}
        found: list[Any] = []
        while first <= self._count and len(found) < limit:
            if not self.deleted[first] and first not in pending:
                found.append((self._key, first, 1))
            first += 1
        return found

    def _gathered(self) -> list[CommitBatch]:
        return [batch for batch in (self._open, self._in_flight) if batch is not None]

    async def next_expiry_ms(self, after_ms: int = -1) -> int | None:
        del after_ms
        return None

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        del fragment, place
        await asyncio.sleep(0)
        found = []
        for number in numbers:
            message = Message(b"", b"x")
            message.sequence_number, message.expires_at_ms = number, 1
            found.append(message)
        return Page(found, False, [])


def test_a_million_messages_that_expire_out_of_order_cost_bounded_memory_and_steps() -> None:
    """Found by review: M-44, L-22: what a sweep had met before made the next step of it larger, twice each time."""
    count = 1_000_000

    async def scenario(rig: Rig) -> None:
        main = rig.main
        store = _ManyEntries(main.key, count)
        await store.open()
        main.store = store
        main.counters.active = main.counters.bytes = main.counters.last_counter = count
        main.horizon.committed_high = count

        async def fragment_of(_key: FragmentKey) -> Any:
            return main

        sweeper = ExpirySweeper(store, fragment_of, rig.runtime)
        before = sys.getallocatedblocks()
        sweeper.start()
        rig.timers.run(rig.clock.monotonic())
        await asyncio.gather(*rig.tasks)
        assert main.counters.active == 0
        assert sum(store.deleted) == count
        rows_max = rig.limits.sweep_rows_max
        assert store.most_asked <= 2 * rows_max
        assert store.largest_batch <= 4 * rows_max
        assert store.looks <= count // rows_max + 10
        assert store.most_blocks - before < 100 * rows_max

    play(scenario)


def test_after_a_step_back_each_message_adds_one_entry_and_nothing_else() -> None:
    """L-22, M-44: until those from the future have gone; no timer, no memory."""

    async def scenario(rig: Rig) -> None:
        rig.clock.step_wall(HOUR_S)
        await rig.send(text("future"))
        rig.clock.step_wall(-HOUR_S)
        rig.store.hold_commits()
        rig.store.batch().callbacks.append(lambda _error: None)
        await rig.calm()
        for _ in range(20):
            rig.queue.send([text("x") for _ in range(500)], lambda _refused: None)
        assert len(rig.store.batch().expiry_entries) == 10_000
        assert len(rig.timers) < 10
        rig.store.release_commits()
        await rig.calm()
        await rig.advance(61)
        assert rig.queue.counts().active == 1

    play(scenario, default_message_time_to_live_ms=60_000)


def test_nothing_is_rung_for_ever() -> None:
    """L-22: an alarm that is not set is no alarm."""
    clock, timers = ManualClock(), Timers()
    runtime = BrokerRuntime(
        clock, SeededEntropy(), Limits(), timers, WindowBudget(1), lambda work: work.close()
    )
    alarm = WallAlarm(runtime.wall_timers, lambda: None)
    alarm.no_later_than(NEVER_MS)
    assert timers.next_deadline() is None


def test_ids_are_forgotten_at_their_time_also_after_a_step_back() -> None:
    """S-44, L-22: those from the future are not in the way of the others."""

    async def scenario(rig: Rig) -> None:
        rig.clock.step_wall(HOUR_S)
        await rig.send(text("x", message_id="future"))
        rig.clock.step_wall(-HOUR_S)
        for number in range(10):
            await rig.send(text("x", message_id=f"{number}"))
        for _ in range(40):
            await rig.advance(1)
        ids = [f"{number}" for number in range(10)]
        assert await rig.store.known_ids(rig.main.key, [*ids, "future"], 0) == {"future"}
        await rig.advance(HOUR_S)
        await rig.advance(1)
        assert await rig.store.known_ids(rig.main.key, ["future"], 0) == set()

    play(
        scenario,
        Limits(sweep_rows_max=3),
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window_ms=20_000,
    )
