"""Sending rows to a hub by AMQP alone, where they cannot be staged: at least once.

A task sends its rows in order, each to one partition: the one that it names, the one that its key belongs to
(H-10), or the next in turn. They are there when they are sent: those of a task that Spark repeats come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from busway.client.event_producer import EventProducer
from busway_spark.amqp_arrays.encoded_rows import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.bus_failure import failing
from busway_spark.eventhubs.event_rows import Router, encode_events
from busway_spark.eventhubs.facts import ask_hub
from busway_spark.eventhubs.options import EventHubsOptions


@dataclass
class EventsSent(WriterCommitMessage):
    rows: int


def send_rows(rows: Iterator[pa.RecordBatch], options: EventHubsOptions) -> EventsSent:
    """In a task; the batches are prepared (`written_columns`). Raises BadRows, BusFailure."""
    with failing(f"write to the hub '{options.hub}'"), asyncio.Runner() as runner:
        return runner.run(_send(rows, options))


async def _send(rows: Iterator[pa.RecordBatch], options: EventHubsOptions) -> EventsSent:
    context = TaskContext.get()
    sent = 0
    async with options.bus.client() as client:
        hub = await ask_hub(client, options.bus, options.hub, ())
        router = Router(hub.partition_count, 0 if context is None else context.partitionId())
        producers: dict[str, EventProducer] = {}
        for batch in rows:
            for piece in pieces(batch):
                for partition, events in router.routed(piece).items():
                    producer = producers.get(partition)
                    if producer is None:
                        producer = producers[partition] = client.get_event_producer(
                            options.hub, partition, None
                        )
                        await producer.open()
                    await _post(producer, events, sent)
                sent += piece.num_rows
        for producer in producers.values():
            await producer.flush()
            await producer.close()
    return EventsSent(sent)


async def _post(producer: EventProducer, events: pa.RecordBatch, first_row: int) -> None:
    encoded = EncodedRows.of(np.arange(events.num_rows), encode_events(events, first_row))
    for first, end in encoded.cut(producer.batch_bytes_max - ENVELOPE_BYTES):
        await producer.send_group(encoded.batch(first, end), end - first)
