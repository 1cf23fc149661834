"""Logs in the database: writing what a commit batch changes in them, and reading chunks as committed.

Writing. A chunk is one row at the end of its table, whatever log it belongs to; its bytes are taken from its
builder here, at the moment the batch is written. Removing a chunk frees the pages of its bytes without reading
them (their order stands in the file's own map of pages), so retention and compaction cost what their rows cost. A
dropped log is swept in slices in which large chunks count for more.

Reading is done in a reader thread; each chunk is proven by its checksum there, off the loop. Every statement's
step, and every CRC of a few kilobytes, lets the interpreter go and waits to get it back; behind a busy event loop
that takes longer than the step. So a page takes few of them: one step lists the chunks that fit, as one text; one
brings the bytes of all of them in a row, unless they are so few and large that a step each is cheaper than the
copies this makes; one CRC proves them. No transaction: it would be two steps more.

Whatever does not fit together sends the page to the careful way, chunk by chunk in one transaction: a damaged row,
one that went between the two steps, one whose pages SQLite cannot make sense of. Only there damage is believed.
What the disk does not give out is no damage: a page ends before it, and one that begins there fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import apsw

from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import ChunkHead, ChunkPage, FragmentKey, LogChanges, ProducerRow
from busway.store.log_rows import ListedChunk, chunk_data, chunk_row, damaged_head, is_of, joined_crc
from busway.store.sqlite.database_file import open_for_reading
from busway.store.statements import statements_of

query = statements_of(__package__).query

#: Of chunks that are put in one turn of the loop; one alone may be larger.
BYTES_PER_TURN: Final = 1 << 20
#: In a sweep so many bytes of a chunk count like one row more: each of its pages is put on the list of free ones.
SWEPT_AS_ROW_BYTES: Final = 32 << 10


class LogWriter:
    """Runs the statements about logs on the writing connection."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor

    def write(self, changes: LogChanges) -> Generator[None, None, None]:
        """Others may go on wherever it yields, which only many bytes do."""
        many = self._cursor.executemany
        if changes.deleted:
            many(_CHUNK_DELETE, changes.deleted)
        for some, is_last in _in_turns([each for each in changes.chunks if each[1].count > 0]):
            many(_CHUNK_PUT, (chunk_row(log, builder) for log, builder in some))
            if not is_last:
                yield
        if changes.producers:
            many(
                _PRODUCER_PUT,
                [
                    (log, row.producer_id, row.epoch, row.last_sequence, row.used_at_ms, row.groups)
                    for log, row in changes.producers
                ],
            )
        if changes.producers_purged:
            many(_PRODUCERS_PURGE, changes.producers_purged)

    def sweep(self, log: int, room: int) -> int:
        """Removes rows of a dropped log. How much of the room they took; less than the room when none is left."""
        taken = 0
        keys: list[tuple[int]] = []
        sizes: Any = self._cursor.execute(_SWEEP_CHUNK_SIZES, (log, room)).fetchall()
        for key, size_bytes in sizes:
            if taken >= room:
                break
            keys.append((key,))
            taken += 1 + size_bytes // SWEPT_AS_ROW_BYTES
        self._cursor.executemany(_SWEEP_CHUNK, keys)
        if taken < room:
            self._cursor.execute(_SWEEP_PRODUCERS, (log, room - taken))
            taken += self._cursor.connection.changes()
        return taken


def _in_turns(
    chunks: list[tuple[int, ChunkBuilder]],
) -> Iterator[tuple[list[tuple[int, ChunkBuilder]], bool]]:
    """Some at a time, and whether they are the last."""
    start = size_bytes = 0
    for at, (_, builder) in enumerate(chunks, 1):
        size_bytes += builder.record_bytes
        if size_bytes >= BYTES_PER_TURN or at == len(chunks):
            yield chunks[start:at], at == len(chunks)
            start, size_bytes = at, 0


_CHUNK_PUT: Final = query("chunk_put")
_CHUNK_DELETE: Final = query("chunk_delete")
_PRODUCER_PUT: Final = query("producer_put")
_PRODUCERS_PURGE: Final = query("producers_purge")
_SWEEP_CHUNK_SIZES: Final = query("sweep_chunk_sizes")
_SWEEP_CHUNK: Final = query("sweep_chunk")
_SWEEP_PRODUCERS: Final = query("sweep_producers")


