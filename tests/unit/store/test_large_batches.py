"""A batch with very many rows: written and told over several turns of the loop, and one commit all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.commit_cycle import report_some
from busway.store.contract import CommitRefused, StoreError, StoreState
from busway.store.sqlite.commit_batch import ROWS_PER_TURN
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock
from tests.harness.scene import play as play_scene
from tests.store_contract.scenario import add_fragment, delete, message, put

ROWS = 4 * ROWS_PER_TURN + 7


def play_on(store: SqliteStore, play: Any) -> None:
    play_scene(lambda: store, lambda _: play())


async def turns_until(is_so: Any) -> int:
    count = 0
    while not is_so():
        await asyncio.sleep(0)
        count += 1
    return count


def test_a_large_batch_is_written_over_several_turns_and_commits_once(tmp_path: Path) -> None:
    """Attack: 100,000 rows in one turn hold up everybody; between the turns others join the next batch."""
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def play() -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        await store.flush()
        before = store._spans.commit_number
        told: list[str] = []
        put(store, fragment, *[message(number) for number in range(1, ROWS + 1)])
        store.batch().session_entries.extend([(fragment, f"s{n}", n) for n in range(1, ROWS + 1)])
        store.batch().expiry_entries.extend([(fragment, 10**12 + n, n) for n in range(1, ROWS + 1)])
        store.batch().duplicate_ids.extend([(fragment, f"id{n}", n) for n in range(1, ROWS + 1)])
        store.batch().callbacks.append(lambda error: told.append(f"large {error}"))
        large = store.batch()
        assert await turns_until(lambda: store.batch() is not large) <= 2
        put(store, other, message(1))
        store.batch().callbacks.append(lambda error: told.append(f"small {error}"))
        assert await turns_until(lambda: told) >= 4 * 5, "it was written at once"
        await store.flush()
        assert told == ["large None", "small None"]
        assert store._spans.commit_number == before + 2
        page = await store.messages(fragment, PLACE_ACTIVE, ROWS - 1, 10, 10**6)
        assert [row.sequence_number for row in page.messages] == [ROWS]
        session = await store.session(fragment, f"s{ROWS}")
        assert session is not None
        assert (session.active, session.first_number) == (1, ROWS)
        assert await store.known_ids(fragment, ["id1", f"id{ROWS}", "no"], 0) == {"id1", f"id{ROWS}"}
        assert len(await store.expired_entries(10**13, ROWS + 1)) == ROWS

    play_on(store, play)


def test_copies_of_a_large_batch_share_their_bodies(tmp_path: Path) -> None:
    """T-6: each is kept once, though its copies are written in different turns, and goes with the last of them."""
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def play() -> None:
        fragments = [add_fragment(store) for _ in range(4)]
        await store.flush()
        bodies = [b"%d" % number + b"x" * 1_000 for number in range(3_000)]
        for fragment in fragments:
            put(store, fragment, *[message(at + 1, body) for at, body in enumerate(bodies)])
        large = store.batch()
        await turns_until(lambda: store.batch() is not large)
        await store.flush()
        assert payload_count(tmp_path) == len(bodies)
        for fragment in fragments:
            page = await store.messages(fragment, PLACE_ACTIVE, 2_990, 100, 10**6)
            assert [row.bare for row in page.messages] == bodies[2_990:]
        for fragment in fragments:
            delete(store, fragment, *range(1, 3_001))
        await store.flush()
        assert payload_count(tmp_path) == 0

    play_on(store, play)


def payload_count(folder: Path) -> int:
    with apsw.Connection(str(folder / "a.db"), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM payloads")
    return int(str(count))


def test_a_row_that_cannot_be_written_takes_the_whole_batch_back(tmp_path: Path) -> None:
    """S-20: it was one of the last, many turns after the first."""
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def play() -> None:
        fragment = add_fragment(store)
        await store.flush()
        told: list[StoreError | None] = []
        put(store, fragment, *[message(number) for number in range(1, ROWS + 1)])
        put(store, fragment, message(ROWS))
        large = store.batch()
        large.callbacks.append(told.append)
        await turns_until(lambda: store.batch() is not large)
        put(store, fragment, message(ROWS + 1))
        store.batch().callbacks.append(told.append)
        await turns_until(lambda: len(told) == 2)
        assert [type(error) for error in told] == [CommitRefused, CommitRefused]
        assert store.state is StoreState.FAILED
        await store.reopen()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, 10**6)
        assert page.messages == []

    play_on(store, play)


def test_counters_are_those_of_the_moment_at_which_the_batch_closed(tmp_path: Path) -> None:
    """E-100: what joins the next batch meanwhile is not counted in this one."""
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def play() -> None:
        fragment = add_fragment(store)
        await store.flush()
        [row] = await store.fragments([fragment])
        counters = row.counters
        put(store, fragment, *[message(number) for number in range(1, ROWS + 1)])
        counters.active = ROWS
        large = store.batch()
        large.counters[fragment] = counters
        told: list[StoreError | None] = []
        large.callbacks.append(told.append)
        await turns_until(lambda: store.batch() is not large)
        counters.active += 1
        await turns_until(lambda: told)
        [stored] = await store.fragments([fragment])
        assert stored.counters.active == ROWS

    play_on(store, play)


def test_closing_waits_for_a_large_batch(tmp_path: Path) -> None:
    """S-1: what has joined is written, and told."""
    store = SqliteStore("a", tmp_path / "a.db", Clock())
    told: list[StoreError | None] = []

    async def play() -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, ROWS + 1)])
        store.batch().callbacks.append(told.append)
        await asyncio.sleep(0)

    play_on(store, play)
    assert told == [None]


class SlowClock(ManualClock):
    """Time passes with each look."""

    def monotonic(self) -> float:
        self.advance(0.006)
        return super().monotonic()


def test_many_callbacks_are_told_over_several_turns_in_order(tmp_path: Path) -> None:
    """Attack: a batch may have thousands; the next batch's come later, and a flush waits for the last."""
    store = SqliteStore("a", tmp_path / "a.db", SlowClock())

    async def play() -> None:
        fragment = add_fragment(store)
        await store.flush()
        told: list[int] = []

        def noting(number: int) -> Any:
            return lambda _error: told.append(number)

        put(store, fragment, message(1))
        store.batch().callbacks.extend([noting(number) for number in range(500)])
        await turns_until(lambda: told)
        assert 0 < len(told) < 500
        put(store, fragment, message(2))
        store.batch().callbacks.append(noting(500))
        await store.flush()
        assert told == list(range(501))

    play_on(store, play)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 200])
def test_a_clock_that_stands_still_tells_all_at_once(count: int) -> None:
    """House style: under a manual clock the same happens each time; who joins while it is told is told, too."""

    async def run() -> None:
        told: list[StoreError | None] = []
        callbacks: list[Any] = [told.append] * count
        callbacks[0] = lambda _error: callbacks.append(told.append)
        assert report_some(asyncio.get_running_loop(), callbacks, 0, ManualClock()) == count + 1
        assert told == [None] * count

    asyncio.run(run())
