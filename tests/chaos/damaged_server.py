"""Damage to one store of a real server: what its queues give out is unchanged, and the other queues do not notice.

Two kinds of rounds: damage anywhere in a store's files, after which whatever is missing lay in one place and the log
says so; and one bit of one known body, after which exactly that message is out of service.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.chaos.homes import homes_of
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


def hit_bodies(folder: Path, rounds: int, chance: random.Random) -> list[str]:
    """The violations of all rounds: each flips a bit in the body of one message of one queue."""
    server = RunningServer(folder).start()
    violations: list[str] = []
    try:
        for number in range(rounds):
            queue = f"{chance.choice(QUEUES)}-{number}"
            _create_filled(server, queue)
            fault = _hit_a_body(server, queue, chance)
            violations += [] if fault is None else [fault]
    finally:
        server.__exit__()
    return violations


def _hit_a_body(server: RunningServer, queue: str, chance: random.Random) -> str | None:
    """That message is never delivered, changed or not; all others are, in order; and the log names it."""
    row = homes_of(server)[queue]
    server.stop()
    victim = chance.randrange(MESSAGES)
    flip_body(server.data / "stores" / f"{row.store_name}.db", body_of(queue, victim), chance)
    server.log.write_text("")
    server.start()
    found = receive_everything(server, queue)
    expected = [body_of(queue, number) for number in range(MESSAGES) if number != victim]
    if found != expected:
        return f"one bit of message {victim} of {queue} flipped: {len(found)} of {len(expected)} others came"
    notice = f"is damaged and out of service: fragment {row.main}, sequence number {victim + 1}\n"
    if notice not in server.log.read_text():
        return f"one bit of message {victim} of {queue} flipped: nobody said that it is out of service"
    return None


def flip_body(file: Path, body: str, chance: random.Random) -> None:
    """One bit of it, wherever it lies in the file."""
    data = bytearray(file.read_bytes())
    wanted = body.encode()
    at = data.find(wanted)
    assert at >= 0, f"{body[:20]} is not in {file}"
    offset, bit = chance.randrange(len(wanted)), 1 << chance.randrange(8)
    while at >= 0:
        data[at + offset] ^= bit
        at = data.find(wanted, at + 1)
    file.write_bytes(data)


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
    return {path: row.store_name for path, row in homes_of(server).items()}


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
        if not may_lose:
            return f"{queue} of another store is unavailable: {error}"
        return None if _is_noticed(server) else f"{queue} is unavailable without a word"
    if set(found) - set(expected):
        return f"{queue} delivered a changed body"
    if found == expected:
        return None
    if not may_lose:
        return f"{queue} of another store lost {MESSAGES - len(found)} messages"
    if not is_one_gap(found, expected):
        return f"{queue} gave {len(found)} messages out of order, or lost some far from the damage"
    if not _is_noticed(server):
        return f"{queue} lost {MESSAGES - len(found)} messages without a word"
    return None


def _is_noticed(server: RunningServer) -> bool:
    said = server.log.read_text()
    return any(notice in said for notice in NOTICES)


def is_one_gap(found: list[str], expected: list[str]) -> bool:
    """One damage lies in one place: what is left is what comes before and what comes after it, in order."""
    before = 0
    while before < len(found) and found[before] == expected[before]:
        before += 1
    after = len(found) - before
    return found[before:] == expected[len(expected) - after :]


def receive_everything(server: RunningServer, queue: str) -> list[str]:
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        while batch := receiver.receive_messages(max_message_count=MESSAGES, max_wait_time=0.5):
            found += [str(message) for message in batch]
    return found
