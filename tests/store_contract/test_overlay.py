"""Reads while batches gather, are in flight, or were committed since the read began."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Change, Move
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    add_fragment,
    delete,
    let_commits_start,
    message,
    numbers_of,
    put,
    put_in_session,
)

Act = Callable[[Any], Awaitable[None]]


async def _gather(_store: Any) -> None:
    """The batch stays open: an earlier commit is held in flight."""


async def _put_in_flight(store: Any) -> None:
    await let_commits_start(store)


async def _commit(store: Any) -> None:
    store.release_commits()
    await store.flush()


@pytest.mark.parametrize("advance", [_gather, _put_in_flight, _commit])
def test_removals_and_changes_show_at_every_stage_of_their_batch(world: World, advance: Act) -> None:
    """Contract: what a joined batch deletes, moves away or changes is seen so, wherever the batch is."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 7)])
        put(store, fragment, message(11), message(12), place=PLACE_DEFERRED)
        put(store, fragment, message(21, scheduled_at_ms=5), place=PLACE_SCHEDULED)
        await store.flush()
        store.hold_commits()
        if advance is _gather:
            put(store, other, message(1))
            await let_commits_start(store)
        delete(store, fragment, 1, 2)
        delete(store, fragment, 11, place=PLACE_DEFERRED)
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 3, fragment, PLACE_DEFERRED, 3))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 4, 9, b"changed"))
        delete(store, fragment, 21, place=PLACE_SCHEDULED)
        await advance(store)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert [(m.sequence_number, m.delivery_count, m.changes) for m in page.messages] == [
            (4, 9, b"changed"),
            (5, 0, None),
            (6, 0, None),
        ]
        assert set(numbers_of(await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS))) - {3} == {12}
        assert numbers_of(await store.by_number(fragment, PLACE_ACTIVE, [1, 3, 4])) == [4]
        assert set(numbers_of(await store.peek(fragment, 1, 10, LOTS, None))) - {3} == {4, 5, 6, 12}
        assert await store.due(100, 10) == []

    world.run(play)


def test_a_removal_committed_while_a_read_is_under_way_is_not_shown(world: World) -> None:
    """Contract: the read took its rows before the commit and returns after its report."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 5)])
        await store.flush()
        store.hold_reads()
        reading = asyncio.create_task(store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS))
        await store.read_rows_taken()
        delete(store, fragment, 1)
        await store.flush()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 2, 5, None))
        await store.flush()
        delete(store, fragment, 3)
        store.release_reads()
        page = await reading
        assert [(each.sequence_number, each.delivery_count) for each in page.messages] == [(2, 5), (4, 0)]

    world.run(play)


def test_a_fragment_dropped_while_a_read_is_under_way_is_not_shown(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "a", 1)
        await store.flush()
        store.hold_reads()
        readings = [
            asyncio.create_task(store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)),
            asyncio.create_task(store.next_sessions(fragment, 0, 10)),
        ]
        await store.read_rows_taken()
        store.batch().fragments_dropped.append(fragment)
        await store.flush()
        store.release_reads()
        page, sessions = await asyncio.gather(*readings)
        assert (numbers_of(page), sessions) == ([], [])

    world.run(play)


def test_a_row_put_back_and_committed_is_shown_to_later_reads(world: World) -> None:
    """Contract: a read sees at least what was reported before it was called, also while older reads linger."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_reads()
        older = asyncio.create_task(store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS))
        await store.read_rows_taken()
        delete(store, fragment, 1)
        await store.flush()
        put(store, fragment, message(1, b"back"))
        await store.flush()
        later = asyncio.create_task(store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS))
        store.release_reads()
        await older
        assert [each.bare for each in (await later).messages] == [b"back"]

    world.run(play)


