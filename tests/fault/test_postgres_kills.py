"""A server with stores in PostgreSQL is killed in the middle of what takes several commits: nothing is half made."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


@pytest.fixture
def databases(postgres: PostgresServer) -> Iterator[list[str]]:
    urls = [postgres.database(), postgres.database()]
    yield urls
    for url in urls:
        postgres.drop(url)


def arguments(databases: list[str]) -> list[str]:
    names = zip(("east", "west"), databases, strict=True)
    return [word for name, url in names for word in ("--store", f"{url}?name={name}&stores=2")]


def asked(url: str, question: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(question.encode()).fetchone()
    assert found is not None
    return int(found[0])


def test_a_server_killed_while_queues_come_and_go_leaves_none_half_made(
    databases: list[str], tmp_path: Path
) -> None:
    """E-86, P-4: what was acknowledged is there, or gone; what is there can be used; no store keeps fragments that
    nobody knows."""
    with RunningServer(tmp_path / "server", *arguments(databases)) as server:
        there: set[str] = set()
        gone: set[str] = set()
        doubtful: set[str] = set()
        for life in range(3):
            change_until_killed(server, life, there, gone, doubtful)
            server.start()
        with administration(server) as admin:
            found = {queue.name for queue in admin.list_queues()}
        assert there - doubtful <= found
        assert not (gone - doubtful) & found
        assert found <= there | gone | doubtful
        assert len(there) > 3
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            for name in sorted(found)[:10]:
                with client.get_queue_sender(name) as sender:
                    sender.send_messages(ServiceBusMessage("usable"))
        expected = 2 * 16 * len(found)
        ends_s = time.monotonic() + 20
        question = "SELECT count(*) FROM busway.fragments"
        while sum(asked(url, question) for url in databases) != expected:
            assert time.monotonic() < ends_s, "fragments that nobody knows are left"
            time.sleep(0.1)


def administration(server: RunningServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file, retry_total=0
    )


def change_until_killed(
    server: RunningServer, life: int, there: set[str], gone: set[str], doubtful: set[str]
) -> None:
    with administration(server) as admin:
        for number in range(10_000):
            if number == KILLED_AFTER:
                killer = threading.Thread(target=server.kill)
                killer.start()
            name = f"q{life}-{number}"
            try:
                doubtful.add(name)
                admin.create_queue(name, enable_partitioning=True)
                there.add(name)
                if number % 3 == 2:
                    there.discard(name)
                    admin.delete_queue(name)
                    gone.add(name)
                doubtful.discard(name)
            except (AzureError, OSError):
                killer.join()
                return


def test_a_server_killed_while_it_forwards_between_databases_moves_each_message_once(
    databases: list[str], tmp_path: Path
) -> None:
    """F-1, P-60: two databases do not commit together; marks say what has arrived, over three kills."""
    with RunningServer(tmp_path / "server", *arguments(databases)) as server:
        with administration(server) as admin:
            admin.create_queue("target")
            for source in SOURCES:
                admin.create_queue(source, forward_to="target")
        lie_in_both = [asked(url, "SELECT count(*) FROM busway.fragments") > 0 for url in databases]
        assert lie_in_both == [True, True]
        acknowledged: set[str] = set()
        sent: set[str] = set()
        for life in range(3):
            send_until_killed(server, life, acknowledged, sent)
            server.start()
        found: Counter[str] = Counter()
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver(
                "target", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=5
            ) as receiver,
        ):
            while messages := receiver.receive_messages(500):
                found.update(str(message) for message in messages)
        assert len(acknowledged) > 100
        assert acknowledged <= found.keys() <= sent
        assert set(found.values()) == {1}


#: Changes, or rounds of sends.
KILLED_AFTER = 5
SOURCES = ("second", "third")


def send_until_killed(server: RunningServer, life: int, acknowledged: set[str], sent: set[str]) -> None:
    with (
        contextlib.suppress(ServiceBusError, OSError),
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender(SOURCES[0]) as first,
        client.get_queue_sender(SOURCES[1]) as second,
    ):
        for number in range(1_000):
            if number == KILLED_AFTER + life:
                threading.Thread(target=server.kill).start()
            for sender in (first, second):
                bodies = [f"{life} {sender.entity_name} {number} {each}" for each in range(20)]
                sent.update(bodies)
                sender.send_messages([ServiceBusMessage(body) for body in bodies])
                acknowledged.update(bodies)
    while server.is_running:
        time.sleep(0.01)
