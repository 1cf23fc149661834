"""Producers and consumers with the official SDK, that note everything they do in a history.

The SDK's own retries are off: a retried send may be stored twice by right, and then the history could not tell.
Whatever breaks a call leaves `info` behind, and the worker connects anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from tests.chaos.history import FAIL, INFO, OK, History, Operation

RECEIVE_BATCH = 50
SEND_BATCH = 8
#: Every so many sends are repeated on purpose where duplicates are detected.
RESEND_EVERY = 4
RECONNECT_S = 0.05
CLOSE_S = 2.0
CALL_S = 10.0
#: What a dead socket, or a call in the middle of which everything ended, surfaces as in the SDK.
BROKEN = (AzureError, ServiceBusError, OSError, ValueError, AttributeError, TypeError, TimeoutError)


class Workload:
    """`sessions`: the queue requires sessions, and these are used in turn. `resends`: it detects duplicates, so
    what may not have arrived is sent again, and some of what did as well. `lock_lost`: what that error tells; where
    the server drops links by itself it tells nothing, because the SDK then asks a second time over another link and
    shows the second answer only."""

    def __init__(
        self,
        connection_string: str,
        queue: str,
        history: History,
        *,
        run: str = "r",
        sessions: Sequence[str] = (),
        resends: bool = False,
        lock_lost: str = FAIL,
    ) -> None:
        self._connection_string = connection_string
        self._queue = queue
        self._history = history
        self._run = run
        self._sessions = sessions
        self._resends = resends
        self._lock_lost = lock_lost
        self._stopping = asyncio.Event()
        self.acknowledged = 0
        self.completed = 0
        self.refused = 0
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
            with suppress(*BROKEN):
                await asyncio.wait_for(client.close(), CLOSE_S)

    # -- sending

    async def _produce(self, name: str) -> None:
        """Single sends and batches in turn; a batch is one transfer, all or nothing."""
        unsure: list[str] = []
        async with self._client() as client, client.get_queue_sender(self._queue) as sender:
            number = 0
            while not self._stopping.is_set():
                number += 1
                stamp = f"{self._run}-{name}-{time.monotonic_ns()}"
                count = SEND_BATCH if number % 2 else 1
                values = unsure or [f"{stamp}-{position}" for position in range(count)]
                unsure = values if self._resends else []
                if await self._send(sender, values) and (number % RESEND_EVERY or values is not unsure):
                    unsure = []

    async def _send(self, sender: ServiceBusSender, values: list[str]) -> bool:
        messages = [self._message(value) for value in values]
        invoked = time.monotonic()
        result = INFO
        try:
            await sender.send_messages(messages if len(messages) > 1 else messages[0], timeout=CALL_S)
            result = OK
            self.acknowledged += len(values)
        except ServiceBusQuotaExceededError:
            result = FAIL
            self.refused += len(values)
            await asyncio.sleep(RECONNECT_S)
        finally:
            done = time.monotonic()
            for value in values:
                self._history.add(Operation("send", value, invoked, done, result))
        return result == OK

    def _message(self, value: str) -> ServiceBusMessage:
        session = self._sessions[hash(value) % len(self._sessions)] if self._sessions else None
        return ServiceBusMessage(value, session_id=session, message_id=value if self._resends else None)

    # -- receiving

    async def _consume(self, name: str) -> None:
        """In a queue with sessions one after the other is accepted and read until it is quiet. Without prefetch the
        SDK releases what arrives between two calls, and with the next message already on its way that alone would
        put a session out of order."""
        session = NEXT_AVAILABLE_SESSION if self._sessions else None
        prefetch = RECEIVE_BATCH if self._sessions else 0
        async with self._client() as client:
            while not self._stopping.is_set():
                with suppress(OperationTimeoutError):
                    async with client.get_queue_receiver(
                        self._queue, session_id=session, max_wait_time=1, prefetch_count=prefetch
                    ) as receiver:
                        await self._receive(receiver, name)

    async def _receive(self, receiver: ServiceBusReceiver, name: str) -> None:
        looks = 0
        while not self._stopping.is_set():
            invoked = time.monotonic()
            batch = await receiver.receive_messages(max_message_count=RECEIVE_BATCH, max_wait_time=0.5)
            for message in batch:
                self._note_receive(name, message, invoked)
            for position, message in enumerate(batch):
                await self._settle(receiver, name, message, abandon=position % 10 == 9)
            looks += 1
            if self._sessions and (not batch or looks >= 4):
                return

    def _note_receive(self, name: str, message: ServiceBusReceivedMessage, invoked: float) -> None:
        now = time.monotonic()
        until = message.locked_until_utc if not self._sessions else None
        lasts = (until - datetime.now(UTC)).total_seconds() if until is not None else 0.0
        self._history.add(
            Operation(
                "receive",
                str(message),
                invoked,
                now,
                OK,
                sequence=message.sequence_number or 0,
                session=message.session_id,
                delivery_count=message.delivery_count or 0,
                locked_until=now + lasts if lasts else 0.0,
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
                self.completed += 1
            result = OK
        except MessageLockLostError:
            result = self._lock_lost
        finally:
            done = time.monotonic()
            self._history.add(Operation(verb, str(message), invoked, done, result, consumer=name))
