"""Listing the sessions of a partitioned entity: in order over all fragments, whatever is skipped."""

from __future__ import annotations

from typing import Any

from busway.model.errors import ServerBusy
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import PartitionBench, on_partitions, text
from tests.unit.broker.rig import Answer

COUNT = 6_000


async def fill(bench: PartitionBench, count: int) -> list[str]:
    names = [f"s{number:06}" for number in range(count)]
    answer = Answer()
    bench.queue.send([text(session_id=name) for name in names], answer)
    await settle()
    assert answer.refused == []
    return names


def watch_costs(bench: PartitionBench) -> list[int]:
    """What each read of a store walked over: the sessions that it skipped and those that it gave."""
    costs: list[int] = []

    def watched(read: Any) -> Any:
        async def sessions(
            fragment: int, after_ms: int | None, skip: int, limit: int, *more: str
        ) -> list[str]:
            found: list[str] = await read(fragment, after_ms, skip, limit, *more)
            costs.append(skip + len(found))
            return found

        return sessions

    for store in bench.stores:
        store.sessions = watched(store.sessions)  # type: ignore[method-assign]
    return costs


def test_a_large_skip_costs_what_is_skipped_and_no_more() -> None:
    """Attack: each page of a fragment skipped all pages before it once more, so the cost grew with the square."""

    async def test(bench: PartitionBench) -> None:
        names = await fill(bench, COUNT)
        costs = watch_costs(bench)
        assert await bench.outlet().list_sessions(None, COUNT - 100, 100) == names[-100:]
        assert sum(costs) <= COUNT
        costs.clear()
        assert await bench.outlet().list_sessions(None, 1 << 30, 100) == []
        assert sum(costs) <= COUNT

    on_partitions(test, requires_session=True)


def test_the_first_page_reads_no_more_than_it_may_need() -> None:
    """X-17: the usual request."""

    async def test(bench: PartitionBench) -> None:
        names = await fill(bench, 400)
        costs = watch_costs(bench)
        assert await bench.outlet().list_sessions(None, 0, 10) == names[:10]
        assert max(costs) <= 10

    on_partitions(test, requires_session=True)


def test_a_walk_with_skip_sees_every_session_once_in_order() -> None:
    """X-17: also the one whose name is empty."""

    async def test(bench: PartitionBench) -> None:
        names = ["", *await fill(bench, 55)]
        await bench.put(text(session_id=""))
        seen: list[str] = []
        while page := await bench.outlet().list_sessions(None, len(seen), 7):
            seen += page
        assert seen == sorted(names)

    on_partitions(test, requires_session=True)


def test_a_store_that_goes_while_sessions_are_listed_is_told() -> None:
    """P-48: the client comes again, and is not given a list with a hole."""

    async def test(bench: PartitionBench) -> None:
        await fill(bench, 40)
        store = bench.stores[2]
        read = store.sessions

        async def failing(*values: Any) -> list[str]:
            await bench.lose(2)
            return await read(*values)

        store.sessions = failing  # type: ignore[method-assign]
        try:
            await bench.outlet().list_sessions(None, 0, 100)
        except ServerBusy:
            return
        raise AssertionError("a hole")

    on_partitions(test, requires_session=True)
