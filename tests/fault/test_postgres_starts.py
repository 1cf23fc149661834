"""A server that cannot start on a database says why in one sentence, with status 1, and never a password."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from tests.fault.test_refused_starts import refusal
from tests.harness.postgres_server import ROLE, PostgresServer, free_port
from tests.harness.running_server import BUSWAY, RunningServer

pytestmark = pytest.mark.fault
SECRET = "Geheim-42"


def do(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def stores(server: RunningServer) -> dict[str, dict[str, object]]:
    command = [str(BUSWAY), "stores", "--json", "--data", str(server.data)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {store["name"]: store for store in found}


def create(server: RunningServer, name: str, *options: str) -> None:
    command = [str(BUSWAY), "queue", "create", name, *options, "--data", str(server.data)]
    subprocess.run(command, capture_output=True, check=True)


@pytest.fixture
def guarded(own_postgres: PostgresServer) -> PostgresServer:
    """A server that asks the user bus for a password."""
    own_postgres.do(f"CREATE ROLE bus LOGIN PASSWORD '{SECRET}'")
    own_postgres.allow(f"host all {ROLE} 127.0.0.1/32 trust", "host all bus 127.0.0.1/32 scram-sha-256")
    return own_postgres


def test_what_is_wrong_with_a_server_is_one_sentence(postgres_url: str, tmp_path: Path) -> None:
    """Start: nobody there, read-only, another name, fewer stores, a newer version."""
    data, name = tmp_path / "data", urlsplit(postgres_url).path[1:]
    assert "Connection refused" in refusal(
        data, 0, "--store", f"postgresql://{ROLE}@127.0.0.1:{free_port()}/bus"
    )
    assert "does not exist" in refusal(data, 0, "--store", f"{postgres_url}_not")
    do(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "read-only" in refusal(data, 0, "--store", postgres_url)
    with psycopg.connect(
        postgres_url, options="-c default_transaction_read_only=off", autocommit=True
    ) as connection:
        connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    with RunningServer(tmp_path / "server", "--store", f"{postgres_url}?stores=4"):
        pass
    assert "holds the stores postgres-0" in refusal(data, 0, "--store", f"{postgres_url}?name=west")
    assert "has 4 stores" in refusal(data, 0, "--store", f"{postgres_url}?stores=3")
    do(postgres_url, "UPDATE busway.database SET format = 99, readable_from = 99")
    assert "newer version of Busway" in refusal(data, 0, "--store", f"{postgres_url}?stores=4")


def test_a_wrong_password_is_one_sentence_that_does_not_repeat_it(
    guarded: PostgresServer, tmp_path: Path
) -> None:
    """Start: from a file, and from PGPASSWORD; the server's log of the refusal has none either."""
    file = tmp_path / "stores"
    file.write_text(f"postgresql://bus:{SECRET}-wrong@127.0.0.1:{guarded.port}/postgres")
    said = refusal(tmp_path / "data", 0, "--store", f"@{file}")
    assert 'password authentication failed for user "bus"' in said
    assert SECRET not in said


def test_a_password_shows_nowhere(guarded: PostgresServer, tmp_path: Path) -> None:
    """Start: not in the log at its most talkative, the process list, metrics, answers, nor in files and rows."""
    url = guarded.database("OWNER bus")
    file = tmp_path / "stores"
    file.write_text(url.replace(f"{ROLE}@", f"bus:{SECRET}@") + "?stores=2")
    arguments = ("--store", f"@{file}", "--log-level", "debug")
    with RunningServer(tmp_path / "server", *arguments) as server:
        create(server, "orders")
        shown = [" ".join(psutil.Process(server.pid).cmdline())]
        for path in ("metrics", "$console"):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}") as answer:
                shown.append(answer.read().decode())
        shown.append(json.dumps(stores(server)))
        guarded.stop()  # what is said while it is away
        create_fails(server)
        guarded.start()
        with guarded.connect(urlsplit(url).path[1:]) as connection:
            shown += [str(row) for row in connection.execute("SELECT * FROM busway.catalogue").fetchall()]
    shown.append(server.log.read_text())
    shown += [path.read_text(errors="replace") for path in server.data.rglob("*") if path.is_file()]
    assert [text for text in shown if SECRET in text] == []
    assert "postgres-1" in "".join(shown)


