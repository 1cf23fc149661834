"""The end of every run: everything that is still stored goes into the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

from tests.chaos.history import OK, History, Operation
from tests.chaos.provision import stored_messages
from tests.chaos.workload import receiver_of
from tests.harness.running_server import RunningServer

BATCH = 500
#: A look that closes with messages on their way has taken them for good: a machine that is busy needs its time.
QUIET_S = 1.0


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
    nothing comes, so books that forget a message do not hide it. It is over when the books are at zero twice: what
    was deleted for a look that ended before the commit did comes back (R-1)."""

    def note(message: ServiceBusReceivedMessage) -> None:
        now = time.monotonic()
        number = message.sequence_number or 0
        history.add(
            Operation("drain", str(message), now, now, OK, sequence=number, session=message.session_id)
        )

    drained = 0
    was_empty = False
    deadline = time.monotonic() + seconds_max
    async with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        while True:
            drained += await _look(client, (queue, subscription), note, sessions)
            left, dead = await asyncio.to_thread(stored_messages, server, queue, subscription)
            if dead:
                drained += await _empty(
                    _receiver(client, (queue, subscription), sub_queue="deadletter"), note
                )
            elif not left and was_empty:
                return drained
            was_empty = not left and not dead
            if time.monotonic() > deadline:
                raise NotDrained(
                    f"{left} messages and {dead} dead letters are said to be in {queue} but never come"
                )


def _receiver(client: ServiceBusClient, place: tuple[str, str], **of: Any) -> ServiceBusReceiver:
    return receiver_of(
        client, *place, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, prefetch_count=BATCH, **of
    )


async def _look(
    client: ServiceBusClient,
    place: tuple[str, str],
    note: Callable[[ServiceBusReceivedMessage], None],
    sessions: Sequence[str],
) -> int:
    if not sessions:
        return await _empty(_receiver(client, place), note)
    return sum(await asyncio.gather(*(_look_into(client, place, note, session) for session in sessions)))


async def _look_into(
    client: ServiceBusClient,
    place: tuple[str, str],
    note: Callable[[ServiceBusReceivedMessage], None],
    session: str,
) -> int:
    try:
        return await _empty(_receiver(client, place, session_id=session), note)
    except (SessionCannotBeLockedError, OperationTimeoutError):  # a dead client may still hold it
        return 0


async def _empty(receiver: ServiceBusReceiver, note: Callable[[ServiceBusReceivedMessage], None]) -> int:
    drained = 0
    async with receiver:
        while batch := await receiver.receive_messages(max_message_count=BATCH, max_wait_time=QUIET_S):
            for message in batch:
                note(message)
            drained += len(batch)
    return drained
