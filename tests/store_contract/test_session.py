"""Sessions: index, rows, states, listing."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import Move
from tests.store_contract.scenario import (
    LOTS,
    World,
    add_fragment,
    delete,
    message,
    numbers_of,
    put_in_session,
)


async def session_numbers(store: Any, fragment: Any, session_id: str) -> list[int]:
    return numbers_of(await store.session_messages(fragment, session_id, 0, 100, LOTS))


def test_a_session_shows_its_own_active_rows_in_order(world: World) -> None:
    """X-12: one session never shows another's messages."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put_in_session(store, fragment, "a", 1, 4)
        put_in_session(store, fragment, "b", 2, 3)
        put_in_session(store, other, "a", 9)
        await store.flush()
        assert await session_numbers(store, fragment, "a") == [1, 4]
        assert await session_numbers(store, fragment, "b") == [2, 3]
        assert await session_numbers(store, fragment, "") == []
        page = await store.session_messages(fragment, "a", 1, 10, LOTS)
        assert (numbers_of(page), page.more) == ([4], False)

    world.run(play)


def test_the_empty_string_is_a_session(world: World) -> None:
    """S-7: an empty session id is one like any other."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "", 1)
        await store.flush()
        assert await store.next_sessions(fragment, 0, 10) == [("", 1)]
        assert await store.sessions(fragment, None, 0, 10) == [""]

    world.run(play)


def test_a_session_row_knows_count_and_first_number(world: World) -> None:
    """X-16: a session ends to exist with its last message and its state."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1, 2, 5)
        await store.flush()
        row = await store.session(fragment, "a")
        assert (row.active, row.first_number, row.state) == (3, 1, None)
        delete(store, fragment, 1)
        await store.flush()
        row = await store.session(fragment, "a")
        assert (row.active, row.first_number) == (2, 2)
        delete(store, fragment, 2, 5)
        await store.flush()
        assert await store.session(fragment, "a") is None
        assert await store.sessions(fragment, None, 0, 10) == []

    world.run(play)


def test_next_sessions_come_by_their_oldest_message(world: World) -> None:
    """X-8: the session with the oldest available message is next."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put_in_session(store, fragment, "late", 5)
        put_in_session(store, fragment, "early", 2, 6)
        put_in_session(store, fragment, "middle", 3)
        put_in_session(store, other, "elsewhere", 1)
        await store.flush()
        assert await store.next_sessions(fragment, 0, 10) == [("early", 2), ("middle", 3), ("late", 5)]
        assert await store.next_sessions(fragment, 0, 1) == [("early", 2)]
        assert await store.next_sessions(fragment, 2, 10) == [("middle", 3), ("late", 5)]
        assert await store.next_sessions(fragment, 1 << 62, 10) == []
        delete(store, fragment, 2)
        await store.flush()
        assert await store.next_sessions(fragment, 0, 10) == [("middle", 3), ("late", 5), ("early", 6)]

    world.run(play)


def test_a_moved_row_leaves_its_session_and_enters_the_one_it_names(world: World) -> None:
    """R-50: a deferred message is no active message of its session."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1, 2)
        await store.flush()
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 1, fragment, PLACE_DEFERRED, 1))
        await store.flush()
        assert await session_numbers(store, fragment, "a") == [2]
        assert (await store.session(fragment, "a")).active == 1
        store.batch().moves.append(
            Move(fragment, PLACE_DEFERRED, 1, fragment, PLACE_ACTIVE, 3, session_id="a")
        )
        await store.flush()
        assert await session_numbers(store, fragment, "a") == [2, 3]
        assert await store.next_sessions(fragment, 0, 10) == [("a", 2)]
        assert (await store.session(fragment, "a")).active == 2

    world.run(play)


def test_a_state_lives_without_messages_until_it_is_cleared(world: World) -> None:
    """X-15, X-16: opaque bytes, null clears."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().session_states.append((fragment, "a", b"\x00state", 1_000))
        store.batch().session_states.append((fragment, "empty", b"", 1_000))
        await store.flush()
        row = await store.session(fragment, "a")
        assert (row.active, row.first_number, row.state, row.state_set_at_ms) == (0, 0, b"\x00state", 1_000)
        assert (await store.session(fragment, "empty")).state == b""
        assert await store.next_sessions(fragment, 0, 10) == []
        store.batch().session_states.append((fragment, "a", b"second", 2_000))
        await store.flush()
        assert (await store.session(fragment, "a")).state == b"second"
        store.batch().session_states.append((fragment, "a", None, 3_000))
        await store.flush()
        assert await store.session(fragment, "a") is None

    world.run(play)


def test_listing_shows_sessions_with_messages_or_a_state(world: World) -> None:
    """X-17: all of them, or those whose state was set after a time; skip and top."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "both", 1)
        put_in_session(store, fragment, "active", 2)
        store.batch().session_states.append((fragment, "both", b"1", 1_000))
        store.batch().session_states.append((fragment, "state", b"2", 2_000))
        await store.flush()
        assert await store.sessions(fragment, None, 0, 10) == ["active", "both", "state"]
        assert await store.sessions(fragment, None, 1, 1) == ["both"]
        assert await store.sessions(fragment, None, 1 << 62, 10) == []
        assert await store.sessions(fragment, 0, 0, 10) == ["both", "state"]
        assert await store.sessions(fragment, 1_000, 0, 10) == ["state"]
        assert await store.sessions(fragment, 2_000, 0, 10) == []
        assert await store.sessions(fragment, None, 0, 10, "active") == ["active", "both", "state"]
        assert await store.sessions(fragment, None, 0, 10, "active\0") == ["both", "state"]
        assert await store.sessions(fragment, None, 1, 10, "b") == ["state"]
        assert await store.sessions(fragment, 0, 0, 10, "both\0") == ["state"]

    world.run(play)


def test_a_session_message_put_back_is_in_its_session_again(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1, 2)
        await store.flush()
        delete(store, fragment, 1)
        await store.flush()
        put_in_session(store, fragment, "a", 1)
        await store.flush()
        assert await session_numbers(store, fragment, "a") == [1, 2]
        assert await store.next_sessions(fragment, 0, 10) == [("a", 1)]

    world.run(play)


def test_rows_outside_the_index_belong_to_no_session(world: World) -> None:
    """D-4: the dead-letter queue of a session queue is read without sessions."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().puts.append((fragment, PLACE_ACTIVE, message(1, session_id="a")))
        await store.flush()
        assert await store.next_sessions(fragment, 0, 10) == []
        assert await session_numbers(store, fragment, "a") == []

    world.run(play)
