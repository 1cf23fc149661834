"""A real server process: what it tells about itself, how it listens, how it ends."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates
from busway.gateway.tls_files import TlsFiles
from tests.harness.running_server import BUSWAY, RunningServer

AMQP_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
REQUEST = b"GET /$console HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUSWAY_CONNECTION_STRING", "BUSWAY_CA_FILE", "BUSWAY_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    return ensure_certificates(tmp_path / "own-tls", Clock(), Entropy())


@pytest.fixture
def network_server(tmp_path: Path, tls: TlsFiles) -> Iterator[RunningServer]:
    key_file = tmp_path / "own.key"
    key_file.write_text("k" * 44 + "\n")
    arguments = ("--host", "0.0.0.0", "--tls-port", "0", "--https-port", "0")
    files = ("--tls-cert", str(tls.server), "--tls-key", str(tls.server_key), "--key-file", str(key_file))
    with RunningServer(tmp_path, *arguments, *files) as server:
        yield server


def busway(*arguments: str) -> str:
    done = subprocess.run(
        [str(BUSWAY), *arguments], capture_output=True, text=True, timeout=100, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_rotated_root_key_is_in_the_connection_string(tmp_path: Path) -> None:
    """A-10: `busway connection-string` and the verbs that use it follow the rotation at once."""
    with RunningServer(tmp_path) as server:
        data = ("--data", str(server.data))
        before = busway("connection-string", *data)
        busway("key", "rotate", "RootManageSharedAccessKey", *data)
        after = busway("connection-string", *data)
        assert before != after
        busway("queue", "create", "made-with-the-new-key", *data)
        refused = subprocess.run(
            [str(BUSWAY), "queue", "list", "--connection-string", before.strip()],
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 1
        assert server.stop() == 0
        log = server.log.read_text()
        assert not any(key in log.replace(before.strip(), "") for key in _keys(before, after))


def _keys(*connection_strings: str) -> list[str]:
    return [text.partition("SharedAccessKey=")[2].partition(";")[0] for text in connection_strings]


def test_both_network_ports_speak_amqp_and_https_and_nothing_plain(
    network_server: RunningServer, tls: TlsFiles
) -> None:
    """A-11: one endpoint does for senders and for the administration clients."""
    https_port = urlsplit(str(network_server.ready["console_url"])).port
    assert https_port is not None
    for port in (network_server.port, https_port):
        assert _exchange(port, AMQP_SASL_HEADER, tls).startswith(AMQP_SASL_HEADER)
        assert _exchange(port, REQUEST, tls).startswith(b"HTTP/1.1 200")
        assert _exchange(port, AMQP_SASL_HEADER, None) == b""
        assert _exchange(port, REQUEST, None) == b""


def _exchange(port: int, said: bytes, tls: TlsFiles | None) -> bytes:
    """The first answer, empty when the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as plain:
        if tls is None:
            plain.sendall(said)
            try:
                return plain.recv(100)
            except ConnectionResetError:
                return b""
        context = ssl.create_default_context(cafile=str(tls.ca))
        with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
            wrapped.sendall(said)
            return wrapped.recv(100)


def test_the_network_connection_string_works_for_every_verb(
    network_server: RunningServer, tls: TlsFiles
) -> None:
    """A-11: the endpoint names the certificate, not 0.0.0.0, and management finds its way with it."""
    text = network_server.connection_string
    assert text.startswith(f"Endpoint=sb://localhost:{network_server.port};")
    assert "UseDevelopmentEmulator" not in text
    there = ("--connection-string", text, "--ca-file", str(tls.ca))
    busway("queue", "create", "orders", *there)
    busway("send", "orders", "--body", "over TLS", *there)
    received = json.loads(busway("receive", "orders", "--json", *there))
    assert "over TLS" in json.dumps(received)
    assert busway("connection-string", "--data", str(network_server.data)).strip() == text


def test_a_second_server_in_the_directory_is_refused(tmp_path: Path) -> None:
    """Outside contract: one sentence, exit code 1, no traceback; the first goes on."""
    with RunningServer(tmp_path) as server:
        second = subprocess.run(
            [str(BUSWAY), "serve", "--data", str(server.data), "--port", "0"], capture_output=True, text=True
        )
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"in use by process {server.pid}" in second.stderr
        busway("queue", "list", "--data", str(server.data))


def test_a_store_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Outside contract: what this version cannot do it says."""
    refused = subprocess.run(
        [str(BUSWAY), "serve", "--data", str(tmp_path / "data"), "--port", "0", "--store", "mysql://x"],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "busway: The address of a store begins with 'mysql', which is not known: there are sqlite:PATH and"
        " postgresql://HOST/DATABASE.\n"
    )


def test_a_short_key_is_refused(tmp_path: Path, tls: TlsFiles) -> None:
    """A-11: a key that can be guessed is none."""
    (tmp_path / "short.key").write_text("short")
    files = ("--tls-cert", str(tls.server), "--tls-key", str(tls.server_key))
    places = ("--data", str(tmp_path / "data"), "--key-file", str(tmp_path / "short.key"))
    refused = subprocess.run(
        [str(BUSWAY), "serve", "--host", "0.0.0.0", "--tls-port", "0", "--https-port", "0", *files, *places],
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "too short" in refused.stderr


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    """Command-line contract: exit code 1 and what to do about it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            [str(BUSWAY), "serve", "--data", str(tmp_path / "data"), "--port", port],
            capture_output=True,
            text=True,
        )
    assert refused.returncode == 1
    assert refused.stderr == (
        f"busway: Port {port} on 127.0.0.1 is already in use: stop the program that uses it, or choose another "
        "port.\n"
    )


def test_strangers_do_not_fill_the_log(tmp_path: Path) -> None:
    """A-7: whoever is dropped before it has proved anything leaves no line at the usual level."""
    with RunningServer(tmp_path) as server:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.port), timeout=100) as stranger:
                stranger.sendall(b"AMQP\x00\x01\x00\x00" + b"\xff" * 64)
                while stranger.recv(4096):
                    pass
        assert server.stop() == 0
        assert "connection closed" not in server.log.read_text()


def test_the_files_namespace_name_and_log_count(tmp_path: Path) -> None:
    """Configuration: the namespace of a new data directory bears the file's name; `File` logs to a file too."""
    user_config = {"Namespaces": [{"Name": "sbemulatorns"}], "Logging": {"Type": "File"}}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"UserConfig": user_config}))
    with RunningServer(tmp_path, "--config", str(config)) as server:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{server.port}/missing")
        assert "SystemTracker:sbemulatorns" in refused.value.read().decode()
        assert server.stop() == 0
    assert "stopping" in (server.data / "busway.log").read_text()
