"""Putting messages and getting them back."""

from typing import Any

from busway.message.message import NEVER_MS, PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from tests.store_contract.scenario import (
    LOTS,
    Outcomes,
    World,
    active_numbers,
    add_fragment,
    fields_of,
    message,
    numbers_of,
    put,
)


def test_every_field_of_a_message_comes_back(world: World) -> None:
    """Contract: what the broker stored is what it reads, in every place."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for place in (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED):
            full = message(
                place + 1,
                bytes(range(256)),
                head=b"\x00head",
                ttl_ms=5_000,
                message_id="id-ä-\0-🚌",
                session_id="",
                partition_key="key",
                scheduled_at_ms=1_700_000_100_000,
            )
            full.expires_at_ms = 1_700_000_005_000
            full.delivery_count = 7
            full.changes = b"\xc1\x01\x00"
            put(store, fragment, full, place=place)
        await store.flush()
        for place in (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED):
            page = await store.messages(fragment, place, 0, 10, LOTS)
            (found,) = page.messages
            full.sequence_number, full.state = place + 1, place
            assert fields_of(found) == fields_of(full)
            assert not page.damaged
            assert not page.more

    world.run(play)


def test_a_plain_message_keeps_its_defaults(world: World) -> None:
    """Contract: absent fields stay absent, they do not become empty ones."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b""))
        await store.flush()
        (found,) = (await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)).messages
        assert (found.session_id, found.partition_key, found.message_id) == (None, None, None)
        assert (found.ttl_ms, found.scheduled_at_ms, found.changes) == (-1, 0, None)
        assert found.expires_at_ms == NEVER_MS

    world.run(play)


def test_rows_come_in_order_of_their_numbers_after_a_given_one(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in (5, 1, 9, 3)])
        await store.flush()
        assert await active_numbers(store, fragment) == [1, 3, 5, 9]
        assert numbers_of(await store.messages(fragment, PLACE_ACTIVE, 3, 10, LOTS)) == [5, 9]
        assert numbers_of(await store.messages(fragment, PLACE_ACTIVE, 9, 10, LOTS)) == []

    world.run(play)


def test_a_page_ends_at_its_row_limit_and_says_so(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 6)])
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 3, LOTS)
        assert (numbers_of(page), page.more) == ([1, 2, 3], True)
        page = await store.messages(fragment, PLACE_ACTIVE, 3, 2, LOTS)
        assert (numbers_of(page), page.more) == ([4, 5], False)

    world.run(play)


def test_a_page_ends_at_its_byte_limit_but_holds_at_least_one_row(world: World) -> None:
    """Contract: a large message is never stuck behind a limit smaller than itself."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b"x" * 100), message(2, b"x" * 100), message(3, b"x" * 100))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, 250)
        assert (numbers_of(page), page.more) == ([1, 2], True)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, 1)
        assert (numbers_of(page), page.more) == ([1], True)

    world.run(play)


def test_a_large_message_comes_back_whole(world: World) -> None:
    """Contract: bodies far larger than a page of the file."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        body = bytes(range(256)) * 8_000
        put(store, fragment, message(1, body), message(2))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert page.messages[0].bare == body
        assert numbers_of(page) == [1, 2]

    world.run(play)


def test_fragments_do_not_see_each_other(world: World) -> None:
    """Contract: the same numbers in two fragments are two messages."""

    async def play(store: Any) -> None:
        first, second = add_fragment(store), add_fragment(store)
        put(store, first, message(1, b"first"))
        put(store, second, message(1, b"second"), message(2, b"second"))
        await store.flush()
        assert await active_numbers(store, first) == [1]
        page = await store.messages(second, PLACE_ACTIVE, 0, 10, LOTS)
        assert [each.bare for each in page.messages] == [b"second", b"second"]

    world.run(play)


def test_callbacks_come_after_the_join_in_order_and_once(world: World) -> None:
    """S-1: nobody is told before the commit."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        told = Outcomes()
        put(store, fragment, message(1))
        store.batch().callbacks.append(told)
        store.batch().callbacks.append(told)
        assert told == []
        await store.flush()
        assert told == [None, None]

    world.run(play)


def test_a_callback_that_raises_does_not_silence_the_others(world: World) -> None:
    async def play(store: Any) -> None:
        import asyncio

        seen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        told = Outcomes()

        def broken(_: object) -> None:
            raise ValueError("broken")

        store.batch().callbacks.extend([broken, told])
        await store.flush()
        assert told == [None]
        assert [type(context["exception"]) for context in seen] == [ValueError]

    world.run(play)


def test_values_are_those_of_the_moment_the_batch_closed(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        kept = message(1)
        put(store, fragment, kept)
        await store.flush()
        kept.delivery_count = 99
        (found,) = (await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)).messages
        assert found.delivery_count == 0
        found.delivery_count = 98
        (again,) = (await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)).messages
        assert again.delivery_count == 0

    world.run(play)


def test_by_number_finds_what_exists_and_ignores_what_cannot(world: World) -> None:
    """R-52: numbers come from clients, so any integer may be asked for."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(3), place=PLACE_DEFERRED)
        put(store, fragment, message(2))
        await store.flush()
        asked = [3, 2, 1, 1, 0, -1, 1 << 40, (1 << 40) + 1, 1 << 63, 1 << 80]
        assert numbers_of(await store.by_number(fragment, PLACE_DEFERRED, asked)) == [1, 3]
        assert numbers_of(await store.by_number(fragment, PLACE_DEFERRED, [])) == []

    world.run(play)


def test_numbers_past_every_counter_find_nothing(world: World) -> None:
    """R-63: a peek from the largest 64-bit number is an empty answer, not an error."""

    async def play(store: Any) -> None:
        first, second = add_fragment(store), add_fragment(store)
        put(store, first, message(1))
        put(store, second, message(1))
        await store.flush()
        for number in (1 << 40, 1 << 62, (1 << 63) - 1):
            assert numbers_of(await store.peek(first, number, 10, LOTS, None)) == []
            assert numbers_of(await store.messages(first, PLACE_ACTIVE, number, 10, LOTS)) == []
        assert numbers_of(await store.peek(first, -(1 << 63), 10, LOTS, None)) == [1]

    world.run(play)
