"""What the SQLite store does besides the contract: space, congestion, checkpoints, giving space back."""

import asyncio
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import apsw
import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock
from tests.harness.measured import check_within, measured
from tests.harness.scene import play as play_scene
from tests.store_contract.scenario import (
    HoldableSqliteStore,
    add_fragment,
    delete,
    let_commits_start,
    message,
    put,
)

MIB = 1 << 20


def play_on(store: SqliteStore, play: Any) -> None:
    play_scene(lambda: store, lambda _: play())


async def chores_done(store: SqliteStore) -> None:
    await asyncio.get_running_loop().run_in_executor(store._chores_thread, lambda: None)


def test_payload_is_refused_while_space_is_low_and_accepted_again(tmp_path: Path) -> None:
    """F6: settlement goes on meanwhile; a look every quarter of a second is enough to heal."""
    clock = ManualClock()
    free = [100 * MIB]
    store = SqliteStore("a", tmp_path / "a.db", clock, reserve_bytes=0, free_bytes=lambda: free[0])

    async def play() -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(2))
        await store.flush()
        assert store.accepts_payload()
        free[0] = 10 * MIB
        clock.advance(0.3)
        store.accepts_payload()  # starts the look, off the loop
        await chores_done(store)
        assert not store.accepts_payload()
        assert not store.is_congested()
        delete(store, fragment, 1)
        await store.flush()
        free[0] = 100 * MIB
        assert not store.accepts_payload()
        clock.advance(0.3)
        store.accepts_payload()
        await chores_done(store)
        assert store.accepts_payload()

    play_on(store, play)


def test_an_open_batch_over_its_cap_is_congested_until_it_closes(tmp_path: Path) -> None:
    """F8: the cause is load, not space."""
    store = HoldableSqliteStore(
        "a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0, batch_bytes_max=1000
    )

    async def play() -> None:
        fragment = add_fragment(store)
        store.hold_commits()
        await let_commits_start(store)
        put(store, fragment, message(1))
        store.batch().bytes += 1000
        assert store.is_congested()
        assert not store.accepts_payload()
        store.release_commits()
        await store.flush()
        assert not store.is_congested()
        assert store.accepts_payload()

    play_on(store, play)


@measured
def test_the_loop_goes_on_while_a_commit_hangs(tmp_path: Path) -> None:
    """F7: a sync that takes long holds up nothing but those who wait for it."""
    store = HoldableSqliteStore(
        "a", Path(mkdtemp(dir=tmp_path)) / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0
    )

    async def play() -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_commits()
        put(store, fragment, message(2))
        await let_commits_start(store)
        worst = 0.0
        for number in range(3, 203):
            began = time.perf_counter()
            put(store, fragment, message(number))
            await asyncio.sleep(0)
            worst = max(worst, time.perf_counter() - began)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 1, 1)
        assert len(page.messages) == 1
        check_within(worst, 0.1)
        store.release_commits()
        await store.flush()
        assert len((await store.messages(fragment, PLACE_ACTIVE, 0, 1000, MIB)).messages) == 202

    play_on(store, play)


def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    """F6: checkpoints between commits let it start over."""
    store = SqliteStore(
        "a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0, checkpoint_bytes=MIB
    )

    async def play() -> None:
        fragment = add_fragment(store)
        for number in range(1, 401):
            put(store, fragment, message(number, b"x" * 20_000))
            await store.flush()
            await store.messages(fragment, PLACE_ACTIVE, number - 1, 1, MIB)
        assert (tmp_path / "a.db-wal").stat().st_size < 3 * MIB

    play_on(store, play)


