"""Stored chunks as an Arrow IPC stream: one record batch for each, made of its columns; no event is looked at."""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa

from busway.message.event_chunk import HAS_NUMBERS, HEAD_BYTES, Chunk

_TIME: Final = pa.timestamp("ms", tz="UTC")
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "sequence_number": pa.int64(),
    "enqueued_time": _TIME,
    "message": pa.binary(),
}
SCHEMA: Final = pa.schema(_COLUMNS)


class ArrowStream:
    """Begun once, ended once, a batch for each chunk between."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)

    def begin(self) -> bytes:
        return self._taken()

    def batch(self, data: bytes) -> tuple[bytes, ...]:
        self._writer.write_batch(record_batch(data))
        return (self._taken(),)

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        written = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return written


def record_batch(data: bytes) -> pa.RecordBatch:
    """The columns of a chunk, none of them copied but the ends, which Arrow wants with a zero in front."""
    chunk = Chunk(data)
    count = chunk.count
    whole = pa.py_buffer(data)
    offsets = pa.py_buffer(b"\0\0\0\0" + data[HEAD_BYTES : HEAD_BYTES + 4 * count])
    messages = pa.Array.from_buffers(pa.binary(), count, [None, offsets, whole.slice(chunk.records_at)])
    times = pa.Array.from_buffers(_TIME, count, [None, whole.slice(HEAD_BYTES + 8 * count, 8 * count)])
    if int.from_bytes(data[4:8], "little") & HAS_NUMBERS:
        numbers = pa.Array.from_buffers(
            pa.int64(), count, [None, whole.slice(HEAD_BYTES + 16 * count, 8 * count)]
        )
    else:
        numbers = pa.array(range(chunk.first_number, chunk.first_number + count), pa.int64())
    return pa.record_batch([numbers, times, messages], schema=SCHEMA)
