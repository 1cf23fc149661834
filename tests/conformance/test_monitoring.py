"""A real server is watched while the official SDK works with it: its figures and its log."""

from __future__ import annotations

import base64
import json
import re
import secrets
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from prometheus_client.parser import text_string_to_metric_families

from busway.client.connection_string import sas_token
from tests.conformance.traffic import dead_letters, receive_all
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

Figures = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    arguments = ("--log-format", "json", "--log-level", "debug")
    with RunningServer(tmp_path_factory.mktemp("watched"), *arguments) as running:
        yield running


@pytest.fixture(scope="module")
def manager(watched: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        watched.connection_string, connection_verify=watched.ca_file
    ) as client:
        yield client


def scrape(server: RunningServer) -> Figures:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("busway_"), sample.labels.get("entity", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def client_of(server: RunningServer) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.02, retry_backoff_max=0.1
    )


def test_sb_801_figures_follow_the_traffic(
    watched: RunningServer, manager: ServiceBusAdministrationClient
) -> None:
    """O-1, O-4, O-5: sends, a batch, completes, an abandon, dead letters; connections come and go."""
    manager.create_queue("orders")
    before = scrape(watched)
    with client_of(watched) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
            sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            [first] = receiver.receive_messages(1)
            receiver.abandon_message(first)
            [again] = receiver.receive_messages(1)
            receiver.dead_letter_message(again, reason="test")
            during = scrape(watched)
        receive_all(client, "orders", 2)
        with dead_letters(client, "orders") as receiver:
            [dead] = receiver.receive_messages(1)
            receiver.complete_message(dead)
    after = scrape(watched)
    assert during["active_connections", ""] == 1
    assert during["active_messages", "orders"] == 2
    assert during["deadlettered_messages", "orders"] == 1
    assert during["messages", "orders"] == 3
    assert during["incoming_messages_total", "orders"] == 3
    assert during["outgoing_messages_total", "orders"] == 2
    assert during["size_bytes", "orders"] > during["incoming_bytes_total", "orders"] > 0  # a reason was added
    assert after["outgoing_messages_total", "orders"] == 5
    assert after["completed_messages_total", "orders"] == 3
    assert after["abandoned_messages_total", "orders"] == 1
    assert after["server_send_latency_seconds_count", "orders"] == 3
    assert after["user_errors_total", "orders"] == 0
    # This SDK opens a connection for each sender and receiver.
    assert after["connections_opened_total", ""] == before["connections_opened_total", ""] + 4
    assert after["connections_closed_total", ""] + after["active_connections", ""] == 4
    assert after["messages", "orders"] == 0
    results = ("successful_requests", "user_errors", "server_errors", "throttled_requests")
    for entity in ("orders", "-NamespaceOnlyMetric-"):
        total = sum(after[f"{result}_total", entity] for result in results)
        assert total == after["incoming_requests_total", entity] > 0


def test_sb_802_duplicates_are_incoming(
    watched: RunningServer, manager: ServiceBusAdministrationClient
) -> None:
    """S-47, O-4: counted, though they are dropped."""
    manager.create_queue("distinct", requires_duplicate_detection=True)
    with client_of(watched) as client, client.get_queue_sender("distinct") as sender:
        for _ in range(3):
            sender.send_messages(ServiceBusMessage("x", message_id="same"))
    found = scrape(watched)
    assert found["incoming_messages_total", "distinct"] == 3
    assert found["messages", "distinct"] == 1


def test_sb_803_no_secret_reaches_the_log(
    watched: RunningServer, manager: ServiceBusAdministrationClient
) -> None:
    """O-7, A-4: at debug level, with good and bad tokens on every door, no key and no signature is written."""
    manager.create_queue("secretive")
    root_key = re.search("SharedAccessKey=([^;]+)", watched.connection_string)
    assert root_key is not None
    wrong_key = base64.b64encode(secrets.token_bytes(32)).decode()
    tokens = [
        sas_token(f"sb://127.0.0.1:{watched.port}/secretive", "RootManageSharedAccessKey", key, 4_000_000_000)
        for key in (root_key[1], wrong_key)
    ]
    send_with_key(watched, wrong_key)
    log_in(watched, wrong_key)
    for token in tokens:
        for text in (token, token.replace("&se=", "&xx="), token + "\x00", quote(token)):
            ask_with_token(watched, text)
    with client_of(watched) as client, client.get_queue_sender("secretive") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    written = watched.log.read_text()
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    assert {line["level"] for line in lines} >= {"debug", "info"}
    # The server prints its connection string on purpose, in its first lines, which are no log.
    log = "\n".join(line for line in written.splitlines() if line.startswith("{"))
    signatures = [part for token in tokens for part in re.findall("sig=([^&]+)", token)]
    for secret in (root_key[1], wrong_key, *signatures):
        for form in (secret, quote(secret, safe=""), secret.rstrip("=")):
            assert form not in log


def send_with_key(server: RunningServer, key: str) -> None:
    stolen = re.sub("SharedAccessKey=[^;]+", f"SharedAccessKey={key}", server.connection_string)
    with ServiceBusClient.from_connection_string(stolen, retry_total=0) as client:
        sender = client.get_queue_sender("secretive")
        with pytest.raises(ServiceBusError), sender:
            sender.send_messages(ServiceBusMessage("x"))


def log_in(server: RunningServer, key: str) -> None:
    """SASL PLAIN with a wrong key, then whatever the server answers."""
    response = b"\0RootManageSharedAccessKey\0" + key.encode()
    body = b"\x00\x53\x41\xc0" + bytes([len(response) + 12, 2]) + b"\xa3\x05PLAIN\xa0"
    body += bytes([len(response)]) + response
    frame = (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
    with socket.create_connection(("127.0.0.1", server.port), 5) as door:
        door.settimeout(100)
        door.sendall(b"AMQP\x03\x01\x00\x00" + frame)
        while door.recv(4096):
            pass


def ask_with_token(server: RunningServer, token: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as door:
        door.settimeout(100)
        request = (
            f"GET /secretive?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        )
        door.sendall(request.encode() + b"Connection: close\r\n\r\n")
        while door.recv(4096):
            pass


def test_sb_804_a_log_file_is_written_like_the_log(tmp_path: Path) -> None:
    """O-7: the configuration's log file has the same form and the same net."""
    config = {
        "UserConfig": {
            "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "q"}]}],
            "Logging": {"Type": "File"},
        }
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    with RunningServer(tmp_path, "--config", str(file), "--log-format", "json") as server:
        log = server.data / "busway.log"
        assert log.exists()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