#: Numbers and times outside of SQLite's integers are asked for by people, not found in logs.
_FAR: Final = (1 << 63) - 1
#: With no more chunks than this a step each is cheaper.
_FEW_CHUNKS: Final = 2
#: A page is cut here, however much was asked for.
_PAGE_BYTES_MAX: Final = 8 << 20
#: What a damaged chunk counts at least, so that the page ends.
_DAMAGE_BYTES: Final = 4 << 10
#: From this length on `crc32` lets the interpreter go.
_LONG_BYTES: Final = 5 << 10


class LogReader:
    """The part of a `Reader` about logs, on the same connection. Used by one thread at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    def close(self) -> None:
        self._cursor.close()

    def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        """At least one chunk, whole or damaged, however large."""
        bounds = (log, _within(from_number), min(max(bytes_max, 0), _PAGE_BYTES_MAX))
        try:
            page = self._quick_page(*bounds)
        except (ValueError, TypeError, apsw.CorruptError, apsw.IOError):
            page = None  # Damage may turn any column into another type, or hit one page of many.
        return self._careful_page(*bounds) if page is None else page

    # -- the quick way
    def _quick_page(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage | None:
        """None when the careful way must be taken."""
        listed, more = self._listed(log, from_number, bytes_max)
        if not all(each.log == log and each.last_number == each.indexed_number for each in listed):
            return None
        chunks = self._one_by_one(listed) if len(listed) <= _FEW_CHUNKS else self._joined(log, listed)
        return None if chunks is None else ChunkPage(chunks, [], more)

    def _listed(self, log: FragmentKey, from_number: int, bytes_max: int) -> tuple[list[ListedChunk], bool]:
        """The chunks that fit, and whether others are left. No bytes are read."""
        rows: Any = self._cursor.execute(_READ_CHUNK_LIST, (log, from_number, bytes_max)).fetchall()
        text: str | None = rows[0][0]
        if text is None:
            return [], False
        listed = [ListedChunk(*map(int, line.split(" "))) for line in text.split(",")]
        more = len(listed) > 1 and not listed[-1].fits
        return listed[:-1] if more else listed, more

    def _one_by_one(self, listed: list[ListedChunk]) -> list[bytes] | None:
        """Each straight into the bytes that are handed out: as a row's value it would be copied once more."""
        chunks: list[bytes] = []
        for each in listed:
            data = self._bytes_of(each.key)
            if data is None or len(data) != each.size_bytes or crc32(data) != each.crc:
                return None
            chunks.append(data)
        return chunks

    def _bytes_of(self, key: int) -> bytes | None:
        """None for a row that is not there, holds no bytes, or is being written anew."""
        try:
            blob = self._connection.blob_open("main", _CHUNKS, "data", key, False)
        except apsw.SQLError:
            return None
        try:
            return blob.read()
        except apsw.AbortError:
            return None
        finally:
            blob.close(True)

    def _joined(self, log: FragmentKey, listed: list[ListedChunk]) -> list[bytes] | None:
        bounds = (log, listed[0].last_number, listed[-1].last_number)
        rows: Any = self._cursor.execute(_READ_CHUNKS_JOINED, bounds).fetchall()
        data: bytes | None = rows[0][0]
        if data is None or len(data) != sum(each.size_bytes for each in listed):
            return None
        if len(data) >= len(listed) * _LONG_BYTES:
            if crc32(data) != joined_crc((each.crc, each.size_bytes) for each in listed):
                return None
            return _cut(data, listed)
        chunks = _cut(data, listed)
        are_right = all(crc32(chunk) == each.crc for chunk, each in zip(chunks, listed, strict=True))
        return chunks if are_right else None

    # -- the careful way
    def _careful_page(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        self._cursor.execute(_BEGIN_READ)
        try:
            return self._row_by_row(log, from_number, bytes_max)
        finally:
            if self._connection.in_transaction:  # An error may have ended it.
                self._cursor.execute(_END_READ)

    def _row_by_row(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        """The index alone tells which chunks there are, so a row that cannot be read hides no other one."""
        page = ChunkPage([], [], False)
        after = from_number - 1
        cursor = self._connection.cursor()
        try:
            for key, last_number in cursor.execute(_READ_CHUNK_SPOTS, (log, from_number)):
                row = self._row(key)
                size_bytes = _size_bytes(row)
                if size_bytes > bytes_max and after >= from_number:
                    page.more = True
                    break
                data = chunk_data(row)
                if data is None or not is_of(row, log, last_number):
                    page.damaged.append(damaged_head(row, after, last_number, size_bytes))
                    size_bytes = max(size_bytes, _DAMAGE_BYTES)
                else:
                    page.chunks.append(data)
                bytes_max -= size_bytes
                after = last_number
        except (apsw.CorruptError, apsw.IOError):
            if after < from_number:
                raise
            page.more = True  # Whoever goes on from here is told.
        finally:
            cursor.close()
        return page

    def _row(self, key: int) -> Any:
        """None for one that is not there, or that no try will bring. Raises IOError: another try may."""
        try:
            rows = self._cursor.execute(_READ_CHUNK, (key,)).fetchall()
        except UnicodeDecodeError:  # A flipped bit made text of the bytes.
            return None
        except apsw.CorruptError:
            return self._looked_at_again(key)
        return rows[0] if rows else None

    def _looked_at_again(self, key: int) -> Any:
        """SQLite uses one word for a page that makes no sense and for one that the disk does not give out. The
        system's last error tells them apart, on a connection that had none before. (Of the file, not of its log.)"""
        fresh = open_for_reading(Path(self._connection.filename), self._connection.open_vfs)
        try:
            rows = fresh.execute(_READ_CHUNK, (key,)).fetchall()
        except UnicodeDecodeError:
            return None
        except apsw.CorruptError as error:
            failure = last_failure(fresh)
            if failure:
                raise apsw.IOError(os.strerror(failure)) from error
            return None
        finally:
            with contextlib.suppress(apsw.Error):  # It tells of the failed read once more.
                fresh.close(True)
        return rows[0] if rows else None

    # -- the rest
    def heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        rows: Any = self._cursor.execute(_READ_CHUNK_HEADS, (log, _within(from_number), limit)).fetchall()
        return [ChunkHead(*row) for row in rows]

    def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        rows: Any = self._cursor.execute(_READ_NUMBER_SINCE, (log, _within(at_ms))).fetchall()
        return int(rows[0][0]) if rows else None

    def producers(self, log: FragmentKey) -> list[ProducerRow]:
        rows: Any = self._cursor.execute(_READ_PRODUCERS, (log,)).fetchall()
        return [ProducerRow(*row) for row in rows]


def last_failure(connection: apsw.Connection) -> int:
    """Which error the system answered a read of the file with; 0 for none."""
    number = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_LAST_ERRNO, ctypes.addressof(number))
    return number.value


def _cut(data: bytes, listed: list[ListedChunk]) -> list[bytes]:
    chunks = []
    at = 0
    for each in listed:
        chunks.append(data[at : at + each.size_bytes])
        at += each.size_bytes
    return chunks


def _size_bytes(row: Any) -> int:
    """Of the chunk in a row; 0 where there is none."""
    return len(row[-1]) if row is not None and isinstance(row[-1], bytes | str) else 0


def _within(value: int) -> int:
    return min(max(value, -_FAR), _FAR)


_CHUNKS: Final = "log_chunks"
_BEGIN_READ: Final = query("begin_read")
_END_READ: Final = query("end_read")
_READ_CHUNK_LIST: Final = query("read_chunk_list")
_READ_CHUNKS_JOINED: Final = query("read_chunks_joined")
_READ_CHUNK_SPOTS: Final = query("read_chunk_spots")
_READ_CHUNK: Final = query("read_chunk")
_READ_CHUNK_HEADS: Final = query("read_chunk_heads")
_READ_NUMBER_SINCE: Final = query("read_number_since")
_READ_PRODUCERS: Final = query("read_producers")
