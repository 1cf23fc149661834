"""How much one request by sequence number may be answered with."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from busway.clock import Clock
from busway.message.message import PLACE_DEFERRED
from busway.model.errors import ArgumentOutOfRange, MessageNotFound
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.store_contract.scenario import HoldableSqliteStore, add_fragment, message, put
from tests.unit.broker.partition_bench import COUNT, PartitionBench, on_partitions, text
from tests.unit.broker.rig import Rig, numbers, play

KIB = 1024
MIB = 1024 * KIB
LIMITS = Limits(fetch_bytes_max=64 * KIB)


@pytest.mark.parametrize("deletes", [False, True])
def test_more_than_one_answer_may_hold_is_refused_before_anything_is_locked(deletes: bool) -> None:
    """Attack: 1 KB of request was answered with 185 MiB. The sentence says how many of the asked numbers fit."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts(*["x" * 10 * KIB] * 10)
        await rig.settle(await rig.receive(10), Verb.DEFER)
        wanted = [9, 1, 2, 3, 4, 5, 6, 7, 8, 10]
        before = rig.store.fetches
        with pytest.raises(ArgumentOutOfRange, match="the first 6 of the 10 numbers fit"):
            await rig.main.receive_by_number(wanted, deletes=deletes)
        assert rig.store.fetches == before, "no body was read"
        assert rig.queue.counts().deferred == 10
        got = await rig.main.receive_by_number(wanted[:6], deletes=deletes)
        assert sorted(numbers(got)) == [1, 2, 3, 4, 5, 9]

    play(scenario, limits=LIMITS)


def test_one_message_can_always_be_had() -> None:
    """R-51: however small the limit is."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("x" * 100 * KIB, "y")
        await rig.settle(await rig.receive(2), Verb.DEFER)
        with pytest.raises(ArgumentOutOfRange, match="the first 1 of the 2 numbers fit"):
            await rig.main.receive_by_number([1, 2, 1], deletes=False)
        assert numbers(await rig.main.receive_by_number([1, 1], deletes=False)) == [1]

    play(scenario, limits=LIMITS)


def test_a_number_that_is_not_there_weighs_nothing() -> None:
    """R-52: it is told as before."""

    async def scenario(rig: Rig) -> None:
        with pytest.raises(MessageNotFound):
            await rig.main.receive_by_number(list(range(1, 5_001)), deletes=False)

    play(scenario, limits=LIMITS)


@pytest.mark.parametrize("deletes", [False, True])
def test_the_fragments_of_a_partitioned_entity_count_together(deletes: bool) -> None:
    """P-50, Attack: no fragment alone has too much, and none has locked anything when it is refused."""

    async def test(bench: PartitionBench) -> None:
        found = await bench.put(*[text("x" * 20 * KIB) for _ in range(COUNT)])
        assert await bench.end(await bench.receive(), Verb.DEFER) == []
        assert len({number >> 48 for number in found}) == COUNT
        with pytest.raises(ArgumentOutOfRange, match="the first 3 of the 4 numbers fit"):
            await bench.outlet().receive_by_number(found, deletes=deletes)
        assert [len(member.locks.deferred) for member in bench.outlet().fragments()] == [0] * COUNT
        assert bench.queue.counts().deferred == COUNT
        got = await bench.outlet().receive_by_number(found[:3], deletes=deletes)
        assert sorted(numbers(got)) == sorted(found[:3])

    on_partitions(test, limits=LIMITS)


def test_a_refused_request_costs_no_memory(tmp_path: Path) -> None:
    """Attack: the sizes alone are read."""

    async def scene() -> None:
        store = HoldableSqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, *[message(n, bytes(MIB)) for n in range(1, 31)], place=PLACE_DEFERRED)
        await store.flush()
        tracemalloc.start()
        sizes = await store.sizes(fragment, PLACE_DEFERRED, range(1, 100))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(sizes) == 30
        assert min(sizes.values()) >= MIB
        assert peak < MIB
        await store.close()

    asyncio.run(scene())


def test_many_bytes_are_read_in_pages(tmp_path: Path) -> None:
    """Contract: no reader thread is kept by one request for longer than a page takes, and the answer is one."""

    async def scene() -> None:
        store = HoldableSqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, *[message(n, bytes(300 * KIB)) for n in range(1, 21)], place=PLACE_DEFERRED)
        await store.flush()
        store.readers.runs = 0
        page = await store.by_number(fragment, PLACE_DEFERRED, [*range(20, 0, -1), 99])
        assert [each.sequence_number for each in page.messages] == list(range(1, 21))
        assert not page.more
        assert store.readers.runs >= 5
        await store.close()

    asyncio.run(scene())
