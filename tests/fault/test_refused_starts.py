"""A server that cannot start says why in one sentence, with status 1; a damaged store takes nothing else down."""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw
import pytest

from tests.chaos.damaged_server import fault_of, fill, stores_of_queues
from tests.chaos.provision import create_queue
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.fault


def refusal(data: Path, port: int, *more: str) -> str:
    """What `busway serve` says when it does not start: one line, status 1."""
    command = [str(BUSWAY), "serve", "--data", str(data), "--port", str(port), *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("busway: ")]
    assert len(said) == 1, ended.stderr
    return said[0]


def test_a_used_port_is_told_in_one_sentence(server: RunningServer, tmp_path: Path) -> None:
    """The sentence says what to do; the server that has the port is not disturbed."""
    said = refusal(tmp_path / "other", server.port)
    assert "in use" in said
    assert "choose another port" in said
    create_queue(server, "still-here")


def test_a_data_directory_belongs_to_one_server(server: RunningServer) -> None:
    """The sentence names the directory and the process that has it."""
    said = refusal(server.data, 0)
    assert str(server.data) in said
    assert str(server.pid) in said
    create_queue(server, "still-here")


def test_a_store_belongs_to_one_server_whatever_its_data_directory(
    server: RunningServer, tmp_path: Path
) -> None:
    """Found by review: with different --data and the same --store both started and handed out the same messages."""
    file = server.data / "stores" / "store-0.db"
    link = tmp_path / "link.db"
    link.symlink_to(file)
    for name in (file, link):
        said = refusal(tmp_path / "other", 0, "--store", f"sqlite:{name}")
        assert name.name in said
        assert f"in use by process {server.pid}" in said
    twin = tmp_path / "twin.db"
    twin.hardlink_to(file)
    assert "has 2 names" in refusal(tmp_path / "other", 0, "--store", f"sqlite:{twin}")
    twin.unlink()
    create_queue(server, "still-here")


def test_the_same_file_given_twice_is_told(tmp_path: Path) -> None:
    """Found by review: two stores in one file would delete each other's rows."""
    urls = [f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / '.' / 'x' / '..' / 'a.db'}"]
    (tmp_path / "x").mkdir()
    said = refusal(tmp_path / "data", 0, "--store", urls[0], "--store", urls[1])
    assert "given twice" in said


def test_data_of_a_newer_version_is_left_alone(server: RunningServer) -> None:
    """F17: whatever a newer version wrote, this one would damage it."""
    server.stop()
    files = sorted((server.data / "stores").glob("store-*.db"))
    for file in files:
        connection = apsw.Connection(str(file))
        connection.pragma("user_version", 9_999)
        connection.close()
    before = [file.read_bytes() for file in files]
    said = refusal(server.data, 0)
    assert "newer version" in said
    assert files[0].name in said
    assert [file.read_bytes() for file in files] == before


def test_a_damaged_store_takes_only_its_own_queues_down(server: RunningServer) -> None:
    """F4: the log names the file, the queues of the other stores have everything."""
    for queue in ("red", "green"):
        create_queue(server, queue)
        fill(server, queue)
    homes = stores_of_queues(server)
    assert homes["red"] != homes["green"]
    server.stop()
    file = server.data / "stores" / f"{homes['red']}.db"
    file.write_bytes(b"\0" * 4096 + file.read_bytes()[4096:])
    server.log.write_text("")
    server.start()
    assert fault_of(server, "green", may_lose=False) is None
    assert fault_of(server, "red", may_lose=True) is None
    assert str(file) in server.log.read_text()
