"""SB-88x: a server beyond loopback: its own certificate, its own key, nothing plain."""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates
from busway.gateway.tls_files import TlsFiles
from tests.conformance.node_program import needs_node, run_node
from tests.conformance.traffic import bodies, receive_all
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.sdk

ANSWER_SECONDS_MAX = 5


class Network(NamedTuple):
    server: RunningServer
    files: TlsFiles
    key: str

    @property
    def https_port(self) -> int:
        port = urlsplit(str(self.server.ready["console_url"])).port
        assert port is not None
        return port

    def connection_string(self, port: int) -> str:
        """The address under which this machine reaches it: the certificate is for 127.0.0.1 too."""
        return (
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
            f"SharedAccessKey={self.key}"
        )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("network")
    files = ensure_certificates(folder / "own", Clock(), Entropy(), ["127.0.0.1"])
    key = secrets.token_urlsafe(32)
    key_file = folder / "root.key"
    key_file.write_text(key + "\n")
    arguments = ["--host", "0.0.0.0", "--tls-cert", str(files.server), "--tls-key", str(files.server_key)]
    arguments += ["--key-file", str(key_file), "--tls-port", "0", "--https-port", "0"]
    with RunningServer(folder, *arguments) as server:
        yield Network(server, files, key)


def test_sb_880_the_python_sdk_works_over_tls_and_websocket(network: Network) -> None:
    """A-11: AMQP over TLS on one port, WebSocket and HTTPS administration on the other."""
    with ServiceBusAdministrationClient.from_connection_string(
        network.connection_string(network.https_port), connection_verify=str(network.files.ca)
    ) as admin:
        admin.create_queue("secure")
        assert [queue.name for queue in admin.list_queues()] == ["secure"]
    doors = ((TransportType.Amqp, network.server.port), (TransportType.AmqpOverWebsocket, network.https_port))
    for transport, port in doors:
        with ServiceBusClient.from_connection_string(
            network.connection_string(port),
            transport_type=transport,
            custom_endpoint_address=f"sb://127.0.0.1:{port}",
            connection_verify=str(network.files.ca),
        ) as client:
            with client.get_queue_sender("secure") as sender:
                sender.send_messages(ServiceBusMessage(transport.name))
            assert bodies(receive_all(client, "secure", 1)) == [transport.name]


