"""Numbers whose upper bits are the index of their fragment: every way in and out of a store bears them whole."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Change, Counters, FragmentKey, FragmentRow, Move, first_number_base
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    delete,
    let_commits_start,
    message,
    numbers_of,
    put,
    put_in_session,
)

INDEX = 15
BASE = first_number_base(INDEX)


def add_high_fragment(store: Any, index: int = INDEX) -> FragmentKey:
    key: FragmentKey = store.next_fragment_key()
    counters = Counters()
    counters.last_counter = first_number_base(index)
    store.batch().fragments_created.append(FragmentRow(key, "orders", index, counters))
    return key


def test_rows_are_read_back_under_their_whole_numbers(world: World) -> None:
    """M-36: by range, by number, by peek; another fragment's number is nobody's."""

    async def play(store: Any) -> None:
        fragment, plain = add_high_fragment(store), add_high_fragment(store, 0)
        put(store, fragment, *[message(BASE + number) for number in (1, 2, 3)])
        put(store, plain, message(1), message(2))
        await store.flush()
        assert await active_numbers(store, fragment) == [BASE + 1, BASE + 2, BASE + 3]
        assert await active_numbers(store, plain) == [1, 2]
        page = await store.messages(fragment, PLACE_ACTIVE, BASE + 1, 1, LOTS)
        assert (numbers_of(page), page.more) == ([BASE + 2], True)
        found = await store.by_number(fragment, PLACE_ACTIVE, [BASE + 3, 3, first_number_base(2) + 3])
        assert numbers_of(found) == [BASE + 3]
        assert numbers_of(await store.peek(fragment, 0, 10, LOTS, None)) == [BASE + 1, BASE + 2, BASE + 3]
        assert numbers_of(await store.peek(fragment, BASE + 3, 10, LOTS, None)) == [BASE + 3]
        assert numbers_of(await store.peek(plain, BASE, 10, LOTS, None)) == []

    world.run(play)


def test_rows_leave_and_change_by_their_whole_numbers(world: World) -> None:
    """M-36: deletes, moves and changes find their row, also while they are only joined."""

    async def play(store: Any) -> None:
        fragment, dead = add_high_fragment(store), add_high_fragment(store)
        put(store, fragment, *[message(BASE + number) for number in range(1, 6)])
        await store.flush()
        store.hold_commits()
        delete(store, fragment, BASE + 1)
        batch = store.batch()
        batch.moves.append(Move(fragment, PLACE_ACTIVE, BASE + 2, dead, PLACE_ACTIVE, BASE + 2))
        batch.moves.append(Move(fragment, PLACE_ACTIVE, BASE + 3, fragment, PLACE_DEFERRED, BASE + 3))
        batch.changes.append(Change(fragment, PLACE_ACTIVE, BASE + 4, 7, None))
        await let_commits_start(store)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert [(each.sequence_number, each.delivery_count) for each in page.messages] == [
            (BASE + 4, 7),
            (BASE + 5, 0),
        ]
        store.release_commits()
        await store.flush()
        assert await active_numbers(store, fragment) == [BASE + 4, BASE + 5]
        assert await active_numbers(store, dead) == [BASE + 2]
        assert numbers_of(await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)) == [BASE + 3]

    world.run(play)


def test_side_tables_tell_whole_numbers(world: World) -> None:
    """M-36: sessions, scheduled rows and expiry entries."""

    async def play(store: Any) -> None:
        fragment = add_high_fragment(store)
        put_in_session(store, fragment, "a", BASE + 1, BASE + 3)
        put_in_session(store, fragment, "b", BASE + 2)
        put(store, fragment, message(BASE + 4, scheduled_at_ms=5), place=PLACE_SCHEDULED)
        store.batch().expiry_entries.append((fragment, 9, BASE + 1))
        await store.flush()
        assert await store.next_sessions(fragment, 0, 10) == [("a", BASE + 1), ("b", BASE + 2)]
        assert await store.next_sessions(fragment, BASE + 1, 10) == [("b", BASE + 2)]
        row = await store.session(fragment, "a")
        assert (row.active, row.first_number) == (2, BASE + 1)
        page = await store.session_messages(fragment, "a", BASE + 1, 10, LOTS)
        assert numbers_of(page) == [BASE + 3]
        assert await store.due(10, 10) == [(fragment, BASE + 4, 5)]
        assert await store.expired_entries(10, 10) == [(fragment, BASE + 1, 9)]
        store.hold_commits()
        delete(store, fragment, BASE + 1)
        await let_commits_start(store)
        assert await store.next_sessions(fragment, 0, 10) == [("b", BASE + 2), ("a", BASE + 3)]
        assert await store.expired_entries(10, 10) == []
        store.release_commits()

    world.run(play)


def test_the_index_outlives_a_restart(world: World) -> None:
    """M-36, P-24: what was numbered before is found under the same number after."""
    keys: list[FragmentKey] = []

    async def before(store: Any) -> None:
        keys.append(add_high_fragment(store))
        put(store, keys[0], message(BASE + 1))
        await store.flush()

    async def after(store: Any) -> None:
        assert await active_numbers(store, keys[0]) == [BASE + 1]
        (row,) = await store.fragments()
        assert (row.fragment_index, row.counters.last_counter) == (INDEX, BASE)

    world.run(before)
    world.run(after)
