"""A topic whose history is captured: what was published to it is written into captured files by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from busway.amqp.types import Symbol
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.service_bus_client import ServiceBusClient
from busway.rules.rule import Rule
from busway_spark.pipeline.backfill.backfill_plan import FRAGMENT_SHIFT, BackfillOptions
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile
from busway_spark.pipeline.job import JobPlace
from busway_spark.property_types import properties_of, types_of
from busway_spark.servicebus.variant import json_of
from busway_spark.wire.bus import Bus
from tests.spark.random_rules import RandomRules

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What a message is to whoever compares two subscriptions.
Seen = tuple[object, ...]


class CapturedTopic:
    def __init__(self, connection_string: str, root: Path, *, is_partitioned: bool = False) -> None:
        self.connection_string = connection_string
        self.root = root
        self.name = f"topic-{uuid4().hex[:8]}"
        self._chance = RandomRules(3)
        self._published = 0
        self._captured: list[ServiceBusReceivedMessage] = []
        with self.administration() as client:
            client.create_topic(self.name, {"EnablePartitioning": is_partitioned})
            client.create_subscription(self.name, "busway-capture", {"CapturesHistory": True})

    def administration(self) -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(self.connection_string)

    def place(self) -> JobPlace:
        return JobPlace(Bus(self.connection_string), "local[2]")

    def options(self, subscription: str, **more: Any) -> BackfillOptions:
        return BackfillOptions(str(self.root), self.name, subscription, **more)

    # -- the bus

    def subscribe(self, name: str, *rules: Rule) -> None:
        with self.administration() as client:
            client.create_subscription(self.name, name, None, rules[0])
            for rule in rules[1:]:
                client.create_rule(self.name, name, rule)

    def publish(self, count: int) -> None:
        """Messages with properties of every kind."""
        messages = [self._message() for _ in range(count)]

        async def send() -> None:
            client = ServiceBusClient.from_connection_string(self.connection_string)
            async with client, client.get_topic_sender(self.name) as sender:
                for at in range(0, count, 20):  # a batch goes to one fragment
                    await sender.send_messages(messages[at : at + 20])

        asyncio.run(send())

    def _message(self) -> ServiceBusMessage:
        self._published += 1
        row = self._chance.row(self._published)
        given = {
            name: None if row.get(name) is None else str(row[name])
            for name in ("subject", "correlationId", "to")
        }
        return ServiceBusMessage(
            f"body {self._published}".encode(),
            properties_of(
                str(row["properties"]), None if row["propertyTypes"] is None else str(row["propertyTypes"])
            ),
            message_id=f"id-{self._published}",
            subject=given["subject"],
            correlation_id=given["correlationId"],
            to=given["to"],
            content_type="text/plain" if self._published % 3 else None,
            time_to_live_ms=3_600_000 if self._published % 4 == 0 else None,
        )

    def take(self, entity: str) -> list[ServiceBusReceivedMessage]:
        """Everything that is there, and then is not."""

        async def receive() -> list[ServiceBusReceivedMessage]:
            found: list[ServiceBusReceivedMessage] = []
            client = ServiceBusClient.from_connection_string(self.connection_string)
            async with client, client.get_queue_receiver(entity, receive_mode=RECEIVE_AND_DELETE) as receiver:
                while True:
                    more = await receiver.receive_messages(500, 0.5)
                    found += more
                    if not more:
                        return found

        return asyncio.run(receive())

    def seen(self, subscription: str) -> Counter[str]:
        """Id, properties, body and more of everything in a subscription."""
        return Counter(shown(each) for each in self.take(f"{self.name}/Subscriptions/{subscription}"))

    # -- files

    def capture(self, files: int = 3) -> None:
        """What the captured subscription holds, into so many files for each fragment."""
        found = self.take(f"{self.name}/Subscriptions/busway-capture")
        by_fragment: dict[int, list[ServiceBusReceivedMessage]] = {}
        for message in found:
            by_fragment.setdefault((message.sequence_number or 0) >> FRAGMENT_SHIFT, []).append(message)
        for fragment, messages in by_fragment.items():
            messages.sort(key=lambda each: each.sequence_number or 0)
            size = -(-len(messages) // files)
            for at in range(0, len(messages), size):
                self._write(fragment, messages[at : at + size])

    def _write(self, fragment: int, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        rows = [_row(message) for message in messages]
        hour = rows[0]["enqueuedTime"].replace(minute=0, second=0, microsecond=0)
        path = self.root / CapturedFile(self.name, hour, fragment, int(rows[0]["sequenceNumber"])).path
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, row_group_size=20)


def _row(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    enqueued = _EPOCH + timedelta(milliseconds=message.enqueued_time_ms or 0)
    life_ms = message.time_to_live_ms
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row.update(
        sequenceNumber=message.sequence_number,
        enqueuedTime=enqueued,
        body=message.body,
        messageId=message.message_id,
        subject=message.subject,
        contentType=message.content_type,
        correlationId=message.correlation_id,
        to=message.to,
        expiresAt=None if life_ms is None else enqueued + timedelta(milliseconds=life_ms),
        properties=json_of(message.application_properties),
        propertyTypes=types_of(message.application_properties),
    )
    return row


def shown(message: ServiceBusReceivedMessage) -> str:
    """Types of properties too."""
    properties = sorted(
        (str(name), type(value).__name__, repr(value))
        for name, value in message.application_properties.items()
    )
    fields: Seen = (
        message.message_id,
        message.subject,
        message.correlation_id,
        message.to,
        message.content_type and Symbol(message.content_type),
        message.time_to_live_ms,
        message.body,
    )
    return repr((fields, properties))
