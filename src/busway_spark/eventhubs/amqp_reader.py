"""Reading a range of a partition over AMQP, event by event: for Azure, and for a Busway whose HTTP cannot be reached.

Theory of operation. A reader of the consumer group begins behind the number before the range, or at the partition's
start, and stops with the range's last event. The range ends at an event that exists, so waiting is only for the wire;
when nothing comes for the receiver's timeout the task fails, and Spark tries it again.

How large events are nobody tells but the events: the first few of a range are read to know.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.sections import decode_message
from busway.client.errors import ClientError, TimedOut
from busway.client.event_reader import EventReader, StartPosition
from busway.client.messages import SEQUENCE_NUMBER
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS, WantedColumns
from busway_spark.eventhubs.columns import batch_of_payloads
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.wire.bridge import asked, bridge
from busway_spark.wire.bus import Bus
from busway_spark.wire.patience import OPERATION_S, Patience, may_pass

_ROWS: Final = 5_000
_BYTES: Final = 8 * 1024 * 1024
#: To learn a size: events of a partition, and partitions, those with the most before them.
_SAMPLED_EVENTS: Final = 16
_SAMPLED_PARTITIONS: Final = 32


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
        return asked(self._bus, self._operation_s, lambda client: self._sampled(client, waiting))

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

    async def _gather(self, reader: EventReader, wanted: EventRange) -> tuple[list[bytes], EventRange]:
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
