"""Rows that change their place, their fragment or their number."""

from typing import Any

from busway.message.message import NEVER_MS, PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Move
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    add_fragment,
    message,
    numbers_of,
    put,
    put_in_session,
)


def test_deferral_moves_the_row_and_keeps_everything_else(world: World) -> None:
    """R-13: same number, other place."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b"body", partition_key="key", ttl_ms=9), message(2))
        await store.flush()
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 1, fragment, PLACE_DEFERRED, 1))
        await store.flush()
        assert await active_numbers(store, fragment) == [2]
        page = await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)
        (found,) = page.messages
        assert (found.bare, found.partition_key, found.ttl_ms, found.state) == (b"body", "key", 9, 1)
        assert page.damaged == []

    world.run(play)


def test_dead_lettering_moves_to_another_fragment_under_a_new_number(world: World) -> None:
    """R-14: new number, changed properties, no expiry; the payload is the same."""

    async def play(store: Any) -> None:
        fragment, dead_letters = add_fragment(store), add_fragment(store)
        expiring = message(7, b"body")
        expiring.expires_at_ms = 1_700_000_005_000
        put(store, fragment, expiring)
        await store.flush()
        store.batch().moves.append(
            Move(
                fragment,
                PLACE_ACTIVE,
                7,
                dead_letters,
                PLACE_ACTIVE,
                1,
                delivery_count=10,
                changes=b"reason",
                enqueued_at_ms=5,
                expires_at_ms=NEVER_MS,
            )
        )
        await store.flush()
        assert await active_numbers(store, fragment) == []
        page = await store.messages(dead_letters, PLACE_ACTIVE, 0, 10, LOTS)
        (found,) = page.messages
        assert (found.sequence_number, found.bare, found.changes) == (1, b"body", b"reason")
        assert (found.delivery_count, found.enqueued_at_ms, found.expires_at_ms) == (10, 5, NEVER_MS)
        assert page.damaged == []

    world.run(play)


def test_every_pair_of_places_can_be_moved_between(world: World) -> None:
    async def play(store: Any) -> None:
        places = (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED)
        first, second = add_fragment(store), add_fragment(store)
        number = 0
        for source in places:
            for target in places:
                number += 1
                put(store, first, message(number, b"%d" % number), place=source)
                await store.flush()
                store.batch().moves.append(Move(first, source, number, second, target, number))
        await store.flush()
        for place in places:
            assert numbers_of(await store.messages(first, place, 0, 10, LOTS)) == []
            page = await store.messages(second, place, 0, 10, LOTS)
            assert numbers_of(page) == [place + 1, place + 4, place + 7]
            assert [each.bare for each in page.messages] == [b"%d" % n for n in numbers_of(page)]
            assert page.damaged == []

    world.run(play)


def test_moving_what_is_gone_moves_nothing(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().moves.append(
            Move(
                fragment,
                PLACE_ACTIVE,
                1,
                fragment,
                PLACE_ACTIVE,
                2,
                session_id="s",
                with_expiry_entry=True,
            )
        )
        await store.flush()
        assert await active_numbers(store, fragment) == []
        assert await store.next_sessions(fragment, 0, 10) == []
        assert await store.next_expiry_ms() is None

    world.run(play)


def test_a_row_may_be_moved_again_in_the_same_batch(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.batch().moves.extend(
            [
                Move(fragment, PLACE_ACTIVE, 1, fragment, PLACE_DEFERRED, 1),
                Move(fragment, PLACE_DEFERRED, 1, fragment, PLACE_ACTIVE, 2),
                Move(fragment, PLACE_ACTIVE, 2, fragment, PLACE_ACTIVE, 3),
            ]
        )
        await store.flush()
        assert await active_numbers(store, fragment) == [3]
        assert numbers_of(await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)) == []

    world.run(play)


def test_a_run_of_rows_moves_in_one_batch_and_back(world: World) -> None:
    """R-13: with gaps, with rows that are gone already, each with its own changes; sessions and expiry go along."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        expiring = [message(number, b"%d" % number) for number in (3, 4, 5, 9)]
        for each in expiring:
            each.expires_at_ms = 1_700_000_000_000 + each.sequence_number
        put(store, fragment, *expiring)
        put_in_session(store, fragment, "s", 1, 2)
        put(store, other, message(4, b"other"))
        await store.flush()
        numbers = [9, 1, 2, 3, 5, 7, 4]
        batch = store.batch()
        for number in numbers:
            batch.moves.append(
                Move(
                    fragment, PLACE_ACTIVE, number, fragment, PLACE_DEFERRED, number, changes=b"c%d" % number
                )
            )
        batch.moves.append(Move(other, PLACE_ACTIVE, 4, other, PLACE_DEFERRED, 4))
        await store.flush()
        assert await active_numbers(store, fragment) == await active_numbers(store, other) == []
        assert await store.next_sessions(fragment, 0, 10) == []
        page = await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)
        assert [(m.sequence_number, m.changes) for m in page.messages] == [
            (number, b"c%d" % number) for number in (1, 2, 3, 4, 5, 9)
        ]
        batch = store.batch()
        for number in (1, 2, 3, 9):
            session_id = "s" if number < 3 else None
            batch.moves.append(
                Move(
                    fragment,
                    PLACE_DEFERRED,
                    number,
                    fragment,
                    PLACE_ACTIVE,
                    number,
                    session_id=session_id,
                    with_expiry_entry=number > 2,
                )
            )
        await store.flush()
        assert await active_numbers(store, fragment) == [1, 2, 3, 9]
        assert await store.next_sessions(fragment, 0, 10) == [("s", 1)]
        entries = await store.expired_entries(1_800_000_000_000, 10)
        assert entries == [(fragment, 3, 1_700_000_000_003), (fragment, 9, 1_700_000_000_009)]
        rest = await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)
        assert (numbers_of(rest), rest.damaged) == ([4, 5], [])

    world.run(play)
