"""Claimed messages as columns, straight from the frames of the bulk route (`busway.claimed_run`).

Numbers, times and texts become Arrow arrays over the frame's own bytes, for all messages of a frame at once
(`bare_spans`); application properties are read message by message (`property_maps`). Messages of a rare form are
decoded one by one (`message_columns`), and their rows put where they belong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from busway.claimed_run import (
    COLUMNS_BYTES,
    DEAD_LETTER_SOURCE,
    FIRST_NUMBER,
    HEAD,
    MAGIC,
    PARTITION_KEY,
    SCHEDULED_TIME,
)
from busway.client.messages import ServiceBusReceivedMessage
from busway_spark.servicebus.bare_spans import FIELDS, BareSpans, Longs, Spans
from busway_spark.servicebus.message_arrays import FRAGMENT_SHIFT
from busway_spark.servicebus.message_columns import MessageColumns
from busway_spark.servicebus.options import JSON, ServiceBusOptions
from busway_spark.servicebus.property_maps import PropertyMaps
from busway_spark.servicebus.rare_columns import FIELDS as RARE_FIELDS
from busway_spark.servicebus.rare_columns import column_of

_STRING: Final = pa.string()
_TIME: Final = pa.timestamp("us", tz="UTC")
#: The last instant that a timestamp of Spark shows without an overflow: the end of the year 9999.
_TIME_MS_MAX: Final = 253_402_300_799_999
#: Arrow's offsets of binary arrays.
_FRAME_BYTES_MAX: Final = (1 << 31) - 1
_DEAD_LETTER_PROPERTIES: Final = {
    "deadLetterReason": "DeadLetterReason",
    "deadLetterErrorDescription": "DeadLetterErrorDescription",
}
#: Columns that come out of the bare message, and of odd ones out of single messages.
_OF_MESSAGE: Final = frozenset({"body", "properties", "propertyTypes", *FIELDS, *_DEAD_LETTER_PROPERTIES})


class FrameDamaged(ValueError):
    """An answer is not what it says to be."""


@dataclass
class ClaimedRun:
    """A frame, taken apart; positions are offsets in `data`."""

    data: bytes
    numbers: Longs
    enqueued_ms: Longs
    life_ms: Longs
    deliveries: NDArray[np.int32]
    details: dict[str, Any]
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.numbers)


def claimed_run(frame: bytes) -> ClaimedRun:
    """Of a frame without its length. Raises FrameDamaged."""
    if not HEAD.size <= len(frame) <= _FRAME_BYTES_MAX:
        raise FrameDamaged("a frame is shorter than its head, or larger than two gigabytes")
    magic, count, details_bytes = HEAD.unpack_from(frame)
    details_at = HEAD.size + COLUMNS_BYTES * count
    first = details_at + details_bytes
    if magic != MAGIC or count == 0 or first > len(frame):
        raise FrameDamaged("the head of a frame does not fit its length")
    longs = np.frombuffer(frame, "<i8", 4 * count, HEAD.size).astype(np.int64).reshape(4, count)
    ends = longs[3] + first
    starts = np.empty(count, np.int64)
    starts[0], starts[1:] = first, ends[:-1]
    if int(ends[-1]) != len(frame) or not bool((starts <= ends).all()):
        raise FrameDamaged("the messages of a frame overlap, or end outside of it")
    deliveries = np.frombuffer(frame, "<i4", count, HEAD.size + 32 * count)
    details = _details(frame[details_at:first], count)
    return ClaimedRun(frame, longs[0], longs[1], longs[2], deliveries, details, starts, ends)


def _details(data: bytes, count: int) -> dict[str, Any]:
    try:
        details = json.loads(data) if data else {}
    except ValueError:
        details = None
    if not isinstance(details, dict):
        raise FrameDamaged("the details of a frame cannot be read")
    if any(not isinstance(column, list) or len(column) != count for column in details.values()):
        raise FrameDamaged("the details of a frame do not fit its messages")
    return details


class ClaimedColumns:
    """Builds record batches of one schema; rows show their messages as they were before the claim."""

    def __init__(self, schema: StructType, options: ServiceBusOptions, entity: str) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._single = MessageColumns(schema, options, entity, hides_claim=True)
        self._entity = entity
        self._has_json = options.properties == JSON
        self._has_body = options.include_body
        self._wanted = frozenset(self.schema.names)
        self._properties = PropertyMaps()

    def batch(self, run: ClaimedRun) -> pa.RecordBatch:
        """Raises DecodeError for a message that is none."""
        spans = BareSpans(run.data, run.starts, run.ends, self._wanted)
        odd = self._odd_rows(run, spans)
        maps = self._maps(run, spans)
        arrays = [self._column(each, run, spans, maps) for each in self.schema]
        if odd is not None:
            order = _order(spans)
            arrays = [
                pa.concat_arrays([array, odd.column(each.name)]).take(order)
                if each.name in _OF_MESSAGE
                else array
                for each, array in zip(self.schema, arrays, strict=True)
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _odd_rows(self, run: ClaimedRun, spans: BareSpans) -> pa.RecordBatch | None:
        rows = np.flatnonzero(spans.odd).tolist()
        if not rows or not self._wanted & _OF_MESSAGE:
            return None
        return self._single.batch(
            [ServiceBusReceivedMessage(run.data[int(run.starts[row]) : int(run.ends[row])]) for row in rows]
        )

    def _maps(self, run: ClaimedRun, spans: BareSpans) -> list[bytes | None]:
        """The encoded application properties of each message."""
        if not self._wanted & {"properties", "propertyTypes", *_DEAD_LETTER_PROPERTIES}:
            return []
        found: list[bytes | None] = [None] * len(run)
        data, there = run.data, spans.application.is_there & ~spans.odd
        starts, ends = spans.application.starts.tolist(), spans.application.ends.tolist()
        for row in np.flatnonzero(there).tolist():
            found[row] = data[starts[row] : ends[row]]
        return found

    def _column(
        self, each: pa.Field[Any], run: ClaimedRun, spans: BareSpans, maps: list[bytes | None]
    ) -> pa.Array[Any]:
        name = each.name
        if name in FIELDS:
            return _texts(run, spans.fields[name])
        if name in _DEAD_LETTER_PROPERTIES:
            return self._properties.named(maps, _DEAD_LETTER_PROPERTIES[name])
        if name == "properties":
            return (
                self._properties.texts(maps) if self._has_json else self._properties.variants(maps, each.type)
            )
        if name == "propertyTypes":
            return self._properties.types(maps)
        if name == "body":
            return _slices(run, spans.body) if self._has_body else pa.nulls(len(run), pa.binary())
        if name == "entity":
            return pa.repeat(pa.scalar(self._entity, _STRING), len(run))
        if name in RARE_FIELDS:
            bounds = zip(run.starts.tolist(), run.ends.tolist(), strict=True)
            return column_of(name, [run.data[start:end] for start, end in bounds], each.type)
        return _READINGS[name](run)


def _order(spans: BareSpans) -> NDArray[np.int64]:
    """Where each row is found when the odd ones lie behind all others."""
    order = np.arange(len(spans.odd))
    order[spans.odd] = len(order) + np.arange(int(spans.odd.sum()))
    return order


def _slices(run: ClaimedRun, spans: Spans) -> pa.Array[Any]:
    """The frame is cut at both ends of every slice; each second piece is one."""
    count = len(run)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = spans.starts, spans.ends
    buffers = [None, pa.py_buffer(bounds.data), pa.py_buffer(run.data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    if spans.is_there.all():
        return pieces.take(np.arange(0, 2 * count, 2))
    return pieces.take(pa.array(np.arange(0, 2 * count, 2), pa.int64(), mask=~spans.is_there))


def _texts(run: ClaimedRun, spans: Spans) -> pa.Array[Any]:
    """What is not UTF-8 shows the sign for that."""
    if not spans.is_there.any():
        return pa.nulls(len(run), _STRING)
    found = _slices(run, spans)
    try:
        return found.cast(_STRING)
    except pa.ArrowInvalid:
        texts = [None if each is None else each.decode(errors="replace") for each in found.to_pylist()]
        return pa.array(texts, _STRING)


def _times(ms: Longs) -> pa.Array[Any]:
    return pa.array(np.clip(ms, 0, _TIME_MS_MAX) * 1000).cast(_TIME)


def _expiry(run: ClaimedRun) -> pa.Array[Any]:
    """M-17: from the time it was enqueued and the life that it has."""
    has_life = run.life_ms >= 0
    ms = np.clip(run.enqueued_ms + np.where(has_life, run.life_ms, 0), 0, _TIME_MS_MAX)
    return pa.array(ms * 1000, mask=~has_life).cast(_TIME)


def _scheduled(run: ClaimedRun) -> pa.Array[Any]:
    column = run.details.get(SCHEDULED_TIME)
    if column is None:
        return pa.nulls(len(run), _TIME)
    at_us = [None if ms is None else min(int(ms), _TIME_MS_MAX) * 1000 for ms in column]
    return pa.array(at_us, pa.int64()).cast(_TIME)


def _detail(name: str, kind: Any) -> Callable[[ClaimedRun], pa.Array[Any]]:
    def read(run: ClaimedRun) -> pa.Array[Any]:
        column = run.details.get(name)
        found: pa.Array[Any] = pa.nulls(len(run), kind) if column is None else pa.array(column, kind)
        return found

    return read


_READINGS: Final[dict[str, Callable[[ClaimedRun], pa.Array[Any]]]] = {
    "partitionKey": _detail(PARTITION_KEY, _STRING),
    "deadLetterSource": _detail(DEAD_LETTER_SOURCE, _STRING),
    "enqueuedSequenceNumber": _detail(FIRST_NUMBER, pa.int64()),
    "sequenceNumber": lambda run: pa.array(run.numbers),
    "fragment": lambda run: pa.array((run.numbers >> FRAGMENT_SHIFT).astype(np.int32)),
    "enqueuedTime": lambda run: _times(run.enqueued_ms),
    "expiresAt": _expiry,
    "timeToLive": lambda run: pa.array(run.life_ms, mask=run.life_ms < 0),
    "scheduledEnqueueTime": _scheduled,
    "deliveryCount": lambda run: pa.array(run.deliveries.astype(np.int32)),
    "state": lambda run: pa.repeat(pa.scalar("active", _STRING), len(run)),
}
