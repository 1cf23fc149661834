"""The Python SDK against a server whose stores lie in PostgreSQL: a cross-section of what the other suites prove on
files, and what both kinds of ends do to it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

from tests.chaos.kill import kill_under_load
from tests.harness.postgres_server import PostgresServer
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk


@pytest.fixture
def bus(postgres_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "server", "--store", f"{postgres_url}?name=east&stores=4") as running:
        yield running


def connect(server: RunningServer) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.02, retry_backoff_max=0.1
    )


def do(server: RunningServer, *arguments: str) -> str:
    command = [str(BUSWAY), *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def create(server: RunningServer, name: str, *options: str) -> None:
    do(server, "queue", "create", name, *options)


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def take(client: ServiceBusClient, queue: str, count: int, **options: object) -> list[str]:
    """Bodies, in the order in which they came; completed."""
    bodies: list[str] = []
    with client.get_queue_receiver(queue, max_wait_time=5, **options) as receiver:
        while len(bodies) < count:
            found = receiver.receive_messages(max_message_count=count - len(bodies))
            if not found:
                break
            for message in found:
                receiver.complete_message(message)
                bodies.append(str(message))
    return bodies


def numbered(count: int, name: str = "m") -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{name}{number}", message_id=f"{name}{number}") for number in range(count)]


def test_what_was_acknowledged_outlives_a_killed_server(bus: RunningServer) -> None:
    """S-1: sent before kill -9, received after the restart, in order, once; what was completed does not come back."""
    create(bus, "orders")
    with connect(bus) as client:
        send(client, "orders", *numbered(20))
        assert take(client, "orders", 5) == [f"m{number}" for number in range(5)]
    bus.kill()
    bus.start()
    with connect(bus) as client:
        assert take(client, "orders", 15) == [f"m{number}" for number in range(5, 20)]
        with client.get_queue_receiver("orders") as receiver:
            assert receiver.receive_messages(max_wait_time=1) == []


def test_states_of_messages_outlive_a_killed_server(bus: RunningServer) -> None:
    """Contract: dead letters, deferred and scheduled ones, sessions with their state, delivery counts."""
    create(bus, "orders")
    create(bus, "talks", "--requires-session")
    later = datetime.now(UTC) + timedelta(hours=1)
    with connect(bus) as client:
        send(client, "orders", *numbered(3))
        send(client, "talks", ServiceBusMessage("hello", session_id="a\0b"))
        with client.get_queue_sender("orders") as sender:
            [scheduled] = sender.schedule_messages([ServiceBusMessage("later")], later)
        with client.get_queue_receiver("orders") as receiver:
            first, second, third = receiver.receive_messages(3, max_wait_time=5)
            receiver.dead_letter_message(first, reason="wrong")
            receiver.defer_message(second)
            receiver.abandon_message(third)
            deferred = second.sequence_number
        with client.get_queue_receiver("talks", session_id="a\0b") as receiver:
            receiver.session.set_state(b"half way")
    bus.kill()
    bus.start()
    with connect(bus) as client:
        assert take(client, "orders", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER) == ["m0"]
        with client.get_queue_receiver("orders") as receiver:
            [found] = receiver.receive_deferred_messages([deferred])
            receiver.complete_message(found)
            [again] = receiver.receive_messages(max_wait_time=5)
            assert (str(found), str(again), again.delivery_count) == ("m1", "m2", 1)
            receiver.complete_message(again)
        with client.get_queue_sender("orders") as sender:
            sender.cancel_scheduled_messages([scheduled])
        with client.get_queue_receiver("talks", session_id="a\0b") as receiver:
            assert receiver.session.get_state() == b"half way"
            assert [str(message) for message in receiver.receive_messages(max_wait_time=5)] == ["hello"]


def test_a_topic_a_hub_and_a_partitioned_queue_outlive_a_killed_server(bus: RunningServer) -> None:
    """P-1, H-1: copies of a publish, events in their partitions, fragments in all stores of the database."""
    create(bus, "parts", "--partitioned")
    do(bus, "topic", "create", "news")
    do(bus, "subscription", "create", "news", "all")
    do(bus, "eventhub", "create", "metrics", "--partitions", "4")
    with connect(bus) as client:
        send(client, "parts", *numbered(32, "p"))
        with client.get_topic_sender("news") as sender:
            sender.send_messages(numbered(4, "n"))
    with EventHubProducerClient.from_connection_string(
        bus.connection_string, eventhub_name="metrics"
    ) as producer:
        producer.send_batch([EventData(f"e{number}") for number in range(8)])
    bus.kill()
    bus.start()
    stores = {store["name"]: store["fragments"] for store in json.loads(do(bus, "stores", "--json"))}
    assert sorted(stores) == ["east-0", "east-1", "east-2", "east-3"]
    assert all(stores.values())
    with connect(bus) as client:
        assert sorted(take(client, "parts", 32)) == sorted(f"p{number}" for number in range(32))
        with client.get_subscription_receiver(
            "news", "all", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            found = receiver.receive_messages(4, max_wait_time=5)
            assert [str(message) for message in found] == ["n0", "n1", "n2", "n3"]
    partitions = json.loads(do(bus, "eventhub", "show", "metrics", "--partitions", "--json"))
    assert sum(int(partition["events"]) for partition in partitions) == 8


def test_kill_9_under_load_loses_nothing_and_doubles_nothing(postgres_url: str, tmp_path: Path) -> None:
    """F1: a plain queue, one with sessions and one that detects duplicates, recounted by the history checker."""
    result = kill_under_load(tmp_path / "server", 1, 5, "--store", f"{postgres_url}?stores=4")
    assert result.violations == {}
    assert result.rounds == 1
    assert result.sent >= 60


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_of_postgresql_is_a_pause(own_postgres: PostgresServer, tmp_path: Path, how: str) -> None:
    """S-1: killed or restarted under a server that goes on: no client sees an error, nothing is lost."""
    url = own_postgres.database()
    with RunningServer(tmp_path / "server", "--store", f"{url}?stores=4") as bus:
        create(bus, "orders")
        with connect(bus) as client:
            send(client, "orders", *numbered(10))
            getattr(own_postgres, how)()
            own_postgres.start()
            send(client, "orders", *numbered(10, "after"))
            expected = [f"m{number}" for number in range(10)] + [f"after{number}" for number in range(10)]
            assert take(client, "orders", 20) == expected


def test_rows_are_where_they_are_said_to_be(bus: RunningServer, postgres_url: str) -> None:
    """Contract: one database, tables in the schema busway, and nothing of it in the data directory."""
    create(bus, "orders")
    with connect(bus) as client:
        send(client, "orders", *numbered(7))
    with psycopg.connect(postgres_url) as connection:
        counted = connection.execute("SELECT count(*) FROM busway.messages").fetchone()
    assert counted == (7,)
    assert list(bus.data.rglob("*.db")) == []
