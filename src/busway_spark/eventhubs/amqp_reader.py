"""Reading a range of a partition over AMQP, event by event: for Azure, and for a Busway whose HTTP cannot be reached.

Theory of operation. A reader of the consumer group begins behind the number before the range, or at the partition's
start, and stops with the range's last event. The range ends at an event that exists, so waiting is only for the wire;
when nothing comes for the receiver's timeout the task fails, and Spark tries it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from busway.amqp.sections import AmqpMessage, decode_message
from busway.client.errors import TimedOut
from busway.client.event_reader import EventReader, StartPosition
from busway.client.messages import ENQUEUED_TIME, SEQUENCE_NUMBER
from busway_spark.bus import Bus
from busway_spark.eventhubs.columns import batch_of_messages
from busway_spark.eventhubs.offsets import EventRange

_ROWS: Final = 5_000
_BYTES: Final = 8 * 1024 * 1024


class AmqpReader:
    def __init__(self, bus: Bus, hub: str, consumer_group: str, timeout_s: float) -> None:
        self._bus = bus
        self._hub = hub
        self._consumer_group = consumer_group
        self._timeout_s = timeout_s

    def batches(self, wanted: EventRange) -> Iterator[pa.RecordBatch]:
        """Raises ClientError."""
        with asyncio.Runner() as runner:
            client = self._bus.client()
            reader = client.get_event_reader(
                self._hub, wanted.partition, _start(wanted.first), self._consumer_group
            )
            try:
                runner.run(reader.open())
                reached = wanted.first
                while reached < wanted.end:
                    gathered = runner.run(self._gather(reader, wanted))
                    reached = gathered.next_number
                    if gathered.numbers:
                        yield gathered.batch(wanted.partition)
            finally:
                runner.run(client.close())

    async def _gather(self, reader: EventReader, wanted: EventRange) -> _Gathered:
        gathered = _Gathered()
        while gathered.next_number < wanted.end and not gathered.is_full():
            payloads = await reader.receive_encoded(self._timeout_s)
            if not payloads:
                raise TimedOut(
                    f"Partition {wanted.partition} of '{self._hub}' sent no event in {self._timeout_s:g} s, but the"
                    f" range ends with event {wanted.end - 1}."
                )
            for payload in payloads:
                gathered.add(payload, wanted)
        return gathered


def _start(number: int) -> StartPosition:
    """H-22: a number behind the last one is refused, so the start is told by the number before it."""
    if number == 0:
        return StartPosition.first()
    return StartPosition(f"amqp.annotation.x-opt-sequence-number > '{number - 1}'")


class _Gathered:
    def __init__(self) -> None:
        self.messages: list[AmqpMessage] = []
        self.numbers: list[int] = []
        self.times_ms: list[int] = []
        self.next_number = 0
        self._bytes = 0

    def add(self, payload: bytes, wanted: EventRange) -> None:
        message = decode_message(payload)
        annotations = message.message_annotations or {}
        number = int(annotations[SEQUENCE_NUMBER])
        self.next_number = number + 1
        if wanted.first <= number < wanted.end:
            self.messages.append(message)
            self.numbers.append(number)
            self.times_ms.append(int(annotations[ENQUEUED_TIME]))
            self._bytes += len(payload)

    def is_full(self) -> bool:
        return len(self.numbers) >= _ROWS or self._bytes >= _BYTES

    def batch(self, partition: str) -> pa.RecordBatch:
        return batch_of_messages(self.messages, self.numbers, self.times_ms, partition)
