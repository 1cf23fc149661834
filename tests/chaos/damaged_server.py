"""Damage to one store of a real server: what its queues give out is unchanged, and the other queues do not notice."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.chaos.provision import create_queue
from tests.harness.running_server import RunningServer

QUEUES = ("red", "green", "blue", "grey")
MESSAGES = 120
#: What a server says of a loss.
NOTICES = ("damaged", "has lost its last", "cannot be opened", "cannot be read", "failed")

Hurt = Callable[[Path, random.Random], str]


def body_of(queue: str, number: int) -> str:
    return f"{queue}-{number}-" + "x" * (number * 7 % 500)


def damage_a_server(folder: Path, rounds: int, chance: random.Random, hurt: Hurt) -> Counter[str]:
    """The violations of all rounds."""
    violations: Counter[str] = Counter()
    for number in range(rounds):
        server = RunningServer(folder / str(number)).start()
        try:
            violations.update(_one_round(server, chance, hurt))
        finally:
            server.__exit__()
    return violations


def _one_round(server: RunningServer, chance: random.Random, hurt: Hurt) -> list[str]:
    with ThreadPoolExecutor(len(QUEUES)) as threads:
        list(threads.map(lambda queue: _create_filled(server, queue), QUEUES))
    server.kill()
    homes = stores_of_queues(server)
    victim = chance.choice(QUEUES)
    what = hurt(chance.choice(store_files(server, homes[victim])), chance)
    server.log.write_text("")
    server.start()
    lost = {queue: homes[queue] == homes[victim] for queue in QUEUES}
    with ThreadPoolExecutor(len(QUEUES)) as threads:
        faults = list(threads.map(lambda queue: fault_of(server, queue, may_lose=lost[queue]), QUEUES))
    return [f"{what} in {homes[victim]}: {fault}" for fault in faults if fault is not None]


def _create_filled(server: RunningServer, queue: str) -> None:
    create_queue(server, queue)
    fill(server, queue)


def fill(server: RunningServer, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for first in range(0, MESSAGES, 20):
            sender.send_messages([ServiceBusMessage(body_of(queue, n)) for n in range(first, first + 20)])


def stores_of_queues(server: RunningServer) -> dict[str, str]:
    """By the server's own log."""
    return dict(re.findall(r"Create Queue (\S+) \(store (\S+)\)", server.log.read_text()))


def store_files(server: RunningServer, store: str) -> list[Path]:
    """The database and its log, as far as there is anything in them."""
    files = [server.data / "stores" / f"{store}.db{suffix}" for suffix in ("", "-wal")]
    return [file for file in files if file.exists() and file.stat().st_size]


def fault_of(server: RunningServer, queue: str, *, may_lose: bool) -> str | None:
    """What is wrong with a queue after the damage; None when all is as it should be."""
    expected = [body_of(queue, number) for number in range(MESSAGES)]
    try:
        found = receive_everything(server, queue)
    except ServiceBusError as error:
        return None if may_lose else f"{queue} of another store is unavailable: {error}"
    if set(found) - set(expected):
        return f"{queue} delivered a changed body"
    if found == expected:
        return None
    if not may_lose:
        return f"{queue} of another store lost {MESSAGES - len(found)} messages"
    said = server.log.read_text()
    if not any(notice in said for notice in NOTICES):
        return f"{queue} lost {MESSAGES - len(found)} messages without a word"
    return None


def receive_everything(server: RunningServer, queue: str) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        while batch := receiver.receive_messages(max_message_count=MESSAGES, max_wait_time=0.5):
            found += [str(message) for message in batch]
    return found
