"""Writing rows to a hub, in batches and in streams (`busway_spark.writing.two_phase`).

Theory of operation. Here is which columns of a row are sent, which partition it is for, the encoded event, and the
two ways to the hub. A sink takes the columns that it knows and ignores all others, as azure-event-hubs-spark does,
so that a frame which was read can be written as it is. What came out of a hub is told from what somebody made up
by the metadata that reading gave its columns (`options`), which selections keep:

  properties        of a frame that was read, each value is the JSON text of what was sent, and goes out as that;
                    with the column `propertyTypes` beside them in the type that it had. Of any other frame they
                    are texts, or values of the map's own type
  systemProperties  the fields of an AMQP message (`message-id`, `content-type`, …); what servers set is left out
  partition         or `partitionId`: where the row goes. A partition that was read gives way to the row's key,
                    which leads to the same place in the same hub, and to the right one in any other

A task prepares each batch before it is routed and encoded: `body`, `partitionId`, `partitionKey` as far as there
are such columns, and `sections`, the encoded parts of the message between its annotations and its body. Values of
one type are encoded all at once. Values that are JSON texts are looked at one by one, equal ones once.

On Busway each row arrives once. A row goes to the partition that `partition` names, or that its `partitionKey`
belongs to (H-10); of the others, those that are staged together go to one partition, in their order.

Other services, and AMQP alone, get rows at least once, which is said loudly. A task sends its rows in order, each
to one partition: the one that it names, the one that its key belongs to (H-10), or the next in turn. They are
there when they are sent: those of a task that Spark repeats come again.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol, Timestamp, UInt, ULong
from busway.client.errors import ClientError
from busway.client.events import EventProducer
from busway.client.messages import PARTITION_KEY
from busway.client.service_bus_client import ServiceBusClient
from busway.streams.key_hash import partition_of_key
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.encoding import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs
from busway_spark.eventhubs.columns import FIELDS
from busway_spark.eventhubs.offsets import ask_hub
from busway_spark.eventhubs.options import JSON_VALUES, WAS_READ, EventHubsOptions
from busway_spark.given_options import AMQP
from busway_spark.property_types import UnknownProperties, properties_of, restored
from busway_spark.servicebus.row_messages import property_sections
from busway_spark.wire.bus import bridge, failing
from busway_spark.writing.two_phase import (
    JobWriter,
    RowsStaged,
    StreamWriter,
    TaskStage,
    can_stage,
    say_loudly,
    stage_pieces,
)
from busway_spark.writing.write_names import SinkWrite

#: Rows whose encoded section is remembered, in case they are equal.
_KNOWN_MAX: Final = 10_000
_APPLICATION_HEAD: Final = bytes((0, 0x53, encoding.APPLICATION_PROPERTIES))
_PROPERTIES_HEAD: Final = bytes((0, 0x53, encoding.PROPERTIES))

Pairs = list[tuple[str, str | None]]
BODY: Final = "body"
PARTITION: Final = "partition"
PARTITION_ID: Final = "partitionId"
KEY: Final = "partitionKey"
PROPERTIES: Final = "properties"
TYPES: Final = "propertyTypes"
SYSTEM: Final = "systemProperties"
#: What is made of the columns behind them.
SECTIONS: Final = "sections"


class BadRows(ValueError):
    """The columns, or a row, cannot be written; the text says which."""


# -- application properties


def application_sections(column: Column, types: Column | None, has_json: bool) -> Column:
    """An element for each row, empty for a row without properties. Raises BadRows."""
    try:
        if types is not None and types.null_count < len(types):
            return _typed_sections(column, types)
        if not has_json or not pa.types.is_map(column.type):
            return property_sections(column)
        return encoding.map_sections(encoding.APPLICATION_PROPERTIES, column, _json_items)
    except (encoding.NotEncodable, UnknownProperties, ValueError, TypeError, OverflowError) as error:
        raise BadRows(f"A row cannot be written, because of its properties: {error}.") from error


def _json_items(items: Column) -> Column:
    """JSON texts as what they tell; null stays null."""
    words, places = arrow.words(items)
    encoded = [encode_value(restored({"": json_value(word)}, None)[""]) for word in words]
    return arrow.taken(pa.array(encoded, encoding.BINARY), places)


def _typed_sections(column: Column, types: Column) -> Column:
    known: dict[object, bytes] = {}
    found: list[bytes] = []
    for given, told in zip(column.to_pylist(), types.to_pylist(), strict=True):
        key = (given if isinstance(given, str) else tuple(given or ()), told)
        section = known.get(key)
        if section is None:
            section = _typed_section(given, told)
            if len(known) < _KNOWN_MAX:
                known[key] = section
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _typed_section(given: Any, told: str | None) -> bytes:
    if not given:
        return b""
    if isinstance(given, str):
        values = properties_of(given, told)
    else:
        values = restored({name: json_value(text) for name, text in given}, told)
    return _APPLICATION_HEAD + encode_value(values) if values else b""


def json_value(text: str | None) -> object:
    """What a JSON text tells; a text that is none tells itself."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- the fields of a message


