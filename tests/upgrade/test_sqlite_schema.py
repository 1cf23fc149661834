"""Files of earlier versions."""

import asyncio
import contextlib
from pathlib import Path

import apsw
import pytest

from busway.clock import Clock
from busway.message.event_chunk import Chunk, ChunkBuilder
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, Message
from busway.store.contract import FragmentKey, LogChanges, StoreError
from busway.store.sqlite.database_file import SCHEMA_VERSION, apply_migrations, open_for_writing, query, teach
from busway.store.sqlite.store import SqliteStore
from busway.store.statements import migrations, sql_file
from tests.store_contract.faulty_disk import FaultyDisk, reboot

#: A row of schema 1 with a value in each column.
FULL_ROW_1 = """
INSERT INTO deferred VALUES (
    1099511627785, 11, 22, 3, 1897816181, 44, 55, 's', 'p', 'm', X'68656164', X'2020B83D6368616E676573', X'62617265'
)"""
SQLITE = "busway.store.sqlite"
#: Copies of a message of schema 4, under numbers of their own.
MORE_ROWS = """
WITH RECURSIVE numbers(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {count})
INSERT INTO messages
SELECT key + number, enqueued_at, expires_at, checksum, more, bare
FROM (SELECT * FROM messages ORDER BY key DESC LIMIT 1), numbers"""
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
    new.execute(sql_file(SQLITE, "schema.sql"))
    assert schema_of(migrated) == schema_of(new)


def test_migrations_are_numbered_without_gaps_and_set_their_version() -> None:
    connection = apsw.Connection(":memory:")
    teach(connection)
    numbers = []
    for number, text in migrations(SQLITE):
        connection.execute(text)
        assert connection.pragma("user_version") == number
        numbers.append(number)
    assert numbers == list(range(1, SCHEMA_VERSION + 1))


def test_every_version_has_a_stored_file() -> None:
    """F2: whoever raises the version leaves a file of the last one here."""
    assert [path.stem for path in STORES] == [f"{number:04}" for number in range(1, SCHEMA_VERSION + 1)]


def restored(dump: Path, directory: Path, *statements: str) -> Path:
    path = directory / "old.db"
    connection = apsw.Connection(str(path))
    connection.execute(query("pragmas_of_a_new_file")).fetchall()
    for text in (dump.read_text(), *statements):
        connection.execute(text).fetchall()
    connection.close()
    return path


