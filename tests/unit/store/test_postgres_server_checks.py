"""Servers that cannot keep what a store promises are refused with a sentence, and sessions are told what counts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from busway.store.contract import StoreError, StoreInUse, StoreTooNew
from busway.store.postgres import server_checks
from busway.store.postgres.server_checks import check, connect
from busway.store.postgres.url import PostgresUrl, parse
from tests.harness import postgres_server
from tests.harness.postgres_server import PostgresServer, free_port

RECORD = "CREATE SCHEMA busway; CREATE TABLE busway.database (format int, readable_from int, name text)"


def look(url: str) -> PostgresUrl:
    """As at the opening of a store."""
    parsed = parse(url)
    with connect(parsed) as connection:
        check(connection, parsed)
    return parsed


def sentence(url: str, kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(StoreError) as refused:
        look(url)
    assert type(refused.value) is kind
    text = str(refused.value)
    assert "\n" not in text
    assert text.endswith((".", ";"))
    return text


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def shown(connection: psycopg.Connection[tuple[object, ...]], setting: str) -> object:
    row = connection.execute(f"SHOW {setting}".encode()).fetchone()
    return None if row is None else row[0]


def database_of(url: str) -> str:
    return url.rpartition("/")[2]


def with_role(url: str, role: str) -> str:
    return url.replace(f"{postgres_server.ROLE}@", f"{role}@")


# -- what a session is told


def test_every_session_is_told_what_a_promise_rests_on(postgres_url: str) -> None:
    """S-1: a commit that is durable, that nothing cancels, whose warnings are told, and rows that nobody else
    waits for longer than a second when its client stands still; whatever database and role say."""
    name = database_of(postgres_url)
    weaker = {
        "synchronous_commit": "off", "statement_timeout": "'7s'", "client_min_messages": "error",
        "default_transaction_isolation": "serializable", "idle_in_transaction_session_timeout": "0",
        "lock_timeout": "0",
    }  # fmt: skip
    do(postgres_url, *(f"ALTER DATABASE {name} SET {key} = {value}" for key, value in weaker.items()))
    with connect(parse(postgres_url)) as connection:
        check(connection, parse(postgres_url))
        told = {
            "synchronous_commit": "on", "statement_timeout": "0", "client_min_messages": "warning",
            "transaction_isolation": "read committed", "idle_in_transaction_session_timeout": "1s",
            "lock_timeout": "1s", "tcp_user_timeout": "3000", "tcp_keepalives_idle": "2",
            "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3", "idle_session_timeout": "0",
            "client_encoding": "UTF8", "application_name": "busway",
        }  # fmt: skip
        assert {key: shown(connection, key) for key in told} == told


def test_a_stronger_commit_stays_what_it_is(postgres_url: str) -> None:
    """S-1: who waits for a standby to show commits has a reason."""
    do(postgres_url, f"ALTER DATABASE {database_of(postgres_url)} SET synchronous_commit = remote_apply")
    with connect(parse(postgres_url)) as connection:
        assert shown(connection, "synchronous_commit") == "remote_apply"


def test_a_session_that_stands_still_in_a_transaction_holds_its_rows_for_a_second(postgres_url: str) -> None:
    """Contract: a stopped owner keeps nobody from taking over."""
    do(postgres_url, "CREATE TABLE fence (n int)", "INSERT INTO fence VALUES (1)")
    url = parse(postgres_url)
    with connect(url) as stopped, connect(url) as heir:
        stopped.execute("BEGIN")
        stopped.execute("UPDATE fence SET n = 2")
        began = time.monotonic()
        for _ in range(5):
            try:
                heir.execute("UPDATE fence SET n = 3")
                break
            except psycopg.errors.LockNotAvailable:
                pass
        assert time.monotonic() - began < 5
        assert heir.execute("SELECT n FROM fence").fetchone() == (3,)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stopped.execute("COMMIT")


# -- servers and databases


def test_a_server_that_keeps_its_promises_is_taken(postgres_url: str) -> None:
    """Start: nothing is complained about."""
    look(postgres_url)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_commits_is_refused(setting: str) -> None:
    """S-1: acknowledged is durable; the sentence names the setting."""
    with PostgresServer(settings={setting: "off"}) as careless:
        assert f"{setting} is off there, and must be on." in sentence(careless.database())


def test_an_encoding_that_cannot_hold_every_name_is_refused(postgres: PostgresServer) -> None:
    """Start: the sentence says how to make a database that can."""
    url = postgres.database("ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        assert "encoding LATIN1: make one with CREATE DATABASE … ENCODING 'UTF8'" in sentence(url)
    finally:
        postgres.drop(url)


def test_a_standby_is_refused(own_postgres: PostgresServer) -> None:
    """Start: it takes no writes."""
    with own_postgres.standby() as standby:
        assert "is a standby" in sentence(standby.url())


def test_a_multi_host_address_finds_the_primary(own_postgres: PostgresServer) -> None:
    """Start: also when the standby stands first in it, and after a fail-over."""
    with own_postgres.standby() as standby:
        url = f"postgresql://{postgres_server.ROLE}@127.0.0.1:{standby.port},127.0.0.1:{own_postgres.port}/postgres"
        with connect(parse(url)) as connection:
            assert connection.info.port == own_postgres.port
        own_postgres.kill()
        standby.promote()
        with connect(parse(url)) as connection:
            assert connection.info.port == standby.port
            check(connection, parse(url))


def test_a_read_only_database_is_refused(postgres_url: str) -> None:
    """Start: the sentence names the setting."""
    name = database_of(postgres_url)
    do(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "default_transaction_read_only must be off" in sentence(postgres_url)


def test_an_old_version_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start: no machine has a server of version 13, so the least version is raised instead."""
    monkeypatch.setattr(server_checks, "VERSION_MIN", 990_000)
    assert re.search(r"has version 1\d: Busway needs 99 or later\.", sentence(postgres_url))


