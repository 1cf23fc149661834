"""How far a fragment of a partitioned queue falls behind the others on a real server, under equal load."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from statistics import median
from typing import Final

from busway.client.messages import ServiceBusMessage
from busway.client.receiver import ServiceBusReceiver
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from busway.store.contract import INDEX_SHIFT
from tests.chaos.provision import create_queue
from tests.chaos.spread_load import FRAGMENTS, KEYS
from tests.harness.running_server import RunningServer

QUEUE: Final = "fair-queue"
#: Messages of each fragment that wait all the time: as many come as go.
_BACKLOG: Final = 25
_ROUNDS: Final = 60
#: Below this all are as good as new, and a ratio says nothing.
_AGE_S_MIN: Final = 0.05


async def worst_ratio(server: RunningServer) -> float:
    """The age of the oldest message of any fragment, compared with the median of all fragments, at its worst."""
    await asyncio.to_thread(create_queue, server, QUEUE, enable_partitioning=True)
    waiting: list[deque[float]] = [deque() for _ in range(FRAGMENTS)]
    worst = 0.0
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        for _ in range(_BACKLOG):
            await _send(sender, waiting)
        for _ in range(_ROUNDS):
            await _send(sender, waiting)
            await _receive(receiver, waiting)
            worst = max(worst, _ratio(waiting))
        while any(waiting):
            await _receive(receiver, waiting)
    return worst


async def _send(sender: ServiceBusSender, waiting: list[deque[float]]) -> None:
    """One to each fragment."""
    for key, times in zip(KEYS, waiting, strict=True):
        await sender.send_messages(ServiceBusMessage(b"x", partition_key=key))
        times.append(time.monotonic())


async def _receive(receiver: ServiceBusReceiver, waiting: list[deque[float]]) -> None:
    """As many as there are fragments, whichever they come from."""
    for message in await receiver.receive_messages(FRAGMENTS):
        waiting[(message.sequence_number or 0) >> INDEX_SHIFT].popleft()
        await receiver.complete_message(message)


def _ratio(waiting: list[deque[float]]) -> float:
    now = time.monotonic()
    oldest = [now - times[0] if times else 0.0 for times in waiting]
    return max(oldest) / max(_AGE_S_MIN, median(oldest))
