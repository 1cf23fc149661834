"""The end of every run: everything that is still stored goes into the history.

Messages are taken under a lock and completed. Receive-and-delete would accuse falsely: what is on its way when a look
ends is deleted and seen by nobody, and on a busy machine that is all of a queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.chaos.history import OK, History, Operation
from tests.chaos.provision import stored_messages
from tests.chaos.workload import receiver_of
from tests.harness.running_server import RunningServer

#: Few enough to be completed one by one within a lock.
BATCH = 100
#: What comes later comes to the next look.
QUIET_S = 0.5


class NotDrained(Exception):
    """The server's books say that messages are left, but it does not give them out: a failure of the run."""


async def drain(
    server: RunningServer,
    queue: str,
    history: History,
    *,
    sessions: Sequence[str] = (),
    subscription: str = "",
    seconds_max: float = 60.0,
) -> int:
    """The dead-letter queue included. Locks left behind by dead connections end meanwhile. Each look goes on until
    nothing comes, so books that forget a message do not hide it. It is over when the books are at zero."""

    def note(message: ServiceBusReceivedMessage) -> None:
        now = time.monotonic()
        number = message.sequence_number or 0
        history.add(
            Operation("drain", str(message), now, now, OK, sequence=number, session=message.session_id)
        )

    drained = 0
    deadline = time.monotonic() + seconds_max
    async with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        while True:
            drained += await _look(client, (queue, subscription), note, sessions)
            left, dead = await asyncio.to_thread(stored_messages, server, queue, subscription)
            if dead:
                drained += await _empty(
                    receiver_of(client, queue, subscription, sub_queue="deadletter"), note
                )
            elif not left:
                return drained
            if time.monotonic() > deadline:
                raise NotDrained(
                    f"{left} messages and {dead} dead letters are said to be in {queue} but never come"
                )


async def _look(
    client: ServiceBusClient,
    place: tuple[str, str],
    note: Callable[[ServiceBusReceivedMessage], None],
    sessions: Sequence[str],
) -> int:
    if not sessions:
        return await _empty(receiver_of(client, *place), note)
    return sum(await asyncio.gather(*(_look_into(client, place, note, session) for session in sessions)))


async def _look_into(
    client: ServiceBusClient,
    place: tuple[str, str],
    note: Callable[[ServiceBusReceivedMessage], None],
    session: str,
) -> int:
    try:
        return await _empty(receiver_of(client, *place, session_id=session), note)
    except (SessionCannotBeLockedError, OperationTimeoutError, SessionLockLostError):
        return 0  # a dead client may still hold it, or this look took longer than its lock


async def _empty(receiver: ServiceBusReceiver, note: Callable[[ServiceBusReceivedMessage], None]) -> int:
    """How many were completed. Another look gets what this one did not complete."""
    drained = 0
    async with receiver:
        while batch := await receiver.receive_messages(max_message_count=BATCH, max_wait_time=QUIET_S):
            for message in batch:
                note(message)
                with suppress(MessageLockLostError):
                    await receiver.complete_message(message)
                    drained += 1
    return drained
