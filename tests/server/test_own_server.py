"""A server of one's own, and whether a server is healthy: what takes too long ends."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from busway.cli import health, own_server
from busway.cli.own_server import OwnServer
from busway.cli.verbs import CommandFailed
from busway.data_directory import DataDirectory
from tests.harness.shell import Shell

#: Begins, says so, and is never ready; nor does it end when it is asked to.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
time.sleep(100)
"""


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("BUSWAY_DATA", raising=False)
    return Shell(capsys)


def test_a_server_that_does_not_start_in_time_is_stopped_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """exec --serve: nothing is left running, and the sentence has its last words."""
    monkeypatch.setattr(own_server, "_PROGRAM", STUBBORN)
    monkeypatch.setattr(own_server, "_START_S_MAX", 1.0)
    monkeypatch.setattr(own_server, "_STOP_S_MAX", 0.1)
    with pytest.raises(CommandFailed, match="did not start within 1 seconds:\npid"):
        OwnServer(tmp_path).start()
    pid = int((tmp_path / "server.log").read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_ends_at_its_start_is_told(tmp_path: Path) -> None:
    """exec --serve: with the sentence that the server itself has said."""
    with pytest.raises(CommandFailed, match="--stores must be at least 1"):
        OwnServer(tmp_path, ["--stores", "0"]).start()


def test_health_is_waited_for_as_long_as_asked(tmp_path: Path, shell: Shell) -> None:
    """busway health --wait: status 1 and why, when nobody came."""
    assert "Not healthy: no server has used" in shell(
        "health", "--data", str(tmp_path), "--wait", "0.2", code=1
    )


def test_a_server_that_says_nothing_is_not_healthy(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """busway health: one that hangs is as bad as one that is gone."""
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        DataDirectory(tmp_path).write_server({"console_url": f"http://127.0.0.1:{port}/$console"})
        assert "the server does not answer" in shell("health", "--data", str(tmp_path), code=1)
    (tmp_path / "server.json").write_text(json.dumps({}))
    assert "the server does not answer" in shell("health", "--data", str(tmp_path), code=1)
