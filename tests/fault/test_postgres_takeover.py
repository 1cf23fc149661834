"""Two servers on one database: the later one has it, the earlier one says so and lets go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


def do(server: RunningServer, *arguments: str) -> str:
    command = [str(BUSWAY), *arguments, "--data", str(server.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def stores(server: RunningServer) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(do(server, "stores", "--json"))
    return found


def send(server: RunningServer, body: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


def receive(server: RunningServer, count: int) -> list[tuple[int | None, str]]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders", max_wait_time=5) as receiver,
    ):
        found: list[tuple[int | None, str]] = []
        while len(found) < count and (messages := receiver.receive_messages(count - len(found))):
            for message in messages:
                receiver.complete_message(message)
                found.append((message.sequence_number, str(message)))
        return found


def test_a_second_server_takes_the_stores_and_the_first_one_lets_go(
    postgres_url: str, tmp_path: Path
) -> None:
    """S-1: what either acknowledged is there, no number is given twice, and the two do not take stores in turns."""
    given = ("--store", f"{postgres_url}?stores=1&name=east")
    with RunningServer(tmp_path / "first", *given) as first:
        do(first, "queue", "create", "orders")
        send(first, "one")
        assert [(store["owner"], store["epoch"]) for store in stores(first)] == [("this server", 1)]
        with RunningServer(tmp_path / "second", *given) as second:
            send(second, "two")
            with pytest.raises(ServiceBusError):
                send(first, "lost, and not acknowledged")
            [seen] = stores(first)
            assert (seen["state"], seen["owner"]) == ("taken", "another server")
            for _ in range(3):
                with pytest.raises(ServiceBusError):
                    send(first, "refused")
                send(second, "three")
            [seen] = stores(second)
            assert (seen["state"], seen["owner"], seen["epoch"]) == ("open", "this server", 2)
            bodies = ["one", "two", "three", "three", "three"]
            assert receive(second, 6) == list(enumerate(bodies, 1))
        assert "Another server has taken over the store east-0" in first.log.read_text()
        assert "taken" in do(first, "stores")


def test_a_server_that_lost_its_stores_has_them_again_after_a_restart(
    postgres_url: str, tmp_path: Path
) -> None:
    """Start: an operator decides, by starting it again when the other one is gone."""
    given = ("--store", f"{postgres_url}?stores=1&name=east")
    with RunningServer(tmp_path / "first", *given) as first:
        do(first, "queue", "create", "orders")
        with RunningServer(tmp_path / "second", *given) as second:
            send(second, "kept")
        with pytest.raises(ServiceBusError):
            send(first, "refused")
        first.stop()
        first.start()
        send(first, "more")
        assert [body for _, body in receive(first, 2)] == ["kept", "more"]
