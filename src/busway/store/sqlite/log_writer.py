"""Writing what a commit batch changes in logs.

Theory of operation. A chunk is one row at the end of its table, whatever log it belongs to; its bytes are taken from
its builder here, at the moment the batch is written. Removing a chunk frees the pages of its bytes without reading
them (their order stands in the file's own map of pages), so retention and compaction cost what their rows cost. A
dropped log is swept in slices in which large chunks count for more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

import apsw

from busway.message.event_chunk import ChunkBuilder
from busway.store.log_contract import LogChanges
from busway.store.sqlite.log_rows import chunk_row
from busway.store.sqlite.queries import query

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
