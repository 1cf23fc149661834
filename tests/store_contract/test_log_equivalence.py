"""Random changes of logs: every store must answer as the memory store does, after every commit and restart."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import Counters, FragmentKey, FragmentRow
from tests.store_contract.log_scenario import append, forget, log_picture, remember, retire
from tests.store_contract.scenario import NewWorld, World

VERBS = (
    "append",
    "append",
    "append",
    "retire",
    "compact",
    "produce",
    "purge",
    "drop",
    "commit",
    "sweep",
    "restart",
)

#: One step is a verb and raw choices; the model turns them into something a broker could do.
steps = st.lists(
    st.tuples(st.sampled_from(VERBS), st.integers(0, 1 << 30), st.integers(0, 1 << 30)), max_size=40
)


class Hub:
    """As much of a broker as is needed to fill batches it could really fill."""

    def __init__(self, stores: list[Any]) -> None:
        self.stores = stores
        #: Log → numbers of its committed or joined chunks.
        self.logs: dict[FragmentKey, list[list[int]]] = {}
        self.next_number = 0
        self.next_at_ms = 1_000
        for _ in range(3):
            self.create()

    def create(self) -> None:
        keys = {store.next_fragment_key() for store in self.stores}
        (key,) = keys
        self.logs[key] = []
        for store in self.stores:
            store.batch().fragments_created.append(FragmentRow(key, "hub", 0, Counters()))

    def log(self, choice: int) -> FragmentKey:
        return sorted(self.logs)[choice % len(self.logs)]

    def append(self, x: int, y: int) -> None:
        log = self.log(x)
        numbers = list(range(self.next_number, self.next_number + 1 + y % 4))
        self.next_number += len(numbers) + x % 2
        self.next_at_ms += y % 3
        self.put(log, numbers, y)

    def put(self, log: FragmentKey, numbers: list[int], seed: int) -> None:
        self.logs[log].append(numbers)
        body = b"%d" % (seed % 10) * (1, 20, 7_000, 40_000)[seed % 4]
        for store in self.stores:
            builder = ChunkBuilder()
            for number in numbers:
                builder.add(number, self.next_at_ms, b"%d:%b" % (number, body), 0)
            append(store, log, builder)

    def retire(self, x: int, y: int) -> None:
        log = self.log(x)
        going, self.logs[log] = self.logs[log][: y % 3], self.logs[log][y % 3 :]
        for store in self.stores:
            retire(store, log, *[numbers[0] for numbers in going], 1_000_000)

    def compact(self, x: int, y: int) -> None:
        """Two chunks become one with a number less, when no chunk of this batch is concerned."""
        log = self.log(x)
        if len(self.logs[log]) < 2 or any(store.batch().logs is not None for store in self.stores):
            return
        first, second = self.logs[log].pop(0), self.logs[log].pop(0)
        numbers = first + second
        numbers.pop(y % len(numbers))
        for store in self.stores:
            retire(store, log, first[0], second[0])
        before = self.next_at_ms
        self.next_at_ms = 1_000
        self.put(log, numbers, y)
        self.next_at_ms = before
        self.logs[log].sort()

    def produce(self, x: int, y: int) -> None:
        for store in self.stores:
            remember(store, self.log(x), (y % 4, x % 3, y % 100, x % 100))

    def purge(self, x: int, y: int) -> None:
        for store in self.stores:
            forget(store, self.log(x), y % 100)

    def drop(self, x: int, y: int) -> None:
        if y % 3 == 0:
            log = self.log(x)
            del self.logs[log]
            for store in self.stores:
                store.batch().fragments_dropped.append(log)
            self.create()


async def compare(stores: list[Any], hub: Hub) -> None:
    for number in range(1, 2 + max(hub.logs)):
        log = FragmentKey(number)
        pictures = [await log_picture(store, log) for store in stores]
        assert pictures[1] == pictures[0]
        numbers = [number for chunk in hub.logs.get(log, []) for number in chunk]
        assert len(numbers) == len(set(numbers))


async def replay(plan: list[tuple[str, int, int]], worlds: list[World]) -> None:
    stores = [world.store() for world in worlds]
    for store in stores:
        await store.open()
    hub = Hub(stores)
    for verb, x, y in [*plan, ("commit", 0, 0), ("restart", 0, 0)]:
        if verb in ("commit", "restart", "sweep"):
            for store in stores:
                await store.flush()
            await compare(stores, hub)
        if verb == "sweep":
            for store in stores:
                await store.sweep_dropped(1 + x % 20)
        elif verb == "restart":
            for index, world in enumerate(worlds):
                await stores[index].close()
                stores[index] = world.store()
                await stores[index].open()
            await compare(stores, hub)
            hub.stores = stores
        elif verb != "commit":
            getattr(hub, verb)(x, y)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps)
def test_random_changes_of_logs_leave_both_stores_with_the_same_answers(
    new_world: NewWorld, kind: str, plan: list[tuple[str, int, int]]
) -> None:
    """F2: appends, retention, compaction, producers and drops in any mixture, over commits, sweeps and restarts."""
    with new_world("memory") as memory, new_world(kind) as world:
        asyncio.run(replay(plan, [memory, world]))
