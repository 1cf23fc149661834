"""The two ways to read a page of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from busway.store.contract import FragmentKey
from busway.store.log_rows import ChunkTuple, ListedChunk, chunk_data, chunk_row
from busway.store.rows import CHECKSUM_PRIME
from busway.store.sqlite.database_file import open_for_reading, open_for_writing, query
from busway.store.sqlite.event_logs import LogReader
from tests.store_contract.log_scenario import chunk, numbers_in

LOG = FragmentKey(3)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[apsw.Connection]:
    connection = open_for_writing(tmp_path / "a.db", None)
    yield connection
    connection.close()


@pytest.fixture
def reader(writer: apsw.Connection, tmp_path: Path) -> Iterator[LogReader]:
    del writer  # There must be a file.
    connection = open_for_reading(tmp_path / "a.db", None)
    made = LogReader(connection)
    yield made
    made.close()
    connection.close()


def insert(writer: apsw.Connection, row: ChunkTuple) -> None:
    writer.execute(query("chunk_put"), row)


class _CarefulWayTaken(Exception):
    pass


def _refuse(*_: object) -> None:
    raise _CarefulWayTaken


@pytest.mark.parametrize("body", [b"small", b"x" * 2_000, b"x" * 100_000], ids=["small", "medium", "large"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_a_healthy_log_is_read_the_quick_way(
    writer: apsw.Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch, count: int, body: bytes
) -> None:
    """F8: few steps; else a busy loop would hold every chunk up."""
    monkeypatch.setattr(LogReader, "_careful_page", _refuse)
    for number in range(count):
        insert(writer, chunk_row(LOG, chunk(number, body=body)))
    page = reader.chunks(LOG, 0, 8 << 20)
    assert [numbers_in(data) for data in page.chunks] == [[number] for number in range(count)]
    assert (page.damaged, page.more) == ([], False)


@pytest.mark.parametrize(
    ("name", "values"), [("read_chunk_list", 3), ("read_chunks_joined", 3), ("read_sessions", 4)]
)
@pytest.mark.parametrize("is_reader", [True, False], ids=["reader", "writer"])
def test_a_statement_is_prepared_once_whatever_values_it_comes_with(
    writer: apsw.Connection, tmp_path: Path, name: str, values: int, is_reader: bool
) -> None:
    """Speed: preparing it costs several times what running it does. SQLite asks the authorizer as it prepares."""
    connection = open_for_reading(tmp_path / "a.db", None) if is_reader else writer
    asked: list[str | None] = []

    def authorizer(_: int, first: str | None, *__: str | None) -> int:
        asked.append(first)
        return apsw.SQLITE_OK

    connection.authorizer = authorizer
    for number in range(5):
        connection.execute(query(name), tuple(range(number, number + values))).fetchall()
        if number == 0:
            once = len(asked)
    assert len(asked) == once > 0


@pytest.mark.parametrize("count", [1, 5])
def test_a_page_leaves_no_transaction_open(writer: apsw.Connection, reader: LogReader, count: int) -> None:
    """F8: a snapshot that stays would keep the log of the database from starting over."""
    for number in range(count):
        insert(writer, chunk_row(LOG, chunk(number)))
    reader.chunks(LOG, 0, 100)
    [busy, _, _] = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    assert busy == 0


@pytest.mark.parametrize("count", [2, 5])
def test_chunks_that_are_compacted_while_a_page_is_read_are_not_called_damaged(
    writer: apsw.Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """H-31: the list of a page is of another commit than its bytes."""
    for number in range(count):
        insert(writer, chunk_row(LOG, chunk(number)))
    listed = LogReader._listed

    def list_and_compact(self: LogReader, *bounds: Any) -> tuple[list[ListedChunk], bool]:
        answer = listed(self, *bounds)
        writer.execute(query("chunk_delete"), (LOG, 1))
        insert(writer, chunk_row(LOG, chunk(1, body=b"written anew")))
        return answer

    monkeypatch.setattr(LogReader, "_listed", list_and_compact)
    page = reader.chunks(LOG, 0, 8 << 20)
    assert [numbers_in(data) for data in page.chunks] == [[number] for number in range(count)]
    assert page.damaged == []
    assert b"written anew" in page.chunks[1]


def test_a_row_of_another_log_under_the_same_key_is_not_taken(
    writer: apsw.Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-31: the key of the last chunk is given out again once it is deleted."""
    insert(writer, chunk_row(LOG, chunk(0)))
    listed = LogReader._listed

    def list_and_replace(self: LogReader, *bounds: Any) -> tuple[list[ListedChunk], bool]:
        answer = listed(self, *bounds)
        writer.execute(query("chunk_delete"), (LOG, 0))
        insert(writer, chunk_row(LOG + 1, chunk(0, body=b"of another log")))
        return answer

    monkeypatch.setattr(LogReader, "_listed", list_and_replace)
    page = reader.chunks(LOG, 0, 8 << 20)
    assert (page.chunks, page.damaged, page.more) == ([], [], False)


def test_a_page_is_cut_at_some_size_whatever_was_asked_for(
    writer: apsw.Connection, reader: LogReader
) -> None:
    """F8: memory stays bounded."""
    for number in range(12):
        insert(writer, chunk_row(LOG, chunk(number, body=b"x" * 1_000_000)))
    page = reader.chunks(LOG, 0, 1 << 60)
    assert len(page.chunks) == 8
    assert page.more


def test_a_checksum_beyond_the_prime_is_read_the_careful_way(
    writer: apsw.Connection, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4: five values of a CRC-32 cannot be told from five others by the checksum; such chunks are read as well."""
    monkeypatch.setattr("busway.store.log_rows.crc32", lambda _: CHECKSUM_PRIME + 2)
    for number in range(3):
        insert(writer, chunk_row(LOG, chunk(number)))
    page = reader.chunks(LOG, 0, 8 << 20)
    assert (len(page.chunks), page.damaged) == (3, [])


@pytest.mark.parametrize("bit", range(63))
@pytest.mark.parametrize("column", range(7))
def test_no_single_bit_of_a_head_changes_unnoticed(column: int, bit: int) -> None:
    """F4: each bit of each integer."""
    row: list[Any] = list(chunk_row(LOG, chunk(7, 8)))
    assert chunk_data(tuple(row)) == row[7]
    row[column] ^= 1 << bit
    assert chunk_data(tuple(row)) is None


@pytest.mark.parametrize("row", [None, (), (1, 2), 7, "text", (1,) * 9])
def test_what_is_no_row_is_damaged(row: Any) -> None:
    assert chunk_data(row) is None
