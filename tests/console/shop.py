"""A bus as a shop would have it: queues, a topic with subscriptions and rules, a hub, messages of many kinds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.rules.rule import Rule, SqlFilter

CARTS = 24
Result = TypeVar("Result")


def set_up(connection_string: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as admin:
        admin.create_queue("orders", {"EnablePartitioning": True, "MaxDeliveryCount": 3})
        admin.create_queue("invoices", {"DeadLetteringOnMessageExpiration": True})
        admin.create_queue("carts", {"RequiresSession": True})
        admin.create_queue("e-mail/outgoing", {"LockDuration": "PT30S"})
        admin.create_queue("refunds", {"Status": "Disabled"})
        admin.create_topic("events")
        admin.create_topic("prices", {"EnablePartitioning": True})
        for name, text in (("audit", "1=1"), ("north", "region = 'north'"), ("large", "total > 100")):
            admin.create_subscription("events", name, {}, Rule("$Default", SqlFilter(text)))
        admin.create_subscription("prices", "shop-window")
        admin.hubs.create("clicks", {"PartitionCount": 4}, ["report"])
    run(_fill(connection_string))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """In a thread: Playwright has a loop of its own in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _to_the_end(work)).result()


async def _to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return await work
    finally:
        await asyncio.sleep(0.05)  # the SDK closes its connections and does not wait for that


async def _fill(connection_string: str) -> None:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender("orders") as sender:
            for customer in range(16):  # a batch for a partitioned queue has one key
                orders = [
                    _order(n, customer) for n in range(160) if n % 16 == customer and n % 7 <= customer % 8
                ]
                await sender.send_messages(orders)
        async with client.get_queue_sender("invoices") as sender:
            await sender.send_messages([_order(n) for n in range(12)])
        async with client.get_queue_sender("carts") as sender:
            carts = [ServiceBusMessage(b"{}", session_id=f"customer-{n % 6}") for n in range(CARTS)]
            await sender.send_messages(carts)
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages([_order(n) for n in range(40)])
        async with client.get_queue_receiver("invoices") as receiver:
            for message in await receiver.receive_messages(5, 5):
                await receiver.dead_letter_message(
                    message, reason="NoAddress", error_description="No address."
                )


def _order(n: int, customer: int | None = None) -> ServiceBusMessage:
    body = {"order": 1000 + n, "items": [{"sku": f"A-{n % 7}", "count": 1 + n % 3}], "note": "Grüße, ☕"}
    return ServiceBusMessage(
        json.dumps(body, ensure_ascii=False).encode(),
        message_id=f"order-{n}",
        partition_key=None if customer is None else f"customer-{customer}",
        subject="new",
        content_type="application/json",
        application_properties={"region": ("north", "south")[n % 2], "total": 20 + 3 * n},
    )