# -- rights


@pytest.fixture
def stranger(postgres_url: str) -> Iterator[str]:
    """The address for a role that may connect, and nothing else."""
    role = "stranger_" + database_of(postgres_url)
    do(postgres_url, f"CREATE ROLE {role} LOGIN")
    yield with_role(postgres_url, role)
    do(postgres_url, f"DROP OWNED BY {role}")
    do(postgres_url, f"DROP ROLE {role}")


def test_missing_rights_are_named_as_the_grant_that_gives_them(postgres_url: str, stranger: str) -> None:
    """Start: one after the other, and each sentence can be executed as it stands."""
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        asked = []
        for step in range(6):
            try:
                look(stranger)
                break
            except StoreError as error:
                grant = str(error).rpartition(": ")[2].removesuffix(";")
                asked.append(re.sub(r"\S*busway_\d\w+", "…", grant))
                owner.execute(grant.encode())
            if step == 0:
                owner.execute(RECORD.encode())
                owner.execute("CREATE SEQUENCE busway.keys; CREATE TABLE busway.stores (n int)")
                owner.execute(f"REVOKE CREATE ON DATABASE {database_of(postgres_url)} FROM PUBLIC".encode())
    assert asked == [
        "GRANT CREATE ON DATABASE … TO …",
        "GRANT USAGE, CREATE ON SCHEMA busway TO …",
        "GRANT ALL ON ALL TABLES IN SCHEMA busway TO …",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA busway TO …",
    ]


# -- what the database says of itself


def test_a_newer_format_is_refused(postgres_url: str) -> None:
    """Start: this version would damage it."""
    do(postgres_url, RECORD, "INSERT INTO busway.database VALUES (9, 8, 'postgres')")
    said = sentence(postgres_url, StoreTooNew)
    assert "newer version of Busway (format 9, readable from 8" in said
    do(postgres_url, "UPDATE busway.database SET readable_from = 1")
    look(postgres_url)


def test_a_database_with_stores_of_another_name_is_refused(postgres_url: str) -> None:
    """Start: another namespace's database, and the same one that was given twice under two names."""
    do(postgres_url, RECORD, "INSERT INTO busway.database VALUES (1, 1, 'east')")
    said = sentence(f"{postgres_url}?name=west", StoreInUse)
    assert "holds the stores east-0, east-1, …, not west-0" in said
    assert "name=east" in said
    look(f"{postgres_url}?name=east")


# -- connections that do not come about


def test_what_keeps_a_connection_from_coming_about_is_one_sentence(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start: a wrong password, none, no right to connect, no such database, nobody there; none of the sentences
    holds a password."""
    own_postgres.do("CREATE ROLE bus LOGIN PASSWORD 'right'")
    own_postgres.allow(
        f"host all {postgres_server.ROLE} 127.0.0.1/32 trust", "host all bus 127.0.0.1/32 scram-sha-256"
    )
    place = f"127.0.0.1:{own_postgres.port}"
    monkeypatch.delenv("PGPASSWORD", raising=False)
    said = sentence(f"postgresql://bus:Geheim@{place}/postgres")
    assert 'password authentication failed for user "bus"' in said
    assert "Geheim" not in said
    assert "no password supplied" in sentence(f"postgresql://bus@{place}/postgres")
    monkeypatch.setenv("PGPASSWORD", "Geheim")
    assert "Geheim" not in sentence(f"postgresql://bus@{place}/postgres")
    monkeypatch.setenv("PGPASSWORD", "right")
    with connect(parse(f"postgresql://bus@{place}/postgres")) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("bus",)
    assert "Who may connect" in sentence(f"postgresql://other@{place}/postgres")
    assert 'database "nowhere" does not exist' in sentence(own_postgres.url("nowhere"))
    assert "Connection refused" in sentence(f"postgresql://bus@127.0.0.1:{free_port()}/postgres")
    nobody = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    assert sentence(f"postgresql://bus@{nobody}/postgres").endswith("cannot be used: Connection refused.")
    assert "cannot be used" in sentence("postgresql://bus@does-not-exist.invalid/postgres")
    assert "cannot be used" in sentence("postgresql:///?service=nothing-of-that-name")


# -- poolers


PGBOUNCER = Path("/usr/sbin/pgbouncer")


@contextmanager
def pooler(postgres: PostgresServer, mode: str) -> Iterator[str]:
    """The address of a PgBouncer before the server."""
    port = free_port()
    settings = postgres.folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = user={postgres_server.ROLE} host=127.0.0.1 port={postgres.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"pool_mode = {mode}\nunix_socket_dir =\n"
    )
    url = f"postgresql://{postgres_server.ROLE}@127.0.0.1:{port}/postgres"
    process = postgres_server.start_beside([str(PGBOUNCER), str(settings)])
    try:
        assert any(answers(url) for _ in range(1_000))
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.skipif(not PGBOUNCER.exists(), reason="there is no PgBouncer here: Debian's package pgbouncer")
def test_a_pooler_that_hands_sessions_on_is_refused(own_postgres: PostgresServer) -> None:
    """Start: prepared statements and settings would vanish between transactions; the sentence says what to do."""
    with pooler(own_postgres, "transaction") as url:
        assert "pool_mode = session" in sentence(url)


@pytest.mark.skipif(not PGBOUNCER.exists(), reason="there is no PgBouncer here: Debian's package pgbouncer")
def test_a_pooler_that_keeps_sessions_is_taken(own_postgres: PostgresServer) -> None:
    """Start: nothing vanishes there."""
    with pooler(own_postgres, "session") as url:
        look(url)
