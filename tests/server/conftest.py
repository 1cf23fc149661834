"""One real server process for each process of tests; every test makes entities of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("server"), "--stores", "3") as running:
        yield running


@pytest.fixture
def shell(
    server: RunningServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """A terminal that knows this server."""
    monkeypatch.setenv("BUSWAY_CONNECTION_STRING", server.connection_string)
    return Shell(capsys)
