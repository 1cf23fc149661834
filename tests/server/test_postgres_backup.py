"""A database with a bus in it, backed up, restored and moved by PostgreSQL's own programs."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.harness import filled_bus
from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk


def program(name: str, url: str, *arguments: str | Path) -> None:
    """One of PostgreSQL's, at a database."""
    path = f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}"
    command = [name, "--dbname", url, *map(str, arguments)]
    subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, check=True, timeout=100)


def postgres_programs() -> Path:
    from tests.harness.postgres_server import programs

    return programs()


def busway(server: RunningServer, *arguments: str) -> str:
    command = [str(BUSWAY), *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_dump_of_a_bus_that_is_served_is_the_bus_elsewhere(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Back-up: everything of everything, restored under another address, beside the first one."""
    url, dump = postgres.database(), tmp_path / "bus.dump"
    with RunningServer(tmp_path / "first", "--store", f"{url}?name=east&stores=4") as server:
        busway(server, "eventhub", "create", filled_bus.HUB)
        filled_bus.fill(server, 36)
        filled_bus.fill_hub(server)
        before, events = filled_bus.picture(server), filled_bus.events(server)
        program("pg_dump", url, "--format", "custom", "--file", dump)
        moved = postgres.database()
        program("pg_restore", moved, dump)
        with RunningServer(tmp_path / "moved", "--store", f"{moved}?name=east&stores=5") as restored:
            assert filled_bus.picture(restored) == before
            assert filled_bus.events(restored) == events
            assert busway(restored, "send", "plain", "--body", "goes on")
    for each in (url, moved):
        postgres.drop(each)


def test_a_dump_has_what_was_acknowledged_before_it_began(postgres: PostgresServer, tmp_path: Path) -> None:
    """Back-up: while a client sends; what comes later is there up to one moment, without a gap."""
    url, dump = postgres.database(), tmp_path / "bus.dump"
    over, acknowledged = threading.Event(), [0]

    def send(server: RunningServer) -> None:
        with filled_bus.client_of(server) as client, client.get_queue_sender("orders") as sender:
            while not over.is_set():
                sender.send_messages(filled_bus.message_of(str(acknowledged[0])))
                acknowledged[0] += 1

    with RunningServer(tmp_path / "first", "--store", f"{url}?stores=2") as server:
        busway(server, "queue", "create", "orders")
        thread = threading.Thread(target=send, args=(server,))
        thread.start()
        try:
            while acknowledged[0] < 30:
                over.wait(0.01)
            before = acknowledged[0]
            program("pg_dump", url, "--format", "custom", "--file", dump)
        finally:
            over.set()
            thread.join()
    moved = postgres.database()
    program("pg_restore", moved, dump)
    with RunningServer(tmp_path / "moved", "--store", f"{moved}?stores=2") as server:
        taken = busway(server, "receive", "orders", "--count", str(acknowledged[0]), "--wait", "1")
    bodies = [int(line) for line in taken.splitlines() if line.isdigit()]
    assert bodies == list(range(len(bodies)))
    assert before <= len(bodies) <= acknowledged[0]
    assert urlsplit(moved).path != urlsplit(url).path
    for each in (url, moved):
        postgres.drop(each)
