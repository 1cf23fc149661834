"""Databases of earlier versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from busway.clock import Clock, Entropy
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import FragmentKey
from busway.store.postgres.database import PostgresDatabase, prepare
from busway.store.postgres.server_checks import FORMAT
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse
from busway.store.statements import migrations, sql_file
from tests.harness.postgres_server import PostgresServer

#: By format.
DATABASES = sorted((Path(__file__).parent / "databases").glob("*.sql"))
COLUMNS = """
SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
FROM information_schema.columns WHERE table_schema = 'busway' ORDER BY 1, 2"""
TABLES = """
SELECT relname, relkind::text, reloptions FROM pg_class WHERE relnamespace = 'busway'::regnamespace ORDER BY 1"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'busway' ORDER BY 1"
FUNCTIONS = "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'busway'::regnamespace ORDER BY 1"
STORAGE = """
SELECT attrelid::regclass::text, attname, attstorage::text FROM pg_attribute
INNER JOIN pg_class ON attrelid = pg_class.oid
WHERE relnamespace = 'busway'::regnamespace AND attnum > 0 ORDER BY 1, 2"""


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def asked(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(question.encode()).fetchall()


def schema_of(url: str) -> list[object]:
    return [asked(url, question) for question in (COLUMNS, TABLES, INDEXES, FUNCTIONS, STORAGE)]


def restore(url: str, dump: Path) -> None:
    """As that version left it."""
    number = int(dump.stem)
    do(
        url,
        *(text for format, text in migrations("busway.store.postgres") if format <= number),
        dump.read_text(),
    )


def test_all_migrations_together_make_the_schema(postgres: PostgresServer) -> None:
    """F2: a new database and one that was brought up to date are the same."""
    migrated, new = postgres.database(), postgres.database()
    try:
        do(migrated, *(text for _, text in migrations("busway.store.postgres")))
        do(new, sql_file("busway.store.postgres", "schema.sql"))
        assert schema_of(migrated) == schema_of(new)
    finally:
        postgres.drop(migrated)
        postgres.drop(new)


def test_migrations_are_numbered_without_gaps_and_the_last_is_this_format() -> None:
    assert [number for number, _ in migrations("busway.store.postgres")] == list(range(1, FORMAT + 1))


def test_every_earlier_format_has_a_stored_database() -> None:
    """F2: whoever raises the format leaves a database of the last one here."""
    assert [int(path.stem) for path in DATABASES] == list(range(1, FORMAT))


@pytest.mark.parametrize("dump", DATABASES, ids=lambda path: path.stem)
def test_a_database_of_an_earlier_format_opens_with_its_messages(postgres_url: str, dump: Path) -> None:
    """F2: messages, counters and catalogue are all there, in all stores; and it has this format then."""
    restore(postgres_url, dump)
    url = parse(f"{postgres_url}?stores=2")

    async def play() -> None:
        database = PostgresDatabase(url, Clock(), Entropy())
        stores = [PostgresStore(database, number, Clock()) for number in range(2)]
        for store in stores:
            await store.open()
        fragment, store = FragmentKey(1), stores[0]
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, 1 << 20)
        assert [each.bare for each in page.messages] == [b"first", b"second"]
        aside = await store.messages(fragment, PLACE_DEFERRED, 0, 10, 1 << 20)
        assert [each.bare for each in aside.messages] == [b"third"]
        assert (page.damaged, aside.damaged) == ([], [])
        assert [(row.owner, row.counters.active) for row in await store.fragments()] == [("orders", 2)]
        assert await store.catalogue() == (3, {"queue/orders": "{}"})
        sessions = await store.next_sessions(fragment, 0, 10)
        assert sessions == ([("a", 2)] if dump.stem == "0002" else [])
        for each in stores:
            await each.close()

    asyncio.run(play())
    assert asked(postgres_url, "SELECT format, readable_from FROM busway.database") == [(FORMAT, FORMAT)]
    assert asked(postgres_url, "SELECT store, holder FROM busway.leases ORDER BY 1") == [(0, None), (1, None)]


def test_of_two_who_bring_a_database_up_to_date_one_finds_it_done(postgres_url: str) -> None:
    """F2: at the same moment."""
    restore(postgres_url, DATABASES[0])
    url = parse(f"{postgres_url}?stores=3")

    async def both() -> None:
        await asyncio.gather(*(asyncio.to_thread(prepare, url) for _ in range(4)))

    asyncio.run(both())
    assert asked(postgres_url, "SELECT count(*) FROM busway.stores") == [(3,)]
    assert asked(postgres_url, "SELECT count(*) FROM busway.leases") == [(3,)]
