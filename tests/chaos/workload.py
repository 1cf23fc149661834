"""Producers and consumers with the official SDK, that note everything they do in a history.

The SDK's own retries are off: a retried send may be stored twice by right, and then the history could not tell.
Whatever breaks a call leaves `info` behind, and the worker connects anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from tests.chaos.history import FAIL, INFO, OK, History, Operation

BATCH = 50
RECONNECT_S = 0.05
#: Cancelling a worker in the middle of a call, or a dead socket, surfaces as one of these.
BROKEN = (AzureError, ServiceBusError, OSError, ValueError, AttributeError, TimeoutError)


class Workload:
    def __init__(self, connection_string: str, queue: str, history: History, *, run: str = "r") -> None:
        self._connection_string = connection_string
        self._queue = queue
        self._history = history
        self._run = run
        self._stopping = asyncio.Event()
        self.acknowledged = 0
        logging.getLogger("azure").setLevel(logging.CRITICAL)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, producers: int, consumers: int) -> None:
        await asyncio.gather(
            *(self._keep_going(self._produce, f"p{index}") for index in range(producers)),
            *(self._keep_going(self._consume, f"c{index}") for index in range(consumers)),
        )

    async def _keep_going(self, work: Callable[[str], Awaitable[None]], name: str) -> None:
        while not self._stopping.is_set():
            try:
                await work(name)
            except BROKEN:
                await asyncio.sleep(RECONNECT_S)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[ServiceBusClient]:
        client = ServiceBusClient.from_connection_string(
            self._connection_string, retry_total=0, logging_enable=False
        )
        try:
            yield client
        finally:
            with suppress(BROKEN):
                await asyncio.wait_for(client.close(), 2)

    async def _produce(self, name: str) -> None:
        async with self._client() as client, client.get_queue_sender(self._queue) as sender:
            while not self._stopping.is_set():
                value = f"{self._run}-{name}-{time.monotonic_ns()}"
                invoked = time.monotonic()
                result = INFO
                try:
                    await sender.send_messages(ServiceBusMessage(value), timeout=10)
                    result = OK
                    self.acknowledged += 1
                except ServiceBusQuotaExceededError:
                    result = FAIL
                    await asyncio.sleep(RECONNECT_S)
                finally:
                    self._history.add(Operation("send", value, invoked, time.monotonic(), result))

    async def _consume(self, name: str) -> None:
        async with self._client() as client, client.get_queue_receiver(self._queue) as receiver:
            while not self._stopping.is_set():
                invoked = time.monotonic()
                batch = await receiver.receive_messages(max_message_count=BATCH, max_wait_time=1)
                for message in batch:
                    self._note_receive(name, message, invoked)
                for position, message in enumerate(batch):
                    await self._settle(receiver, name, message, abandon=position % 10 == 9)

    def _note_receive(self, name: str, message: ServiceBusReceivedMessage, invoked: float) -> None:
        now = time.monotonic()
        until = message.locked_until_utc
        lasts = (until - datetime.now(UTC)).total_seconds() if until is not None else 0.0
        self._history.add(
            Operation(
                "receive",
                str(message),
                invoked,
                now,
                OK,
                sequence=message.sequence_number or 0,
                delivery_count=message.delivery_count or 0,
                locked_until=now + lasts,
                consumer=name,
            )
        )

    async def _settle(
        self, receiver: ServiceBusReceiver, name: str, message: ServiceBusReceivedMessage, *, abandon: bool
    ) -> None:
        verb = "abandon" if abandon else "complete"
        invoked = time.monotonic()
        result = INFO
        try:
            if abandon:
                await receiver.abandon_message(message)
            else:
                await receiver.complete_message(message)
            result = OK
        except MessageLockLostError:
            result = FAIL
        finally:
            done = time.monotonic()
            self._history.add(Operation(verb, str(message), invoked, done, result, consumer=name))


async def drain(connection_string: str, queue: str, history: History) -> int:
    """Everything that is still there, the dead-letter queue included, into the history. Locks left behind by dead
    connections end first: it goes on until two quiet looks in a row."""
    drained = 0
    client = ServiceBusClient.from_connection_string(connection_string)
    async with client:
        for sub_queue in (None, "deadletter"):
            async with client.get_queue_receiver(
                queue, sub_queue=sub_queue, receive_mode="receiveanddelete", prefetch_count=500
            ) as receiver:
                quiet = 0
                while quiet < 2:
                    batch = await receiver.receive_messages(max_message_count=500, max_wait_time=3)
                    quiet = 0 if batch else quiet + 1
                    now = time.monotonic()
                    for message in batch:
                        number = message.sequence_number or 0
                        history.add(Operation("drain", str(message), now, now, OK, sequence=number))
                    drained += len(batch)
    return drained
