"""Events as columns: what `format("eventhubs")` gives, under the names that azure-event-hubs-spark uses.

Theory of operation. A bulk answer is a row of stored chunks (`message.event_chunk`): columns of fixed width and
behind them the records, each an AMQP message. Numbers, times and the bounds of records and bodies are read as arrays,
whole chunks at a time, and bodies become one Arrow array. An event whose record holds nothing but the broker's three
annotations and its body is told by three bytes and two sums, for all events at once; only what is more, properties
and keys, is looked for in the records (`heads`), and so are bodies that are no single data section.

Application properties and what is left of the system properties are maps of JSON texts; number, offset and time are
not repeated among the latter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from busway.amqp.sections import DATA, AmqpMessage, decode_message
from busway.message.event_chunk import BODY_ELSEWHERE, HAS_NUMBERS, HEAD_BYTES, MAGIC, ChunkDamaged
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import BYTES_MAX, Column, Longs, MessageCut, joined
from busway_spark.amqp_arrays.message_cut import DATA as SECTION_DATA
from busway_spark.amqp_arrays.value_arrays import RowColumn, contents, slices
from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS, WantedColumns
from busway_spark.eventhubs.heads import HeadArrays, json_text

_HEAD: Final = struct.Struct("<4sIIIq")
_LENGTH: Final = struct.Struct("<I")
_DATA_HEADS: Final = (5, 8)

_STRING: Final = pa.string()
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass
class StoredRun:
    """The events of an answer as arrays; positions are offsets in `data`."""

    data: bytes
    starts: Longs
    bodies: Longs
    ends: Longs
    numbers: Longs
    times_ms: Longs
    #: Which bodies must be looked for.
    elsewhere: NDArray[np.bool_]
    #: The last number of the answer, also when it lies behind the range.
    last_number: int

    def __len__(self) -> int:
        return len(self.numbers)


def event_run(data: bytes, first: int, end: int) -> StoredRun | None:
    """The events of an answer with numbers from `first` up to, not including, `end`. None when there is no chunk."""
    if len(data) > BYTES_MAX:
        raise ChunkDamaged("an answer is larger than two gigabytes")
    runs = [_chunk_run(data, at, size, first, end) for at, size in _frames(data)]
    if not runs:
        return None
    return StoredRun(
        data,
        np.concatenate([run.starts for run in runs]),
        np.concatenate([run.bodies for run in runs]),
        np.concatenate([run.ends for run in runs]),
        np.concatenate([run.numbers for run in runs]),
        np.concatenate([run.times_ms for run in runs]),
        np.concatenate([run.elsewhere for run in runs]),
        runs[-1].last_number,
    )


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each chunk lies."""
    at = 0
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            raise ChunkDamaged("an answer ends inside of a length")
        size: int = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if size > len(data) - at:
            raise ChunkDamaged("an answer ends inside of a chunk")
        yield at, size
        at += size


def _chunk_run(data: bytes, at: int, size: int, first: int, end: int) -> StoredRun:
    if size < HEAD_BYTES:
        raise ChunkDamaged("a chunk is shorter than its head")
    magic, flags, count, record_bytes, first_number = _HEAD.unpack_from(data, at)
    has_numbers = bool(flags & HAS_NUMBERS)
    records = at + HEAD_BYTES + (24 if has_numbers else 16) * count
    if magic != MAGIC or flags & ~HAS_NUMBERS or count == 0 or records + record_bytes != at + size:
        raise ChunkDamaged("the head of a chunk does not fit its length")
    column = at + HEAD_BYTES
    ends = np.frombuffer(data, "<u4", count, column).astype(np.int64) + records
    raw = np.frombuffer(data, "<u4", count, column + 4 * count)
    times = np.frombuffer(data, "<i8", count, column + 8 * count)
    if has_numbers:
        numbers = np.frombuffer(data, "<i8", count, column + 16 * count).astype(np.int64)
    else:
        numbers = np.arange(first_number, first_number + count, dtype=np.int64)
    starts = np.empty(count, np.int64)
    starts[0], starts[1:] = records, ends[:-1]
    elsewhere = raw == BODY_ELSEWHERE
    bodies = np.where(elsewhere, ends, raw.astype(np.int64) + records)
    _check(starts, bodies, ends, numbers, records + record_bytes)
    low, high = np.searchsorted(numbers, [first, end])
    cut = slice(int(low), int(high))
    last = int(numbers[-1])
    return StoredRun(
        data, starts[cut], bodies[cut], ends[cut], numbers[cut], times[cut], elsewhere[cut], last
    )


def _check(starts: Longs, bodies: Longs, ends: Longs, numbers: Longs, end: int) -> None:
    """Bounds that came over the wire are trusted by C code afterwards."""
    if int(ends[-1]) != end or not bool((starts <= bodies).all() and (bodies <= ends).all()):
        raise ChunkDamaged("the records of a chunk overlap, or a body lies outside of its record")
    if not bool((np.diff(numbers) > 0).all()):
        raise ChunkDamaged("the numbers of a chunk do not grow")


