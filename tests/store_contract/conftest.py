"""Every test of this folder that takes `world` runs against each kind of store."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.harness.postgres_server import PostgresServer
from tests.store_contract.scenario import NewWorld, World


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    url = request.getfixturevalue("fresh_database") if request.param == "postgres" else ""
    return World(request.param, tmp_path, url)


@pytest.fixture
def sqlite_world(tmp_path: Path) -> World:
    return World("sqlite", tmp_path)


@pytest.fixture
def postgres_world(tmp_path: Path, fresh_database: str) -> World:
    return World("postgres", tmp_path, fresh_database)


@pytest.fixture(scope="session")
def new_world(request: pytest.FixtureRequest) -> NewWorld:
    """For a test that wants many: `with new_world(kind) as world`."""

    @contextmanager
    def make(kind: str) -> Iterator[World]:
        with tempfile.TemporaryDirectory() as directory:
            if kind != "postgres":
                yield World(kind, Path(directory))
                return
            server, name = request.getfixturevalue("postgres"), request.getfixturevalue("made_database")
            url = server.database(f"TEMPLATE {name}")
            yield World(kind, Path(directory), url)
            server.drop(url)

    return make


@pytest.fixture(scope="session")
def made_database(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One with the tables in it, to be copied: the name."""
    url = postgres.database()

    async def open_once() -> None:
        store = World("postgres", tmp_path_factory.getbasetemp(), url).store()
        await store.open()
        await store.close()

    asyncio.run(open_once())
    with psycopg.connect(url) as connection:  # its copies are new databases, none that was put back
        connection.execute("UPDATE busway.stores SET lineage = ''")
    yield urlsplit(url).path.removeprefix("/")
    postgres.drop(url)


@pytest.fixture
def fresh_database(postgres: PostgresServer, made_database: str) -> Iterator[str]:
    """The tables, and nothing in them."""
    url = postgres.database(f"TEMPLATE {made_database}")
    yield url
    postgres.drop(url)
