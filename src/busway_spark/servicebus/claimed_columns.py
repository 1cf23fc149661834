"""Claimed messages as columns, straight from the frames of the bulk route (`busway.message.claimed_run`).

What the server knows of messages lies in a frame as columns already. What their senders said is found in the bare
messages as in any others (`message_columns`). Both are done with one operation for all messages that are there, so
several frames are made one run first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from busway.client.errors import Unreachable
from busway.message.claimed_run import (
    COLUMNS_BYTES,
    DEAD_LETTER_SOURCE,
    FIRST_NUMBER,
    HEAD,
    MAGIC,
    PARTITION_KEY,
    SCHEDULED_TIME,
)
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import BYTES_MAX, Column, Longs, MessageCut
from busway_spark.servicebus.message_arrays import FRAGMENT_SHIFT, STRING, instants
from busway_spark.servicebus.message_columns import MessageColumns
from busway_spark.servicebus.options import ServiceBusOptions

#: What is gathered of small frames. A larger one stands alone.
_GATHERED_BYTES: Final = 8 * 1024 * 1024


class ClaimedFrameDamaged(ValueError):
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
    """Of a frame without its length. Raises ClaimedFrameDamaged."""
    if not HEAD.size <= len(frame) <= BYTES_MAX:
        raise ClaimedFrameDamaged("a frame is shorter than its head, or larger than two gigabytes")
    magic, count, details_bytes = HEAD.unpack_from(frame)
    details_at = HEAD.size + COLUMNS_BYTES * count
    first = details_at + details_bytes
    if magic != MAGIC or count == 0 or first > len(frame):
        raise ClaimedFrameDamaged("the head of a frame does not fit its length")
    longs = np.frombuffer(frame, "<i8", 4 * count, HEAD.size).astype(np.int64).reshape(4, count)
    ends = longs[3] + first
    starts = np.empty(count, np.int64)
    starts[0], starts[1:] = first, ends[:-1]
    if int(ends[-1]) != len(frame) or not bool((starts <= ends).all()):
        raise ClaimedFrameDamaged("the messages of a frame overlap, or end outside of it")
    deliveries = np.frombuffer(frame, "<i4", count, HEAD.size + 32 * count)
    details = _details(frame[details_at:first], count)
    return ClaimedRun(frame, longs[0], longs[1], longs[2], deliveries, details, starts, ends)


def gathered_runs(frames: Iterator[bytes]) -> Iterator[ClaimedRun]:
    """Frames, without their lengths, as fewer and longer runs. When the frames break off, what had come comes before
    the error. Raises ClaimedFrameDamaged."""
    waiting: list[bytes] = []
    try:
        for frame in frames:
            if waiting and sum(map(len, waiting)) + len(frame) > _GATHERED_BYTES:
                yield _joined(waiting)
                waiting = []
            waiting.append(frame)
    except Unreachable:
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _joined(frames: list[bytes]) -> ClaimedRun:
    runs = [claimed_run(frame) for frame in frames]
    if len(runs) == 1:
        return runs[0]
    before = np.cumsum([0, *map(len, frames)])
    return ClaimedRun(
        b"".join(frames),
        np.concatenate([run.numbers for run in runs]),
        np.concatenate([run.enqueued_ms for run in runs]),
        np.concatenate([run.life_ms for run in runs]),
        np.concatenate([run.deliveries for run in runs]),
        {
            name: [item for run in runs for item in run.details.get(name) or [None] * len(run)]
            for name in {name for run in runs for name in run.details}
        },
        np.concatenate([run.starts + shift for run, shift in zip(runs, before, strict=False)]),
        np.concatenate([run.ends + shift for run, shift in zip(runs, before, strict=False)]),
    )


def _details(data: bytes, count: int) -> dict[str, Any]:
    try:
        details = json.loads(data) if data else {}
    except ValueError:
        details = None
    if not isinstance(details, dict):
        raise ClaimedFrameDamaged("the details of a frame cannot be read")
    if any(not isinstance(column, list) or len(column) != count for column in details.values()):
        raise ClaimedFrameDamaged("the details of a frame do not fit its messages")
    return details


class ClaimedColumns:
    """Builds record batches of one schema; rows show their messages as they were before the claim."""

    def __init__(self, schema: StructType, options: ServiceBusOptions, entity: str) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        said = StructType([each for each in schema.fields if each.name not in _OF_FRAME])
        self._said = MessageColumns(said, options, entity)

    def batch(self, run: ClaimedRun) -> pa.RecordBatch:
        """Raises DecodeError for a message that is none."""
        columns = {name: read(run) for name, read in _OF_FRAME.items() if name in self.schema.names}
        if len(columns) < len(self.schema.names):
            said = self._said.batch_of_cut(MessageCut(run.data, run.starts, run.ends))
            columns.update(zip(said.schema.names, said.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _expiry(run: ClaimedRun) -> Column:
    """M-17: from the time it was enqueued and the life that it has."""
    return instants(run.enqueued_ms + run.life_ms, run.life_ms >= 0)


def _scheduled(run: ClaimedRun) -> Column:
    at_ms = _detail(SCHEDULED_TIME, pa.int64())(run)
    return instants(arrow.longs(at_ms), arrow.is_valid(at_ms))


def _detail(name: str, kind: pa.DataType) -> Callable[[ClaimedRun], Column]:
    def read(run: ClaimedRun) -> Column:
        column = run.details.get(name)
        return arrow.nulls(kind, len(run)) if column is None else pa.array(column, kind)

    return read


#: Columns that a frame has, or that are the same for all that is claimed.
_OF_FRAME: Final[dict[str, Callable[[ClaimedRun], Column]]] = {
    "partitionKey": _detail(PARTITION_KEY, STRING),
    "deadLetterSource": _detail(DEAD_LETTER_SOURCE, STRING),
    "enqueuedSequenceNumber": _detail(FIRST_NUMBER, pa.int64()),
    "sequenceNumber": lambda run: pa.array(run.numbers),
    "fragment": lambda run: pa.array((run.numbers >> FRAGMENT_SHIFT).astype(np.int32)),
    "enqueuedTime": lambda run: instants(run.enqueued_ms),
    "expiresAt": _expiry,
    "timeToLive": lambda run: pa.array(run.life_ms, mask=run.life_ms < 0),
    "scheduledEnqueueTime": _scheduled,
    "deliveryCount": lambda run: pa.array(run.deliveries.astype(np.int32)),
    "state": lambda run: arrow.repeated("active", STRING, len(run)),
}
