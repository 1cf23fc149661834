"""How large rows are, before anybody reads them."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.store.rows import SHARING_SAVES_BYTES_MIN
from tests.store_contract.scenario import World, add_fragment, delete, message, put

KIB = 1024


def test_the_size_of_a_row_is_about_what_it_weighs_in_memory(world: World) -> None:
    """Contract: body and head, in every place; rows that are not there are left out."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for place in (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED):
            put(store, fragment, message(1, bytes(10 * KIB), head=b"\0" * 100), message(2, b""), place=place)
        await store.flush()
        for place in (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED):
            sizes = await store.sizes(fragment, place, [2, 1, 1, 3, 0, -1, 1 << 60])
            assert sizes.keys() == {1, 2}
            assert 10 * KIB + 100 <= sizes[1] < 11 * KIB
            assert sizes[2] < 100
        assert await store.sizes(fragment, PLACE_ACTIVE, []) == {}
        assert await store.sizes(999, PLACE_ACTIVE, [1]) == {}

    world.run(play)


def test_a_shared_body_counts_for_each_of_its_rows(world: World) -> None:
    """Contract: in memory each row that is read has it."""

    async def play(store: Any) -> None:
        fragments = [add_fragment(store, f"s{number}") for number in range(50)]
        body = bytes(max(SHARING_SAVES_BYTES_MIN, 64 * KIB))
        for fragment in fragments:
            shared: Message = message(1, body)
            put(store, fragment, shared)
        await store.flush()
        for fragment in fragments[:2]:
            assert (await store.sizes(fragment, PLACE_ACTIVE, [1]))[1] >= len(body)

    world.run(play)


def test_a_row_that_is_going_has_no_size(world: World) -> None:
    """Contract: like every read."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(2))
        await store.flush()
        store.hold_commits()
        delete(store, fragment, 1)
        assert (await store.sizes(fragment, PLACE_ACTIVE, [1, 2])).keys() == {2}
        store.batch().fragments_dropped.append(fragment)
        assert await store.sizes(fragment, PLACE_ACTIVE, [1, 2]) == {}
        store.release_commits()

    world.run(play)
