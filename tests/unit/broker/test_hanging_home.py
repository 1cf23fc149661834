"""The catalogue's home hangs in a commit: what other stores do is none of its business."""

from __future__ import annotations

import asyncio

import pytest

from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.errors import BrokerError
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench, settle

HOME, OTHER = 0, 1


async def queue_in(bench: NamespaceBench, store: int, prefix: str) -> str:
    """The path of a new queue there."""
    for number in range(10):
        path = f"{prefix}{number}"
        await bench.create(path)
        if path_store(bench, path) == f"store-{store}":
            return path
    raise AssertionError("none was placed there")


def path_store(bench: NamespaceBench, path: str) -> str:
    return bench.namespace.contents.entities.rows[path].shares[0].store_name


async def hanging_change(bench: NamespaceBench, *paths: str) -> asyncio.Task[object]:
    """A creation that waits for the home."""
    bench.stores[HOME].hold_commits()
    wanted = [NewEntity(QueueDescription(path)) for path in paths or ("late",)]
    task: asyncio.Task[object] = asyncio.ensure_future(bench.namespace.create(wanted))
    await settle()
    assert not task.done()
    assert bench.namespace.contents.changing.locked()
    return task


async def fail_and_return(bench: NamespaceBench, store: int, path: str) -> None:
    """A commit fails; then time passes."""
    bench.stores[store].refuse_next_commit()
    with pytest.raises(BrokerError):
        await bench.send(path)
    await bench.advance(5, 0.5)


def test_a_store_that_failed_comes_back_while_the_home_hangs() -> None:
    """P-48, found by review: it waited for the lock of changes, which a creation held for the home's commit."""

    async def test(bench: NamespaceBench) -> None:
        path = await queue_in(bench, OTHER, "q")
        change = await hanging_change(bench)
        await fail_and_return(bench, OTHER, path)
        assert bench.namespace.contents.keepers["store-1"].is_open
        await bench.send(path)
        bench.stores[HOME].release_commits()
        await change
        assert bench.namespace.exists("late")

    on_a_bench(test, store_count=2)


def test_what_is_being_created_is_not_taken_for_left_over() -> None:
    """P-60: fragments of a creation that waits for the home belong to nobody yet, and must stay."""

    async def test(bench: NamespaceBench) -> None:
        path = await queue_in(bench, OTHER, "q")
        new = [f"new{number}" for number in range(4)]
        change = await hanging_change(bench, *new)
        await fail_and_return(bench, OTHER, path)
        bench.stores[HOME].release_commits()
        await change
        await settle()
        assert {path_store(bench, each) for each in new} == {"store-0", "store-1"}
        for each in new:
            await bench.send(each)
        await bench.restart()
        for each in new:
            await bench.send(each)

    on_a_bench(test, store_count=2)


def test_what_is_left_over_goes_when_the_home_is_itself_again() -> None:
    """P-61: a store that came back while changes were held up is cleared after them."""

    async def test(bench: NamespaceBench) -> None:
        path = await queue_in(bench, OTHER, "q")
        gone = await queue_in(bench, OTHER, "gone")
        await bench.send(gone, 3)
        (share,) = bench.namespace.contents.entities.rows[gone].shares
        bench.stores[OTHER].refuse_next_commit()
        with pytest.raises(BrokerError):
            await bench.send(path)
        await bench.namespace.delete(gone)  # its store is away
        change = await hanging_change(bench)
        await bench.advance(5, 0.5)
        assert bench.namespace.contents.keepers["store-1"].is_open
        bench.stores[HOME].release_commits()
        await change
        await bench.namespace.background.idle()
        stored = {row.key for row in await bench.stores[OTHER].fragments()}
        assert stored.isdisjoint(share.fragments)
        assert bench.namespace.contents.keepers["store-1"].counters.keys() == stored

    on_a_bench(test, store_count=2)


def test_an_operator_can_bring_a_store_back_while_the_home_hangs() -> None:
    """Found by review: in service at once; that it stays so over a restart waits for the home."""

    async def test(bench: NamespaceBench) -> None:
        path = await queue_in(bench, OTHER, "q")
        await bench.namespace.stores.disable("store-1")
        change = await hanging_change(bench)
        enabling = asyncio.ensure_future(bench.namespace.stores.enable("store-1"))
        await settle()
        assert bench.namespace.contents.keepers["store-1"].is_open
        await bench.send(path)
        assert not enabling.done()
        bench.stores[HOME].release_commits()
        await change
        await enabling

    on_a_bench(test, store_count=2)
