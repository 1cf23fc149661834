"""Files of earlier versions."""

import asyncio
from pathlib import Path

import apsw
import pytest

from busway.clock import Clock
from busway.store.contract import PLACE_ACTIVE, FragmentKey
from busway.store.sqlite.database_file import apply_migrations, open_for_writing
from busway.store.sqlite.queries import SCHEMA_VERSION, migrations, query, sql_file
from busway.store.sqlite.store import SqliteStore

STORES = sorted((Path(__file__).parent / "stores").glob("*.sql"))


def schema_of(connection: apsw.Connection) -> tuple[object, ...]:
    tables = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
    ).fetchall()
    meta = connection.execute("SELECT * FROM meta ORDER BY name").fetchall()
    return tables, meta, connection.pragma("user_version")


def test_all_migrations_together_make_the_schema() -> None:
    """F2: a new file and an old one brought up to date are the same."""
    migrated, new = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    apply_migrations(migrated)
    new.execute(sql_file("schema.sql"))
    assert schema_of(migrated) == schema_of(new)


def test_migrations_are_numbered_without_gaps_and_set_their_version() -> None:
    connection = apsw.Connection(":memory:")
    numbers = []
    for number, text in migrations():
        connection.execute(text)
        assert connection.pragma("user_version") == number
        numbers.append(number)
    assert numbers == list(range(1, SCHEMA_VERSION + 1))


def test_every_version_has_a_stored_file() -> None:
    """F2: whoever raises the version leaves a file of the last one here."""
    assert [path.stem for path in STORES] == [f"{number:04}" for number in range(1, SCHEMA_VERSION + 1)]


@pytest.mark.parametrize("dump", STORES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_opens_with_its_messages(tmp_path: Path, dump: Path) -> None:
    """F2: messages, sessions and catalogue of the stored file are all there."""
    path = tmp_path / "old.db"
    connection = apsw.Connection(str(path))
    connection.execute(query("pragmas_of_a_new_file")).fetchall()
    connection.execute(dump.read_text()).fetchall()
    connection.close()

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        fragment = FragmentKey(1)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, 1 << 20)
        assert [each.bare for each in page.messages] == [b"first", b"second"]
        assert page.damaged == []
        assert [each.state for each in (await store.peek(fragment, 1, 10, 1 << 20, None)).messages] == [
            0,
            0,
            1,
            2,
        ]
        assert await store.next_sessions(fragment, 0, 10) == [("a", 2)]
        row = await store.session(fragment, "a")
        assert row is not None
        assert row.state == b"state"
        assert await store.known_ids(fragment, ["id-1"], 0) == {"id-1"}
        assert await store.catalogue() == (3, {"queue/orders": "{}"})
        assert [each.owner for each in await store.fragments()] == ["orders"]
        assert store.next_fragment_key() == 2
        await store.close()

    asyncio.run(play())


def test_opening_a_file_twice_changes_nothing(tmp_path: Path) -> None:
    first = open_for_writing(tmp_path / "a.db", None)
    before = schema_of(first)
    first.close()
    second = open_for_writing(tmp_path / "a.db", None)
    assert schema_of(second) == before
    second.close()