def test_sessions_are_corrected_by_joined_removals(world: World) -> None:
    """X-8, X-16: a session whose messages are all going is not offered; others move to their next message."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put_in_session(store, fragment, "going", 1, 3)
        put_in_session(store, fragment, "long", *range(100, 400))
        put_in_session(store, fragment, "next", 2, 500)
        put_in_session(store, fragment, "calm", 50)
        await store.flush()
        store.hold_commits()
        delete(store, fragment, 1, 3, 2, *range(100, 399))
        assert await store.next_sessions(fragment, 0, 10) == [("calm", 50), ("long", 399), ("next", 500)]
        assert await store.next_sessions(fragment, 0, 1) == [("calm", 50)]
        assert await store.next_sessions(fragment, 50, 1) == [("long", 399)]
        assert await store.next_sessions(fragment, 399, 10) == [("next", 500)]
        assert await store.session(fragment, "going") is None
        row = await store.session(fragment, "long")
        assert (row.active, row.first_number) == (1, 399)
        assert await store.sessions(fragment, None, 0, 10) == ["calm", "long", "next"]
        assert numbers_of(await store.session_messages(fragment, "long", 0, 5, LOTS)) == [399]

    world.run(play)


def test_paging_through_sessions_meets_each_while_removals_are_joined(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for index in range(20):
            put_in_session(store, fragment, f"s{index:02}", index + 1, 100 + index)
        await store.flush()
        store.hold_commits()
        delete(store, fragment, *range(1, 20, 2))
        seen = []
        after = 0
        while found := await store.next_sessions(fragment, after, 3):
            seen += found
            after = found[-1][1]
        assert len(seen) == len({name for name, _ in seen}) == 20
        assert [first for _, first in seen] == [*range(2, 21, 2), *range(100, 120, 2)]

    world.run(play)


def test_joined_states_are_seen(world: World) -> None:
    """X-15: a state set or cleared by a joined batch counts already."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        store.batch().session_states.append((fragment, "cleared", b"1", 100))
        store.batch().session_states.append((fragment, "changed", b"1", 100))
        await store.flush()
        store.hold_commits()
        store.batch().session_states.append((fragment, "cleared", None, 200))
        await let_commits_start(store)
        store.batch().session_states.append((fragment, "changed", b"2", 300))
        assert await store.session(fragment, "cleared") is None
        row = await store.session(fragment, "changed")
        assert (row.state, row.state_set_at_ms) == (b"2", 300)
        assert await store.sessions(fragment, None, 0, 10) == ["changed"]
        assert await store.sessions(fragment, 100, 0, 10) in ([], ["changed"])

    world.run(play)


def test_everything_reported_before_a_read_is_seen_by_it(world: World) -> None:
    """S-1, R-60: a read called from the commit's own callback sees the commit."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        tasks: list[asyncio.Task[list[int]]] = []
        for number in range(1, 30):
            put(store, fragment, message(number))
            store.batch().callbacks.append(
                lambda _: tasks.append(asyncio.create_task(active_numbers(store, fragment)))
            )
            await store.flush()
        for number, task in enumerate(tasks, start=1):
            assert (await task)[:number] == list(range(1, number + 1))

    world.run(play)


def test_a_cancelled_read_leaves_nothing_behind(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_reads()
        reading = asyncio.create_task(store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS))
        await store.read_rows_taken()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        store.release_reads()
        delete(store, fragment, 1)
        await store.flush()
        assert await active_numbers(store, fragment) == []

    world.run(play)


def test_shadows_of_reported_batches_are_let_go(sqlite_world: World) -> None:
    """F8: a store that is read now and then holds the open batch only."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 50):
            put(store, fragment, message(number))
            await asyncio.gather(store.flush(), active_numbers(store, fragment))
        assert len(store._shadows) == 1
        assert store._spans.begun == {}

    sqlite_world.run(play)


@pytest.mark.parametrize("advance", [_gather, _put_in_flight, _commit])
def test_a_second_change_that_keeps_the_properties_keeps_those_of_the_first(
    world: World, advance: Act
) -> None:
    """Found by simulation: R-11, R-40: abandoned with a property, delivered and abandoned again before the commit."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_commits()
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 1, 1, b"properties"))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 1, 2, None))
        await advance(store)
        (found,) = (await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)).messages
        assert (found.delivery_count, found.changes) == (2, b"properties")
        store.release_commits()

    world.run(play)
