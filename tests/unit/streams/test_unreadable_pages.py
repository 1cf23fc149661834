"""Chunks that the disk or the database does not give out: readers are told, bounded in time, and others work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from busway.clock import Clock
from busway.message.event_chunk import Chunk, ChunkBuilder
from busway.model.errors import EventsLost, ServerBusy
from busway.model.limits import Limits
from busway.store.contract import Counters, FragmentKey, FragmentRow, LogChanges, StoreError
from busway.store.sqlite.store import SqliteStore
from busway.streams.cursor import TIME, Position
from tests.unit.streams.rig import HubRig, play

CHUNKS = 12
#: A row of its own leaf page, with overflow pages.
BODY = b"x" * 9_000


def test_a_reader_of_what_cannot_be_read_is_evicted_after_a_few_tries() -> None:
    """F4, H-21: the sentence names the partition and the number; nobody waits for ever."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b", "c")
        rig.store.refuses_reads = True
        reader = rig.reader(1)
        rig.log.readers.add("g", reader)
        await rig.calm()
        assert reader.evicted_with == []
        for _ in range(10):
            await rig.advance(1.0)
        (error,) = reader.evicted_with
        assert isinstance(error, EventsLost)
        assert "number 1 on" in error.sentence
        assert "partition 0 of 'clicks'" in error.sentence
        assert rig.log.readers.all() == []
        assert rig.store.reads <= 6

    play(scenario)


def test_failures_that_end_in_time_count_no_longer() -> None:
    """H-21: each success makes the patience whole again."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader()
        assert reader.cursor is not None
        for number in range(4):
            rig.store.refuses_reads = True
            await rig.append(str(number))
            for _ in range(3):
                await rig.advance(1.0)
            rig.store.refuses_reads = False
            await rig.advance(1.0)
        assert reader.evicted_with == []
        assert reader.numbers == [0, 1, 2, 3]

    play(scenario, Limits(tails_bytes_max=10))


def test_other_partitions_of_the_store_are_read_on() -> None:
    """H-12: what one log has lost is no matter of another one."""

    async def scenario(rig: HubRig) -> None:
        for index in range(2):
            rig.append_later("a", log=rig.hub.partition(str(index)))
        await rig.calm()
        rig.store.refused_logs = {rig.hub.partition("0").key}
        lost = rig.reader()
        for _ in range(10):
            await rig.advance(1.0)
        assert len(lost.evicted_with) == 1
        assert len((await rig.hub.partition("1").page(0, 100)).chunks) == 1
        assert await rig.append("b") is None

    play(scenario, partitions=2)


def test_a_page_of_what_cannot_be_read_says_so() -> None:
    """H-20: the bulk route answers with the same sentence; a store that is away is another matter."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        rig.store.refuses_reads = True
        with pytest.raises(EventsLost, match="number 1 on of partition 0 of 'clicks'"):
            await rig.log.page(1, 100)
        rig.store.crash()
        with pytest.raises(ServerBusy):
            await rig.log.page(1, 100)
        await rig.store.open()

    play(scenario)


def test_a_position_by_time_in_what_cannot_be_read_is_found() -> None:
    """H-20: the reader begins at the chunk that holds it, and is told there."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        rig.clock.advance(10.0)
        await rig.fill("b", "c")
        rig.store.refuses_reads = True
        assert await rig.log.start_number(Position(TIME, rig.clock.wall_ms(), True)) == 1

    play(scenario)


# -- a real file


def _store(folder: Path) -> SqliteStore:
    return SqliteStore("first", folder / "first.db", Clock(), reserve_bytes=0, space_low_bytes=0)


async def _fill(folder: Path) -> list[FragmentKey]:
    """Two logs whose chunks lie in turn, two events in each."""
    store = _store(folder)
    await store.open()
    logs = [store.next_fragment_key() for _ in range(2)]
    for index, log in enumerate(logs):
        counters = Counters()
        counters.last_counter = 2 * CHUNKS
        store.batch().fragments_created.append(FragmentRow(log, "clicks", index, counters))
    for first in range(0, 2 * CHUNKS, 2):
        for log in logs:
            batch = store.batch()
            if batch.logs is None:
                batch.logs = LogChanges()
            builder = ChunkBuilder()
            builder.add(first, 1000 + first, BODY, 0)
            builder.add(first + 1, 1001 + first, BODY, 0)
            batch.logs.chunks.append((log, builder))
        await store.flush()
    await store.close()
    return logs


def _leaf_of(path: Path, log: int, last_number: int) -> int:
    """The page that begins the row of a chunk."""
    connection = apsw.Connection(str(path))
    (key,) = connection.execute(
        "SELECT key FROM log_chunks WHERE log = ? AND last_number = ?", (log, last_number)
    ).fetchall()[0]
    connection.close()
    page_bytes = _page_bytes(path)
    data = path.read_bytes()
    for at in range(0, len(data), page_bytes):
        page = data[at : at + page_bytes]
        if page[0] != 0x0D:
            continue
        for cell in range(int.from_bytes(page[3:5], "big")):
            place = int.from_bytes(page[8 + 2 * cell : 10 + 2 * cell], "big")
            size, place = _varint(page, place)
            row_key, place = _varint(page, place)
            if row_key == key and size > len(BODY):
                return at
    raise AssertionError("the row was not found")


def _page_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(18)[16:], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    while True:
        value = value << 7 | data[at] & 0x7F
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _ruin(path: Path, at: int) -> None:
    """A page that is no page of a tree any more."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 64)


async def _read_all(store: SqliteStore, log: FragmentKey) -> tuple[list[int], list[int]]:
    """Numbers that come, and numbers that are reported as damaged."""
    good: list[int] = []
    bad: list[int] = []
    number = 0
    while number < 2 * CHUNKS:
        page = await store.chunks(log, number, 1 << 16)
        for chunk in map(Chunk, page.chunks):
            good += [chunk.number(place) for place in range(chunk.count)]
        for head in page.damaged:
            bad += range(head.first_number, head.last_number + 1)
        number = max(good + bad) + 1
    return good, bad


def test_a_malformed_page_costs_the_chunks_that_begin_on_it(tmp_path: Path) -> None:
    """F4, H-21: each is named, every other one comes, of this log and of others."""
    first, second = asyncio.run(_fill(tmp_path))
    path = tmp_path / "first.db"
    _ruin(path, _leaf_of(path, first, 13))

    async def scenario() -> None:
        store = _store(tmp_path)
        await store.open()
        try:
            for log in (first, second):
                good, bad = await _read_all(store, log)
                assert sorted(good + bad) == list(range(2 * CHUNKS))
                assert log is not first or {12, 13} <= set(bad)
                assert 0 in good
                assert len(bad) <= 10
        finally:
            await store.close()

    asyncio.run(scenario())


def test_a_malformed_index_is_an_error_and_no_silence(tmp_path: Path) -> None:
    """F4, H-21: nobody can tell then which chunks there are."""
    first, _ = asyncio.run(_fill(tmp_path))
    path = tmp_path / "first.db"
    connection = apsw.Connection(str(path))
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'chunk_numbers'"
    ).fetchall()[0]
    connection.close()
    assert isinstance(root, int)

    async def scenario() -> None:
        store = _store(tmp_path)
        await store.open()
        try:
            with pytest.raises(StoreError, match="malformed"):
                await store.chunks(first, 0, 1 << 20)
        finally:
            await store.close()

    _ruin(path, (root - 1) * _page_bytes(path))
    asyncio.run(scenario())
