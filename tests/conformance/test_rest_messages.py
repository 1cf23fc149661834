"""SB-6xx: the REST message API, by a plain HTTP client, beside the official Python SDK on the same queues."""

from __future__ import annotations

import base64
import hmac
import json
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageLockLostError
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

KEY = "k" * 43 + "="


def sas_token(server: RunningServer, path: str = "", rule: str = "", key: str = "") -> str:
    parts = dict(part.split("=", 1) for part in server.connection_string.split(";") if part)
    resource = quote(f"http://localhost:{server.port}{path}", safe="")
    expiry = int(time.time()) + 600
    digest = hmac.new(
        (key or parts["SharedAccessKey"]).encode(), f"{resource}\n{expiry}".encode(), sha256
    ).digest()
    signature = quote(base64.b64encode(digest), safe="")
    name = rule or parts["SharedAccessKeyName"]
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"


class Answer:
    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def broker_properties(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.headers["BrokerProperties"])
        return found

    @property
    def lock_path(self) -> str:
        return urlsplit(self.headers["Location"]).path


class Rest:
    """One keep-alive connection with a token."""

    def __init__(self, connection: HTTPConnection, token: str) -> None:
        self._connection = connection
        self._token = token

    def ask(self, method: str, target: str, body: bytes | str = b"", **headers: str) -> Answer:
        sent = {"Authorization": self._token} if self._token else {}
        self._connection.request(method, target, body, {**sent, **headers})
        return Answer(self._connection.getresponse())

    def send(self, queue: str, body: bytes | str = b"hello", **headers: str) -> Answer:
        return self.ask("POST", f"/{queue}/messages", body, **headers)

    def lock(self, path: str, wait_s: float = 5) -> Answer:
        return self.ask("POST", f"/{path}/messages/head?timeout={wait_s}")

    def take(self, path: str, wait_s: float = 5) -> Answer:
        return self.ask("DELETE", f"/{path}/messages/head?timeout={wait_s}")


@pytest.fixture
def rest(server: RunningServer) -> Iterator[Rest]:
    connection = HTTPConnection("localhost", server.port, timeout=100)
    yield Rest(connection, sas_token(server))
    connection.close()


def test_sb_601_what_rest_sends_the_sdk_receives(
    rest: Rest, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-5, M-1…M-10, M-33: body, system properties and custom properties with their types."""
    queue = new_queue()
    known = {
        "MessageId": "m1", "CorrelationId": "c", "Label": "L", "To": "t", "ReplyTo": "r", "SessionId": "s",
        "ReplyToSessionId": "rs", "PartitionKey": "s", "TimeToLive": 60,
    }  # fmt: skip
    custom = {
        "Priority": '"High"',
        "Weight": "12.5",
        "Pieces": "7",
        "Express": "true",
        "Customer": "12345,ABC",
    }
    content = {"BrokerProperties": json.dumps(known), "Content-Type": "application/json"}
    assert rest.send(queue, b'{"a": 1}', **content, **custom).status == 201
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        assert b"".join(message.body) == b'{"a": 1}'
        assert (message.message_id, message.correlation_id, message.subject) == ("m1", "c", "L")
        assert (message.to, message.reply_to, message.content_type) == ("t", "r", "application/json")
        assert (message.session_id, message.reply_to_session_id, message.partition_key) == ("s", "rs", "s")
        assert message.time_to_live == timedelta(seconds=60)
        assert message.application_properties == {
            b"Priority": b"High", b"Weight": 12.5, b"Pieces": 7, b"Express": True, b"Customer": b"12345,ABC",
        }  # fmt: skip
        receiver.complete_message(message)


def test_sb_602_what_the_sdk_sends_rest_receives(
    rest: Rest, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-23, M-31, M-33: the same the other way; what cannot be a header stays behind."""
    queue = new_queue()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            ServiceBusMessage(
                b"\x00payload\xff",
                message_id="m2",
                subject="sub\r\nject",
                content_type="application/octet-stream",
                application_properties={
                    "Priority": "hi\r\ngh",
                    "n": 5,
                    "f": 0.5,
                    "b": False,
                    "a b": 1,
                    "Host": "x",
                },
            )
        )
    got = rest.take(queue)
    assert (got.status, got.body) == (200, b"\x00payload\xff")
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert [got.headers[name] for name in ("Priority", "n", "f", "b")] == [
        '"hi\\r\\ngh"',
        "5",
        "0.5",
        "false",
    ]
    assert (got.headers["Host"], got.headers["a b"]) == (None, None)
    found = got.broker_properties
    assert (found["MessageId"], found["Label"], found["State"]) == ("m2", "sub\r\nject", "Active")
    assert (found["DeliveryCount"], found["SequenceNumber"]) == (1, 1)
    enqueued = datetime.strptime(str(found["EnqueuedTimeUtc"]), "%a, %d %b %Y %H:%M:%S GMT").replace(
        tzinfo=UTC
    )
    assert abs(datetime.now(UTC) - enqueued) < timedelta(seconds=30)


