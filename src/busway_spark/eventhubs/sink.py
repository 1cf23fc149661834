"""Writing rows to a hub, in batches and in streams (`busway_spark.writing.sink_writers`): which partition each row is
for, the encoded event, and the two ways to the hub.

On Busway each row arrives once. A row goes to the partition that `partition` names, or that its `partitionKey`
belongs to (H-10); of the others, those that are staged together go to one partition, in their order.

Other services, and AMQP alone, get rows at least once, which is said loudly. A task sends its rows in order, each to
one partition: the one that it names, the one that its key belongs to (H-10), or the next in turn. They are there when
they are sent: those of a task that Spark repeats come again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol
from busway.client.errors import ClientError
from busway.client.event_producer import EventProducer
from busway.client.messages import PARTITION_KEY
from busway.client.service_bus_client import ServiceBusClient
from busway.streams.key_hash import partition_of_key
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.encoded_rows import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs
from busway_spark.eventhubs.facts import ask_hub
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.written_columns import BODY, KEY, PARTITION_ID, SECTIONS, BadRows, WrittenColumns
from busway_spark.given_options import AMQP
from busway_spark.wire.bridge import bridge
from busway_spark.wire.bus import failing
from busway_spark.writing.sink_writers import JobWriter, StreamWriter, stage_pieces
from busway_spark.writing.staging import can_stage
from busway_spark.writing.two_phase import RowsStaged, Stage, say_loudly
from busway_spark.writing.write_names import WriteName

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
    """In a task; the batches are prepared (`written_columns`). Raises BadRows, BusFailure."""
    context, work = TaskContext.get(), bridge()
    sent = 0
    with failing(f"write to the hub '{options.hub}'"):
        client = work.client(options.bus)
        hub = work.run(ask_hub(client, options.bus, options.hub, ()))
        router = Router(hub.partition_count, 0 if context is None else context.partitionId())
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
        self, rows: Iterator[pa.RecordBatch], name: WriteName, warning: str | None = None
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
    name: WriteName,
    warning: str | None = None,
) -> RowsStaged:
    """In a task; the batches are prepared (`written_columns`). Raises BadRows, RowsRefused, BusFailure."""

    def put(stage: Stage, piece: pa.RecordBatch, first_row: int) -> None:
        events = encode_events(piece, first_row)
        rows = np.arange(first_row, first_row + piece.num_rows)
        for partition, wanted in by_partition(piece, first_row).items():
            found = events if wanted.all() else arrow.filtered(events, wanted)
            stage.put(options.hub, partition, EncodedRows.framed(rows[wanted], found))

    return stage_pieces(record_batches, options, name, warning, put)