def create_fails(server: RunningServer) -> None:
    command = [str(BUSWAY), "queue", "create", "late", "--data", str(server.data)]
    subprocess.run(command, capture_output=True, check=False, timeout=60)


def test_more_stores_extend_a_database_for_what_is_made_later(postgres_url: str, tmp_path: Path) -> None:
    """P-1: what is there stays where it is; fewer are refused."""
    folder = tmp_path / "server"
    with RunningServer(folder, "--store", f"{postgres_url}?name=east&stores=2") as server:
        create(server, "early", "--partitioned")
        before = {name: store["fragments"] for name, store in stores(server).items()}
        assert sorted(before) == ["east-0", "east-1"]
    with RunningServer(folder, "--store", f"{postgres_url}?name=east&stores=4") as server:
        assert {name: store["fragments"] for name, store in stores(server).items()} == {
            **before, "east-2": 0, "east-3": 0,
        }  # fmt: skip
        create(server, "late", "--partitioned")
        assert all(int(str(store["fragments"])) > 0 for store in stores(server).values())
    assert "has 4 stores" in refusal(folder / "data", 0, "--store", f"{postgres_url}?name=east&stores=2")


@pytest.mark.parametrize("count", [1, 64])
def test_a_database_holds_one_store_or_up_to_sixty_four(
    postgres_url: str, tmp_path: Path, count: int
) -> None:
    """P-1: the number of the address is that of the first start; `busway stores` tells of each all there is."""
    with RunningServer(tmp_path / "server", "--store", f"{postgres_url}?name=east&stores={count}") as server:
        create(server, "parts", "--partitioned")
        found = stores(server)
        command = [str(BUSWAY), "stores", "--data", str(server.data)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert list(found) == [f"east-{number}" for number in range(count)]
    fragments = [int(str(store["fragments"])) for store in found.values()]
    assert sum(fragments) == 2 * 16
    assert max(fragments) == max(2, 32 // count)
    for store in found.values():
        assert (store["state"], store["url"]) == ("open", postgres_url.replace(f"{ROLE}@", ""))
        assert int(str(store["epoch"])) >= 1
        assert store["owner"]
    assert shown.split()[:6] == ["NAME", "STATE", "OWNER", "EPOCH", "FRAGMENTS", "ADDRESS"]
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*)::int FROM busway.stores").fetchone() == (count,)


def test_two_databases_and_a_file_stand_beside_each_other(postgres: PostgresServer, tmp_path: Path) -> None:
    """P-1: a partitioned entity has fragments in each; one that is left out is missed by its name."""
    east, west = postgres.database(), postgres.database()
    try:
        given = [f"{east}?name=east&stores=2", f"{west}?name=west&stores=2", f"sqlite:{tmp_path / 'file.db'}"]
        arguments = [word for address in given for word in ("--store", address)]
        with RunningServer(tmp_path / "server", *arguments) as server:
            create(server, "parts", "--partitioned")
            found = stores(server)
            assert list(found) == ["east-0", "east-1", "west-0", "west-1", "store-0"]
            assert all(int(str(store["fragments"])) > 0 for store in found.values())
        said = refusal(tmp_path / "server" / "data", 0, *arguments[:2], *arguments[4:])
        assert "west-0, west-1 were not given" in said
        again = refusal(
            tmp_path / "other",
            0,
            *arguments[:2],
            "--store",
            given[0].replace("127.0.0.1", "localhost").replace("east", "x"),
        )
        assert "holds the stores east-0" in again
    finally:
        postgres.drop(east)
        postgres.drop(west)


def test_without_psycopg_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    """Start: the extra is not installed by itself."""
    folder = tmp_path / "hidden" / "psycopg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('not installed')")
    ended = subprocess.run(
        [str(BUSWAY), "serve", "--data", str(tmp_path / "data"), "--port", "0", "--store", "postgresql://db/bus"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(folder.parent)},
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "pip install 'busway[postgres]'" in ended.stderr
