"""Where a bus says it is."""

import json
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from busway.clock import Clock, Entropy
from busway.data_directory import DataDirectory
from busway.gateway.certificates import ensure_certificates
from busway.server import Announcement, public_host
from tests.harness.manual_clock import ManualClock

LOOPBACK = Announcement(host="127.0.0.1", port=5672, root_key="secret=", is_loopback=True)
NETWORK = Announcement(
    host="bus.example.org", port=5671, https_port=443, root_key="secret=", is_loopback=False
)


def test_on_loopback_one_port_is_for_everything() -> None:
    """Outside contract: the endpoint has the port, and the emulator switch makes clients use it."""
    assert LOOPBACK.connection_string == (
        "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=secret=;"
        "UseDevelopmentEmulator=true"
    )
    assert LOOPBACK.console_url == "http://127.0.0.1:5672/$console"


def test_on_the_network_the_usual_ports_are_not_named() -> None:
    """A-11: the SDKs look at 5671 and 443 by themselves; there is no emulator switch."""
    assert NETWORK.connection_string == (
        "Endpoint=sb://bus.example.org;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=secret="
    )
    assert NETWORK.console_url == "https://bus.example.org/$console"


@pytest.mark.parametrize("ports", [(6671, 443), (5671, 6443), (6671, 6443)])
def test_on_the_network_other_ports_are_named(ports: tuple[int, int]) -> None:
    """A-11: the TLS port stands in the endpoint; it serves AMQP and HTTPS alike."""
    told = replace(NETWORK, port=ports[0], https_port=ports[1])
    assert told.connection_string.startswith(f"Endpoint=sb://bus.example.org:{ports[0]};")
    port = "" if ports[1] == 443 else f":{ports[1]}"
    assert told.console_url == f"https://bus.example.org{port}/$console"


def test_an_ipv6_address_is_bracketed() -> None:
    """Outside contract: it is part of an address with a port."""
    told = replace(LOOPBACK, host="::1")
    assert told.connection_string.startswith("Endpoint=sb://[::1]:5672;")
    assert told.console_url == "http://[::1]:5672/$console"


def test_the_ready_file_holds_a_key_and_is_private(tmp_path: Path) -> None:
    """Outside contract: its fields; only its owner may read it."""
    told = replace(LOOPBACK, ca_file=tmp_path / "ca.pem")
    told.write_ready_file(tmp_path / "ready.json")
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert set(ready) == {"connection_string", "host", "port", "console_url", "ca_file", "pid"}
    assert ready["connection_string"] == told.connection_string
    assert stat.S_IMODE((tmp_path / "ready.json").stat().st_mode) == 0o600


def test_what_other_verbs_read_has_no_secret(tmp_path: Path) -> None:
    """A-3: the key lies in its own file only; the endpoint is the one of the connection string."""
    directory = DataDirectory(tmp_path)
    NETWORK.record(directory)
    assert "secret" not in (tmp_path / "server.json").read_text()
    assert directory.read_server()["port"] is None
    assert "secret" not in repr(NETWORK)


@pytest.mark.parametrize("clock", [ManualClock(), Clock()], ids=["over", "in time"])
def test_an_address_of_all_interfaces_becomes_the_certificates_name(tmp_path: Path, clock: Clock) -> None:
    """A-11: nobody can connect to 0.0.0.0; clients must use a name that the certificate has."""
    files = ensure_certificates(tmp_path, clock, Entropy())
    assert public_host("0.0.0.0", files.server, files.server_key) == "localhost"
    assert public_host("::", files.server, files.server_key) == "localhost"
    assert public_host("192.0.2.7", files.server, files.server_key) == "192.0.2.7"
    assert public_host("bus.example.org", files.server, files.server_key) == "bus.example.org"


def test_without_a_name_in_the_certificate_the_machines_own_is_used(tmp_path: Path) -> None:
    """A-11: without a name in the certificate the machines own is used."""
    assert public_host("0.0.0.0", tmp_path / "absent.pem", tmp_path / "absent.key") == socket.gethostname()
