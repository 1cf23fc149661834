"""Attacks on a real server process: strangers, greedy customers, names, secrets, defaults.

Each attack is short; meanwhile, and afterwards, a well-behaved client sends and receives as if nothing happened.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Flow,
    Open,
    Performative,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from busway.client.connection_string import ConnectionString, token_for
from tests.conformance.traffic import bodies, receive_all
from tests.harness.frame_factory import make_frame, sasl, split_frames
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.fault

MIB = 1024 * 1024
RSS_GROWTH_MAX = 64 * MIB
#: Generous: the machine is shared, and starting a client costs a good part of it.
HONEST_SECONDS_MAX = 5.0
STRANGERS = 1_500
#: Of them, those that say much.
GREEDY = 100
LIMIT_CONDITIONS = {"amqp:resource-limit-exceeded", "amqp:connection:framing-error", "amqp:not-allowed"}
QUEUE = "honest"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("attacked")) as running:
        with administration(running) as admin:
            admin.create_queue(QUEUE)
        round_trip(running)  # everything is loaded before memory is measured
        yield running


def administration(server: RunningServer) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    )


def round_trip(server: RunningServer) -> None:
    """What an honest client does, and how long it may take."""
    started = time.monotonic()
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        assert bodies(receive_all(client, QUEUE, 1)) == ["hello"]
    assert time.monotonic() - started < HONEST_SECONDS_MAX


def rss_bytes(server: RunningServer) -> int:
    return psutil.Process(server.pid).memory_info().rss


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 10)


class Customer:
    """Logged in with the key, and under the test's full control from there on."""

    def __init__(self, server: RunningServer) -> None:
        parts = ConnectionString.parse(server.connection_string)
        self.stream = connect(server)
        response = f"\0{parts.key_name}\0{parts.key}".encode()
        self.stream.sendall(SASL_HEADER + sasl(SaslInit("PLAIN", response)))
        self.stream.sendall(AMQP_HEADER + make_frame(Open("attacker")))
        self.say(Begin(None, next_outgoing_id=0, incoming_window=1_000_000, outgoing_window=1_000_000))

    def say(self, *performatives: Performative, channel: int = 0, payload: bytes = b"") -> None:
        self.stream.sendall(
            b"".join(make_frame(one, channel=channel, payload=payload) for one in performatives)
        )

    def try_to_say(self, data: bytes) -> None:
        """The server may have had enough in the middle of it."""
        try:
            self.stream.sendall(data)
        except OSError:
            return

    def refusal(self, kind: type[Close] | type[Detach], seconds_max: float = 100.0) -> str:
        """Reads until the server has refused in this way; the condition."""
        self.stream.settimeout(seconds_max)
        received = b""
        while chunk := self.stream.recv(65_536):
            received += chunk
            for _, _, said, _ in split_frames(_whole_frames(received)):
                if isinstance(said, kind):
                    assert said.error is not None
                    return str(said.error.condition)
        raise AssertionError(f"no {kind.__name__} came before the end")

    def close(self) -> None:
        self.stream.close()


def _whole_frames(data: bytes) -> bytes:
    """Without a frame that was cut by the end of the connection."""
    at = 0
    while at + 8 <= len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else struct.unpack_from(">I", data, at)[0]
        if at + size > len(data):
            break
        at += size
    return data[:at]


# -- A4: before login


def test_strangers_in_numbers_do_not_keep_a_client_out(server: RunningServer) -> None:
    """A-7, L-11: 1,500 silent, half-spoken and babbling connections; the honest client is served, memory is not
    eaten."""
    before = rss_bytes(server)
    openings = [b"", b"\x16\x03\x01", b"AMQP", SASL_HEADER, AMQP_HEADER, b"GET / HTTP/1.1\r\nHost: x\r\nX:"]
    with ExitStack() as stack:
        for number in range(STRANGERS):
            stream = stack.enter_context(closing(connect(server)))
            stream.sendall(openings[number % len(openings)])
        round_trip(server)
        assert rss_bytes(server) - before < RSS_GROWTH_MAX
    round_trip(server)


