"""A disk whose power goes under a store: what SQLite says of it, and what that is taken for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from busway.clock import Clock
from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import Counters, FragmentKey, FragmentRow, LogChanges
from busway.store.sqlite import event_logs
from busway.store.sqlite.database_file import open_for_reading
from busway.store.sqlite.event_logs import LogReader, last_failure
from busway.store.sqlite.store import SqliteStore
from tests.chaos.power_cut import LoopDisk, why_not_here

pytestmark = pytest.mark.fault

CHUNKS = 8
#: One chunk fills pages of its own.
BODY = b"x" * 50_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if (reason := why_not_here()) is not None:
        pytest.skip(reason)
    disk = LoopDisk(tmp_path)
    try:
        disk.create()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"loop mount refused: {error.stderr!r}")
    yield disk
    disk.unmount()


async def _fill(path: Path) -> FragmentKey:
    store = SqliteStore("first", path, Clock(), reserve_bytes=0, space_low_bytes=0)
    await store.open()
    log, counters = store.next_fragment_key(), Counters()
    counters.last_counter = CHUNKS
    store.batch().fragments_created.append(FragmentRow(log, "clicks", 0, counters))
    for number in range(CHUNKS):
        batch = store.batch()
        batch.logs = LogChanges()
        builder = ChunkBuilder()
        builder.add(number, 1000 + number, BODY, 0)
        batch.logs.chunks.append((log, builder))
        await store.flush()
    await store.close()
    return log


def _reader_that_knows_the_index(path: Path, log: FragmentKey) -> apsw.Connection:
    connection = open_for_reading(path, None)
    connection.execute(
        "SELECT last_number FROM log_chunks INDEXED BY chunk_numbers WHERE log = ?", (log,)
    ).fetchall()
    return connection


def test_a_chunk_that_the_disk_does_not_give_out_is_not_damaged(disk: LoopDisk) -> None:
    """H-21: what is damaged is passed over for good by captures and by what publishes staged rows; an input/output
    error may be over at the next try, though SQLite calls both malformed."""
    path = disk.mount_point / "first.db"
    log = asyncio.run(_fill(path))
    with contextlib.closing(_reader_that_knows_the_index(path, log)) as connection:
        disk.cut_power()
        with pytest.raises(apsw.CorruptError, match="malformed"):
            connection.execute("SELECT data FROM log_chunks").fetchall()
        assert last_failure(connection) == errno.EIO
        with pytest.raises(apsw.Error):
            LogReader(connection).chunks(log, 0, 1 << 20)
    disk.unmount()
    disk.mount()
    with contextlib.closing(open_for_reading(path, None)) as connection:
        page = LogReader(connection).chunks(log, 0, 1 << 20)
    assert (len(page.chunks), page.damaged) == (CHUNKS, [])


def test_the_systems_word_is_believed_where_sqlites_is_the_same(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-21: the file opens a second time, and the disk fails then: an input/output error, no damage."""
    path = disk.mount_point / "first.db"
    log = asyncio.run(_fill(path))
    with (
        contextlib.closing(_reader_that_knows_the_index(path, log)) as connection,
        contextlib.closing(_reader_that_knows_the_index(path, log)) as opened_before,
    ):
        monkeypatch.setattr(event_logs, "open_for_reading", lambda *_: opened_before)
        disk.cut_power()
        with pytest.raises(apsw.IOError, match="Input/output error"):
            LogReader(connection).chunks(log, 0, 1 << 20)