def test_sb_603_lock_renew_unlock_complete(rest: Rest, new_queue: Callable[..., str]) -> None:
    """R-2, R-10, R-11, R-23, R-30: the life of a lock by its URI, then 404 for it."""
    queue = new_queue()
    rest.send(queue)
    first = rest.lock(queue)
    assert (first.status, first.body) == (201, b"hello")
    assert rest.lock(queue, 0).status == 204
    renewed = rest.ask("POST", first.lock_path)
    assert (renewed.status, "LockedUntilUtc" in renewed.broker_properties) == (200, True)
    assert rest.ask("PUT", first.lock_path).status == 200
    assert rest.ask("PUT", first.lock_path).status == 404
    second = rest.lock(queue)
    assert second.broker_properties["DeliveryCount"] == 2
    by_id = (
        f"/{queue}/messages/{second.broker_properties['MessageId']}/{second.broker_properties['LockToken']}"
    )
    assert rest.ask("DELETE", by_id).status == 200
    assert rest.ask("DELETE", by_id).status == 404
    assert rest.take(queue, 0).status == 204


def test_sb_604_locks_are_the_same_on_both_ways(
    rest: Rest, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-19, R-23, M-19: a message locked over AMQP is completed over HTTP, by the token that the SDK shows."""
    queue = new_queue()
    rest.send(queue)
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        target = f"/{queue}/messages/{message.sequence_number}/{message.lock_token}"
        assert rest.ask("DELETE", target).status == 200
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
    assert rest.take(queue, 0).status == 204


def test_sb_605_a_batch_arrives_whole(
    rest: Rest, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-21: a JSON list; a bad one leaves nothing."""
    queue = new_queue()
    batch = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    messages = [
        {"Body": "one"},
        {"Body": "two", "BrokerProperties": {"Label": "M2"}, "UserProperties": {"Priority": "Low", "n": 5}},
    ]
    assert rest.send(queue, json.dumps(messages), **batch).status == 201
    assert rest.send(queue, json.dumps([*messages, {"Body": 5}]), **batch).status == 400
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        got = receiver.receive_messages(10, max_wait_time=2)
        assert [str(message) for message in got] == ["one", "two"]
        assert got[1].subject == "M2"
        assert got[1].application_properties == {b"Priority": b"Low", b"n": 5}
        assert receiver.receive_messages(10, max_wait_time=0.2) == []


def test_sb_606_every_status_that_is_promised(
    server: RunningServer, rest: Rest, admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """S-5, S-8, R-23, A-6, A-9, ERR-1, ERR-3, ERR-4, ERR-6, ERR-10: 200 to 404, each where promised."""
    queue, talks, closed = new_queue(), new_queue(requires_session=True), new_queue()
    properties = admin.get_queue(closed)
    properties.status = "Disabled"
    admin.update_queue(properties)
    nobody = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"
    assert rest.send("nowhere").status == 404
    assert rest.lock("nowhere").status == 404
    assert rest.ask("DELETE", f"/{queue}/messages/1/{nobody}").status == 404
    assert rest.send(queue, BrokerProperties="{").status == 400
    assert rest.ask("POST", f"/{queue}/messages/head?timeout=soon").status == 400
    assert rest.send(talks).status == 400
    assert rest.lock(talks).status == 400
    assert rest.send(f"{queue}/$DeadLetterQueue").status == 400
    assert rest.send(queue, b"x" * (256 * 1024)).status == 403
    assert rest.send(closed).status == 403
    assert rest.take(closed).status == 403
    for token in (
        "",
        "SharedAccessSignature x",
        sas_token(server, "/elsewhere"),
        sas_token(server, key="wrong"),
    ):
        stranger = Rest(HTTPConnection("localhost", server.port, timeout=100), token)
        for answer in (
            stranger.send(queue),
            stranger.lock(queue),
            stranger.ask("PUT", f"/{queue}/messages/1/{nobody}"),
        ):
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "SharedAccessSignature")
        stranger._connection.close()
    assert rest.take(queue, 0).status == 204


def test_sb_607_rights_and_scopes(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """A-5, A-9: a rule of the queue, a token for no more than the address; the other right is 401."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=[AccessRights.SEND], key_name="sender", primary_key=KEY, secondary_key=KEY,
        created_at_utc=datetime.now(UTC), modified_at_utc=datetime.now(UTC),
    )  # fmt: skip
    queue = new_queue(authorization_rules=[rule])
    for scope in ("", f"/{queue}", f"/{queue}/messages"):
        connection = HTTPConnection("localhost", server.port, timeout=100)
        sender = Rest(connection, sas_token(server, scope, "sender", KEY))
        assert sender.send(queue).status == 201
        assert sender.take(queue, 0).status == 401
        connection.close()


def test_sb_608_dead_letters_over_rest(rest: Rest, new_queue: Callable[..., str]) -> None:
    """E-8, D-10, R-41: the address of the sub-queue, the reason as a header."""
    queue = new_queue(max_delivery_count=1)
    rest.send(queue)
    assert rest.ask("PUT", rest.lock(queue).lock_path).status == 200
    dead = rest.take(f"{queue}/$DeadLetterQueue")
    assert (dead.status, dead.headers["DeadLetterReason"]) == (200, '"MaxDeliveryCountExceeded"')


def test_sb_609_a_scheduled_message_comes_at_its_time(rest: Rest, new_queue: Callable[..., str]) -> None:
    """S-30, S-35: a waiting receive gets it, not before its time."""
    queue = new_queue()
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    rest.send(queue, BrokerProperties=json.dumps({"ScheduledEnqueueTimeUtc": due.isoformat()}))
    assert rest.take(queue, 0).status == 204
    assert rest.take(queue, 20).status == 200
    assert datetime.now(UTC) >= due


def test_sb_610_a_receiver_that_hangs_up_loses_nothing(
    server: RunningServer, rest: Rest, new_queue: Callable[..., str]
) -> None:
    """R-1, R-23: clients that leave in the middle of a receive, one after the other; every message is still there."""
    queue = new_queue()
    for _ in range(20):
        leaving = HTTPConnection("localhost", server.port, timeout=100)
        leaving.request("DELETE", f"/{queue}/messages/head", headers={"Authorization": sas_token(server)})
        leaving.close()
    # Answered on a connection of its own after those were closed; the server has seen their ends by then.
    assert rest.take(queue, 0.2).status == 204
    for number in range(20):
        rest.send(queue, str(number))
    assert [rest.take(queue).body for _ in range(20)] == [str(number).encode() for number in range(20)]


def test_sb_611_over_tls(server: RunningServer, new_queue: Callable[..., str]) -> None:
    """A-11, R-23: the same port; the lock URI has the scheme that was used."""
    queue = new_queue()
    trust = ssl.create_default_context(cafile=server.ca_file)
    connection = HTTPSConnection("localhost", server.port, timeout=100, context=trust)
    rest = Rest(connection, sas_token(server))
    assert rest.send(queue, b"x" * 200_000).status == 201
    got = rest.lock(queue)
    assert (got.status, len(got.body)) == (201, 200_000)
    assert got.headers["Location"].startswith(f"https://localhost:{server.port}/{queue}/messages/1/")
    assert rest.ask("DELETE", got.lock_path).status == 200
    connection.close()


def test_sb_612_a_stopping_server_does_not_wait_for_receivers(tmp_path: Path) -> None:
    """ERR-17: whoever waits gets 503, and the server is down at once; what was sent is there after the restart."""
    with RunningServer(tmp_path) as server:
        admin = ServiceBusAdministrationClient.from_connection_string(
            server.connection_string, connection_verify=server.ca_file
        )
        admin.create_queue("orders")
        admin.create_queue("quiet")
        connection = HTTPConnection("localhost", server.port, timeout=100)
        assert Rest(connection, sas_token(server)).send("orders", b"kept").status == 201
        connection.request(
            "POST", "/quiet/messages/head?timeout=60", headers={"Authorization": sas_token(server)}
        )
        second = HTTPConnection("localhost", server.port, timeout=100)
        assert (
            Rest(second, sas_token(server)).take("quiet", 0.1).status == 204
        )  # the first one stands in line
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 5
        assert Answer(connection.getresponse()).status == 503
        connection.close()
        second.close()
        server.start()
        third = HTTPConnection("localhost", server.port, timeout=100)
        assert Rest(third, sas_token(server)).take("orders").body == b"kept"
        third.close()
        admin.close()
