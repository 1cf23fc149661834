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
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

from tests.chaos.history import FAIL, INFO, LOCK_LOST, OK, History, Operation

RECEIVE_BATCH = 50
SEND_BATCH = 8
#: Every so many sends are repeated on purpose where duplicates are detected.
RESEND_EVERY = 4
RECONNECT_S = 0.05
CLOSE_S = 2.0
CALL_S = 10.0
#: So many messages a consumer that takes one at a time takes of a session.
STEPS = 8
_STEPPING = "-step"
#: What a dead socket, or a call in the middle of which everything ended, surfaces as in the SDK.
BROKEN = (AzureError, ServiceBusError, OSError, ValueError, AttributeError, TypeError, TimeoutError)


class Workload:
    """`sessions`: the queue requires sessions, and these are used in turn; every second consumer then takes one
    message at a time. `resends`: it detects duplicates, so what may not have arrived is sent again, and some of what
    did as well.

    `subscription`: consumers receive from this one, and `queue` is its topic. `is_partitioned`: a batch has one
    session or none, and a refusal for the moment is certain. `keys`: each producer sends with one of these."""

    def __init__(
        self,
        connection_string: str,
        queue: str,
        history: History,
        *,
        run: str = "r",
        sessions: Sequence[str] = (),
        resends: bool = False,
        subscription: str = "",
        is_partitioned: bool = False,
        keys: Sequence[str] = (),
        pause_s: float = 0.0,
    ) -> None:
        self._connection_string = connection_string
        self._queue = queue
        self._history = history
        self._run = run
        self._sessions = sessions
        self._resends = resends
        self._subscription = subscription
        self._is_partitioned = is_partitioned
        self._keys = keys
        self._pause_s = pause_s
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
            *(self._keep_going(self._consume, self._consumer(index)) for index in range(consumers)),
        )

    def _consumer(self, index: int) -> str:
        return f"c{index}" + (_STEPPING if self._sessions and index % 2 else "")

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
        key = self._keys[int(name[1:]) % len(self._keys)] if self._keys else ""
        async with self._client() as client, self._sender(client) as sender:
            number = 0
            while not self._stopping.is_set():
                number += 1
                stamp = f"{self._run}-{name}-{time.monotonic_ns()}"
                count = SEND_BATCH if number % 2 else 1
                values = unsure or [f"{stamp}-{position}" for position in range(count)]
                unsure = values if self._resends else []
                if await self._send(sender, values, name, key) and (
                    number % RESEND_EVERY or values is not unsure
                ):
                    unsure = []
                await asyncio.sleep(self._pause_s)

    def _sender(self, client: ServiceBusClient) -> ServiceBusSender:
        if self._subscription:
            return client.get_topic_sender(self._queue)
        return client.get_queue_sender(self._queue)

    async def _send(self, sender: ServiceBusSender, values: list[str], name: str, key: str) -> bool:
        messages = self._messages(values, key)
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
        except ServiceBusServerBusyError:
            if not self._is_partitioned:
                raise
            result = FAIL
            self.refused += len(values)
            await asyncio.sleep(RECONNECT_S)
        finally:
            done = time.monotonic()
            for value in values:
                self._history.add(Operation("send", value, invoked, done, result, consumer=name, key=key))
        return result == OK

    def _messages(self, values: list[str], key: str) -> list[ServiceBusMessage]:
        sessions = [self._sessions[hash(value) % len(self._sessions)] for value in values if self._sessions]
        if self._is_partitioned and sessions:
            sessions = sessions[:1] * len(values)
        return [
            ServiceBusMessage(
                value,
                session_id=sessions[place] if sessions else None,
                message_id=value if self._resends else None,
                partition_key=key or None,
            )
            for place, value in enumerate(values)
        ]

    # -- receiving

    async def _consume(self, name: str) -> None:
        async with self._client() as client:
            while not self._stopping.is_set():
                with suppress(OperationTimeoutError):
                    if self._sessions:
                        await self._consume_session(client, name)
                    else:
                        async with receiver_of(client, self._queue, self._subscription) as receiver:
                            await self._receive(receiver, _Hold(name))

    async def _consume_session(self, client: ServiceBusClient, name: str) -> None:
        """One session after the other, each until it is quiet. Without prefetch the SDK releases what arrives between
        two calls, and with the next message already on its way that alone would put a session out of order; so a
        consumer either prefetches or asks for one message at a time."""
        steps = name.endswith(_STEPPING)
        invoked = time.monotonic()
        async with receiver_of(
            client,
            self._queue,
            self._subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=1,
            prefetch_count=0 if steps else RECEIVE_BATCH,
        ) as receiver:
            hold = _Hold(name, f"{name}-{time.monotonic_ns()}", time.monotonic())
            self._note_accept(receiver, hold, invoked)
            if steps:
                await self._step(receiver, hold)
            else:
                await self._receive(receiver, hold)

    def _note_accept(self, receiver: ServiceBusReceiver, hold: _Hold, invoked: float) -> None:
        session = receiver.session
        until = _monotonic(session.locked_until_utc)
        self._history.add(
            Operation(
                "accept",
                hold.name,
                invoked,
                hold.accepted,
                OK,
                session=session.session_id,
                locked_until=until,
                consumer=hold.consumer,
            )
        )

    async def _receive(self, receiver: ServiceBusReceiver, hold: _Hold) -> None:
        looks = 0
        while not self._stopping.is_set():
            invoked = hold.accepted or time.monotonic()
            batch = await receiver.receive_messages(max_message_count=RECEIVE_BATCH, max_wait_time=0.5)
            for message in batch:
                self._note_receive(hold, message, invoked)
            for position, message in enumerate(batch):
                await self._settle(receiver, hold, message, abandon=position % 10 == 9)
            looks += 1
            if self._sessions and (not batch or looks >= 4):
                return

    async def _step(self, receiver: ServiceBusReceiver, hold: _Hold) -> None:
        """One message at a time: some are abandoned and must come again at once, and the last is left unsettled, so
        that closing the session gives it back."""
        for number in range(STEPS):
            invoked = time.monotonic()
            batch = await receiver.receive_messages(max_message_count=1, max_wait_time=0.5)
            for message in batch:
                self._note_receive(hold, message, invoked, alone=True)
                if number < STEPS - 1:
                    await self._settle(receiver, hold, message, abandon=number % 3 == 1)
            if not batch or self._stopping.is_set():
                return

    def _note_receive(
        self, hold: _Hold, message: ServiceBusReceivedMessage, invoked: float, *, alone: bool = False
    ) -> None:
        until = message.locked_until_utc if not self._sessions else None
        self._history.add(
            Operation(
                "receive",
                str(message),
                invoked,
                time.monotonic(),
                OK,
                sequence=message.sequence_number or 0,
                session=message.session_id,
                delivery_count=message.delivery_count or 0,
                locked_until=_monotonic(until),
                consumer=hold.consumer,
                hold=hold.name,
                alone=alone,
            )
        )

    async def _settle(
        self, receiver: ServiceBusReceiver, hold: _Hold, message: ServiceBusReceivedMessage, *, abandon: bool
    ) -> None:
        verb = "abandon" if abandon else "complete"
        invoked = time.monotonic()
        result, error = INFO, ""
        try:
            if abandon:
                await receiver.abandon_message(message)
            else:
                await receiver.complete_message(message)
                self.completed += 1
            result = OK
        except MessageLockLostError:
            result, error = FAIL, LOCK_LOST
        except SessionLockLostError:
            result, error = FAIL, LOCK_LOST
            raise  # nothing of this session can be settled any more
        finally:
            done = time.monotonic()
            self._history.add(
                Operation(
                    verb,
                    str(message),
                    invoked,
                    done,
                    result,
                    consumer=hold.consumer,
                    hold=hold.name,
                    error=error,
                )
            )


class _Hold:
    """Whose messages these are: a consumer's, and within a queue with sessions those of one hold of a session."""

    def __init__(self, consumer: str, name: str = "", accepted: float = 0.0) -> None:
        self.consumer = consumer
        self.name = name
        #: Prefetched messages may have come at any time since.
        self.accepted = accepted


def receiver_of(client: ServiceBusClient, name: str, subscription: str, **options: Any) -> ServiceBusReceiver:
    """Of a queue, or of a subscription of a topic."""
    if subscription:
        return client.get_subscription_receiver(name, subscription, **options)
    return client.get_queue_receiver(name, **options)


def _monotonic(instant: datetime | None) -> float:
    """On the clock of the history; 0 for none."""
    if instant is None:
        return 0.0
    return time.monotonic() + (instant - datetime.now(UTC)).total_seconds()
