"""Timers of the broker: what starts them goes, and they go with it; what they wait for never comes, and they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from busway.broker.fragment.numbering import RESERVE_FROM
from busway.broker.fragment.turns import SHARE_S, TurnShare
from busway.model.errors import BrokerError, ServerBusy
from busway.store.contract import CommitBatch, StoreUnavailable
from tests.harness.manual_clock import ManualClock
from tests.unit.broker.namespace_bench import NamespaceBench, Reader, on_a_bench, settle
from tests.unit.broker.rig import Rig, bodies, play, text
from tests.unit.broker.test_hanging_home import HOME, hanging_change
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

Start = Callable[[TopicBench], Awaitable[str]]


async def with_a_lock(bench: TopicBench) -> str:
    await bench.create("q", lock_duration_ms=60_000)
    await bench.send("q")
    reader = Reader()
    queue = bench.namespace.queue("q")
    queue.outlet(False).add_receiver(reader)
    queue.outlet(False).wake(reader)
    await settle()
    assert reader.taken
    return "q"


async def with_a_session(bench: TopicBench) -> str:
    await bench.create("q", requires_session=True)
    await bench.namespace.queue("q").outlet(False).accept_session(Reader(), "blue", 1.0)
    return "q"


async def with_somebody_who_waits_for_a_session(bench: TopicBench) -> str:
    await bench.create("q", requires_session=True)
    outlet = bench.namespace.queue("q").outlet(False)
    waiting = asyncio.ensure_future(outlet.accept_session(Reader(), None, 50.0))
    waiting.add_done_callback(lambda task: task.exception())
    await settle()
    return "q"


async def with_a_schedule(bench: TopicBench) -> str:
    await bench.create("q")
    at_ms = bench.clock.wall_ms() + 50_000
    await bench.namespace.queue("q").schedule([text("later", scheduled_at_ms=at_ms)])
    return "q"


async def with_a_time_to_live(bench: TopicBench) -> str:
    await bench.create("q", default_message_time_to_live_ms=50_000)
    await bench.send("q", 2)
    return "q"


async def with_ids(bench: TopicBench) -> str:
    await bench.create("q", requires_duplicate_detection=True)
    await bench.publish("q", encoded("x", message_id="1"))
    return "q"


async def with_auto_delete(bench: TopicBench) -> str:
    await bench.create("q", auto_delete_on_idle_ms=300_000)
    return "q"


async def with_a_destination_that_is_away(bench: TopicBench) -> str:
    await bench.create("target", max_size_in_megabytes=1024, status="SendDisabled")
    await bench.create("q", forward_to="target")
    await bench.publish("q", encoded("x"))
    await settle(60)
    return "q"


async def with_a_transaction(bench: TopicBench) -> str:
    await bench.create("q")
    among = bench.namespace.transactions()
    transaction, ended = among.find(among.declare(bench)), list[BrokerError | None]()
    transaction.send(bench.namespace.sender("q").inlet, [text("x")])
    among.discharge(bench, transaction.txn_id, fail=True, done=ended.append)
    await settle()
    return "q"


STARTS: Final[dict[str, Start]] = {
    start.__name__: start
    for start in (
        with_a_lock,
        with_a_session,
        with_somebody_who_waits_for_a_session,
        with_a_schedule,
        with_a_time_to_live,
        with_ids,
        with_auto_delete,
        with_a_destination_that_is_away,
        with_a_transaction,
    )
}


def armed(bench: NamespaceBench) -> tuple[int, int]:
    runtime = bench.namespace.runtime
    return len(runtime.timers), len(runtime.wall_timers._by_wall)


@pytest.mark.parametrize("ends", ["is deleted", "loses its store"])
@pytest.mark.parametrize("name", STARTS)
def test_an_entity_that_goes_takes_its_timers_along(name: str, ends: str) -> None:
    """Waiting: whatever it had started; a minute later nothing is armed that was not before."""

    async def test(bench: TopicBench) -> None:
        await bench.advance(61)
        before, _ = armed(bench)
        path = await STARTS[name](bench)
        assert len(bench.namespace.runtime.timers) >= before
        if ends == "is deleted":
            await bench.namespace.delete(path)
        else:
            await bench.namespace.stores.disable("store-0")
        await bench.advance(61)
        timers, by_wall = armed(bench)
        stays = name == "with_auto_delete" and ends != "is deleted"  # it is unused all the same
        assert timers <= before + stays
        assert by_wall <= (2 if ends == "is deleted" else 0), "the two of the store itself"

    on_a_topic_bench(test)


def test_a_read_that_fails_is_tried_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: a receiver that waits is served although the store could not be read once."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.restart()
        read, failures = rig.store.messages, [1]

        async def fails_once(*arguments: Any) -> object:
            if failures:
                failures.pop()
                raise StoreUnavailable("the disk hiccups")
            return await read(*arguments)

        monkeypatch.setattr(rig.store, "messages", fails_once)
        receiver = rig.receiver(5)
        rig.queue.main.wake(receiver)
        await rig.calm()
        assert (bodies(receiver.take()), failures) == ([], [])
        await rig.advance(0.9)
        assert bodies(receiver.take()) == []
        await rig.advance(0.2)
        assert bodies(receiver.take()) == ["a", "b"]

    play(scenario)


def test_a_fragment_that_is_closed_looks_at_its_numbers_no_more() -> None:
    """Waiting: the look for an empty moment ends by itself."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        rig.main.counters.last_counter = RESERVE_FROM
        rig.store.batch().counters[rig.main.key] = rig.main.counters
        await rig.restart()
        await rig.send_texts("b")
        await rig.advance(5)
        assert any("Numbering" in repr(timer.callback) for _, _, timer in rig.timers._heap)
        rig.main.failed(ServerBusy("The queue is gone."))
        await rig.advance(5)
        assert not any("Numbering" in repr(timer.callback) for _, _, timer in rig.timers._heap)

    play(scenario)


