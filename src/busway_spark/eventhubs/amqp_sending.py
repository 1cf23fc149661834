"""Sending rows to a hub by AMQP alone, where they cannot be staged: at least once.

A task sends its rows in order, each to one partition: the one that it names, the one that its key belongs to
(H-10), or the next in turn. They are there when they are sent: those of a task that Spark repeats come again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from busway.client.errors import ClientError
from busway.client.event_producer import EventProducer
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays.encoded_rows import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.eventhubs.event_rows import Router, encode_events
from busway_spark.eventhubs.facts import ask_hub
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.wire.bridge import bridge
from busway_spark.wire.bus import failing


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