@pytest.mark.parametrize(
    "babble",
    [
        b"\x00" * 65_536,
        b"\xff" * 65_536,
        b"SSH-2.0-scan\r\n",
        b"AMQP\x09\x09\x09\x09" + b"x" * 65_536,
        SASL_HEADER + struct.pack(">IBBH", 0xFFFFFFFF, 2, 1, 0),
        SASL_HEADER + sasl(SaslInit("PLAIN", b"\0" * 60_000)),
        SASL_HEADER + make_frame(Begin(None, next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
    ],
    ids=["zeros", "ones", "ssh", "version", "giant", "credentials", "order"],
)
def test_babble_is_ended_at_once(server: RunningServer, babble: bytes) -> None:
    """A-7: the connection is closed without waiting for a deadline, and without an echo of what was said."""
    started = time.monotonic()
    with closing(connect(server)) as stream:
        stream.settimeout(100)
        answer = b""
        try:
            stream.sendall(babble)
            while chunk := stream.recv(65_536):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert time.monotonic() - started < 4
    assert len(answer) < 1024


HELLO = (
    SASL_HEADER
    + sasl(SaslInit("ANONYMOUS"))
    + AMQP_HEADER
    + make_frame(Open("stranger"))
    + make_frame(Begin(None, next_outgoing_id=0, incoming_window=5_000, outgoing_window=5_000))
)


def greedy_words() -> bytes:
    """Eight links, two megabytes of deliveries that do not end, and attaches with 60 KB of properties."""
    properties = {f"p{number}": "x" * 90 for number in range(600)}
    target = Target("$management")
    attaches = [
        Attach(f"l{n}", n, ROLE_SENDER, source=Source("x"), target=target, initial_delivery_count=0)
        for n in range(8)
    ]
    parts = [
        make_frame(Transfer(n % 8, n % 8, b"t", 0, False, more=True), payload=bytes(60_000))
        for n in range(36)
    ]
    long = [Attach(f"p{n}", n, ROLE_SENDER, source=Source("x"), target=target) for n in range(8, 16)]
    for attach in long:
        attach.properties = properties
    return b"".join([*map(make_frame, attaches), *parts, *map(make_frame, long)])


def test_strangers_who_say_much_hold_little(server: RunningServer) -> None:
    """Attack: 76 MiB for each connection without a token once; 256 KiB now, and the honest client is served."""
    before = rss_bytes(server)
    words = greedy_words()
    with ExitStack() as stack:
        for _ in range(GREEDY):
            stream = stack.enter_context(closing(connect(server)))
            stream.settimeout(100)
            stream.sendall(HELLO)
            stream.recv(65_536)
            try:
                stream.sendall(words)
            except OSError:
                continue  # it had enough
        round_trip(server)
        assert rss_bytes(server) - before < GREEDY * 256 * 1024
    round_trip(server)


def test_an_sdk_connects_with_a_token_of_16_kib(server: RunningServer) -> None:
    """A-7: what is kept small for strangers is large enough for the longest token."""
    parts = ConnectionString.parse(server.connection_string)
    token = token_for(parts, f"sb://127.0.0.1:{server.port}/{QUEUE}", time.time())
    token += "&padding=" + "x" * (16 * 1024 - len(token))
    string = (
        f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessSignature={token};UseDevelopmentEmulator=true;"
    )
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
        assert bodies(receive_all(client, QUEUE, 1)) == ["hello"]


# -- A5: after login


def test_sessions_without_end_are_refused(server: RunningServer) -> None:
    """L-11, L-22: the connection is closed when it wants more sessions than one may have."""
    before = rss_bytes(server)
    with closing(Customer(server)) as customer:
        begin = Begin(None, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        customer.try_to_say(b"".join(make_frame(begin, channel=number) for number in range(1, 20_000)))
        round_trip(server)
        assert rss_bytes(server) - before < RSS_GROWTH_MAX
        assert customer.refusal(Close) in LIMIT_CONDITIONS


def test_links_without_end_are_refused(server: RunningServer) -> None:
    """L-12, L-22: beyond the handles of a session the connection is closed."""
    before = rss_bytes(server)
    with closing(Customer(server)) as customer:
        frames = [
            make_frame(Attach(f"l{number}", number, ROLE_SENDER, source=Source("x"), target=Target(QUEUE)))
            for number in range(20_000)
        ]
        customer.try_to_say(b"".join(frames))
        round_trip(server)
        assert rss_bytes(server) - before < RSS_GROWTH_MAX
        assert customer.refusal(Close) in LIMIT_CONDITIONS


def test_a_customer_who_never_reads_does_not_fill_memory(server: RunningServer) -> None:
    """R-70, L-22: credit for four thousand million messages, and a socket that is never read."""
    with administration(server) as admin:
        admin.create_queue("greedy")
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("greedy") as sender,
    ):
        for _ in range(50):
            sender.send_messages([ServiceBusMessage(b"x" * 60_000) for _ in range(4)])
    before = rss_bytes(server)
    with ExitStack() as stack:
        for _ in range(10):
            customer = stack.enter_context(closing(Customer(server)))
            customer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            customer.say(
                Attach("r", 0, ROLE_RECEIVER, source=Source("greedy"), target=Target("x")),
                Flow(
                    next_incoming_id=0,
                    incoming_window=2**31 - 1,
                    next_outgoing_id=0,
                    outgoing_window=1,
                    handle=0,
                    delivery_count=0,
                    link_credit=2**32 - 1,
                ),
            )
        round_trip(server)
        assert rss_bytes(server) - before < RSS_GROWTH_MAX
    round_trip(server)


def test_messages_that_never_end_are_refused(server: RunningServer) -> None:
    """L-5, L-22: unfinished deliveries share one bound per connection; what is beyond ends its link."""
    before = rss_bytes(server)
    with closing(Customer(server)) as customer:
        frames = [
            make_frame(Attach(f"l{number}", number, ROLE_SENDER, source=Source("x"), target=Target(QUEUE)))
            for number in range(250)
        ]
        customer.try_to_say(b"".join(frames))
        time.sleep(0.5)  # the credit must have come
        pieces = [
            make_frame(
                Transfer(number, delivery_id=number, delivery_tag=b"t", message_format=0, more=True),
                payload=b"x" * 60_000,
            )
            for number in range(250)
        ]
        customer.try_to_say(b"".join(pieces))
        round_trip(server)
        assert rss_bytes(server) - before < RSS_GROWTH_MAX
        assert customer.refusal(Detach) == "amqp:resource-limit-exceeded"


# -- A10: names over HTTP

BAD_NAMES = [
    "..",
    "../etc/passwd",
    "..%2f..%2fetc",
    "%2e%2e/%2e%2e",
    "a/../b",
    "a%00b",
    "a%0d%0aX:y",
    "a%5c..%5cb",
    "%c0%ae%c0%ae",
    "caf%c3%a9",
    "%ef%bc%8e%ef%bc%8e",
    "a%e2%80%aeb",
    "q" * 261,
    "$root",
    "a/$management",
    "a b".replace(" ", "%20"),
    "%3Cscript%3E",
    "a'--",
    "a%27%3Bdrop%20table%20message",
    "a//b",
    "a/",
    "*",
]


def test_no_name_escapes(server: RunningServer) -> None:
    """E-2, E-5, E-6: nothing is made, no file appears, and no answer is a success."""
    parts = ConnectionString.parse(server.connection_string)
    files = sorted(server.data.rglob("*"))
    with administration(server) as admin:
        known = [queue.name for queue in admin.list_queues()]
        entry = (
            b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
            b'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
        )
        token = token_for(parts, f"sb://127.0.0.1:{server.port}/", time.time())
        for name in BAD_NAMES:
            for method in ("PUT", "GET", "DELETE"):
                with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)) as connection:
                    body = entry if method == "PUT" else None
                    connection.request(method, f"/{name}?api-version=2021-05", body, {"Authorization": token})
                    answer = connection.getresponse()
                    assert answer.status in (400, 401, 404), (method, name, answer.status)
        assert [queue.name for queue in admin.list_queues()] == known
    assert sorted(server.data.rglob("*")) == files


