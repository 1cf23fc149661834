"""Reading a range of a partition over AMQP, event by event: for Azure, and for a Busway whose HTTP cannot be reached.

Theory of operation. A reader of the consumer group begins behind the number before the range, or at the partition's
start, and stops with the range's last event. The range ends at an event that exists, so waiting is only for the wire;
when nothing comes for the receiver's timeout the task fails, and Spark tries it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.sections import decode_message
from busway.client.errors import ClientError, TimedOut
from busway.client.event_reader import EventReader, StartPosition
from busway.client.messages import SEQUENCE_NUMBER
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.bridge import bridge
from busway_spark.bus import Bus
from busway_spark.eventhubs.columns import batch_of_payloads
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.patience import OPERATION_S, Patience, may_pass

_ROWS: Final = 5_000
_BYTES: Final = 8 * 1024 * 1024


class AmqpReader:
    def __init__(
        self, bus: Bus, hub: str, consumer_group: str, timeout_s: float, operation_s: float = OPERATION_S
    ) -> None:
        self._bus = bus
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
                yield _within(wanted, *batch_of_payloads(payloads, wanted.partition)), rest
        finally:
            with contextlib.suppress(ClientError):
                work.run(reader.close())

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
