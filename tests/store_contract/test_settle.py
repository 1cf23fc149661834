"""Deleting and changing rows."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import Change
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    add_fragment,
    delete,
    message,
    numbers_of,
    put,
)


def test_deleted_rows_are_gone_and_their_neighbours_stay(world: World) -> None:
    """R-10: removed: runs, gaps and single numbers."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 21)])
        put(store, other, *[message(number) for number in range(1, 21)])
        await store.flush()
        delete(store, fragment, 7, 3, 4, 5, 20, 1, 12)
        await store.flush()
        left = [2, 6, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19]
        assert await active_numbers(store, fragment) == left
        assert await active_numbers(store, other) == list(range(1, 21))

    world.run(play)


def test_deleting_what_is_not_there_does_nothing(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        delete(store, fragment, 2, 3)
        delete(store, fragment, 1, place=PLACE_DEFERRED)
        await store.flush()
        assert await active_numbers(store, fragment) == [1]

    world.run(play)


def test_a_change_sets_the_count_and_keeps_what_it_does_not_name(world: World) -> None:
    """Contract: delivery count and changed application properties."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b"body"))
        await store.flush()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 1, 3, b"first"))
        await store.flush()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 1, 4, None))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 2, 4, b"nobody"))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        (found,) = page.messages
        assert (found.delivery_count, found.changes, found.bare) == (4, b"first", b"body")
        assert page.damaged == []

    world.run(play)


def test_a_change_may_lower_the_count(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        often = message(1)
        often.delivery_count = 2_000_000_000
        put(store, fragment, often)
        await store.flush()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 1, 0, None))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert ([each.delivery_count for each in page.messages], page.damaged) == ([0], [])

    world.run(play)


def test_a_deleted_number_can_be_put_back_in_the_next_batch(world: World) -> None:
    """Contract: receive-and-delete of a message that could not be sent."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(2))
        await store.flush()
        delete(store, fragment, 1)
        await store.flush()
        put(store, fragment, message(1, b"back"))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert numbers_of(page) == [1, 2]
        assert page.messages[0].bare == b"back"

    world.run(play)
