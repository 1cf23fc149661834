"""Both formats over WebSockets, against a real server; without a session."""

from __future__ import annotations

import asyncio

from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.reader import EventHubsReader
from busway_spark.servicebus.options import read_options
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import expected, fill


def test_a_hub_is_read_over_websockets(server: RunningServer, hub: str) -> None:
    """Ported jobs: `transport=websocket`, or TransportType in the connection string."""
    fill(server.connection_string, hub, 300)
    given = {"connectionString": server.connection_string, "name": hub, "transport": "websocket"}
    options = EventHubsOptions.parse(given)
    assert options.bus.target.over_websocket
    reader = EventHubsReader(options)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    bodies = [
        body for batch in batches for body in batch.column("body").to_pylist() if isinstance(body, bytes)
    ]
    assert sorted(body.decode() for body in bodies) == expected(300)


def test_large_messages_travel_over_websockets(server: RunningServer, hub: str) -> None:
    """RFC 6455, 5.2: what is larger than a frame goes in several, both ways."""
    options = read_options(
        {"connectionString": server.connection_string, "queue": hub, "transport": "websocket"}
    )

    async def run() -> None:
        async with (
            ServiceBusClient(options.target) as client,
            client.get_queue_sender(f"{hub}/Partitions/0") as sender,
        ):
            await sender.send_messages([ServiceBusMessage(bytes(200_000)), ServiceBusMessage(b"small")])

    asyncio.run(run())
    given = {"connectionString": server.connection_string, "name": hub, "transport": "websocket"}
    reader = EventHubsReader(EventHubsOptions.parse(given))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    sizes = [
        len(body) for batch in batches for body in batch.column("body").to_pylist() if isinstance(body, bytes)
    ]
    assert sorted(sizes) == [5, 200_000]
