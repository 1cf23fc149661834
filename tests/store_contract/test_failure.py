"""Commits that fail."""

import asyncio
from typing import Any

import pytest

from busway.message.message import PLACE_ACTIVE
from busway.store.contract import CommitRefused, CommitUnknown, StoreState, StoreUnavailable
from tests.harness.memory_store import MemoryStore
from tests.store_contract.scenario import (
    LOTS,
    Outcomes,
    World,
    active_numbers,
    add_fragment,
    let_commits_start,
    message,
    put,
)


def test_a_batch_that_cannot_be_written_is_refused_whole(world: World) -> None:
    """F2: certain: nothing of it is stored, everybody in it is told."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1, b"first"))
        await store.flush()
        told = Outcomes()
        put(store, fragment, message(2), message(1, b"twice"))
        store.batch().session_states.append((fragment, "a", b"state", 1))
        store.batch().callbacks.extend([told, told])
        with pytest.raises(CommitRefused):
            await store.flush()
        assert told.kinds() == [CommitRefused, CommitRefused]
        assert store.state is StoreState.FAILED
        await store.reopen()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10, LOTS)
        assert [each.bare for each in page.messages] == [b"first"]
        assert await store.session(fragment, "a") is None

    world.run(play)


def test_nothing_joins_or_reads_a_failed_store_until_it_is_reopened(world: World) -> None:
    """F5: no accepted after the failure until the store is open again."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        put(store, fragment, message(1))
        with pytest.raises(CommitRefused):
            await store.flush()
        with pytest.raises(StoreUnavailable):
            store.batch()
        with pytest.raises(StoreUnavailable):
            await store.flush()
        with pytest.raises(StoreUnavailable):
            await active_numbers(store, fragment)
        await store.reopen()
        put(store, fragment, message(2))
        await store.flush()
        assert await active_numbers(store, fragment) == [1, 2]

    world.run(play)


def test_batches_gathered_behind_a_failed_one_are_refused(world: World) -> None:
    """F5: they were never tried."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        store.hold_commits()
        put(store, fragment, message(2))
        await let_commits_start(store)
        first, second = Outcomes(), Outcomes()
        put(store, fragment, message(1))
        store.batch().callbacks.append(first)
        store.release_commits()
        while not first:
            await asyncio.sleep(0)
            if store.state is StoreState.OPEN:
                put(store, fragment, message(3))
                store.batch().callbacks.append(second)
        assert first.kinds() == [CommitRefused]
        assert set(second.kinds()) <= {CommitRefused}
        await store.reopen()
        assert await active_numbers(store, fragment) == [1, 2]

    world.run(play)


def test_a_closed_store_takes_and_gives_nothing(world: World) -> None:
    async def play() -> None:
        store = world.store()
        with pytest.raises(StoreUnavailable):
            store.batch()
        await store.open()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.catalogue()

    asyncio.run(play())


def test_closing_commits_what_has_joined(world: World) -> None:
    """S-1: told, and there after the next opening."""
    told = Outcomes()
    fragments = []

    async def play() -> None:
        store = world.store()
        await store.open()
        fragments.append(add_fragment(store))
        put(store, fragments[0], message(1))
        store.batch().callbacks.append(told)
        await store.close()
        assert told == [None]

    asyncio.run(play())

    async def look(store: Any) -> None:
        assert await active_numbers(store, fragments[0]) == [1]

    world.run(look)


@pytest.mark.parametrize("is_applied", [False, True])
def test_the_memory_store_can_lose_track_of_a_commit(is_applied: bool) -> None:
    """Contract: an unknown outcome may turn out either way."""

    async def play() -> None:
        store = MemoryStore("memory")
        await store.open()
        fragment = add_fragment(store)
        await store.flush()
        store.lose_next_commit(is_applied=is_applied)
        put(store, fragment, message(1))
        with pytest.raises(CommitUnknown):
            await store.flush()
        assert store.state is StoreState.FAILED
        await store.reopen()
        assert await active_numbers(store, fragment) == ([1] if is_applied else [])

    asyncio.run(play())


def test_the_memory_store_can_refuse_and_crash() -> None:
    async def play() -> None:
        store = MemoryStore("memory")
        await store.open()
        fragment = add_fragment(store)
        await store.flush()
        store.refuse_next_commit()
        put(store, fragment, message(1))
        with pytest.raises(CommitRefused):
            await store.flush()
        await store.reopen()
        told = Outcomes()
        store.hold_commits()
        put(store, fragment, message(2))
        store.batch().callbacks.append(told)
        await let_commits_start(store)
        store.crash()
        await store.open()
        store.release_commits()
        put(store, fragment, message(3))
        await store.flush()
        assert (await active_numbers(store, fragment), told) == ([3], [])

    asyncio.run(play())


def test_a_disabled_store_comes_back_by_reopening(world: World) -> None:
    """Contract: taken out of service by an operator, with nothing lost."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.disable()
        assert store.state is StoreState.DISABLED
        with pytest.raises(StoreUnavailable, match="disabled"):
            store.batch()
        await store.reopen()
        assert await active_numbers(store, fragment) == [1]

    world.run(play)
