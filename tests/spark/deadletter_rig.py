"""Dead letters for tests, and movers beside the test that can be killed at any step."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busway.client.client_connection import ControlEnd
from busway.client.management import Management
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.sender import SendingEnd
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.pipeline.deadletters.move import Mover
from busway_spark.pipeline.deadletters.plan import (
    DEAD_LETTER,
    DUPLICATE_DETECTION,
    TRANSACTION,
    LetterRoute,
    Plan,
    find_route,
)
from busway_spark.pipeline.job import JobProgress
from busway_spark.wire.bus import Bus

Chooser = Callable[[ServiceBusReceivedMessage], bool]
COUNT = 30
#: Where a mover is killed: (name, guarantee).
STEPS = (
    ("locked", TRANSACTION),
    ("settled", TRANSACTION),
    ("sent", TRANSACTION),
    ("discharging", TRANSACTION),
    ("committed", TRANSACTION),
    ("sent", DUPLICATE_DETECTION),
    ("settled", DUPLICATE_DETECTION),
)


#: The function that is being called then, and whether it has been carried out.
_PLACES: dict[str, tuple[type, str, bool]] = {
    "locked": (Mover, "_move_group", False),
    "settled": (Management, "settle_all", True),
    "sent": (SendingEnd, "send", True),
    "discharging": (ControlEnd, "discharge", False),
    "committed": (ControlEnd, "discharge", True),
}


def is_even(message: ServiceBusReceivedMessage) -> bool:
    return int(message.body) % 2 == 0


async def bury(
    client: ServiceBusClient,
    source: str,
    messages: list[ServiceBusMessage],
    reasons: list[tuple[str, str]] | None = None,
) -> None:
    """Sends them and dead-letters them, each with the reason and description in its place."""
    top = source.partition("/")[0]
    async with client.get_queue_sender(top) as sender:
        for message in messages:
            await sender.send_messages(message)
    async with client.get_queue_receiver(source) as receiver:
        taken = 0
        while taken < len(messages):
            for arrived in await receiver.receive_messages(len(messages) - taken, 5):
                reason, description = ("Bad", "it is bad") if reasons is None else reasons[taken]
                await receiver.dead_letter_message(arrived, reason, description)
                taken += 1


async def peek_all(client: ServiceBusClient, address: str) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while page := await client.get_management(address).peek_messages(250, _next(found)):
        found += page
    return found


def _next(found: list[ServiceBusReceivedMessage]) -> int:
    return 0 if not found else (found[-1].sequence_number or 0) + 1


async def move(
    bus: Bus,
    route: LetterRoute,
    chooses: Chooser,
    *,
    changes: dict[str, Any] | None = None,
    wait_s: float = 1.0,
    progress: JobProgress | None = None,
    known: list[ServiceBusReceivedMessage] | None = None,
) -> tuple[Mover, dict[str, int]]:
    """As the job does: a plan from what lies there, then the moving. The mover and the outcomes."""
    with tempfile.TemporaryDirectory() as folder, Plan(Path(folder) / "plan") as plan:
        async with bus.client() as client:
            letters = await peek_all(client, route.dead_letters) if known is None else known
            plan.add(
                (0, letter.sequence_number or 0, letter.state == "deferred", changes or {})
                for letter in letters
                if chooses(letter)
            )
        async with bus.client() as client:
            mover = Mover(client, route, 0, plan, progress or JobProgress(), wait_s=wait_s)
            await mover.run()
        return mover, plan.counts()


# -- killed on the way: `python -m tests.spark.deadletter_rig CONNECTION STEP/GUARANTEE/QUEUE…`


def killed_at(step: str) -> None:
    """From now on this process dies when it comes to the step."""

    owner, name, is_after = _PLACES[step]
    proper = getattr(owner, name)

    async def call(*given: Any, **named: Any) -> Any:
        result = await proper(*given, **named) if is_after else None
        die()
        return result

    setattr(owner, name, call)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(connection_string: str, tasks: list[str]) -> None:
    """A child for each, all killed on their way."""
    children: list[int] = []
    for task in tasks:
        step, guarantee, queue = task.split("/")
        child = os.fork()
        if child == 0:
            killed_at(step)
            bus = Bus(connection_string)
            asyncio.run(move(bus, route_of(bus, queue, guarantee), is_even))
            os._exit(1)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert all(os.WIFSIGNALED(status) for status in statuses), statuses


def route_of(bus: Bus, source: str, guarantee: str) -> LetterRoute:
    found = find_route(bus, source, None)
    if guarantee == TRANSACTION:
        return found
    return LetterRoute(source, found.destination, guarantee, False, True, False)


def dead_letters_of(source: str) -> str:
    return source + DEAD_LETTER


if __name__ == "__main__":
    run_killed(sys.argv[1], sys.argv[2:])