@pytest.mark.parametrize("dump", STORES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_opens_with_its_messages(tmp_path: Path, dump: Path) -> None:
    """F2: messages, sessions and catalogue of the stored file are all there."""
    path = restored(dump, tmp_path)

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


@pytest.mark.parametrize(
    "damage",
    [
        "checksum = checksum + 1",
        "enqueued_at = 5",
        "expires_at = 5",
        "delivery_count = 5",
        "ttl = 5",
        "scheduled_at = 5",
        "session_id = 'x'",
        "session_id = CAST(x'ff' AS TEXT)",
        "partition_key = CAST(x'ff' AS TEXT)",
        "message_id = 'x'",
        "head = x'00'",
        "changes = x'00'",
        "bare = x'00'",
    ],
)
def test_a_row_that_was_damaged_before_a_migration_is_damaged_after_it(tmp_path: Path, damage: str) -> None:
    """F2, F4: the file opens, the row is reported, its neighbour is whole."""
    path = restored(STORES[0], tmp_path, f"UPDATE messages SET {damage} WHERE key & 3 = 2")  # noqa: S608

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        page = await store.messages(FragmentKey(1), PLACE_ACTIVE, 0, 10, 1 << 20)
        assert ([each.bare for each in page.messages], page.damaged) == ([b"first"], [2])
        await store.close()

    asyncio.run(play())


def test_a_migration_carries_every_field_of_a_message(tmp_path: Path) -> None:
    """F2: times, counts, texts, head and changed properties."""
    path = restored(STORES[0], tmp_path, FULL_ROW_1)

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        page = await store.by_number(FragmentKey(1), PLACE_DEFERRED, [9])
        [found] = page.messages
        assert (found.enqueued_at_ms, found.expires_at_ms, found.delivery_count) == (11, 22, 3)
        assert (found.ttl_ms, found.scheduled_at_ms, found.head, found.changes) == (
            44,
            55,
            b"head",
            b"changes",
        )
        assert (found.session_id, found.partition_key, found.message_id) == ("s", "p", "m")
        assert found.bare == b"bare"
        page = await store.peek(FragmentKey(1), 9, 10, 1 << 20, "s")
        assert [each.sequence_number for each in page.messages] == [9]
        await store.close()

    asyncio.run(play())


def test_a_file_of_schema_3_opens_with_its_events(tmp_path: Path) -> None:
    """F2: chunks, also a compacted one, and what is remembered of a producer."""
    path = restored(STORES[2], tmp_path)

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        log = FragmentKey(1)
        page = await store.chunks(log, 0, 1 << 20)
        assert page.damaged == []
        events = [
            (chunk.number(index), chunk.at_ms(index) % 1000, chunk.record(index))
            for chunk in map(Chunk, page.chunks)
            for index in range(chunk.count)
        ]
        assert events == [(0, 0, b"zero"), (1, 1, b"one"), (2, 2, b"two"), (5, 3, b"five")]
        assert await store.first_number_since(log, 1_700_000_000_002) == 2
        [row] = await store.producers(log)
        assert (row.producer_id, row.epoch, row.last_sequence, row.used_at_ms) == (
            7,
            1,
            41,
            1_700_000_000_000,
        )
        await store.close()

    asyncio.run(play())


def test_a_file_of_schema_5_opens_with_its_runs(tmp_path: Path) -> None:
    """F2: messages that lie together, without those that are gone."""
    path = restored(STORES[4], tmp_path)

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        page = await store.messages(FragmentKey(2), PLACE_ACTIVE, 0, 10, 1 << 20)
        assert page.damaged == []
        assert [
            (each.sequence_number, each.bare, each.enqueued_at_ms % 1000, each.ttl_ms, each.partition_key)
            for each in page.messages
        ] == [(6, b"six", 0, 60_000, None), (7, b"seven", 0, -1, "p"), (9, b"nine", 1, -1, None)]
        await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("dump", STORES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_takes_runs(tmp_path: Path, dump: Path) -> None:
    """F2: new messages lie together, beside the rows that are there, and the rows are not copied."""
    path = restored(dump, tmp_path)

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0, run_messages_min=4)
        await store.open()
        for number in range(10, 20):
            made = Message(b"", b"%d" % number)
            made.sequence_number = number
            store.batch().puts.append((FragmentKey(1), PLACE_ACTIVE, made))
        store.batch().deletes.append((FragmentKey(1), PLACE_ACTIVE, [1]))
        await store.flush()
        store.batch().deletes.append((FragmentKey(1), PLACE_ACTIVE, [2, 10, 12]))
        await store.close()
        await store.open()
        page = await store.messages(FragmentKey(1), PLACE_ACTIVE, 0, 20, 1 << 20)
        assert [each.sequence_number for each in page.messages] == [11, *range(13, 20)]
        await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("dump", STORES[:2], ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_takes_events(tmp_path: Path, dump: Path) -> None:
    """F2: logs came with schema 3; beside the messages that are there."""
    path = restored(dump, tmp_path)

    async def play() -> None:
        store = SqliteStore("old", path, Clock(), reserve_bytes=0, space_low_bytes=0)
        await store.open()
        log = FragmentKey(1)
        assert await store.chunk_heads(log, 0, 10) == []
        builder = ChunkBuilder()
        builder.add(0, 1, b"zero", 0)
        changes = LogChanges()
        changes.chunks.append((log, builder))
        store.batch().logs = changes
        await store.close()
        await store.open()
        assert (await store.chunks(log, 0, 1)).chunks == [builder.data()]
        assert len((await store.messages(log, PLACE_ACTIVE, 0, 10, 1 << 20)).messages) == 2
        await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("dump", [*STORES[:2], STORES[3]], ids=lambda path: path.stem)
def test_a_migration_that_was_cut_off_starts_over(tmp_path: Path, dump: Path) -> None:
    """F2: at every write and sync of the migration: the file is the old one or the new one, and opens."""
    with FaultyDisk() as disk:
        (tmp_path / "whole").mkdir()
        open_for_writing(restored(dump, tmp_path / "whole"), disk.name).close()
        steps = disk.steps
    assert steps > 5
    for step in range(1, steps + 1):
        directory = tmp_path / f"step-{step}"
        directory.mkdir()
        path = restored(dump, directory)
        with FaultyDisk() as disk:
            disk.die_at(step)
            with contextlib.suppress(StoreError, apsw.Error):
                open_for_writing(path, disk.name).close()
            disk.cut_power()
        reboot(path)
        connection = open_for_writing(path, None)
        assert connection.pragma("user_version") == SCHEMA_VERSION
        assert len(connection.execute("SELECT key FROM messages").fetchall()) == 2
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_a_file_of_schema_4_opens_at_once_however_many_rows_it_has(tmp_path: Path) -> None:
    """F2: the migration to runs leaves rows where they are: it writes as much for 40,000 of them as for
    4,000. (A new table takes the place of one page near the beginning of the file, which moves.)"""
    writes = []
    for count in (4_000, 40_000):
        directory = tmp_path / f"{count}-more"
        directory.mkdir()
        path = restored(STORES[3], directory, MORE_ROWS.format(count=count))
        with FaultyDisk() as disk:
            connection = open_for_writing(path, disk.name)
            writes.append(disk.steps)
            assert connection.execute("SELECT count(*) FROM messages").fetchall() == [(count + 2,)]
            connection.close()
    assert abs(writes[0] - writes[1]) < 10 < writes[0]


def test_opening_a_file_twice_changes_nothing(tmp_path: Path) -> None:
    first = open_for_writing(tmp_path / "a.db", None)
    before = schema_of(first)
    first.close()
    second = open_for_writing(tmp_path / "a.db", None)
    assert schema_of(second) == before
    second.close()
