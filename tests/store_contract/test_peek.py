"""Peeking over all places."""

from typing import Any

from busway.message.message import PLACE_DEFERRED, PLACE_SCHEDULED
from tests.store_contract.scenario import (
    LOTS,
    World,
    add_fragment,
    delete,
    message,
    numbers_of,
    put,
    put_in_session,
)


def test_peek_merges_all_places_by_number(world: World) -> None:
    """R-50, R-63, S-31: active, deferred and scheduled rows in one order, from a number inclusive."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put(store, fragment, message(1), message(4), message(7))
        put(store, fragment, message(2), message(5), place=PLACE_DEFERRED)
        put(store, fragment, message(3), message(6), place=PLACE_SCHEDULED)
        put(store, other, message(1))
        await store.flush()
        page = await store.peek(fragment, 2, 5, LOTS, None)
        assert [(each.sequence_number, each.state) for each in page.messages] == [
            (2, 1),
            (3, 2),
            (4, 0),
            (5, 1),
            (6, 2),
        ]
        assert page.more
        page = await store.peek(fragment, 7, 5, LOTS, None)
        assert (numbers_of(page), page.more) == ([7], False)

    world.run(play)


def test_peek_of_a_session_shows_its_rows_in_every_place(world: World) -> None:
    """R-66: only that session's messages."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1, 4)
        put_in_session(store, fragment, "b", 2)
        put(store, fragment, message(3, session_id="a"), place=PLACE_DEFERRED)
        put(store, fragment, message(5, session_id="a"), message(6, session_id="b"), place=PLACE_SCHEDULED)
        await store.flush()
        assert numbers_of(await store.peek(fragment, 1, 10, LOTS, "a")) == [1, 3, 4, 5]
        assert numbers_of(await store.peek(fragment, 4, 1, LOTS, "a")) == [4]
        assert numbers_of(await store.peek(fragment, 1, 10, LOTS, "c")) == []
        assert numbers_of(await store.peek(fragment, 1, 10, LOTS, None)) == [1, 2, 3, 4, 5, 6]

    world.run(play)


def test_peek_shows_at_least_one_row_however_large(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b"x" * 1000), message(2, b"x" * 1000))
        await store.flush()
        page = await store.peek(fragment, 1, 10, 10, None)
        assert (numbers_of(page), page.more) == ([1], True)

    world.run(play)


def test_peek_goes_on_behind_rows_that_are_going(world: World) -> None:
    """A page full of hidden rows must not look like the end."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 31)])
        await store.flush()
        store.hold_commits()
        delete(store, fragment, *range(1, 26))
        assert numbers_of(await store.peek(fragment, 1, 5, LOTS, None)) == [26, 27, 28, 29, 30]

    world.run(play)