# -- A12: secrets


def test_secrets_reach_no_log_error_or_page(tmp_path: Path) -> None:
    """A-4, A-6, ERR-41: after logins that work and logins that fail, neither key nor token stands anywhere but
    where it must."""
    with RunningServer(tmp_path) as server:
        parts = ConnectionString.parse(server.connection_string)
        assert parts.key is not None
        wrong_key = base64.b64encode(b"w" * 32).decode()
        token = token_for(parts, f"sb://127.0.0.1:{server.port}/", time.time())
        signature = token.partition("sig=")[2].partition("&")[0]
        with administration(server) as admin:
            admin.create_queue(QUEUE)
        round_trip(server)
        said = _failures(server, parts.key, wrong_key, token)
        status = server.stop()
    assert status == 0
    log = server.log.read_text()
    printed = [line for line in log.splitlines() if not line.startswith("connection string: ")]
    texts = {
        "log": "\n".join(printed),
        "answers": "\n".join(said),
        "server.json": (server.data / "server.json").read_text(),
    }
    assert len(said) >= 6
    for where, text in texts.items():
        for secret in (parts.key, wrong_key, signature, token):
            assert secret not in text, where
        assert "Traceback" not in text, where


def _failures(server: RunningServer, key: str, wrong_key: str, token: str) -> list[str]:
    """Everything that can go wrong with a key or token in hand, and what was answered."""
    said: list[str] = []
    wrong = server.connection_string.replace(key, wrong_key)
    with (
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as client,
        pytest.raises(ServiceBusError) as refused,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    said.append(str(refused.value))
    with (
        ServiceBusAdministrationClient.from_connection_string(
            wrong, connection_verify=server.ca_file
        ) as admin,
        pytest.raises(ClientAuthenticationError) as denied,
    ):
        admin.get_queue(QUEUE)
    said.append(str(denied.value))
    for path, headers in (
        ("/$console", {}),
        (f"/{QUEUE}?token={token}", {}),
        (f"/{QUEUE}", {"Authorization": token + "x"}),
        (f"/{QUEUE}", {"Authorization": token.replace("SharedAccessSignature ", "Bearer ")}),
        (f"/{token}", {"Authorization": key}),
        ("/missing/messages", {"Authorization": token}),
    ):
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)) as connection:
            connection.request("GET", path.replace(" ", "%20"), headers=headers)
            said.append(connection.getresponse().read().decode())
    with closing(connect(server)) as stream:
        stream.settimeout(100)
        stream.sendall(
            SASL_HEADER + sasl(SaslInit("PLAIN", f"\0RootManageSharedAccessKey\0{wrong_key}".encode()))
        )
        said.append(stream.recv(1024).decode("latin-1"))
    return said


