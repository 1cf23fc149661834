"""Writing rows to a hub.

Theory of operation. A task sends its rows in order, each to one partition of the hub: the one that `partitionId`
names, the one that `partitionKey` belongs to (H-10), or the next in turn, by the row's place in the task. So the rows
of a task that go to one partition are a fixed sequence, and a task that is tried again sends the same one. Each such
sequence has a producer of its own (`busway.client.event_producer`), whose id is computed from the work it belongs to:
a second try attaches under the same id, learns how many rows were stored, and leaves them out.

Of a stream the work is the query, the task's place and, as the producer's epoch, the batch: with the next batch
counting begins anew and tries of the batch before are refused. Batches that Spark repeats after a crash are therefore
stored once. A batch job is known by a random name, so that its tasks can be repeated within it, and by nothing
afterwards: a job that is started again writes again.

On a server without idempotent producers rows are stored at least once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol
from busway.client.errors import Refused
from busway.client.event_producer import EventProducer, ProducerClaim
from busway.client.messages import PARTITION_KEY
from busway.client.service_bus_client import ServiceBusClient
from busway.streams.key_hash import partition_of_key
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.encoded_rows import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.amqp_arrays.message_cut import Column, Longs
from busway_spark.bus_failure import failing
from busway_spark.eventhubs.facts import ask_hub
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.written_columns import BODY, KEY, PARTITION_ID, SECTIONS, WrittenColumns
from busway_spark.eventhubs.written_sections import BadRows

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
#: Rows in turn that go to one partition before the next.
_TURN_ROWS: Final = 64
_EPOCHS: Final = 1 << 15
_ID_BITS: Final = 62
_KEY_ENTRY: Final = encode_value(Symbol(PARTITION_KEY))
#: What stands before the number of an event, and the keys and values that a producer marks it with.
_INT: Final = b"\x71"
_MARKS: Final = 6


@dataclass
class EventsWritten(WriterCommitMessage):
    """What a task wrote, and what it found written by a try before it."""

    sent: int
    found: int


@dataclass(frozen=True)
class Work:
    """What a task's rows belong to."""

    name: str
    epoch: int
    place: int

    def claim(self, partition: str) -> ProducerClaim:
        digest = hashlib.sha256(f"{self.name}\n{self.place}\n{partition}".encode()).digest()
        return ProducerClaim(int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS), self.epoch)

    @classmethod
    def of_stream(cls, query_id: str, batch_id: int, place: int) -> Work:
        """Epochs are few: behind the last one the work gets another name."""
        return cls(f"stream {query_id} {batch_id // _EPOCHS}", batch_id % _EPOCHS, place)

    @classmethod
    def of_job(cls, job: str, place: int) -> Work:
        return cls(f"job {job}", 0, place)


