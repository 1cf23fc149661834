"""Events for tests of the format `eventhubs`, and frames over hubs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from busway.amqp.sections import AmqpMessage, encode_message
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


def publish(connection: str, hub: str, partition: int, payloads: Sequence[bytes]) -> None:
    """Encoded messages, in order."""

    async def run() -> None:
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_sender(f"{hub}/Partitions/{partition}") as sender,
        ):
            await sender.send_encoded(list(payloads))

    asyncio.run(run())


def bodies(partition: int, count: int, first: int = 0) -> list[bytes]:
    """Events that are nothing but a body telling where it belongs."""
    return [
        encode_message(AmqpMessage([b"%d-%d" % (partition, number)], 0x75))
        for number in range(first, first + count)
    ]


def rich(number: int, **more: Any) -> bytes:
    """An event with properties of many kinds."""
    return ServiceBusMessage(
        b"rich %d" % number, {"number": number, "text": "ä", "flag": True}, **more
    ).encode()


def fill(connection: str, hub: str, count: int, first: int = 0) -> None:
    for partition in range(2):
        publish(connection, hub, partition, bodies(partition, count, first))


def expected(count: int, first: int = 0) -> list[str]:
    return sorted(f"{partition}-{number}" for partition in range(2) for number in range(first, first + count))


def frame(spark: SparkSession, connection: str, hub: str, **options: str) -> DataFrame:
    reader = spark.read.format("eventhubs").option(
        "eventhubs.connectionString", f"{connection};EntityPath={hub}"
    )
    return reader.options(**options).load()


def stream(spark: SparkSession, connection: str, hub: str, **options: str) -> DataStreamReader:
    reader = spark.readStream.format("eventhubs")
    return reader.option("eventhubs.connectionString", f"{connection};EntityPath={hub}").options(**options)


def texts(rows: DataFrame) -> list[str]:
    """The bodies, sorted."""
    return sorted(row[0] for row in rows.selectExpr("cast(body as string)").collect())