# -- columns


def batch_of_run(run: StoredRun, partition: str, wanted: WantedColumns = ALL_COLUMNS) -> pa.RecordBatch:
    """Of a server whose offsets are its numbers, as Busway's are."""
    numbers = pa.array(run.numbers)
    return _batch(
        wanted,
        partition,
        numbers,
        pa.array(run.times_ms * 1000).cast(_TIME),
        lambda: pc.cast(numbers, _STRING),
        lambda: _bodies(run),
        _heads(run) if wanted.wants_heads else None,
    )


def _bodies(run: StoredRun) -> Column:
    bodies = slices(pa.py_buffer(run.data), run.bodies, run.ends)
    if not run.elsewhere.any():
        return bodies
    rows = np.flatnonzero(run.elsewhere)
    records = (run.data[int(run.starts[row]) : int(run.ends[row])] for row in rows.tolist())
    found = [body_of(decode_message(record)) for record in records]
    return arrow.replaced(bodies, pa.array(run.elsewhere), pa.array(found, pa.binary()))


def _is_bare(run: StoredRun) -> NDArray[np.bool_]:
    """Whether a record is short annotations with three entries, and behind them at once the data section."""
    data = np.frombuffer(run.data, np.uint8)
    starts = run.starts
    # The shortest record, annotations and body, is longer than what is looked at below.
    bare: NDArray[np.bool_] = (run.bodies - starts > 16) & ~run.elsewhere
    at = np.where(bare, starts, 0)
    bare &= (data[at + 2] == 0x72) & (data[at + 3] == 0xC1) & (data[at + 5] == 6)
    section = at + 5 + data[at + 4]
    gap = run.bodies - section
    # Where bodies were left out there is nothing behind the annotations.
    is_bodiless = bare & (gap == 0) & (run.ends == run.bodies)
    bare &= (gap == _DATA_HEADS[0]) | (gap == _DATA_HEADS[1])
    section = np.where(bare, section, 0)
    bare &= (data[section + 1] == 0x53) & (data[section + 2] == 0x75)
    bare |= is_bodiless
    return bare


def _heads(run: StoredRun) -> HeadArrays:
    return HeadArrays(MessageCut(run.data, run.starts, run.ends, np.flatnonzero(~_is_bare(run))))


def _batch(
    wanted: WantedColumns,
    partition: str,
    numbers: Column,
    times: Column,
    offsets: Callable[[], Column],
    bodies: Callable[[], Column],
    heads: HeadArrays | None,
) -> pa.RecordBatch:
    makers: dict[str, Callable[[], Column]] = {
        "body": bodies if wanted.has_bodies else lambda: pa.nulls(len(numbers), pa.binary()),
        "partition": lambda: pa.repeat(pa.scalar(partition, _STRING), len(numbers)),
        "offset": offsets,
        "sequenceNumber": lambda: numbers,
        "enqueuedTime": lambda: times,
    }
    if heads is not None:
        makers["publisher"], makers["partitionKey"] = heads.publishers, heads.partition_keys
        makers["properties"], makers["systemProperties"] = heads.properties, heads.system
        makers["propertyTypes"] = heads.property_types
    arrays = [makers[name]() for name in wanted.names]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted.names))


# -- single events


def batch_of_payloads(
    payloads: list[bytes], partition: str, wanted: WantedColumns = ALL_COLUMNS
) -> tuple[pa.RecordBatch, Longs]:
    """Of events that came one by one, with the offsets that the server gave them; and their numbers."""
    data, starts, ends = joined(payloads)
    cut = MessageCut(data, starts, ends)
    heads = HeadArrays(cut, with_positions=True)
    times = pa.array(heads.times_ms * 1000).cast(_TIME)
    numbers = pa.array(heads.numbers)
    batch = _batch(
        wanted, partition, numbers, times, heads.offsets, lambda: _bodies_of_cut(cut, heads), heads
    )
    return batch, heads.numbers


def _bodies_of_cut(cut: MessageCut, heads: HeadArrays) -> Column:
    count = len(cut.starts)
    bodies = RowColumn(count, pa.binary())
    sections = cut.section(SECTION_DATA)
    bodies.add(sections.rows, contents(cut, sections))
    rest = np.setdiff1d(np.arange(count), sections.rows, assume_unique=True)
    found = [body_of(heads.odd[row]) if row in heads.odd else b"" for row in rest.tolist()]
    bodies.add(rest, pa.array(found, pa.binary()))
    return bodies.array()


def body_of(message: AmqpMessage) -> bytes:
    """The bytes of the data sections; a value or a sequence as its JSON text."""
    value = message.body
    if message.body_kind == DATA and isinstance(value, list):
        return b"".join(value)
    if value is None or isinstance(value, bytes):
        return value or b""
    if isinstance(value, str):
        return value.encode()
    return json_text(value).encode()
