"""Own expiry entries."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import Counters, FragmentRow, Move, first_number_base
from tests.store_contract.scenario import World, add_fragment, delete, message, put


def put_expiring(store: Any, fragment: Any, number: int, expires_at_ms: int) -> None:
    expiring = message(number)
    expiring.expires_at_ms = expires_at_ms
    put(store, fragment, expiring)
    store.batch().expiry_entries.append((fragment, expires_at_ms, number))


def test_entries_come_by_time_at_or_before_now(world: World) -> None:
    """M-42: earliest first, over all fragments."""

    async def play(store: Any) -> None:
        first, second = add_fragment(store), add_fragment(store)
        put_expiring(store, first, 1, 300)
        put_expiring(store, first, 2, 100)
        put_expiring(store, second, 1, 200)
        put(store, second, message(2))
        await store.flush()
        assert await store.next_expiry_ms() == 100
        assert await store.expired_entries(200, 10) == [(first, 2, 100), (second, 1, 200)]
        assert await store.expired_entries(300, 1) == [(first, 2, 100)]
        assert await store.expired_entries(99, 10) == []

    world.run(play)


def test_an_entry_goes_with_its_row(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 5):
            put_expiring(store, fragment, number, number * 100)
        await store.flush()
        delete(store, fragment, 1)
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 2, fragment, PLACE_DEFERRED, 2))
        await store.flush()
        assert await store.expired_entries(1_000, 10) == [(fragment, 3, 300), (fragment, 4, 400)]
        assert await store.next_expiry_ms() == 300

    world.run(play)


def test_a_move_brings_its_entry_along_when_told(world: World) -> None:
    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put_expiring(store, fragment, 1, 100)
        put_expiring(store, fragment, 2, 200)
        await store.flush()
        store.batch().moves.extend(
            [
                Move(fragment, PLACE_ACTIVE, 1, other, PLACE_ACTIVE, 5, with_expiry_entry=True),
                Move(
                    fragment,
                    PLACE_ACTIVE,
                    2,
                    other,
                    PLACE_ACTIVE,
                    6,
                    expires_at_ms=50,
                    with_expiry_entry=True,
                ),
            ]
        )
        await store.flush()
        assert await store.expired_entries(1_000, 10) == [(other, 6, 50), (other, 5, 100)]

    world.run(play)


def test_entries_of_joined_removals_are_hidden(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 41):
            put_expiring(store, fragment, number, number)
        await store.flush()
        store.hold_commits()
        delete(store, fragment, *range(1, 40))
        assert await store.expired_entries(1_000, 2) == [(fragment, 40, 40)]
        assert await store.next_expiry_ms() == 40

    world.run(play)


def test_entries_are_walked_in_pages(world: World) -> None:
    """L-22: a page begins behind any row, also one that is gone; times may be equal, numbers may be high."""

    async def play(store: Any) -> None:
        first, second, base = add_fragment(store), store.next_fragment_key(), first_number_base(3)
        store.batch().fragments_created.append(FragmentRow(second, "orders", 3, Counters()))
        for number in range(1, 21):
            put_expiring(store, first, number, 100 + number // 5)
            put_expiring(store, second, base + number, 100 + number // 5)
        await store.flush()
        whole = await store.expired_entries(1_000, 100)
        assert len(whole) == 40
        walked: list[Any] = []
        after = None
        while True:
            page = await store.expired_entries(1_000, 7, after)
            walked += page
            if not page:
                break
            after = page[-1]
            delete(store, after[0], after[1])
        assert walked == whole
        rest = await store.expired_entries(1_000, 100, (0, 0, 104))
        assert rest == [row for row in whole if row[2] >= 104][:-1], "the last one was deleted"

    world.run(play)
