"""Files of captured events in the formats of a hub's capture (H-40, H-44). Each is written from whole chunks, one
after the other, in a thread: memory holds one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import BinaryIO, Final
from uuid import UUID

from busway.amqp.sections import DATA, decode_message
from busway.message.event_chunk import Chunk
from busway.streams.hub_descriptions import AVRO, AVRO_DEFLATE, PARQUET

Value = int | float | str | bytes

_LONG_MAX: Final = (1 << 63) - 1
#: Annotations that have columns of their own.
_OWN_COLUMNS: Final = ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time")
_PROPERTIES: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_VALUES: Final = ["long", "double", "string", "bytes"]
AVRO_SCHEMA: Final = {
    "type": "record",
    "name": "EventData",
    "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": _VALUES}},
        {"name": "Properties", "type": {"type": "map", "values": _VALUES}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}
SUFFIXES: Final = {AVRO: ".avro", AVRO_DEFLATE: ".avro", PARQUET: ".parquet"}


class CapturedEvent:
    __slots__ = ("at_ms", "body", "number", "properties", "system_properties")

    def __init__(self, chunk: Chunk, index: int) -> None:
        self.number = chunk.number(index)
        self.at_ms = chunk.at_ms(index)
        message = decode_message(chunk.record(index))
        self.body: bytes | None = _body(message.body_kind, message.body)
        self.properties = {
            str(name): _value(value) for name, value in (message.application_properties or {}).items()
        }
        annotations = message.message_annotations or {}
        self.system_properties = {
            str(name): _value(value) for name, value in annotations.items() if name not in _OWN_COLUMNS
        }
        if message.properties is not None:
            for name in _PROPERTIES:
                value = getattr(message.properties, name)
                if value is not None:
                    self.system_properties[name.replace("_", "-")] = _value(value)


def enqueued_text(at_ms: int) -> str:
    """As the service writes it: `3/27/2017 6:16:35 PM`."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    hour = at.hour % 12 or 12
    return (
        f"{at.month}/{at.day}/{at.year} {hour}:{at.minute:02}:{at.second:02} {'AM' if at.hour < 12 else 'PM'}"
    )


def _body(kind: int, body: object) -> bytes | None:
    """Data sections as they are; an AMQP value as its text."""
    if kind == DATA and isinstance(body, list):
        return b"".join(body)
    if body is None or isinstance(body, bytes):
        return body
    return str(body).encode()


def _value(value: object) -> Value:
    """long, double, string or bytes: what does not fit is its text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and -_LONG_MAX - 1 <= value <= _LONG_MAX:
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, UUID):
        return str(value)
    return "" if value is None else str(value)


def write_capture(stream: BinaryIO, encoding: str, chunks: Iterable[Chunk], first: int, end: int) -> int:
    """The events with numbers from `first` to before `end`. Returns how many there were."""
    if encoding == PARQUET:
        return _write_parquet(stream, _batches(chunks, first, end))
    return _write_avro(stream, "deflate" if encoding == AVRO_DEFLATE else "null", chunks, first, end)


def _write_avro(stream: BinaryIO, codec: str, chunks: Iterable[Chunk], first: int, end: int) -> int:
    import fastavro

    count = 0

    def rows() -> Iterator[dict[str, object]]:
        nonlocal count
        for events in _batches(chunks, first, end):
            count += len(events)
            yield from (_avro_row(event) for event in events)

    fastavro.writer(stream, fastavro.parse_schema(AVRO_SCHEMA), rows(), codec=codec)
    return count


def _avro_row(event: CapturedEvent) -> dict[str, object]:
    return {
        "SequenceNumber": event.number,
        "Offset": str(event.number),
        "EnqueuedTimeUtc": enqueued_text(event.at_ms),
        "SystemProperties": event.system_properties,
        "Properties": event.properties,
        "Body": event.body,
    }


def _write_parquet(stream: BinaryIO, batches: Iterable[list[CapturedEvent]]) -> int:
    """A row group for each chunk. Needs the `arrow` extra."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.map_(pa.string(), pa.string())
    kinds: dict[str, pa.DataType] = {
        "SequenceNumber": pa.int64(),
        "Offset": pa.string(),
        "EnqueuedTimeUtc": pa.timestamp("ms", tz="UTC"),
        "SystemProperties": texts,
        "Properties": texts,
        "Body": pa.binary(),
    }
    schema = pa.schema(kinds)
    count = 0
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for events in batches:
            writer.write_table(pa.Table.from_pydict(_parquet_columns(events), schema=schema))
            count += len(events)
    return count


def _parquet_columns(events: list[CapturedEvent]) -> dict[str, list[object]]:
    return {
        "SequenceNumber": [event.number for event in events],
        "Offset": [str(event.number) for event in events],
        "EnqueuedTimeUtc": [event.at_ms for event in events],
        "SystemProperties": [_texts(event.system_properties) for event in events],
        "Properties": [_texts(event.properties) for event in events],
        "Body": [event.body for event in events],
    }


def _texts(values: dict[str, Value]) -> list[tuple[str, str]]:
    """Parquet's maps have values of one type: their text, bytes in hexadecimal."""
    return [(name, value.hex() if isinstance(value, bytes) else str(value)) for name, value in values.items()]


def _batches(chunks: Iterable[Chunk], first: int, end: int) -> Iterator[list[CapturedEvent]]:
    for chunk in chunks:
        start, stop = chunk.index_of(first), chunk.index_of(end)
        if start < stop:
            yield [CapturedEvent(chunk, index) for index in range(start, stop)]
