"""Scheduled rows by their time."""

from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_SCHEDULED
from busway.store.contract import Move
from tests.store_contract.scenario import World, active_numbers, add_fragment, delete, message, put


def test_due_rows_of_all_fragments_come_by_time(world: World) -> None:
    """S-30: whose time has come, earliest first."""

    async def play(store: Any) -> None:
        first, second = add_fragment(store), add_fragment(store)
        put(
            store,
            first,
            message(1, scheduled_at_ms=300),
            message(2, scheduled_at_ms=100),
            place=PLACE_SCHEDULED,
        )
        put(
            store,
            second,
            message(1, scheduled_at_ms=200),
            message(2, scheduled_at_ms=400),
            place=PLACE_SCHEDULED,
        )
        put(store, first, message(9, scheduled_at_ms=50))
        await store.flush()
        assert await store.next_due_ms() == 100
        assert await store.due(300, 10) == [(first, 2, 100), (second, 1, 200), (first, 1, 300)]
        assert await store.due(300, 2) == [(first, 2, 100), (second, 1, 200)]
        assert await store.due(99, 10) == []
        assert await store.due(400, 2, (first, 2, 100)) == [(second, 1, 200), (first, 1, 300)]
        assert await store.due(300, 10, (0, 0, 201)) == [(first, 1, 300)]
        assert await store.due(400, 10, (second, 2, 400)) == []

    world.run(play)


def test_nothing_is_due_in_an_empty_store(world: World) -> None:
    async def play(store: Any) -> None:
        assert await store.next_due_ms() is None
        assert await store.due(1 << 62, 10) == []

    world.run(play)


def test_an_activated_row_is_due_no_more(world: World) -> None:
    """M-35: it becomes active under a new number."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, scheduled_at_ms=100), place=PLACE_SCHEDULED)
        await store.flush()
        store.batch().moves.append(
            Move(fragment, PLACE_SCHEDULED, 1, fragment, PLACE_ACTIVE, 2, enqueued_at_ms=100)
        )
        await store.flush()
        assert await store.next_due_ms() is None
        assert await active_numbers(store, fragment) == [2]

    world.run(play)


def test_due_rows_hidden_by_joined_batches_do_not_fill_the_answer(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(
            store,
            fragment,
            *[message(number, scheduled_at_ms=number) for number in range(1, 101)],
            place=PLACE_SCHEDULED,
        )
        await store.flush()
        store.hold_commits()
        delete(store, fragment, *range(1, 100), place=PLACE_SCHEDULED)
        assert await store.due(1_000, 5) == [(fragment, 100, 100)]
        assert await store.next_due_ms() == 100

    world.run(play)


def test_rows_of_a_dropped_fragment_are_not_due(world: World) -> None:
    """E-86: before and after the drop's commit, and before the sweep."""

    async def play(store: Any) -> None:
        doomed, kept = add_fragment(store), add_fragment(store)
        put(
            store,
            doomed,
            *[message(number, scheduled_at_ms=number) for number in range(1, 51)],
            place=PLACE_SCHEDULED,
        )
        put(store, kept, message(1, scheduled_at_ms=500), place=PLACE_SCHEDULED)
        await store.flush()
        store.batch().fragments_dropped.append(doomed)
        assert await store.due(1_000, 3) == [(kept, 1, 500)]
        await store.flush()
        assert await store.due(1_000, 3) == [(kept, 1, 500)]
        assert await store.next_due_ms() == 500

    world.run(play)
