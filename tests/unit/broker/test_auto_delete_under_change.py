"""AutoDeleteOnIdle while the entity changes: when its time has come, and while its deletion waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from busway.model.descriptions import QueueDescription
from busway.model.errors import EntityNotFound
from tests.unit.broker.namespace_bench import NamespaceBench, Reader, on_a_bench, settle

IDLE_MS = 300_000
IDLE_S = IDLE_MS / 1000


def is_there(bench: NamespaceBench, path: str = "q") -> bool:
    try:
        bench.namespace.description(path)
    except EntityNotFound:
        return False
    return True


async def due_behind_a_change(bench: NamespaceBench) -> asyncio.Task[object]:
    """The queue's time has come, and its deletion waits behind a creation that hangs."""
    await bench.create("q", auto_delete_on_idle_ms=IDLE_MS)
    await bench.advance(IDLE_S - 5)
    bench.stores[0].hold_commits()
    creating: asyncio.Task[object] = asyncio.ensure_future(bench.create("other"))
    await settle()
    await bench.advance(20)
    assert is_there(bench)
    return creating


async def released(bench: NamespaceBench, *tasks: asyncio.Task[object]) -> None:
    bench.stores[0].release_commits()
    await asyncio.gather(*tasks)
    await settle(60)


def test_a_receiver_that_comes_while_the_deletion_waits_keeps_the_queue() -> None:
    """E-113: it is looked at again when its turn has come."""

    async def test(bench: NamespaceBench) -> None:
        creating = await due_behind_a_change(bench)
        outlet = bench.namespace.queue("q").outlet(False)
        reader = Reader()
        outlet.add_receiver(reader)
        outlet.wake(reader)
        await released(bench, creating)
        assert is_there(bench)
        outlet.remove_receiver(reader)
        await bench.advance(2 * IDLE_S)
        assert not is_there(bench)

    on_a_bench(test)


@pytest.mark.parametrize("idle_ms", [2 * IDLE_MS, 1 << 62])
def test_an_update_that_waits_before_the_deletion_counts(idle_ms: int) -> None:
    """E-110: a longer time, or none."""

    async def test(bench: NamespaceBench) -> None:
        creating = await due_behind_a_change(bench)
        wanted = QueueDescription(
            "q", auto_delete_on_idle_ms=min(idle_ms, QueueDescription("x").auto_delete_on_idle_ms)
        )
        updating: asyncio.Task[object] = asyncio.ensure_future(bench.namespace.update(wanted))
        await released(bench, creating)
        outcome = (await asyncio.gather(updating, return_exceptions=True))[0]
        # Whichever of the two came first: an update that succeeded is not undone by the deletion before it.
        assert is_there(bench) != isinstance(outcome, EntityNotFound)

    on_a_bench(test)


def test_a_queue_that_is_made_again_while_the_old_ones_deletion_waits_is_left_alone() -> None:
    """E-110, E-8: the new one has its whole time."""

    async def test(bench: NamespaceBench) -> None:
        creating = await due_behind_a_change(bench)
        deleting: asyncio.Task[object] = asyncio.ensure_future(bench.namespace.delete("q"))
        await settle()
        again: asyncio.Task[object] = asyncio.ensure_future(bench.create("q", auto_delete_on_idle_ms=IDLE_MS))
        bench.stores[0].release_commits()
        await creating
        deleted, made = await asyncio.gather(deleting, again, return_exceptions=True)
        assert deleted is None or isinstance(deleted, EntityNotFound)
        await settle(60)
        if isinstance(made, Exception):
            await bench.create("q", auto_delete_on_idle_ms=IDLE_MS)
        await bench.advance(IDLE_S - 30)
        assert is_there(bench)
        await bench.advance(60)
        assert not is_there(bench)

    on_a_bench(test)


def test_a_store_that_is_switched_off_when_the_time_comes_keeps_the_queue() -> None:
    """E-110, P-48: nobody knows whether it was used; it goes when the store is back and it is idle still."""

    async def test(bench: NamespaceBench) -> None:
        for number in range(4):
            await bench.create(f"q{number}", auto_delete_on_idle_ms=IDLE_MS)
        there = [
            name
            for name, row in bench.namespace.contents.entities.rows.items()
            if row.shares[0].store_name == "store-1"
        ]
        await bench.namespace.stores.disable("store-1")
        await bench.advance(IDLE_S + 120)
        assert [is_there(bench, name) for name in there] == [True] * len(there)
        await bench.namespace.stores.enable("store-1")
        await bench.advance(2 * IDLE_S + 120)
        assert [is_there(bench, name) for name in there] == [False] * len(there)

    on_a_bench(test, store_count=2)


def test_a_property_that_changes_again_and_again_deletes_nothing_early() -> None:
    """E-110: on and off, shorter and longer; each update is a use."""

    async def test(bench: NamespaceBench) -> None:
        made = await bench.create("q", auto_delete_on_idle_ms=IDLE_MS)
        never = QueueDescription("x").auto_delete_on_idle_ms
        for idle_ms in (never, IDLE_MS, 2 * IDLE_MS, IDLE_MS) * 3:
            await bench.advance(IDLE_S - 20)
            await bench.namespace.update(replace(made, auto_delete_on_idle_ms=idle_ms))
            assert is_there(bench)
        assert bench.namespace.contents.auto_delete.entries() <= 2
        await bench.advance(IDLE_S + 20)
        assert not is_there(bench)

    on_a_bench(test)
