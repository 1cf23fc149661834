"""Ranges of events: what readers plan on the driver and read on executors, by the bulk route or by AMQP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from busway_spark.bodies.body_columns import BodyColumns
from busway_spark.eventhubs.amqp_reader import AmqpReader
from busway_spark.eventhubs.bulk_reader import BulkReader
from busway_spark.eventhubs.chosen_columns import WantedColumns
from busway_spark.eventhubs.facts import read_hub
from busway_spark.eventhubs.offsets import DataLoss, EventRange
from busway_spark.eventhubs.options import AUTO, BULK, EventHubsOptions
from busway_spark.given_options import AMQP
from busway_spark.wire.bus import BUSWAY, failing
from busway_spark.wire.patience import meet


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
