"""Rows that have arrived in another store are deleted at their source, however often that is updated meanwhile."""

import asyncio

import pytest

from busway.store.contract import FragmentKey, Page
from tests.harness.memory_store import MemoryStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


class HeldReads:
    """Reads by number of one store wait until they are let go."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting = 0
        self._free = asyncio.Event()
        self._by_number = store.by_number
        monkeypatch.setattr(store, "by_number", self._held)

    async def _held(self, fragment: FragmentKey, place: int, numbers: list[int]) -> Page:
        self.waiting += 1
        await self._free.wait()
        return await self._by_number(fragment, place, numbers)

    def let_go(self) -> None:
        self._free.set()


def test_a_row_that_has_arrived_goes_although_its_source_is_updated_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F-1, F-13: found by the matrix of changes under traffic: the row stayed at its source, unseen and counted,
    until the next update or restart."""

    async def test(bench: TopicBench) -> None:
        for path in ("first", "target"):  # the home is nobody's destination
            await bench.queue(path)
        await bench.queue("source", forward_to="target")
        rows = bench.namespace.contents.entities.rows
        stores = {store.name: store for store in bench.stores}
        there, here = stores[rows["target"].store_name], stores[rows["source"].store_name]
        assert there is not here
        there.hold_commits()
        await bench.publish("source", encoded("a"), encoded("b"))
        await settle(60)
        await bench.change("source", forward_to=None)
        reads = HeldReads(here, monkeypatch)
        there.release_commits()
        await settle(100)
        assert reads.waiting == 1, "the rows have arrived, and shall be deleted"
        await bench.change("source", forward_to="first")
        await settle(60)
        reads.let_go()
        await settle(100)
        await bench.advance(5, 0.5)
        assert await bench.bodies("target") == ["a", "b"]
        assert await bench.bodies("first") == []
        assert (await bench.namespace.counts("source")).total == 0
        assert [await store.transfer_marks() for store in bench.stores] == [[]] * len(bench.stores)

    on_a_topic_bench(test, 3)
