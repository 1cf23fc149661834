"""Messages and bulk answers over HTTPS: what waits until bytes have left waits no longer than without TLS."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.connection_string import ConnectionString, token_for
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell

#: Far below the time after which a server gives up on bytes that do not leave.
SOON_S = 10.0


class Https:
    """One connection, kept."""

    def __init__(self, server: RunningServer) -> None:
        self._target = ConnectionString.parse(server.connection_string)
        context = ssl.create_default_context(cafile=server.ca_file)
        self._connection = http.client.HTTPSConnection(
            "localhost", server.port, timeout=SOON_S, context=context
        )

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        token = token_for(self._target, f"https://{self._target.host}/", time.time())
        self._connection.request(method, path, body, {"Authorization": token})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def https(server: RunningServer) -> Iterator[Https]:
    connection = Https(server)
    yield connection
    connection.close()


def test_a_message_is_received_and_deleted_over_https(server: RunningServer, https: Https) -> None:
    """R-1: it is gone when it has left, at once, and the connection goes on."""
    with ServiceBusAdministrationClient(ConnectionString.parse(server.connection_string)) as client:
        client.create_queue("over-https")
    for body in (b"one", b"two"):
        assert https.request("POST", "/over-https/messages", body)[0] == 201
    assert https.request("DELETE", "/over-https/messages/head") == (200, b"one")
    assert https.request("DELETE", "/over-https/messages/head") == (200, b"two")
    assert https.request("DELETE", "/over-https/messages/head?timeout=0")[0] == 204


def test_a_bulk_answer_comes_over_https(shell: Shell, https: Https) -> None:
    """Bulk: megabytes of events, twice on one connection."""
    shell("eventhub", "create", "hub-over-https", "--partitions", "1")
    for _ in range(4):
        assert https.request("POST", "/hub-over-https/messages", bytes(900_000))[0] == 201
    for _ in range(2):
        status, answer = https.request("GET", "/hub-over-https/partitions/0/events")
        assert status == 200
        assert len(answer) > 3_600_000