class EventHubsWriter(DataSourceArrowWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns, job: str) -> None:
        self._options = options
        self._columns = columns
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        work = Work.of_job(self._job, _context().partitionId())
        return write_rows(self._options, work, map(self._columns.prepared, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Rows are in the hub when their task ends."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was sent stays: events cannot be taken back."""


class EventHubsStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: EventHubsOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _context()
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise BadRows("Spark does not tell which batch of which query this task belongs to.")
        work = Work.of_stream(query_id, int(batch_id), context.partitionId())
        return write_rows(self._options, work, map(self._columns.prepared, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Rows are in the hub when their task ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was sent stays; when the batch is repeated only the rest is sent."""


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise BadRows("Rows can only be written by a task of Spark.")
    return context


def write_rows(options: EventHubsOptions, work: Work, rows: Iterator[pa.RecordBatch]) -> EventsWritten:
    """`rows` are prepared."""
    with failing(f"write to the hub '{options.hub}'"), asyncio.Runner() as runner:
        return runner.run(_write(options, work, rows))


async def _write(options: EventHubsOptions, work: Work, rows: Iterator[pa.RecordBatch]) -> EventsWritten:
    async with options.bus.client() as client:
        hub = await ask_hub(client, options.bus, options.hub, ())
        router = Router(hub.partition_count, work.place)
        outboxes: dict[str, _Outbox] = {}
        for batch in rows:
            for piece in pieces(batch):
                for partition, events in router.routed(piece).items():
                    outbox = outboxes.get(partition)
                    if outbox is None:
                        outbox = outboxes[partition] = _Outbox(client, options, partition, work)
                        await outbox.open()
                    await outbox.send(events)
        for outbox in outboxes.values():
            await outbox.close()
    return EventsWritten(
        sum(outbox.sent for outbox in outboxes.values()), sum(outbox.found for outbox in outboxes.values())
    )


class _Outbox:
    """The rows of a task for one partition of the hub."""

    def __init__(
        self, client: ServiceBusClient, options: EventHubsOptions, partition: str, work: Work
    ) -> None:
        claim = None if options.bus.is_azure_host() else work.claim(partition)
        self._producer: EventProducer = client.get_event_producer(options.hub, partition, claim)
        #: Stored by a try before this one, and not yet seen among the rows.
        self._skips = 0
        self.found = 0
        self.sent = 0

    async def open(self) -> None:
        await self._producer.open()
        if self._producer.is_idempotent:
            self._skips = self.found = self._producer.last_number

    async def send(self, events: pa.RecordBatch) -> None:
        skipped = min(self._skips, events.num_rows)
        self._skips -= skipped
        rest = events.slice(skipped)
        if rest.num_rows:
            encoded = encode_events(rest, self._producer.marks(), self._producer.last_number + 1)
            for first, end in encoded.cut(self._producer.batch_bytes_max - ENVELOPE_BYTES):
                await self._producer.send_group(encoded.batch(first, end), end - first)
            self.sent += rest.num_rows

    async def close(self) -> None:
        await self._producer.flush()
        await self._producer.close()
        if self._skips:
            raise Refused(
                "A try of this task before wrote more rows than there are now: the rows of a batch must be the same"
                " whenever it is repeated."
            )


class Router:
    """Which partition each row goes to, by nothing but the row and its place in the task."""

    def __init__(self, partition_count: int, place: int) -> None:
        self._partition_count = partition_count
        self._place = place
        self._rows = 0

    def routed(self, batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Rows by partition, in their order. Raises BadRows."""
        turns = np.arange(self._rows, self._rows + batch.num_rows) // _TURN_ROWS
        partitions: Longs = (self._place + turns) % self._partition_count
        self._rows += batch.num_rows
        is_chosen = np.zeros(batch.num_rows, np.bool_)
        for name, choose in ((PARTITION_ID, self._checked), (KEY, self._of_key)):
            if name not in batch.schema.names:
                continue
            words, places = arrow.words(batch.column(name).cast(pa.string()))
            has = places >= 0
            if (has & is_chosen).any():
                raise BadRows("A row has both partitionId and partitionKey; only one of them can be given.")
            is_chosen |= has
            if has.any():
                chosen = np.array([choose(word) for word in words], np.int64)
                partitions[has] = chosen[places[has]]
        found = np.unique(partitions).tolist()
        if len(found) == 1:
            return {str(found[0]): batch}
        return {str(each): arrow.rows_where(batch, partitions == each) for each in found}

    def _of_key(self, key: str) -> int:
        return partition_of_key(key, self._partition_count)

    def _checked(self, wanted: str) -> int:
        if (
            not (wanted.isascii() and wanted.isdigit() and len(wanted) <= 9)
            or int(wanted) >= self._partition_count
        ):
            raise BadRows(
                f"partitionId {wanted[:40]!r}: the hub has the partitions 0 to {self._partition_count - 1}."
            )
        return int(wanted)


def encode_events(rows: pa.RecordBatch, marks: bytes, first_number: int) -> EncodedRows:
    """The rows as events, all at once; with the producer's marks, when there are any, and numbers behind them."""
    numbers = np.arange(first_number, first_number + rows.num_rows)
    body = encoding.as_binary(rows.column(BODY))
    if body.null_count:
        raise BadRows("A row has no body.")
    parts: list[Column] = []
    annotations = _annotations(rows, marks, numbers)
    if annotations is not None:
        parts.append(annotations)
    if SECTIONS in rows.schema.names:
        parts.append(rows.column(SECTIONS))
    parts += encoding.data_section(body)
    return EncodedRows.of(numbers, arrow.joined(*parts))


def _annotations(rows: pa.RecordBatch, marks: bytes, numbers: Longs) -> Column | None:
    entries: list[Column] = []
    counts: Longs = np.zeros(rows.num_rows, np.int64)
    if KEY in rows.schema.names and rows.column(KEY).null_count < rows.num_rows:
        keys = rows.column(KEY)
        key_entries = arrow.joined(_KEY_ENTRY, encoding.variable(keys, encoding.TEXT_FORM))
        entries.append(arrow.filled(key_entries, b""))
        counts += 2 * arrow.is_valid(keys)
    if marks:
        entries.append(encoding.fixed(rows.column(BODY), numbers.astype(">i4"), marks + _INT))
        counts += _MARKS
    if not entries:
        return None
    body = encoding.compound(arrow.joined(*entries), counts, encoding.MAP_FORM)
    return encoding.only_where(counts > 0, encoding.section(encoding.MESSAGE_ANNOTATIONS, body))
