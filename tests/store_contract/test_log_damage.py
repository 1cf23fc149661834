"""Flipped bits in logs: a changed event is never delivered, its neighbours are."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from busway.clock import Clock
from busway.message.event_chunk import Chunk
from busway.store.contract import FragmentKey, StoreError
from busway.store.sqlite.store import SqliteStore
from tests.store_contract.log_scenario import append, chunk, head_values, numbers_in, retire
from tests.store_contract.scenario import LOTS, World, add_fragment

pytestmark = pytest.mark.fault

LOG = FragmentKey(1)
#: What a flipped bit can make of a row; also what STRICT keeps statements from writing.
DAMAGES = [
    "log = 5",
    "first_number = 4",
    "first_number = 1000000",
    "first_number = 3.5",
    "first_number = CAST(x'ff' AS TEXT)",
    "last_number = 1000000",
    "last_number = 0",
    "first_at = 1",
    "last_at = 1",
    "last_at = NULL",
    "events = 5",
    "events = 'many'",
    "checksum = checksum + 1",
    "checksum = NULL",
    "data = x'00'",
    "data = x''",
    "data = substr(data, 1, length(data) - 1)",
    "data = CAST(data || x'00' AS BLOB)",
    "data = CAST(replace(data, '4:', '9:') AS BLOB)",
    "data = CAST(data AS TEXT)",
    "data = CAST(x'ff' AS TEXT)",
    "data = 7",
    "data = NULL",
]


def damage(path: Path, statement: str) -> None:
    """Changes rows behind the back of their indexes and types, as a flipped bit does."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")
    indexes = connection.execute(
        "SELECT * FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'log_chunks'"
    )
    rows = indexes.fetchall()
    assert len(rows) == 2
    connection.execute("DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'log_chunks'")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '')"
        " WHERE name = 'log_chunks'"
    )
    connection.close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE log_chunks SET " + statement)  # noqa: S608
    connection.execute("PRAGMA writable_schema = ON")
    connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()


async def write_log(store: Any, body: bytes, count: int) -> None:
    log = add_fragment(store, "hub")
    append(store, log, *[chunk(n, n + 1, n + 2, body=body) for n in range(0, 3 * count, 3)])


@pytest.mark.parametrize("body", [b"small", b"x" * 30_000], ids=["small", "large"])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("assignment", DAMAGES)
def test_a_damaged_chunk_is_named_and_the_page_goes_on_behind_it(
    sqlite_world: World, assignment: str, count: int, body: bytes
) -> None:
    """F4: each column is covered by the checksum; what is said of the chunk leads behind it."""
    sqlite_world.run(lambda store: write_log(store, body, count))
    damage(sqlite_world.directory / "first.db", f"{assignment} WHERE key = 2")

    async def read(store: Any) -> None:
        page = await store.chunks(LOG, 0, LOTS)
        seen = [number for data in page.chunks for number in numbers_in(data)]
        assert seen == [number for number in range(3 * count) if number not in (3, 4, 5)]
        [head] = page.damaged
        assert head.last_number == 5
        assert 3 <= head.first_number <= 5
        assert all(isinstance(value, int) for value in head_values(head))
        # From inside, and from behind it: no trace of it.
        [head] = (await store.chunks(LOG, 5, 1)).damaged
        assert head.last_number == 5
        page = await store.chunks(LOG, 6, LOTS)
        assert (page.damaged, len(page.chunks)) == ([], count - 2)
        # Heads are listed as far as they can be told, and the other look-ups still answer.
        heads = await store.chunk_heads(LOG, 0, 10)
        assert all(isinstance(value, int) for each in heads for value in head_values(each))
        assert await store.first_number_since(LOG, 0) == 0

    sqlite_world.run(read)


def test_damaged_chunks_count_into_the_size_of_a_page(sqlite_world: World) -> None:
    """F4: a log that is damaged from end to end is looked at in pages, too, and each leads on."""
    sqlite_world.run(lambda store: write_log(store, b"x" * 1_000, 20))
    damage(sqlite_world.directory / "first.db", "checksum = 1")

    async def read(store: Any) -> None:
        at, pages, named = 0, 0, []
        while True:
            page = await store.chunks(LOG, at, 10_000)
            pages += 1
            assert page.chunks == []
            named += [head.first_number for head in page.damaged]
            if not page.more:
                break
            at = page.damaged[-1].last_number + 1
        assert named == list(range(0, 60, 3))
        assert 5 < pages < 20

    sqlite_world.run(read)


def test_a_damaged_chunk_can_be_deleted(sqlite_world: World) -> None:
    """F4, H-30: retention takes it like any other, and then nobody hears of it again."""
    sqlite_world.run(lambda store: write_log(store, b"small", 3))
    damage(sqlite_world.directory / "first.db", "checksum = 1 WHERE key = 2")

    async def play(store: Any) -> None:
        retire(store, LOG, 3)
        await store.flush()
        page = await store.chunks(LOG, 0, LOTS)
        assert ([numbers_in(data)[0] for data in page.chunks], page.damaged) == ([0, 6], [])

    sqlite_world.run(play)


def test_a_chunk_that_an_index_no_longer_finds_is_an_error_or_named(sqlite_world: World) -> None:
    """F4: an index that leads nowhere is not taken for the end of the log."""
    sqlite_world.run(lambda store: write_log(store, b"small", 3))
    damage(sqlite_world.directory / "first.db", "key = 77 WHERE key = 2")

    async def read(store: Any) -> None:
        try:
            page = await store.chunks(LOG, 0, LOTS)
        except StoreError:
            return
        assert [numbers_in(data)[0] for data in page.chunks] == [0, 6]
        assert [head.last_number for head in page.damaged] == [5]

    sqlite_world.run(read)


def test_no_flipped_bit_in_the_file_gives_a_changed_event(sqlite_world: World) -> None:
    """F4: 150 damages: refused at opening, an error on reading, a chunk named, or no effect."""
    originals: dict[int, bytes] = {}

    async def write(store: Any) -> None:
        log = add_fragment(store, "hub")
        for number in range(0, 60, 3):
            append(store, log, chunk(number, number + 1, number + 2, body=b"%d." % number * 3_000))
        await store.flush()
        page = await store.chunks(log, 0, LOTS)
        originals.update({Chunk(data).first_number: data for data in page.chunks})

    sqlite_world.run(write)
    assert len(originals) == 20
    source = random.Random(4)
    noticed = 0

    async def look(directory: Path) -> int:
        store = SqliteStore("first", directory / "first.db", Clock(), reserve_bytes=0, space_low_bytes=0)
        try:
            await store.open()
            page = await store.chunks(LOG, 0, LOTS)
        except StoreError:
            return 1
        finally:
            await store.close()
        for data in page.chunks:
            assert data == originals[Chunk(data).first_number]
        return 1 if page.damaged else 0

    for attempt in range(150):
        directory = sqlite_world.directory / f"damage-{attempt}"
        directory.mkdir()
        shutil.copy(sqlite_world.directory / "first.db", directory / "first.db")
        data = bytearray((directory / "first.db").read_bytes())
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        (directory / "first.db").write_bytes(data)
        noticed += asyncio.run(look(directory))
        shutil.rmtree(directory)
    assert noticed > 20