def property_sections_of_fields(column: Column, has_json: bool) -> Column:
    """An element for each row, empty for a row without any of them. Raises BadRows."""
    known: dict[tuple[tuple[str, str | None], ...], bytes] = {(): b""}
    offsets, names, _ = arrow.map_parts(column)
    if not len(names) or not np.diff(offsets).any():
        return arrow.repeated(b"", encoding.BINARY, len(column))
    found: list[bytes] = []
    for given in column.to_pylist():
        key = tuple(given or ())
        section = known.get(key)
        if section is None:
            section = _fields_section(list(key), has_json)
            if len(known) < _KNOWN_MAX:
                known[key] = section
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _fields_section(pairs: Pairs, has_json: bool) -> bytes:
    values: list[object] = [None] * len(FIELDS)
    for name, text in pairs:
        if text is None or name not in _FIELD_KINDS:
            continue
        value = json_value(text) if has_json else text
        try:
            values[FIELDS.index(name)] = None if value is None else _FIELD_KINDS[name](value, has_json)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadRows(f"A row's systemProperties cannot be written: '{name}': {error}.") from error
    while values and values[-1] is None:
        values.pop()
    if not values:
        return b""
    try:
        return _PROPERTIES_HEAD + encode_value(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRows(f"A row's systemProperties cannot be written: {error}.") from error


def _text(value: object, _: bool) -> object:
    return str(value)


def _symbol(value: object, _: bool) -> object:
    if not str(value).isascii():
        raise ValueError("only ASCII is allowed")
    return Symbol(value)


def _identity(value: object, _: bool) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return ULong(int(str(value))) if is_number else str(value)


def _bytes(value: object, has_json: bool) -> object:
    return base64.b64decode(str(value), validate=True) if has_json else str(value).encode()


def _time(value: object, _: bool) -> object:
    if isinstance(value, int) or str(value).isdigit():
        return Timestamp(int(str(value)))
    at = datetime.fromisoformat(str(value))
    return Timestamp(int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def _number(value: object, _: bool) -> object:
    return UInt(int(str(value)))


_FIELD_KINDS: Final[dict[str, Callable[[object, bool], object]]] = {
    "message-id": _identity, "user-id": _bytes, "to": _text, "subject": _text, "reply-to": _text,
    "correlation-id": _identity, "content-type": _symbol, "content-encoding": _symbol, "absolute-expiry-time": _time,
    "creation-time": _time, "group-id": _text, "group-sequence": _number, "reply-to-group-id": _text,
}  # fmt: skip


def _is_place(kind: DataType) -> bool:
    return isinstance(kind, StringType | LongType | IntegerType | ShortType | ByteType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


#: What each column may be: a test, and how it is told.
_COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    BODY: (lambda kind: isinstance(kind, BinaryType | StringType), "binary or string"),
    PARTITION: (_is_place, "string or a whole number"),
    PARTITION_ID: (_is_place, "string or a whole number"),
    KEY: (_is_text, "string"),
    PROPERTIES: (
        lambda kind: _is_map(kind) or _is_text(kind),
        "a map with keys of type string, or a JSON text",
    ),
    TYPES: (_is_text, "string"),
    SYSTEM: (lambda kind: kind.simpleString() == "map<string,string>", "map<string,string>"),
}
_BY_SOUND: Final = {name.lower(): name for name in _COLUMNS}


@dataclass(frozen=True)
class WrittenColumns:
    """Travels to tasks: batches there have lost what the schema says."""

    names: tuple[str, ...] = ()
    has_json_properties: bool = False
    has_json_system: bool = False
    #: Rows were read: their partition is where they were.
    was_read: bool = False

    @classmethod
    def of(cls, schema: StructType, overwrite: bool) -> WrittenColumns:
        """Raises BadRows."""
        if overwrite:
            raise BadRows("A hub cannot be overwritten; use mode('append').")
        if BODY not in schema.names:
            raise BadRows("The column 'body' is missing.")
        marked: set[str] = set()
        for field in schema.fields:
            if field.name in _COLUMNS:
                fits, expected = _COLUMNS[field.name]
                if not fits(field.dataType):
                    kind = field.dataType.simpleString()
                    raise BadRows(f"The column '{field.name}' is {kind}; {expected} is expected.")
                if JSON_VALUES in field.metadata or WAS_READ in field.metadata:
                    marked.add(field.name)
            else:
                _check_meant(field.name)
        names = tuple(name for name in schema.names if name in _COLUMNS)
        return cls(names, PROPERTIES in marked, SYSTEM in marked, PARTITION in marked)

    def prepared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises BadRows."""
        found: dict[str, Column] = {BODY: batch.column(BODY)}
        if KEY in self.names:
            found[KEY] = batch.column(KEY)
        places = self._places(batch)
        if places is not None:
            found[PARTITION_ID] = places
        sections = self._sections(batch)
        if sections:
            found[SECTIONS] = sections[0] if len(sections) == 1 else arrow.joined(*sections)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _places(self, batch: pa.RecordBatch) -> Column | None:
        """Texts; null for a row that says nothing."""
        found = {name: _texts_of(batch, name) for name in (PARTITION, PARTITION_ID) if name in self.names}
        if PARTITION in found and self.was_read and KEY in self.names:
            keyed = arrow.is_valid(batch.column(KEY))
            found[PARTITION] = arrow.chosen(~keyed, found[PARTITION], pa.scalar(None, pa.string()))
        if len(found) < 2:
            return next(iter(found.values()), None)
        first, second = found[PARTITION], found[PARTITION_ID]
        if arrow.has_any(arrow.unequal(first, second)):
            raise BadRows("A row has both partition and partitionId, and they differ.")
        return arrow.chosen(arrow.is_valid(second), second, first)

    def _sections(self, batch: pa.RecordBatch) -> list[Column]:
        """Each with an element for every row, in the order of a message."""
        sections: list[Column] = []
        if SYSTEM in self.names:
            sections.append(property_sections_of_fields(batch.column(SYSTEM), self.has_json_system))
        if PROPERTIES in self.names:
            types = batch.column(TYPES) if TYPES in self.names else None
            sections.append(application_sections(batch.column(PROPERTIES), types, self.has_json_properties))
        return sections


def _check_meant(name: str) -> None:
    """A column that is not sent may have any name but one that was surely meant to be."""
    meant = _BY_SOUND.get(name.replace("_", "").lower())
    if meant is not None:
        raise BadRows(
            f"The column '{name}' would not be sent: it must be called '{meant}', or something else."
        )


def _texts_of(batch: pa.RecordBatch, name: str) -> Column:
    return batch.column(name).cast(pa.string())


#: Rows in turn that go to one partition before the next.
_TURN_ROWS: Final = 64
_KEY_ENTRY: Final = encode_value(Symbol(PARTITION_KEY))


def by_partition(batch: pa.RecordBatch, first_row: int) -> dict[str | None, Flags]:
    """Which rows name which partition; None for those that name none. Raises BadRows."""
    words, places = _named(batch, first_row)
    if (places < 0).all():
        return {None: np.ones(batch.num_rows, np.bool_)}
    found: dict[str | None, Flags] = {}
    for at, word in enumerate(words):
        name = str(int(word))
        found[name] = found[name] | (places == at) if name in found else places == at
    if (places < 0).any():
        found[None] = places < 0
    return found


def _named(batch: pa.RecordBatch, first_row: int) -> tuple[list[str], Longs]:
    """The partitions that rows name, and for each row which; -1 for none. Raises BadRows."""
    if PARTITION_ID not in batch.schema.names:
        return [], np.full(batch.num_rows, -1, np.int64)
    words, places = arrow.words(batch.column(PARTITION_ID).cast(pa.string()))
    if KEY in batch.schema.names:
        has_both: Flags = (places >= 0) & arrow.is_valid(batch.column(KEY))
        if has_both.any():
            at = first_row + int(np.argmax(has_both))
            raise BadRows(
                f"Row {at} of its task has both partitionId and partitionKey; only one of them can be given."
            )
    for place, word in enumerate(words):
        if not (word.isascii() and word.isdigit() and len(word) <= 9):
            at = first_row + int(np.argmax(places == place))
            raise BadRows(
                f"Row {at} of its task: partitionId {word[:40]!r} is not the number of a partition."
            )
    return words, places


class PartitionRouter:
    """Which partition each row goes to, by nothing but the row and its place in the task."""

    def __init__(self, partition_count: int, place: int) -> None:
        self._partition_count = partition_count
        self._place = place
        self._rows = 0

    def routed(self, batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Rows by partition, in their order. Raises BadRows."""
        turns = np.arange(self._rows, self._rows + batch.num_rows) // _TURN_ROWS
        partitions: Longs = (self._place + turns) % self._partition_count
        names, named = _named(batch, self._rows)
        for place, name in enumerate(names):
            if int(name) >= self._partition_count:
                at = self._rows + int(np.argmax(named == place))
                raise BadRows(
                    f"Row {at} of its task: the hub has the partitions 0 to {self._partition_count - 1},"
                    f" not {name}."
                )
            partitions[named == place] = int(name)
        if KEY in batch.schema.names:
            keys, keyed = arrow.words(batch.column(KEY).cast(pa.string()))
            chosen = np.array([partition_of_key(key, self._partition_count) for key in keys], np.int64)
            partitions[keyed >= 0] = chosen[keyed[keyed >= 0]]
        self._rows += batch.num_rows
        found = np.unique(partitions).tolist()
        if len(found) == 1:
            return {str(found[0]): batch}
        return {str(each): arrow.rows_where(batch, partitions == each) for each in found}


def encode_events(rows: pa.RecordBatch, first_row: int) -> Column:
    """The rows as events, all at once. Raises BadRows."""
    body = encoding.as_binary(rows.column(BODY))
    if body.null_count:
        raise BadRows(f"Row {first_row + int(np.argmin(arrow.is_valid(body)))} of its task has no body.")
    parts: list[Column] = []
    if KEY in rows.schema.names and rows.column(KEY).null_count < rows.num_rows:
        parts.append(_annotations(rows.column(KEY)))
    if SECTIONS in rows.schema.names:
        parts.append(rows.column(SECTIONS))
    parts += encoding.data_section(body)
    return arrow.joined(*parts)


def _annotations(keys: Column) -> Column:
    entries = arrow.filled(arrow.joined(_KEY_ENTRY, encoding.variable(keys, encoding.TEXT_FORM)), b"")
    counts: Longs = 2 * arrow.is_valid(keys).astype(np.int64)
    body = encoding.compound(entries, counts, encoding.MAP_FORM)
    return encoding.only_where(counts > 0, encoding.section(encoding.MESSAGE_ANNOTATIONS, body))


@dataclass
class EventsSent(WriterCommitMessage):
    rows: int


def send_rows(rows: Iterator[pa.RecordBatch], options: EventHubsOptions) -> EventsSent:
    """In a task; the batches are prepared (`WrittenColumns`). Raises BadRows, BusFailure."""
    context, work = TaskContext.get(), bridge()
    sent = 0
    with failing(f"write to the hub '{options.hub}'"):
        client = work.client(options.bus)
        hub = work.run(ask_hub(client, options.bus, options.hub, ()))
        router = PartitionRouter(hub.partition_count, 0 if context is None else context.partitionId())
        outgoing = _Outgoing(client, options.hub)
        try:
            for batch in rows:
                for piece in pieces(batch):
                    for partition, events in router.routed(piece).items():
                        encoded = EncodedRows.of(np.arange(events.num_rows), encode_events(events, sent))
                        work.run(outgoing.post(partition, encoded))
                    sent += piece.num_rows
            work.run(outgoing.flush())
        finally:
            work.run(outgoing.close())
    return EventsSent(sent)


class _Outgoing:
    """A producer for each partition that rows of the task go to."""

    def __init__(self, client: ServiceBusClient, hub: str) -> None:
        self._client = client
        self._hub = hub
        self._producers: dict[str, EventProducer] = {}

    async def post(self, partition: str, events: EncodedRows) -> None:
        """They are on their way then."""
        producer = self._producers.get(partition)
        if producer is None:
            producer = self._producers[partition] = self._client.get_event_producer(
                self._hub, partition, None
            )
            await producer.open()
        for first, end in events.cut(producer.batch_bytes_max - ENVELOPE_BYTES):
            await producer.send_group(events.batch(first, end), end - first)

    async def flush(self) -> None:
        for producer in self._producers.values():
            await producer.flush()

    async def close(self) -> None:
        for producer in self._producers.values():
            with contextlib.suppress(ClientError):  # what went wrong is told already
                await producer.close()


class EventSink:
    """Made on the driver. Raises BusFailure."""

    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        self.options = options
        self._columns = columns
        self.stages = _stages(options)

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: SinkWrite, warning: str | None = None
    ) -> RowsStaged:
        return stage_rows(map(self._columns.prepared, rows), self.options, name, warning)

    def send(self, rows: Iterator[pa.RecordBatch]) -> EventsSent:
        return send_rows(map(self._columns.prepared, rows), self.options)


class EventHubsWriter(JobWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns, job: str) -> None:
        super().__init__(EventSink(options, columns), job)


class EventHubsStreamWriter(StreamWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        super().__init__(EventSink(options, columns))


def _stages(options: EventHubsOptions) -> bool:
    with failing(f"write to the hub '{options.hub}'"):
        stages = options.transport != AMQP and can_stage(options.bus, options.operation_s)
    if not stages:
        say_loudly(
            f"Rows are sent to the hub '{options.hub}' at least once: by AMQP alone they cannot be staged as Busway"
            " does it, and those of a task or a batch that Spark repeats are sent again. Whoever reads them should"
            " tell repeats by something that each event brings along."
        )
    return stages


def stage_rows(
    record_batches: Iterator[pa.RecordBatch],
    options: EventHubsOptions,
    name: SinkWrite,
    warning: str | None = None,
) -> RowsStaged:
    """In a task; the batches are prepared (`WrittenColumns`). Raises BadRows, RowsRefused, BusFailure."""

    def put(stage: TaskStage, piece: pa.RecordBatch, first_row: int) -> None:
        events = encode_events(piece, first_row)
        rows = np.arange(first_row, first_row + piece.num_rows)
        for partition, wanted in by_partition(piece, first_row).items():
            found = events if wanted.all() else arrow.filtered(events, wanted)
            stage.put(options.hub, partition, EncodedRows.framed(rows[wanted], found))

    return stage_pieces(record_batches, options, name, warning, put)
