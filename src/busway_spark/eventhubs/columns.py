"""Events as columns: what `format("eventhubs")` gives, under the names that azure-event-hubs-spark uses.

Theory of operation. A bulk answer is a row of stored chunks (`message.event_chunk`): columns of fixed width and
behind them the records, each an AMQP message. Numbers, times and the bounds of records and bodies are read as
arrays, whole chunks at a time, and bodies become one Arrow array. An event whose record holds nothing but the
broker's three annotations and its body is told by three bytes and two sums, for all events at once; only what is
more, properties and keys, is looked for in the records, and so are bodies that are no single data section.

What events bring beside their bodies is publisher, partition key, properties and system properties. Names and
values are found by `MessageCut` and become arrays place by place: the first annotations of all events, the second
ones, and so on, then the properties and the application properties (`HeadArrays`). An event that is built
unusually is decoded alone (`HeadColumns`), where maps are gathered flat: all names, all texts, and how many belong
to each event. The arrays are made from what is known so far; when that shows further unusual events (a partition
key that is no text), they are made once more without those.

Application properties and what is left of the system properties are maps of JSON texts; number, offset and time
are not repeated among the latter.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from busway.amqp.sections import DATA, AmqpMessage, decode_message
from busway.amqp.types import Array, Described
from busway.client.messages import ENQUEUED_TIME, PARTITION_KEY, SEQUENCE_NUMBER
from busway.message.event_chunk import BODY_ELSEWHERE, HAS_NUMBERS, HEAD_BYTES, MAGIC, ChunkDamaged
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import (
    ANNOTATIONS,
    APPLICATION,
    BYTES_MAX,
    PROPERTIES,
    Column,
    Entries,
    Longs,
    MessageCut,
    Values,
    joined,
)
from busway_spark.amqp_arrays.message_cut import DATA as SECTION_DATA
from busway_spark.amqp_arrays.value_arrays import (
    STRING,
    RowColumn,
    RowMaps,
    contents,
    is_text,
    is_whole,
    json_texts,
    rows_with_others,
    slices,
    texts,
    whole_numbers,
)
from busway_spark.eventhubs.options import ALL_COLUMNS, WantedColumns
from busway_spark.property_types import PLAIN_FORMS, types_of

PUBLISHER: Final = "x-opt-publisher"
OFFSET: Final = "x-opt-offset"
#: They have columns of their own.
TOLD_ELSEWHERE: Final = frozenset({"x-opt-sequence-number", OFFSET, "x-opt-enqueued-time"})
#: The fields of the properties section.
FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_STRING: Final = pa.string()


class HeadColumns:
    """Events are put in the order of their indexes; one that is left out brings nothing."""

    def __init__(self, count: int) -> None:
        self._publishers: list[str | None] = [None] * count
        self._partition_keys: list[str | None] = [None] * count
        self._properties = _MapRuns(count)
        self._system = _MapRuns(count)

    def put_message(self, index: int, message: AmqpMessage) -> None:
        annotations = message.message_annotations or {}
        self._put_named(index, annotations)
        for name, value in annotations.items():
            if str(name) not in TOLD_ELSEWHERE:
                self._system.put(index, str(name), json_text(value))
        properties = message.properties
        for field in () if properties is None else dataclasses.fields(properties):
            value = getattr(properties, field.name)
            if value is not None:
                self._system.put(index, field.name.replace("_", "-"), json_text(value))
        for name, value in (message.application_properties or {}).items():
            self._properties.put(index, str(name), json_text(value))

    def _put_named(self, index: int, annotations: dict[Any, Any]) -> None:
        key, publisher = annotations.get(PARTITION_KEY), annotations.get(PUBLISHER)
        self._partition_keys[index] = None if key is None else str(key)
        self._publishers[index] = None if publisher is None else str(publisher)

    # -- columns

    def publishers(self) -> Column:
        return pa.array(self._publishers, _STRING)

    def partition_keys(self) -> Column:
        return pa.array(self._partition_keys, _STRING)

    def property_runs(self) -> tuple[Longs, Column, Column]:
        return self._properties.runs()

    def system_runs(self) -> tuple[Longs, Column, Column]:
        return self._system.runs()


class _MapRuns:
    def __init__(self, count: int) -> None:
        self._counts = [0] * count
        self._names: list[str] = []
        self._texts: list[str] = []

    def put(self, index: int, name: str, text: str) -> None:
        self._counts[index] += 1
        self._names.append(name)
        self._texts.append(text)

    def runs(self) -> tuple[Longs, Column, Column]:
        """How many entries each event has, and all names and texts."""
        counts = np.array(self._counts, np.int64)
        return counts, pa.array(self._names, _STRING), pa.array(self._texts, _STRING)


# -- JSON


def json_text(value: object) -> str:
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        # Maps may have keys that JSON has not.
        return json.dumps(str(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """What JSON has no form for: bytes and decimals in base64, everything else as its text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Described):
        return value.value
    if isinstance(value, Array):
        return value.items
    return str(value) if isinstance(value, UUID) else repr(value)


