"""Queues for chaos runs, and what the management surface says about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from tests.harness.running_server import RunningServer

#: Short, so that what a dead client held comes back soon (the shortest the service allows).
LOCK_S = 5


def create_queue(server: RunningServer, name: str, **properties: Any) -> None:
    """No limit on deliveries: a message that many dead clients held is still no dead letter."""
    with _management(server) as management:
        management.create_queue(
            name, lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=1_000_000, **properties
        )


def create_topic(server: RunningServer, name: str, subscriptions: Sequence[str], **properties: Any) -> None:
    with _management(server) as management:
        management.create_topic(name, **properties)
        for subscription in subscriptions:
            management.create_subscription(
                name, subscription, lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=1_000_000
            )


def stored_messages(server: RunningServer, name: str, subscription: str = "") -> tuple[int, int]:
    """(in the queue, in its dead-letter queue) by the server's own books; with a subscription, of a topic's."""
    with _management(server) as management:
        counts = (
            management.get_subscription_runtime_properties(name, subscription)
            if subscription
            else management.get_queue_runtime_properties(name)
        )
    dead = counts.dead_letter_message_count or 0
    return (counts.total_message_count or 0) - dead, dead


def _management(server: RunningServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    )
