"""What a store holds, row by row: the same from files and from databases, behind any row, with the same digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from busway.message.message import PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import FragmentKey, TransferMark
from busway.store.postgres.database_rows import DatabaseRows
from busway.store.postgres.url import parse
from busway.store.sqlite.file_rows import FileRows
from busway.store.stored_rows import INDEXES, KINDS, Places, StoredRow, StoredRows
from tests.store_contract.log_scenario import append, chunk, remember
from tests.store_contract.scenario import STORES, NewWorld, World, add_fragment, message, put, put_in_session

LARGE = b"shared by copies" * 200
LOWEST = -(1 << 63)


async def play(store: Any) -> None:
    """Something of everything; the second fragment is dropped in the end, the fifth belongs to nobody else."""
    orders, gone, talks, news, metrics = (add_fragment(store, f"path {number}") for number in range(5))
    _put_orders(store, orders)
    put(store, gone, *[message(number) for number in range(1, 9)])
    for session, first in (("", 1), ("a\0b", 4), ("z", 7)):
        put_in_session(store, talks, session, *range(first, first + 3))
        store.batch().session_states.append((talks, session, session.encode() + b"!", 5))
    for number in range(50, 53):
        body = bytes(LARGE)  # one object for both
        put(store, orders, message(number, body))
        put(store, news, message(number, body))
    store.batch().duplicate_ids += [
        (orders, name, 10 + at) for at, name in enumerate(("", "i", "j", "\U0001f600"))
    ]
    append(store, metrics, chunk(1, 2, 3), chunk(4, 5), chunk(9))
    remember(store, metrics, (LOWEST, 1, 2, 3), (7, 1, 2, 3))
    store.batch().transfer_marks += [TransferMark("east-1", FragmentKey(3), number) for number in (1, 2, 9)]
    await store.flush()
    store.batch().fragments_dropped.append(gone)
    store.batch().duplicate_purges.append((orders, 11))
    await store.flush()


def _put_orders(store: Any, orders: FragmentKey) -> None:
    put(store, orders, *[message(number, b"in a run") for number in range(1, 30)])
    put(store, orders, message(31, b"alone", head=b"head", ttl_ms=5, message_id="m"))
    put(store, orders, message(32, b"aside"), message(33, session_id="x"), place=PLACE_DEFERRED)
    put(store, orders, message(34, scheduled_at_ms=99), message(35), place=PLACE_SCHEDULED)
    store.batch().expiry_entries += [(orders, 500, 3), (orders, 400, 31), (orders, 300, 33)]


def reader_of(world: World) -> Callable[[], StoredRows]:
    if world.kind == "postgres":
        return lambda: DatabaseRows(parse(f"{world.url}?stores={STORES}"), 0)
    return lambda: FileRows("first", world.directory / "first.db")


@pytest.fixture(params=["sqlite", "postgres"])
def filled(request: pytest.FixtureRequest, new_world: NewWorld) -> Any:
    with new_world(request.param) as world:
        world.run(play)
        yield world


def all_of(rows: StoredRows, kind: str, after: tuple[int | str, ...] = ()) -> list[StoredRow]:
    return list(rows.rows(kind, after))


def told(rows: StoredRows) -> dict[str, list[int]]:
    """Digests of all rows, in no order, with fragments by their place among all."""
    facts = rows.facts()
    here = {row.key: FragmentKey(at) for at, row in enumerate(facts.fragments)}
    places = Places(here, {"east-1": ("west-1", {3: FragmentKey(33)})}, facts.sessions)
    found: dict[str, list[int]] = {}
    for kind in (*KINDS, *INDEXES):
        digests = [row.digest() for row in rows.rows(kind) if row.placed(places)]
        found[kind] = sorted(digests)
    return found


def test_reading_goes_on_behind_any_row(filled: World) -> None:
    """Copy: whatever ends it, the rest is what it would have been; of each kind."""
    rows = reader_of(filled)()
    try:
        rows.facts()
        for kind in (*KINDS, *INDEXES):
            whole = [row.position for row in rows.rows(kind)]
            assert len(whole) == len(set(whole))
            assert whole, kind
            for at, position in enumerate(whole):
                assert [row.position for row in rows.rows(kind, position)] == whole[at + 1 :], (
                    kind,
                    position,
                )
    finally:
        rows.close()


def test_files_and_databases_tell_the_same(new_world: NewWorld) -> None:
    """Copy: rows or runs, shared bodies or not, text or bytes: the same digests; dropped ones have none."""
    found = []
    for kind in ("sqlite", "postgres"):
        with new_world(kind) as world:
            world.run(play)
            rows = reader_of(world)()
            try:
                found.append(told(rows))
            finally:
                rows.close()
    for kind in found[0]:
        assert found[0][kind] == found[1][kind], kind
    counts = {kind: len(digests) for kind, digests in found[0].items()}
    assert counts == {
        "messages": 43,
        "copies": 6,
        "states": 3,
        "ids": 3,
        "chunks": 3,
        "producers": 2,
        "marks": 3,
        "sessions": 9,
        "expiry": 3,
    }


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (b"UPDATE busway.messages SET bare = '\\x00' WHERE key = (1::bigint << 40) + 31", "31 (active)"),
        (b"UPDATE busway.deferred SET expires_at = 7 WHERE key = (1::bigint << 40) + 32", "32 (deferred)"),
    ],
)
def test_a_changed_row_is_damaged_and_told(postgres_world: World, statement: bytes, said: str) -> None:
    """Copy: what is not as it was written comes without its content, and says which it is."""
    postgres_world.run(play)
    with psycopg.connect(postgres_world.url, autocommit=True) as connection:
        connection.execute(statement)
    rows = reader_of(postgres_world)()
    try:
        rows.facts()
        damaged = [row for row in rows.rows("messages") if row.is_damaged]
    finally:
        rows.close()
    assert [row.told(0) for row in damaged] == [f"number {said}"]