def answer_to(port: int, opening: bytes) -> bytes:
    """What a client gets that speaks in clear."""
    with closing(socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)) as stream:
        stream.settimeout(ANSWER_SECONDS_MAX)
        stream.sendall(opening)
        try:
            return stream.recv(100)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    "opening", [b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_sb_881_nothing_is_served_in_clear(network: Network, opening: bytes) -> None:
    """A-11: on either port the connection ends without one byte of an answer."""
    assert answer_to(network.server.port, opening) == b""
    assert answer_to(network.https_port, opening) == b""


def handshake(network: Network, context: ssl.SSLContext) -> None:
    with (
        closing(socket.create_connection(("127.0.0.1", network.server.port), ANSWER_SECONDS_MAX)) as stream,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(stream, server_hostname="127.0.0.1")


def test_sb_882_old_tls_and_unknown_authorities_fail(network: Network) -> None:
    """A-11: TLS 1.2 is the least, and a client that does not know the authority does not get through."""
    handshake(network, ssl.create_default_context())
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    handshake(network, old)


def test_sb_883_the_connection_string_is_for_the_network(network: Network) -> None:
    """A-11: no emulator switch; the key is the one of the file and stands in no file of the data directory."""
    assert "UseDevelopmentEmulator" not in network.server.connection_string
    assert f"SharedAccessKey={network.key}" in network.server.connection_string
    command = [str(BUSWAY), "connection-string", "--data", str(network.server.data)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.strip()
    assert told == network.server.connection_string
    assert not (network.server.data / "root.key").exists()
    facts = (network.server.data / "server.json").read_text()
    assert network.key not in facts
    assert json.loads(facts)["emulator"] is False


def test_sb_884_the_key_is_not_printed(network: Network) -> None:
    """A-3: what a service prints ends in somebody's log; beyond loopback the key stays in its file."""
    assert network.key not in network.server.log.read_text()


@needs_node
def test_sb_885_the_javascript_sdk_works_over_tls(network: Network) -> None:
    """A-11: one endpoint with a port serves its AMQP, WebSocket and administration alike."""
    environment = {
        "BUSWAY_CONNECTION_STRING": network.connection_string(network.server.port),
        "NODE_EXTRA_CA_CERTS": str(network.files.ca),
    }
    made = run_node(network.server, "administration.mjs", "defaults", environment=environment, queue="js")
    assert made["name"] == "js"
    for transport in ("direct", "webSocket"):
        found = run_node(network.server, "transports.mjs", transport, environment=environment, queue="js")
        assert found == {"lengths": [5, 200_000]}


def test_the_health_of_a_server_of_a_network_is_asked_on_its_own_machine(network: Network) -> None:
    """busway health: over HTTPS, by whatever name its certificate has."""
    done = subprocess.run(
        [BUSWAY, "health", "--data", network.server.data], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "healthy\n"), done.stderr


def refusal_of(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BUSWAY), "serve", "--data", str(folder / "data"), "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "needs --tls-cert FILE --tls-key FILE --key-file FILE"),
        (["--host", "0.0.0.0", "--key-file", "k"], "needs --tls-cert"),
        (["--host", "::", "--tls-cert", "c", "--tls-key", "k"], "needs --tls-cert"),
        (["--tls-cert", "c"], "belong together"),
        (["--port", "70000"], "--port must be between 0 and 65535"),
        (["--host", "0.0.0.0", "--https-port", "-1"], "--https-port must be between"),
        (["--stores", "0"], "--stores must be at least 1"),
        (["--stores", "2", "--store", "sqlite:x"], "exclude each other"),
        (
            ["--host", "0.0.0.0", "--tls-cert", "c", "--tls-key", "k", "--key-file", "f", "--dev-key"],
            "loopback address only",
        ),
        (
            ["--host", "0.0.0.0", "--tls-cert", "c", "--tls-key", "k", "--key-file", "f", "--allow-reset"],
            "--allow-reset is for test suites: it works on a loopback address only",
        ),
    ],
)
def test_sb_886_options_that_make_no_sense_are_told(tmp_path: Path, arguments: list[str], said: str) -> None:
    """A-11: exit code 2, one sentence, and no data directory is made."""
    done = refusal_of(tmp_path, *arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr
    assert not (tmp_path / "data").exists()


def test_sb_887_files_that_cannot_be_used_are_told(tmp_path: Path, network: Network) -> None:
    """A-3, A-11: a short key, a key of another certificate, and files that are not there: exit code 1."""
    certificate, own_key = str(network.files.server), str(network.files.server_key)
    short, fine = tmp_path / "short.key", tmp_path / "fine.key"
    short.write_text("password")
    fine.write_text("k" * 43)
    ports = ["--host", "0.0.0.0", "--tls-port", "0", "--https-port", "0"]
    cases = [
        ([certificate, own_key, str(short)], "too short"),
        ([certificate, own_key, str(tmp_path / "none.key")], "cannot be read"),
        ([certificate, str(network.files.ca_key), str(fine)], ""),
        ([str(tmp_path / "none.pem"), own_key, str(fine)], "none.pem"),
    ]
    for (cert, key, key_file), said in cases:
        done = refusal_of(tmp_path, *ports, "--tls-cert", cert, "--tls-key", key, "--key-file", key_file)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert said in done.stderr
        assert "unexpected" not in done.stderr
        assert "password" not in done.stderr


def test_sb_888_the_administration_example_runs_through_exec(server: RunningServer) -> None:
    """A-11: `busway exec` gives a Python program the connection string and the trust in our authority."""
    example = Path(__file__).parents[2] / "examples" / "administration.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
    command = [str(BUSWAY), "exec", "--data", str(server.data), "--", sys.executable, str(example)]
    for said in ("invoices: 0 active, 0 dead", "invoices exists already"):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_sb_889_a_program_that_does_not_exist_is_told(server: RunningServer) -> None:
    """A-11: one sentence, exit code 1, and the program's own exit code otherwise."""
    command = [str(BUSWAY), "exec", "--data", str(server.data), "--"]
    missing = subprocess.run(
        [*command, "no-such-program"], capture_output=True, text=True, timeout=100, check=False
    )
    assert missing.returncode == 1
    assert missing.stderr == "busway: The program 'no-such-program' was not found.\n"
    own = subprocess.run([*command, sys.executable, "-c", "raise SystemExit(7)"], timeout=100, check=False)
    assert own.returncode == 7
