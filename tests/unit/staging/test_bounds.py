"""What is bounded is refused with a sentence; what is damaged is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from busway.model.errors import QuotaExceeded
from busway.model.limits import Limits
from busway.staging import decisions, stage_table
from busway.staging.decisions import JOB, Decision, read_decisions
from busway.staging.stage_table import EntityName, Stage, StageLog, StageNote, note_text, read_stages
from busway.store.contract import ChunkHead, ChunkPage, Counters, FragmentKey
from tests.unit.staging.staging_bench import STREAM, WRITE, StagingBench, on_a_staging_bench, texts


def test_no_more_stages_than_memory_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging: new stages are refused; those that are there go on, and make room when they are dropped."""
    monkeypatch.setattr(stage_table, "STAGES_MAX", 2)

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        for stage in (1, 2):
            await bench.stage("orders", stage, *texts(0, 1))
        with pytest.raises(QuotaExceeded, match="neither committed nor aborted"):
            await bench.stage("orders", 3, *texts(0, 1))
        await bench.stage("orders", 1, *texts(1, 1), part=1)
        await bench.drop(2)
        await bench.stage("orders", 3, *texts(0, 1))

    on_a_staging_bench(test)


def test_no_more_names_than_can_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging: a name that could not be known again is refused, by kind; known ones go on."""
    monkeypatch.setattr(decisions, "DECISIONS_MAX", 2)

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        for write in ("a", "b"):
            await bench.decide({}, write=write)
        with pytest.raises(QuotaExceeded, match="takes no new name"):
            await bench.decide({}, write="c")
        with pytest.raises(QuotaExceeded, match="takes no new name"):
            await bench.stage("orders", 1, *texts(0, 1), write="c", kind=STREAM)
        await bench.decide({}, write="c", kind=WRITE)
        await bench.decide({}, write="a", batch=1)
        await bench.crash()
        with pytest.raises(QuotaExceeded, match="takes no new name"):
            await bench.decide({}, write="d")
        assert await bench.stagings.forget("b")
        await bench.decide({}, write="d")

    on_a_staging_bench(test)


def test_a_full_namespace_refuses_rows_when_they_are_staged() -> None:
    """L-4: never later; what is staged finds its room."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 30))
        with pytest.raises(QuotaExceeded, match="maximum size of the namespace"):
            await bench.stage("orders", 2, *texts(0, 30))
        await bench.decide({1: 30})
        await bench.publish_all()
        assert len(await bench.rows("orders")) == 30

    on_a_staging_bench(test, limits=Limits(namespace_bytes_max=2_500))


def test_a_damaged_chunk_loses_its_own_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging: rows that cannot be read are counted, and those behind them are published."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        for part in range(3):
            await bench.stage("orders", 1, *texts(part * 2, 2), part=part)
        (store,) = bench.stores
        read = store.chunks

        async def damaged(log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
            page = await read(log, from_number, bytes_max)
            if from_number >= 4:
                return page
            head = ChunkHead(2, 3, 0, 0, 2, 100)
            return ChunkPage([data for data in page.chunks if b"row 2" not in data], [head], page.more)

        monkeypatch.setattr(store, "chunks", damaged)
        decided = await bench.decide({1: 6})
        await bench.publish_all()
        assert decided.decision.is_published
        assert await bench.rows("orders") == ["row 0", "row 1", "row 4", "row 5"]
        assert bench.stagings.decider.publisher.rows_dropped == 2
        assert bench.is_clean()

    on_a_staging_bench(test)


T = TypeVar("T")


async def turns_of_others(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """What it gives, and how often others had their turn before."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.get_running_loop().create_task(others())
    try:
        return await work, turns
    finally:
        beside.cancel()
        with suppress(asyncio.CancelledError):
            await beside


def test_a_home_with_many_decisions_is_read_in_many_turns() -> None:
    """Cost: 100,000 decisions took 0.9 s of one turn of the loop; now each turn reads 500."""
    rows = [Decision(f"job {number}", 0, JOB, 1_000, {}, ["orders"]) for number in range(5_000)]
    found, turns = asyncio.run(turns_of_others(read_decisions({row.row_key: row.text() for row in rows})))
    assert [row.write for row in found] == [row.write for row in rows]
    assert turns >= 10


def test_a_store_with_many_stages_is_read_in_many_turns() -> None:
    """Cost: 100,000 stages are not read in one turn of the loop."""
    entity = EntityName("queue:orders", "orders", 1)
    counters = {FragmentKey(number): Counters() for number in range(5_000)}
    notes: dict[str, str] = {}
    for key, counted in counters.items():
        stage, note = Stage(f"{key:032x}", "query", 0, STREAM), StageNote(f"{key:032x}")
        note.logs.append(StageLog(entity, 0, FragmentKey(9_999), key, counted))
        notes[note.row_key] = note_text(stage, note)
    found, turns = asyncio.run(turns_of_others(read_stages(notes, counters)))
    assert [stage.id for stage, _ in found] == [f"{key:032x}" for key in counters]
    assert turns >= 10
