"""Ranges of events: what readers plan on the driver and read on executors, by the bulk route or by AMQP.

Theory of operation. By Busway's bulk route stored chunks come over HTTP, many thousand events an answer
(`BulkReader`). One request fetches about `ANSWER_BYTES`; the next one begins behind the last number that came. It is
sent by a second thread while the first answer is turned into columns and taken by Spark. Reading changes nothing, so
each request may be made again.

Over AMQP events come one by one: for Azure, and for a Busway whose HTTP cannot be reached (`AmqpReader`). A reader of
the consumer group begins behind the number before the range, or at the partition's start, and stops with the range's
last event. The range ends at an event that exists, so waiting is only for the wire; when nothing comes for the
receiver's timeout the task fails, and Spark tries it again. How large events are nobody tells but the events: the
first few of a range are read to know.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from busway.amqp.sections import decode_message
from busway.client.errors import ClientError, TimedOut
from busway.client.events import PartitionReader, StartPosition
from busway.client.messages import SEQUENCE_NUMBER
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.bodies.body_columns import BodyColumns
from busway_spark.eventhubs.columns import StoredRun, batch_of_payloads, batch_of_run, event_run
from busway_spark.eventhubs.offsets import DataLoss, EventRange, read_hub
from busway_spark.eventhubs.options import ALL_COLUMNS, AUTO, BULK, EventHubsOptions, WantedColumns
from busway_spark.given_options import AMQP
from busway_spark.wire.bus import BUSWAY, Bus, ask, bridge, failing
from busway_spark.wire.http_client import HttpClient
from busway_spark.wire.patience import OPERATION_S, Patience, may_pass, meet

CHUNKS_TYPE: Final = "application/vnd.busway.chunks"
ANSWER_BYTES: Final = 8 * 1024 * 1024
_ROWS: Final = 5_000
_BYTES: Final = 8 * 1024 * 1024
#: To learn a size: events of a partition, and partitions, those with the most before them.
_SAMPLED_EVENTS: Final = 16
_SAMPLED_PARTITIONS: Final = 32


class BulkReader:
    def __init__(
        self,
        bus: Bus,
        hub: str,
        operation_s: float = OPERATION_S,
        wanted: WantedColumns = ALL_COLUMNS,
    ) -> None:
        self._http = HttpClient(bus, hub, operation_s)
        self._hub = hub
        self._columns = wanted

    def batches(self, wanted: EventRange) -> Iterator[pa.RecordBatch]:
        """Raises ClientError, ChunkDamaged."""
        for run in self.runs(wanted):
            if len(run):
                yield batch_of_run(run, wanted.partition, self._columns)

    def runs(self, wanted: EventRange) -> Iterator[StoredRun]:
        """Ends where the hub has nothing more in the range."""
        with ThreadPoolExecutor(1, "busway-bulk") as fetching:
            coming: Future[bytes] | None = fetching.submit(self._fetch, wanted)
            while coming is not None:
                run = event_run(coming.result(), wanted.first, wanted.end)
                if run is None:
                    return
                rest = EventRange(wanted.partition, run.last_number + 1, wanted.end)
                coming = fetching.submit(self._fetch, rest) if rest.count else None
                yield run

    def event_bytes(self, wanted: EventRange) -> float:
        """About how large an event at the start of the range is as it is stored; 0 when there is none."""
        run = event_run(self._fetch(wanted, 1), wanted.first, wanted.end)
        return 0.0 if run is None or not len(run) else float(run.ends[-1] - run.starts[0]) / len(run)

    def _fetch(self, wanted: EventRange, bytes_max: int = ANSWER_BYTES) -> bytes:
        hub = "/".join(quote(part, safe="") for part in self._hub.split("/"))
        path = f"/{hub}/partitions/{quote(wanted.partition, safe='')}/events"
        query = (
            f"from={wanted.first}&to={wanted.end}&bytes={bytes_max}&format=chunks&parts={self._columns.parts}"
        )
        return self._http.get(f"{path}?{query}", CHUNKS_TYPE)


class AmqpReader:
    def __init__(
        self,
        bus: Bus,
        hub: str,
        consumer_group: str,
        timeout_s: float,
        operation_s: float = OPERATION_S,
        wanted: WantedColumns = ALL_COLUMNS,
    ) -> None:
        self._bus = bus
        self._columns = wanted
        self._hub = hub
        self._consumer_group = consumer_group
        self._timeout_s = timeout_s
        self._operation_s = operation_s

    def batches(self, wanted: EventRange) -> Iterator[pa.RecordBatch]:
        """Raises ClientError. A connection that breaks is taken up again behind the last batch."""
        rest = wanted
        patience = Patience(self._bus.target.authority, self._operation_s)
        while rest.count:
            try:
                for batch, left in self._read(wanted, rest):
                    rest = left
                    patience = Patience(self._bus.target.authority, self._operation_s)  # it goes on
                    if batch.num_rows:
                        yield batch
            except ClientError as error:
                if not may_pass(error):
                    raise
                if not patience.pause():
                    raise patience.over(error) from error

    def _read(self, wanted: EventRange, rest: EventRange) -> Iterator[tuple[pa.RecordBatch, EventRange]]:
        """Batches, and the range that is left behind each."""
        work = bridge()
        reader = work.client(self._bus).get_event_reader(
            self._hub, rest.partition, _start(rest.first), self._consumer_group
        )
        try:
            work.run(reader.open())
            while rest.count:
                payloads, rest = work.run(self._gather(reader, rest))
                found = batch_of_payloads(payloads, wanted.partition, self._columns)
                yield _within(wanted, *found), rest
        finally:
            with contextlib.suppress(ClientError):
                work.run(reader.close())

    def event_bytes(self, waiting: Sequence[EventRange]) -> float:
        """About how large an event at the start of the ranges is, weighted by how many wait; 0 when none came.
        Raises ClientError."""
        return ask(self._bus, self._operation_s, lambda client: self._sampled(client, waiting))

    async def _sampled(self, client: ServiceBusClient, waiting: Sequence[EventRange]) -> float:
        chosen = sorted(waiting, key=lambda one: -one.count)[:_SAMPLED_PARTITIONS]
        sizes = await asyncio.gather(*(self._sample(client, one) for one in chosen))
        known = [(one.count, size) for one, size in zip(chosen, sizes, strict=True) if size]
        total = sum(count for count, _ in known)
        return sum(count * size for count, size in known) / total if total else 0.0

    async def _sample(self, client: ServiceBusClient, wanted: EventRange) -> float:
        reader = client.get_event_reader(
            self._hub, wanted.partition, _start(wanted.first), self._consumer_group
        )
        async with reader:
            found = await reader.receive_encoded(self._timeout_s, min(wanted.count, _SAMPLED_EVENTS))
        return sum(map(len, found)) / len(found) if found else 0.0

    async def _gather(self, reader: PartitionReader, wanted: EventRange) -> tuple[list[bytes], EventRange]:
        """Events for one batch, and the range that is left behind them."""
        gathered: list[bytes] = []
        size = 0
        while wanted.count and len(gathered) < _ROWS and size < _BYTES:
            payloads = await reader.receive_encoded(self._timeout_s, wanted.count)
            if not payloads:
                raise TimedOut(
                    f"Partition {wanted.partition} of '{self._hub}' sent no event in {self._timeout_s:g} s, but the"
                    f" range ends with event {wanted.end - 1}."
                )
            gathered += payloads
            size += sum(map(len, payloads))
            wanted = EventRange(wanted.partition, _number(payloads[-1]) + 1, wanted.end)
        return gathered, wanted


def _number(payload: bytes) -> int:
    return int((decode_message(payload).message_annotations or {})[SEQUENCE_NUMBER])


def _within(wanted: EventRange, batch: pa.RecordBatch, numbers: Longs) -> pa.RecordBatch:
    """Numbers ascend; what was under way when the range ended lies behind it."""
    low, high = np.searchsorted(numbers, [wanted.first, wanted.end])
    return batch.slice(int(low), int(high - low))


def _start(number: int) -> StartPosition:
    """H-22: a number behind the last one is refused, so the start is told by the number before it."""
    if number == 0:
        return StartPosition.first()
    return StartPosition(f"amqp.annotation.x-opt-sequence-number > '{number - 1}'")


@dataclass
class RangePartition(InputPartition):
    """One task of Spark."""

    events: EventRange
    transport: str
    created_at_ms: int

    def __init__(self, events: EventRange, transport: str, created_at_ms: int) -> None:
        super().__init__((events.partition, events.first, events.end))
        self.events = events
        self.transport = transport
        self.created_at_ms = created_at_ms


def transport_of(options: EventHubsOptions) -> str:
    """BULK or AMQP."""
    if options.transport != AUTO:
        return options.transport
    return BULK if options.bus.kind(options.operation_s) == BUSWAY else AMQP


def read_range(
    options: EventHubsOptions, partition: InputPartition, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The events of a task, in columns of these names. Spark hands an empty one to a source that plans none."""
    if not isinstance(partition, RangePartition):
        return
    wanted = partition.events
    meet(options.bus.target.authority)  # the driver has
    columns = WantedColumns.of(names, options)
    bodies = BodyColumns(options.bodies, options.hub, list(names)) if columns.is_decoded else None
    count = 0
    with failing(f"read partition {wanted.partition} of the hub '{options.hub}'"):
        for batch in _batches(options, partition, columns):
            count += batch.num_rows
            yield batch if bodies is None else bodies.apply(batch)
        if count < wanted.count and options.fails_on_data_loss:
            _check_loss(options, partition)


def _batches(
    options: EventHubsOptions, partition: RangePartition, columns: WantedColumns
) -> Iterator[pa.RecordBatch]:
    if partition.transport == BULK:
        bulk = BulkReader(options.bus, options.hub, options.operation_s, wanted=columns)
        return bulk.batches(partition.events)
    reader = AmqpReader(
        options.bus,
        options.hub,
        options.consumer_group,
        options.receiver_timeout_s,
        options.operation_s,
        columns,
    )
    return reader.batches(partition.events)


def _check_loss(options: EventHubsOptions, partition: RangePartition) -> None:
    """Fewer events came than numbers: compaction does that, and so does what must not be kept quiet."""
    wanted = partition.events
    hub = read_hub(options.bus, options.hub, [wanted.partition], options.operation_s)
    facts = hub.partitions.get(wanted.partition)
    if hub.created_at_ms != partition.created_at_ms or facts is None:
        raise DataLoss.by_creation(options.hub)
    if facts.first_number > wanted.first:
        raise DataLoss.by_retention(
            options.hub, wanted.partition, wanted.first, min(facts.first_number, wanted.end)
        )
    if facts.next_number < wanted.end:
        raise DataLoss.by_rewind(options.hub, wanted.partition, wanted.end, facts.next_number)
