"""Captured events as Parquet, a row group for each chunk. Needs the `arrow` extra."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from busway.streams.capture_files import CapturedEvent, Value

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "SequenceNumber": pa.int64(),
    "Offset": pa.string(),
    "EnqueuedTimeUtc": pa.timestamp("ms", tz="UTC"),
    "SystemProperties": pa.map_(pa.string(), pa.string()),
    "Properties": pa.map_(pa.string(), pa.string()),
    "Body": pa.binary(),
}
SCHEMA: Final = pa.schema(_COLUMNS)


def write_parquet(stream: BinaryIO, batches: Iterable[list[CapturedEvent]]) -> int:
    count = 0
    with pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
        for events in batches:
            writer.write_table(_table(events))
            count += len(events)
    return count


def _table(events: list[CapturedEvent]) -> pa.Table:
    columns: dict[str, list[object]] = {
        "SequenceNumber": [event.number for event in events],
        "Offset": [str(event.number) for event in events],
        "EnqueuedTimeUtc": [event.at_ms for event in events],
        "SystemProperties": [_texts(event.system_properties) for event in events],
        "Properties": [_texts(event.properties) for event in events],
        "Body": [event.body for event in events],
    }
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def _texts(values: dict[str, Value]) -> list[tuple[str, str]]:
    """Parquet's maps have values of one type: their text, bytes in hexadecimal."""
    return [(name, value.hex() if isinstance(value, bytes) else str(value)) for name, value in values.items()]