# -- A13: defaults


def test_a_fresh_server_is_for_this_machine_and_this_user_alone(server: RunningServer) -> None:
    """A-11: it listens on loopback only; files are for their owner, but for certificates, which are public."""
    listening = [
        found.laddr.ip
        for found in psutil.Process(server.pid).net_connections(kind="inet")
        if found.status == psutil.CONN_LISTEN
    ]
    assert set(listening) <= {"127.0.0.1", "::1"}
    assert listening
    modes = {
        path.relative_to(server.data): stat.S_IMODE(path.stat().st_mode) for path in server.data.rglob("*")
    }
    for path, mode in modes.items():
        is_public = path.suffix == ".pem"
        wanted = 0o700 if (server.data / path).is_dir() else 0o600
        assert mode == wanted or (is_public and mode == 0o644), (str(path), oct(mode))
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.folder / "ready.json").stat().st_mode) == 0o600


def test_each_install_draws_its_own_key(server: RunningServer, tmp_path: Path) -> None:
    """A-1, A-3: 256 random bits, different every time, kept over a restart."""
    own = ConnectionString.parse(server.connection_string).key
    with RunningServer(tmp_path) as other:
        first = ConnectionString.parse(other.connection_string).key
        assert other.stop() == 0
        other.start()
        assert ConnectionString.parse(other.connection_string).key == first
        authority = Path(other.ca_file).read_text()
    assert own is not None
    assert first is not None
    assert own != first
    assert len(base64.b64decode(own)) == 32
    assert re.fullmatch(r"[A-Za-z0-9+/]{43}=", own)
    assert authority != Path(server.ca_file).read_text()
    assert json.loads((other.folder / "ready.json").read_text())["host"] == "127.0.0.1"
