"""Copies that hold the identical body: kept once, which nobody can tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Change, CommitRefused, FragmentKey, Move
from busway.store.rows import SHARED_BYTES_MIN, SHARING_SAVES_BYTES_MIN
from busway.store.sqlite.commit_batch import REFERENCE_WEIGHT, payload_number
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    add_fragment,
    check_references,
    delete,
    message,
    numbers_of,
    put,
)

#: The number of a store's first payload.
FIRST = payload_number(1)
BODY = bytes(range(256)) * (SHARING_SAVES_BYTES_MIN // 256)


def file_of(world: World) -> Path:
    return world.directory / "first.db"


def publish(store: Any, fragments: list[FragmentKey], number: int = 1, body: bytes = BODY) -> None:
    for fragment in fragments:
        put(store, fragment, message(number, body))


async def subscribed(store: Any, count: int) -> list[FragmentKey]:
    """Fragments of that many subscriptions."""
    fragments = [add_fragment(store, f"subscription {index}") for index in range(count)]
    await store.flush()
    return fragments


async def body_of(store: Any, fragment: FragmentKey, number: int, place: int = PLACE_ACTIVE) -> bytes:
    page = await store.by_number(fragment, place, [number])
    assert page.damaged == []
    [found] = page.messages
    bare: bytes = found.bare
    return bare


def test_each_copy_has_the_whole_body_until_it_goes_itself(world: World) -> None:
    async def play(store: Any) -> None:
        fragments = await subscribed(store, 3)
        publish(store, fragments)
        await store.flush()
        for going, fragment in enumerate(fragments):
            for left in fragments[going:]:
                assert await body_of(store, left, 1) == BODY
            delete(store, fragment, 1)
            await store.flush()
            assert await active_numbers(store, fragment) == []

    world.run(play)


def test_every_kind_of_read_finds_shared_bodies(world: World) -> None:
    async def play(store: Any) -> None:
        first, second = await subscribed(store, 2)
        publish(store, [first, second], 1)
        put(store, first, message(2))
        put(store, first, message(3, BODY, session_id="a"))
        put(store, second, message(3, BODY, session_id="a"))
        store.batch().session_entries.append((first, "a", 3))
        await store.flush()
        for page in (
            await store.messages(first, PLACE_ACTIVE, 0, 10, LOTS),
            await store.by_number(first, PLACE_ACTIVE, [1, 2, 3]),
            await store.peek(first, 1, 10, LOTS, None),
        ):
            assert [each.bare for each in page.messages] == [BODY, b"body", BODY]
        page = await store.session_messages(first, "a", 0, 10, LOTS)
        assert [each.bare for each in page.messages] == [BODY]
        page = await store.messages(first, PLACE_ACTIVE, 0, 10, len(BODY) + 10)
        assert (numbers_of(page), page.more) == ([1, 2], True)

    world.run(play)


def test_the_bytes_are_stored_once_and_go_with_the_last_copy(sqlite_world: World) -> None:
    async def play(store: Any) -> None:
        fragments = await subscribed(store, 10)
        publish(store, fragments, 1)
        publish(store, fragments[:4], 2, bytes(bytearray(BODY)))
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 2
        for fragment in fragments[1:]:
            delete(store, fragment, 1, 2)
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 2
        delete(store, fragments[0], 2)
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 1
        delete(store, fragments[0], 1)
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 0

    sqlite_world.run(play)


@pytest.mark.parametrize(
    ("copies", "size", "are_shared"),
    [
        (2, SHARING_SAVES_BYTES_MIN, True),
        (2, SHARING_SAVES_BYTES_MIN - 1, False),
        (5, SHARED_BYTES_MIN, True),
        (100, SHARED_BYTES_MIN - 1, False),
    ],
)
def test_only_bodies_worth_it_are_shared(
    sqlite_world: World, copies: int, size: int, are_shared: bool
) -> None:
    async def play(store: Any) -> None:
        fragments = await subscribed(store, copies)
        publish(store, fragments, 1, b"x" * size)
        await store.flush()
        assert check_references(file_of(sqlite_world)) == (1 if are_shared else 0)

    sqlite_world.run(play)


def test_equal_bodies_that_are_not_one_object_stay_apart(sqlite_world: World) -> None:
    async def play(store: Any) -> None:
        first, second = await subscribed(store, 2)
        put(store, first, message(1, bytes(bytearray(BODY))))
        put(store, second, message(1, bytes(bytearray(BODY))))
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 0

    sqlite_world.run(play)


def test_copies_keep_their_body_wherever_they_move(world: World) -> None:
    """R-14: deferral, dead-lettering with a reason, activation, into a fragment that never shared."""

    async def play(store: Any) -> None:
        first, second, dead = await subscribed(store, 3)
        publish(store, [first, second], 1)
        put(store, first, message(2, BODY, scheduled_at_ms=5), place=PLACE_SCHEDULED)
        await store.flush()
        moves = store.batch().moves
        moves.append(Move(first, PLACE_ACTIVE, 1, first, PLACE_DEFERRED, 1))
        moves.append(Move(first, PLACE_SCHEDULED, 2, first, PLACE_ACTIVE, 3, enqueued_at_ms=9))
        moves.append(
            Move(second, PLACE_ACTIVE, 1, dead, PLACE_ACTIVE, 7, changes=b"reason", delivery_count=10)
        )
        await store.flush()
        assert await body_of(store, first, 1, PLACE_DEFERRED) == BODY
        assert await body_of(store, first, 3) == BODY
        [found] = (await store.messages(dead, PLACE_ACTIVE, 0, 10, LOTS)).messages
        assert (found.bare, found.changes, found.delivery_count) == (BODY, b"reason", 10)
        store.batch().changes.append(Change(dead, PLACE_ACTIVE, 7, 11, None))
        store.batch().deletes.append((first, PLACE_DEFERRED, [1]))
        delete(store, first, 3)
        await store.flush()
        assert await body_of(store, dead, 7) == BODY
        delete(store, dead, 7)
        await store.flush()

    world.run(play)
    if world.kind == "sqlite":
        assert check_references(file_of(world)) == 0


def test_what_shares_is_known_after_a_restart(sqlite_world: World) -> None:
    """The fragment that only got its copy by a move included."""

    async def write(store: Any) -> None:
        fragments = await subscribed(store, 3)
        publish(store, fragments[:2])
        await store.flush()
        store.batch().moves.append(
            Move(fragments[1], PLACE_ACTIVE, 1, fragments[2], PLACE_DEFERRED, 1),
        )

    async def settle(store: Any) -> None:
        delete(store, FragmentKey(1), 1)
        store.batch().deletes.append((FragmentKey(3), PLACE_DEFERRED, [1]))

    async def again(store: Any) -> None:
        publish(store, [FragmentKey(1), FragmentKey(2)], 2)
        await store.flush()
        assert await body_of(store, FragmentKey(2), 2) == BODY

    sqlite_world.run(write)
    assert check_references(file_of(sqlite_world)) == 1
    sqlite_world.run(settle)
    assert check_references(file_of(sqlite_world)) == 0
    sqlite_world.run(again)
    assert check_references(file_of(sqlite_world)) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sweep_lets_go_of_the_bodies_slice_by_slice(sqlite_world: World, restarts: bool) -> None:
    """E-86: the copies of other subscriptions stay whole meanwhile."""

    async def write(store: Any) -> None:
        first, second = await subscribed(store, 2)
        for number in range(1, 31):
            place = (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED)[number % 3]
            body = bytes(bytearray(BODY))
            put(store, first, message(number, body), place=place)
            put(store, second, message(number, body))
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 30
        store.batch().fragments_dropped.append(first)
        await store.flush()

    async def sweep(store: Any) -> None:
        while await store.sweep_dropped(7):
            check_references(file_of(sqlite_world))
        second = FragmentKey(2)
        page = await store.messages(second, PLACE_ACTIVE, 0, 100, LOTS)
        assert [each.bare for each in page.messages] == [BODY] * 30
        assert check_references(file_of(sqlite_world)) == 30
        store.batch().fragments_dropped.append(second)
        while await store.sweep_dropped(7):
            check_references(file_of(sqlite_world))
        assert check_references(file_of(sqlite_world)) == 0

    async def both(store: Any) -> None:
        await write(store)
        await sweep(store)

    if restarts:
        sqlite_world.run(write)
        sqlite_world.run(sweep)
    else:
        sqlite_world.run(both)


def test_a_refused_publish_leaves_nothing_and_the_next_one_works(sqlite_world: World) -> None:
    """F5: counts of a batch that was rolled back are forgotten with it."""

    async def play(store: Any) -> None:
        fragments = await subscribed(store, 2)
        publish(store, fragments, 1)
        await store.flush()
        publish(store, fragments, 2)
        delete(store, fragments[0], 1)
        put(store, fragments[1], message(1))
        with pytest.raises(CommitRefused):
            await store.flush()
        await store.reopen()
        assert check_references(file_of(sqlite_world)) == 1
        delete(store, fragments[1], 1)
        publish(store, fragments, 3)
        await store.flush()
        assert check_references(file_of(sqlite_world)) == 2
        assert await body_of(store, fragments[0], 1) == BODY

    sqlite_world.run(play)


def _damaged(statement: str, *values: int) -> Callable[[World], None]:
    def damage(world: World) -> None:
        connection = apsw.Connection(str(file_of(world)))
        connection.execute(statement, values)
        connection.close()

    return damage


@pytest.mark.fault
@pytest.mark.parametrize(
    "damage",
    [
        _damaged("UPDATE payloads SET bare = CAST(substr(bare, 2) AS BLOB) WHERE id = ?", FIRST),
        _damaged("UPDATE payloads SET bare = x'' WHERE id = ?", FIRST),
        _damaged("DELETE FROM payloads WHERE id = ?", FIRST),
        _damaged("UPDATE messages SET bare = ? WHERE bare = ?", FIRST ^ 1, FIRST),
        _damaged("UPDATE messages SET bare = ? WHERE bare = ?", FIRST ^ 3 << 20, FIRST),
        _damaged("UPDATE messages SET bare = ? WHERE bare = ?", -5, FIRST),
    ],
    ids=["changed", "empty", "gone", "flipped check", "flipped number", "unknown"],
)
def test_a_damaged_payload_shows_in_each_of_its_messages(
    sqlite_world: World, damage: Callable[[World], None]
) -> None:
    """F4: reported, never returned; neighbours are not affected, and the rows can be deleted."""

    async def play(store: Any) -> None:
        fragments = await subscribed(store, 2)
        publish(store, fragments, 1)
        publish(store, fragments, 2, b"other " * SHARING_SAVES_BYTES_MIN)
        await store.flush()
        damage(sqlite_world)
        for fragment in fragments:
            for page in (
                await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS),
                await store.by_number(fragment, PLACE_ACTIVE, [1, 2]),
                await store.peek(fragment, 1, 10, LOTS, None),
            ):
                assert (numbers_of(page), page.damaged) == ([2], [1])
            delete(store, fragment, 1)
        await store.flush()
        for fragment in fragments:
            assert await active_numbers(store, fragment) == [2]

    sqlite_world.run(play)


@pytest.mark.fault
def test_a_flipped_bit_of_a_weight_never_takes_a_body_from_its_copies(sqlite_world: World) -> None:
    """F4: too much is kept rather than too little."""

    async def play(store: Any) -> None:
        fragments = await subscribed(store, 40)
        publish(store, fragments)
        await store.flush()
        for bit, fragment in enumerate(fragments[:-1]):
            weight = (40 - bit) * REFERENCE_WEIGHT
            _damaged("UPDATE payload_references SET weight = ?", weight ^ 1 << bit)(sqlite_world)
            delete(store, fragment, 1)
            await store.flush()
            assert await body_of(store, fragments[-1], 1) == BODY

    sqlite_world.run(play)


@given(st.integers(1, 1 << 40), st.integers(0, 62))
def test_no_bit_turns_the_number_of_a_payload_into_another(count: int, bit: int) -> None:
    """F4: else a damaged reference could release a body that others need."""
    flipped = payload_number(count) ^ 1 << bit
    assert flipped != payload_number(flipped >> 20)


def test_copies_of_a_damaged_type_are_reported(sqlite_world: World) -> None:
    """F4: text that is no text, in the place of a body."""

    async def play(store: Any) -> None:
        fragments = await subscribed(store, 2)
        publish(store, fragments, 1)
        await store.flush()
        connection = apsw.Connection(str(file_of(sqlite_world)))
        connection.pragma("writable_schema", 1)
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'BLOB', 'ANY') WHERE name = 'payloads'"
        )
        connection.close()
        connection = apsw.Connection(str(file_of(sqlite_world)))
        connection.execute("UPDATE payloads SET bare = CAST(x'ff' AS TEXT)")
        connection.close()
        page = await store.messages(fragments[0], PLACE_ACTIVE, 0, 10, LOTS)
        assert (numbers_of(page), page.damaged) == ([], [1])

    sqlite_world.run(play)
