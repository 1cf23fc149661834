"""The pytest plug-in of Busway: a bus for a test suite (docs/how-to/ci.md).

Every run of pytest where Busway is installed loads this file, so it imports nothing of Busway until a fixture is
used; that is also why it does not lie in the package, whose `__init__` would come with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from busway.cli.own_server import OwnServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("busway_serve", "options of `busway serve` for the server of this suite", "linelist", [])


@pytest.fixture(scope="session")
def busway_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnServer]:
    """A bus on a free port: one for the whole run, or for each worker of pytest-xdist."""
    from busway.cli.own_server import OwnServer

    options = request.config.getini("busway_serve")
    with OwnServer(tmp_path_factory.mktemp("busway"), options) as server:
        server.reset()  # what the first request loads is no test's to wait for
        yield server


@pytest.fixture
def busway_connection_string(busway_server: OwnServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an empty bus. While the test runs, programs and administration clients find it by the environment."""
    busway_server.reset()
    for name, value in busway_server.environment.items():
        monkeypatch.setenv(name, value)
    return busway_server.connection_string