def test_a_lock_that_could_not_be_given_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: the store refuses at the very moment when it ends; a second later it does not."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        assert bodies(await rig.receive(1)) == ["a"]
        batch, refusals = rig.store.batch, [1]

        def refuses_once() -> CommitBatch:
            if refusals:
                refusals.pop()
                raise StoreUnavailable("It fails just now.")
            return batch()

        monkeypatch.setattr(rig.store, "batch", refuses_once)
        await rig.advance(5)
        assert refusals == []
        assert await rig.receive(1) == []
        await rig.advance(1)
        assert bodies(await rig.receive(1)) == ["a"]

    play(scenario, lock_duration_ms=5_000)


def test_a_store_waits_two_seconds_for_a_home_that_hangs() -> None:
    """Waiting: rules that were decided in it are taken over before it is used, if the home does so soon."""

    async def test(bench: NamespaceBench) -> None:
        decided = {"rule/x": "{}"}
        namespace = bench.namespace
        namespace.contents.decided_changes = lambda: decided  # type: ignore[method-assign]
        for number in range(4):
            await bench.create(f"q{number}")
        path = next(
            name
            for name, row in namespace.contents.entities.rows.items()
            if row.shares[0].store_name == "store-1"
        )
        change = await hanging_change(bench)
        bench.stores[1].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send(path)
        await bench.advance(1.5, 0.1)
        assert (
            not namespace.contents.keepers["store-1"].is_open
            or not namespace.contents.keepers["store-1"]._in_service
        )
        await bench.advance(3, 0.1)
        assert namespace.contents.keepers["store-1"]._in_service
        decided.clear()
        bench.stores[HOME].release_commits()
        await change

    on_a_bench(test, store_count=2)


def test_a_share_of_a_turn_ends_by_the_clock_too() -> None:
    """Waiting: steps are counted, but a machine may be slow: after eight milliseconds the turn is full."""
    clock = ManualClock()
    share = TurnShare(clock, 100)
    assert not share.spend(1)
    clock.advance(SHARE_S)
    assert share.spend(1)
