"""Files of captured events in the formats of a hub's capture (H-40, H-44). Each is written from whole chunks, one
after the other, in a thread: memory holds one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from busway.message.event_chunk import Chunk
from busway.streams.captured_event import CapturedEvent, enqueued_text
from busway.streams.hub_descriptions import AVRO, AVRO_DEFLATE, PARQUET

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


def write_capture(stream: BinaryIO, encoding: str, chunks: Iterable[Chunk], first: int, end: int) -> int:
    """The events with numbers from `first` to before `end`. Returns how many there were."""
    if encoding == PARQUET:
        from busway.streams.capture_parquet import write_parquet

        return write_parquet(stream, _batches(chunks, first, end))
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


def _batches(chunks: Iterable[Chunk], first: int, end: int) -> Iterator[list[CapturedEvent]]:
    for chunk in chunks:
        start, stop = chunk.index_of(first), chunk.index_of(end)
        if start < stop:
            yield [CapturedEvent(chunk, index) for index in range(start, stop)]
