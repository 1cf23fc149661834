"""Flipped bits: a changed message is never delivered, a lost tail is noticed."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import Change, FragmentKey, Move, StoreError
from busway.store.sqlite.store import SqliteStore
from tests.store_contract.scenario import (
    LOTS,
    ROWS_ONLY,
    World,
    add_fragment,
    fields_of,
    message,
    numbers_of,
    put,
    put_in_session,
)

pytestmark = pytest.mark.fault

COLUMNS = {
    "enqueued_at": 5,
    "expires_at": 5,
    "checksum": 5,
    "more": b"other",
    "bare": b"other",
    "key": (1 << 40) + 9,
}


def _store(directory: Path) -> SqliteStore:
    return SqliteStore("first", directory / "first.db", Clock(), reserve_bytes=0, space_low_bytes=0)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_row_with_any_column_changed_is_reported_and_not_returned(sqlite_world: World, column: str) -> None:
    """F4: each column is covered by the checksum; the neighbours are not affected."""

    async def write(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(2, b"body", session_id="a", partition_key="a"), message(3))

    sqlite_world.run(write)
    connection = apsw.Connection(str(sqlite_world.directory / "first.db"))
    connection.execute(f"UPDATE messages SET {column} = ? WHERE key & 3 = 2", (COLUMNS[column],))  # noqa: S608
    connection.close()
    number = 9 if column == "key" else 2

    async def read(store: Any) -> None:
        page = await store.messages(1, PLACE_ACTIVE, 0, 10, LOTS)
        assert (numbers_of(page), page.damaged) == ([1, 3], [number])
        page = await store.by_number(1, PLACE_ACTIVE, [1, number])
        assert (numbers_of(page), page.damaged) == ([1], [number])
        page = await store.peek(1, 1, 10, LOTS, None)
        assert (numbers_of(page), page.damaged) == ([1, 3], [number])
        # The owner can take it out of service, and then nobody hears of it again.
        store.batch().deletes.append((1, PLACE_ACTIVE, [number]))
        page = await store.messages(1, PLACE_ACTIVE, 0, 10, LOTS)
        assert (numbers_of(page), page.damaged) == ([1, 3], [])

    sqlite_world.run(read)


@pytest.mark.parametrize(
    "damage",
    [
        "bare = x'00'",
        "enqueued_at = enqueued_at + 1",
        "more = x'10000000016201'",
        "more = x'1000'",
        "more = x''",
    ],
)
def test_a_damaged_row_stays_damaged_when_it_moves_or_changes(sqlite_world: World, damage: str) -> None:
    """F4: a checksum carried along by difference does not heal a wrong one."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number, partition_key="a") for number in range(1, 5)])
        await store.flush()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute(f"UPDATE messages SET {damage}")  # noqa: S608
        other.close()
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 1, fragment, PLACE_DEFERRED, 1))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 2, 5, None))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 3, 5, b"changes"))
        await store.flush()
        store.batch().moves.append(Move(fragment, PLACE_DEFERRED, 1, fragment, PLACE_ACTIVE, 9))
        await store.flush()
        assert (await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)).damaged == [2, 3, 4, 9]

    sqlite_world.run(play, **ROWS_ONLY)


def test_a_row_that_cannot_even_be_decoded_does_not_hide_its_neighbours(sqlite_world: World) -> None:
    """F4: text that is no text."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1, 2, 3)
        await store.flush()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute("UPDATE messages SET bare = CAST(x'ff' AS TEXT) WHERE key & 3 = 2")
        other.close()
        for page in (
            await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS),
            await store.session_messages(fragment, "a", 0, 10, LOTS),
            await store.peek(fragment, 1, 10, LOTS, None),
            await store.by_number(fragment, PLACE_ACTIVE, [1, 2, 3]),
        ):
            assert (numbers_of(page), page.damaged) == ([1, 3], [2])

    sqlite_world.run(play)


def test_a_damaged_session_state_is_an_error(sqlite_world: World) -> None:
    """F4: never other bytes than those set."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().session_states.append((fragment, "a", b"state", 1))
        await store.flush()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute("UPDATE session_states SET state = x'0001020304'")
        other.close()
        with pytest.raises(StoreError, match="damaged"):
            await store.session(fragment, "a")

    sqlite_world.run(play)


def _flip(path: Path, source: random.Random) -> None:
    data = bytearray(path.read_bytes())
    position = source.randrange(len(data))
    data[position] ^= 1 << source.randrange(8)
    path.write_bytes(data)


def test_no_flipped_bit_in_the_file_gives_a_changed_message(sqlite_world: World) -> None:
    """F4: 150 damages: refused at opening, an error on reading, a row reported, or no effect."""
    originals: dict[int, tuple[object, ...]] = {}

    async def write(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 201):
            put(store, fragment, message(number, b"%d." % number * 1000, partition_key=f"key {number}"))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 1000, LOTS)
        originals.update({each.sequence_number: fields_of(each) for each in page.messages})

    sqlite_world.run(write)
    source = random.Random(4)
    noticed = 0

    async def look(directory: Path) -> int:
        store = _store(directory)
        try:
            await store.open()
            page = await store.messages(FragmentKey(1), PLACE_ACTIVE, 0, 1000, LOTS)
        except StoreError:
            return 1
        finally:
            await store.close()
        for each in page.messages:
            assert fields_of(each) == originals[each.sequence_number]
        return 1 if page.damaged else 0

    for attempt in range(150):
        directory = sqlite_world.directory / f"damage-{attempt}"
        directory.mkdir()
        shutil.copy(sqlite_world.directory / "first.db", directory / "first.db")
        _flip(directory / "first.db", source)
        noticed += asyncio.run(look(directory))
        shutil.rmtree(directory)
    assert noticed > 20


def test_a_log_cut_short_by_damage_is_noticed_at_start(
    sqlite_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """F4: SQLite drops everything behind a flipped bit of the log without a word; the high-water file tells."""
    copy = sqlite_world.directory / "copy"
    copy.mkdir()

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 101):
            put(store, fragment, message(number))
            await store.flush()
        store._mark()
        await asyncio.get_running_loop().run_in_executor(store._chores_thread, lambda: None)
        for name in ("first.db", "first.db-wal", "first.high-water"):
            shutil.copy(sqlite_world.directory / name, copy / name)
        log = copy / "first.db-wal"
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
        damaged = _store(copy)
        await damaged.open()
        found = len((await damaged.messages(fragment, PLACE_ACTIVE, 0, 1000, LOTS)).messages)
        assert 0 < found < 100
        assert damaged.lost_commits == 100 - found
        assert "has lost its last" in caplog.text
        put(damaged, fragment, message(200))
        await damaged.close()
        # The next start is about the next life: the loss was told, the count goes on behind it.
        again = _store(copy)
        await again.open()
        assert again.lost_commits == 0
        await again.close()

    sqlite_world.run(play)


def test_the_tail_of_a_healthy_store_is_never_called_lost(sqlite_world: World) -> None:
    async def play(store: Any) -> None:
        assert store.lost_commits == 0
        fragment = add_fragment(store)
        put(store, fragment, message(1))

    for _ in range(3):
        sqlite_world.run(play)
