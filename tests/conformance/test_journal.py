"""The operation journal of a real server, read back after the official SDK has worked with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from busway.journal.files import COLUMNS
from tests.conformance.event_traffic import Hub
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

Rows = list[dict[str, Any]]


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """One by one, with credit for one: no delivery goes astray."""
    return [receiver.receive_messages(max_message_count=1, max_wait_time=20)[0] for _ in range(count)]


def rows_of(folder: Path) -> Rows:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table(columns=list(COLUMNS))
    found: Rows = table.sort_by("time").to_pylist()
    return found


def counts(rows: Rows, entity: str) -> dict[str, int]:
    return dict(Counter(row["operation"] for row in rows if row["entity"] == entity))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path, "--journal", str(tmp_path / "journal")) as running:
        yield running


def test_every_operation_of_a_client_is_in_the_journal_once(server: RunningServer, tmp_path: Path) -> None:
    """Journal: exact counts for each operation and entity, and times that make latencies."""
    with (
        ServiceBusAdministrationClient.from_connection_string(
            server.connection_string, connection_verify=server.ca_file
        ) as admin,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        _create(admin)
        _queue(client)
        _sessions(client)
        _topic(client)
        _partitioned(client)
    Hub(server, "clicks").send(*"abcde", partition_key="user-1")
    assert server.stop() == 0
    rows = rows_of(tmp_path / "journal")
    assert counts(rows, "orders") == {
        "send": 20, "duplicate": 1, "schedule": 2, "cancel": 1, "activate": 1, "receive": 22, "complete": 18,
        "abandon": 1, "defer": 2, "deadLetter": 1,
    }  # fmt: skip
    assert counts(rows, "sessions") == {
        "send": 3, "sessionAccept": 1, "receive": 3, "complete": 3, "sessionEnd": 1,
    }  # fmt: skip
    assert counts(rows, "news") == {"send": 2}
    assert counts(rows, "news/Subscriptions/all") == {"send": 2, "forward": 2}
    assert counts(rows, "archive") == {"send": 2}
    assert counts(rows, "parts") == {"send": 40, "receive": 40, "complete": 40}
    assert counts(rows, "clicks") == {"publish": 5}
    _check_details(rows)


def _check_details(rows: Rows) -> None:
    completed = [row for row in rows if row["operation"] == "complete"]
    assert all(timedelta(0) <= row["time"] - row["enqueuedTime"] < timedelta(minutes=2) for row in completed)
    [dead] = [row for row in rows if row["operation"] == "deadLetter"]
    assert dead["reason"] == "not for us"
    parts = [row for row in rows if row["entity"] == "parts"]
    assert all(row["sequenceNumber"] >> 48 == row["fragment"] for row in parts)
    assert len({row["fragment"] for row in parts}) > 1
    published = [row for row in rows if row["operation"] == "publish"]
    assert {row["partitionKey"] for row in published} == {"user-1"}
    assert sorted(row["sequenceNumber"] for row in published) == [0, 1, 2, 3, 4]


def _create(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders", requires_duplicate_detection=True)
    admin.create_queue("sessions", requires_session=True)
    admin.create_queue("archive")
    admin.create_topic("news")
    admin.create_subscription("news", "all", forward_to="archive")
    admin.create_queue("parts", enable_partitioning=True)


def _queue(client: ServiceBusClient) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage("batch", message_id=str(n)) for n in range(18)])
        sender.send_messages(ServiceBusMessage("single", message_id="18"))
        sender.send_messages(ServiceBusMessage("again", message_id="18"))
        sender.send_messages(ServiceBusMessage("last", message_id="19"))
        never = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages(ServiceBusMessage("later", message_id="20"), never)
        sender.cancel_scheduled_messages(numbers)
        sender.schedule_messages(ServiceBusMessage("soon", message_id="21"), soon)
    with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
        abandoned, dead, *others = take(receiver, 21)  # the activated one too
        receiver.dead_letter_message(dead, reason="not for us")
        for message in others[:2]:
            receiver.defer_message(message)
        receiver.abandon_message(abandoned)
        for message in [*others[2:], *take(receiver, 1)]:
            receiver.complete_message(message)


def _sessions(client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages([ServiceBusMessage("x", session_id="s") for _ in range(3)])
    with client.get_queue_receiver(
        "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10
    ) as receiver:
        for message in take(receiver, 3):
            receiver.complete_message(message)


def _topic(client: ServiceBusClient) -> None:
    with client.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])


def _partitioned(client: ServiceBusClient) -> None:
    with client.get_queue_sender("parts") as sender:
        for number in range(40):
            sender.send_messages(ServiceBusMessage("x", partition_key=f"key-{number % 8}"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("parts", receive_mode=mode, max_wait_time=10) as receiver:
        take(receiver, 40)