def size_of(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.parametrize(("is_space_low", "drained"), [(False, 1000), (True, 400)])
def test_a_drained_backlog_gives_its_space_back(tmp_path: Path, is_space_low: bool, drained: int) -> None:
    """F6: the file shrinks by itself, other rows stay; on a full disk a smaller part is worth the work, too."""
    clock = ManualClock()
    store = SqliteStore(
        "a",
        tmp_path / "a.db",
        clock,
        reserve_bytes=0,
        free_bytes=lambda: 10 * MIB if is_space_low else 100 * MIB,
        checkpoint_bytes=MIB,
        vacuum_bytes=MIB,
    )

    async def play() -> None:
        first, second = add_fragment(store), add_fragment(store)
        for start in range(1, 1001, 100):
            put(store, first, *[message(number, b"x" * 16_000) for number in range(start, start + 100)])
            put(store, second, message(start, b"kept"))
            await store.flush()
        store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        assert size_of(tmp_path / "a.db") > 15 * MIB
        delete(store, first, *range(1, drained + 1))
        await store.flush()
        while size_of(tmp_path / "a.db") > (1000 - drained) * 16_500 + 2 * MIB:
            clock.advance(2)
            store.batch().catalogue["key"] = "text"
            await store.flush()
        page = await store.messages(second, PLACE_ACTIVE, 0, 100, MIB)
        assert [each.bare for each in page.messages] == [b"kept"] * 10
        left = await store.messages(first, PLACE_ACTIVE, 0, 1000, 100 * MIB)
        assert len(left.messages) == 1000 - drained

    play_on(store, play)


def test_forgotten_ids_really_go(tmp_path: Path) -> None:
    """S-40: slices follow each other without anybody joining."""
    store = SqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)

    async def play() -> None:
        fragment = add_fragment(store)
        store.batch().duplicate_ids.extend((fragment, f"id-{number}", 1) for number in range(5_000))
        await store.flush()
        store.batch().duplicate_purges.append((fragment, 2))
        await store.flush()
        while store._writer.purges:
            await store.flush()
            await asyncio.sleep(0)

    play_on(store, play)
    connection = apsw.Connection(str(tmp_path / "a.db"))
    assert connection.execute("SELECT count(*) FROM duplicate_ids").fetchall() == [(0,)]
    connection.close()


def test_swept_fragments_leave_no_row_anywhere(tmp_path: Path) -> None:
    """E-86: after the sweep the file holds nothing of them."""
    store = SqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)

    async def play() -> None:
        fragment = add_fragment(store)
        for number in range(1, 301):
            store.batch().puts.append((fragment, number % 3, message(number, session_id="s")))
        batch = store.batch()
        batch.session_entries.extend((fragment, f"s{number}", number) for number in range(3, 301, 3))
        batch.expiry_entries.extend((fragment, number, number) for number in range(1, 301))
        batch.duplicate_ids.extend((fragment, str(number), number) for number in range(1, 301))
        batch.session_states.extend((fragment, str(number), b"state", number) for number in range(1, 301))
        await store.flush()
        store.batch().fragments_dropped.append(fragment)
        while await store.sweep_dropped(90):
            pass

    play_on(store, play)
    connection = apsw.Connection(str(tmp_path / "a.db"))
    kept = {"fragments": 1, "meta": 2}
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608
        assert count == kept.get(str(table), 0), table
    connection.close()


def test_the_high_water_file_follows_the_commits(tmp_path: Path) -> None:
    """F4: at the latest when the store is closed, and a second after a commit."""
    store = SqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=0, space_low_bytes=0)

    async def play() -> None:
        for _ in range(3):
            store.batch().catalogue["key"] = "text"
            await store.flush()
        assert store._mark_timer is not None
        store._on_mark_timer()
        await chores_done(store)
        assert store._high_water.read() == 3
        store.batch().catalogue["key"] = "other"

    play_on(store, play)
    assert store._high_water.read() == 4


def test_importing_the_contract_does_not_bring_sqlite_along() -> None:
    """Contract: hot modules and other stores do without it."""
    import subprocess
    import sys

    code = "import sys, busway.store.contract, tests.harness.memory_store; print('apsw' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_after_a_slow_commit_one_commit_at_a_time_tries_the_disk(tmp_path: Path) -> None:
    """P-31: a sick disk is passed by, then gets one batch to prove itself; a quick commit heals it."""
    clock = ManualClock()
    store = HoldableSqliteStore("a", tmp_path / "a.db", clock, reserve_bytes=0, space_low_bytes=0)

    async def play() -> None:
        await store.open()
        try:
            fragment = add_fragment(store)
            await store.flush()
            assert not store.is_slow()
            store.hold_commits()
            put(store, fragment, message(1))
            await let_commits_start(store)
            assert not store.is_slow()
            clock.advance(2.0)
            assert store.is_slow()
            store.release_commits()
            await store.flush()
            assert store.is_slow()
            clock.advance(2.1)
            assert not store.is_slow()
            put(store, fragment, message(2))
            assert store.is_slow()
            await store.flush()
            assert not store.is_slow()
            put(store, fragment, message(3))
            assert not store.is_slow()
        finally:
            await store.close()

    asyncio.run(play())