class HeadArrays:
    """Of the messages of a cut. Numbers, offsets and times are told only when they are wanted."""

    def __init__(self, cut: MessageCut, *, with_positions: bool = False) -> None:
        self._cut = cut
        self._with_positions = with_positions
        #: Those that were decoded alone.
        self.odd: dict[int, AmqpMessage] = {}
        self._annotations = cut.entries(cut.section(ANNOTATIONS))
        self._fields = cut.fields(cut.section(PROPERTIES))
        self._application = cut.entries(cut.section(APPLICATION))
        self._mark_nameless()
        try:
            self._build()
        except pa.ArrowInvalid:
            # Some text is none: the decoder finds out whose.
            cut.mark_odd(np.arange(len(cut.starts)))
            self._build()

    def _mark_nameless(self) -> None:
        for each in (*self._annotations, *self._application):
            self._cut.mark_unusual(each.names, is_text(self._cut, each.names))
        for values in self._fields[len(FIELDS) :]:
            self._cut.mark_odd(values.rows)

    def _build(self) -> None:
        """Until no further event turns out to be unusual."""
        odd_before = -1
        while odd_before != int(self._cut.is_odd.sum()):
            odd_before = int(self._cut.is_odd.sum())
            self._build_once()
        self._put_odd()

    def _build_once(self) -> None:
        count = len(self._cut.starts)
        self._named = {name: RowColumn(count, STRING) for name in (PARTITION_KEY, PUBLISHER, OFFSET)}
        self.numbers: Longs = np.full(count, -1, np.int64)
        self.times_ms: Longs = np.zeros(count, np.int64)
        self._system = RowMaps(count)
        self._properties = RowMaps(count)
        for each in self._annotations:
            self._put_annotations(self._cut.usual_entries(each))
        for name, values in zip(FIELDS, self._fields, strict=False):
            self._put_field(name, self._cut.usual(values))
        for each in self._application:
            self._put_properties(self._cut.usual_entries(each))

    def _put_annotations(self, entries: Entries) -> None:
        names = texts(self._cut, entries.names)
        found, places = arrow.words(names)
        is_told = np.isin(places, [at for at, name in enumerate(found) if name in TOLD_ELSEWHERE])
        for at, name in enumerate(found):
            if name in (PARTITION_KEY, PUBLISHER) or (self._with_positions and name in TOLD_ELSEWHERE):
                self._put_named(name, entries.values.where(places == at))
        if is_told.all():
            return
        rest = entries.values.where(~is_told)
        self._system.add(rest.rows, names.filter(pa.array(~is_told)), self._json(rest))

    def _put_named(self, name: str, values: Values) -> None:
        is_usual = (is_text if name in self._named else is_whole)(self._cut, values)
        self._cut.mark_unusual(values, is_usual)
        values = values.where(is_usual)
        if name in self._named:
            self._named[name].add(values.rows, texts(self._cut, values))
        elif name == SEQUENCE_NUMBER:
            self.numbers[values.rows] = whole_numbers(self._cut, values)
        elif name == ENQUEUED_TIME:
            self.times_ms[values.rows] = whole_numbers(self._cut, values)

    def _put_field(self, name: str, values: Values) -> None:
        if len(values):
            self._system.add(values.rows, arrow.repeated(name, STRING, len(values)), self._json(values))

    def _put_properties(self, entries: Entries) -> None:
        if len(entries.values):
            names = texts(self._cut, entries.names)
            self._properties.add(entries.values.rows, names, self._json(entries.values))

    def _json(self, values: Values) -> Column:
        return json_texts(self._cut, values, json_text)

    def _put_odd(self) -> None:
        """Raises DecodeError."""
        rows = np.flatnonzero(self._cut.is_odd)
        if not len(rows):
            return
        cut, heads = self._cut, HeadColumns(len(rows))
        for place, row in enumerate(rows.tolist()):
            message = decode_message(cut.message(row))
            self.odd[row] = message
            heads.put_message(place, message)
            annotations = message.message_annotations or {}
            if self._with_positions:
                self.numbers[row] = int(annotations.get(SEQUENCE_NUMBER, -1))
                self.times_ms[row] = int(annotations.get(ENQUEUED_TIME, 0))
        offsets = [str((each.message_annotations or {}).get(OFFSET)) for each in self.odd.values()]
        self._named[OFFSET].add(rows, pa.array(offsets, STRING))
        self._named[PARTITION_KEY].add(rows, heads.partition_keys())
        self._named[PUBLISHER].add(rows, heads.publishers())
        self._system.add_runs(rows, *heads.system_runs())
        self._properties.add_runs(rows, *heads.property_runs())

    # -- columns

    def publishers(self) -> Column:
        return self._named[PUBLISHER].array()

    def partition_keys(self) -> Column:
        return self._named[PARTITION_KEY].array()

    def offsets(self) -> Column:
        return self._named[OFFSET].array()

    def properties(self) -> Column:
        return self._properties.array(STRING)

    def system(self) -> Column:
        return self._system.array(STRING)

    def property_types(self) -> Column:
        """Event by event, of those with a property whose JSON does not tell its type."""
        cut = self._cut
        rare = rows_with_others(cut, self._application, PLAIN_FORMS)
        rows = np.union1d(np.flatnonzero(cut.is_odd), rare)
        payloads = (cut.message(row) for row in rows.tolist())
        found = [types_of(decode_message(payload).application_properties or {}) for payload in payloads]
        column = RowColumn(len(cut.starts), STRING)
        column.add(rows, pa.array(found, STRING))
        return column.array()


_HEAD: Final = struct.Struct("<4sIIIq")
_LENGTH: Final = struct.Struct("<I")
_DATA_HEADS: Final = (5, 8)

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
