"""A log whose counters say less than its chunks: no number is given out twice, and nothing is hidden."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from busway.clock import Clock
from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import Counters, FragmentKey, FragmentRow, LogChanges
from busway.store.sqlite.store import SqliteStore

EVENTS = 40


def _store(folder: Path) -> SqliteStore:
    return SqliteStore("first", folder / "first.db", Clock(), reserve_bytes=0, space_low_bytes=0)


def _counted(last_counter: int, deferred: int) -> Counters:
    counters = Counters()
    counters.last_counter, counters.deferred = last_counter, deferred
    return counters


async def _fill(folder: Path) -> FragmentKey:
    """A log with events 5 to 39, and a queue beside it."""
    store = _store(folder)
    await store.open()
    log, queue = store.next_fragment_key(), store.next_fragment_key()
    batch = store.batch()
    batch.fragments_created.append(FragmentRow(log, "clicks", 0, _counted(EVENTS, 5)))
    batch.fragments_created.append(FragmentRow(queue, "orders", 0, _counted(3, 2)))
    batch.logs = LogChanges()
    for first in range(5, EVENTS, 7):
        builder = ChunkBuilder()
        for number in range(first, first + 7):
            builder.add(number, 1000 + number, b"record", 0)
        batch.logs.chunks.append((log, builder))
    await store.flush()
    await store.close()
    return log


async def _counters(folder: Path) -> list[Counters]:
    store = _store(folder)
    await store.open()
    try:
        return [row.counters for row in await store.fragments()]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("UPDATE fragments SET last_counter = last_counter WHERE key = ?", (40, 5)),
        ("UPDATE fragments SET last_counter = 24 WHERE key = ?", (40, 5)),
        ("UPDATE fragments SET last_counter = 0 WHERE key = ?", (40, 5)),
        ("UPDATE fragments SET last_counter = 56 WHERE key = ?", (56, 5)),
        ("UPDATE fragments SET deferred = 21 WHERE key = ?", (40, 5)),
        ("UPDATE fragments SET deferred = 1 << 40 WHERE key = ?", (40, 5)),
        ("UPDATE fragments SET deferred = 1 WHERE key = ?", (40, 1)),
    ],
)
def test_damaged_counters_give_no_number_out_twice(
    tmp_path: Path, damage: str, expected: tuple[int, int]
) -> None:
    """F4, H-16: the next number lies behind the last chunk, and the first is not behind the first chunk."""
    log = asyncio.run(_fill(tmp_path))
    with sqlite3.connect(tmp_path / "first.db") as database:
        database.execute(damage, (log,))
    database.close()
    found = asyncio.run(_counters(tmp_path))
    assert (found[0].last_counter, found[0].deferred) == expected
    assert (found[1].last_counter, found[1].deferred) == (3, 2)
