"""The catalogue, fragment rows, dropping and sweeping."""

import asyncio
from typing import Any

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Counters
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

#: By name, because a compiled class has no __slots__ to ask.
COUNTERS = ("last_counter", "active", "deferred", "scheduled", "bytes", "expiry_high_ms", "accessed_at_ms")


def test_the_catalogue_keeps_texts_and_its_version(world: World) -> None:
    async def play(store: Any) -> None:
        assert await store.catalogue() == (0, {})
        store.batch().catalogue.update({"queue/orders": '{"a": "ä🚌"}', "queue/bills": "{}"})
        store.batch().catalogue_version = 7
        await store.flush()
        assert await store.catalogue() == (7, {"queue/orders": '{"a": "ä🚌"}', "queue/bills": "{}"})
        store.batch().catalogue.update({"queue/orders": "[]", "queue/bills": None, "unknown": None})
        await store.flush()
        assert await store.catalogue() == (7, {"queue/orders": "[]"})

    world.run(play)


def test_a_version_alone_is_committed(world: World) -> None:
    async def play(store: Any) -> None:
        store.batch().catalogue_version = 3
        await store.flush()
        assert (await store.catalogue())[0] == 3

    world.run(play)


def test_counters_are_written_as_they_are_when_the_batch_closes(world: World) -> None:
    """E-100, E-101, E-102: counts are kept, never taken by scanning."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store, "orders")
        await store.flush()
        counters = Counters()
        store.batch().counters[fragment] = counters
        for place, name in enumerate(COUNTERS):
            setattr(counters, name, place + 10)
        await store.flush()
        counters.active = 999
        (row,) = await store.fragments([fragment])
        assert (row.key, row.owner, row.fragment_index) == (fragment, "orders", 0)
        assert [getattr(row.counters, name) for name in COUNTERS] == list(range(10, 17))

    world.run(play)


def test_fragments_are_listed_by_key_and_unknown_ones_left_out(world: World) -> None:
    async def play(store: Any) -> None:
        keys = [add_fragment(store, f"queue-{index}") for index in range(3)]
        await store.flush()
        assert [row.key for row in await store.fragments()] == keys
        assert [row.owner for row in await store.fragments([keys[2], keys[0], keys[0]])] == [
            "queue-0",
            "queue-2",
        ]
        assert await store.fragments([0, 999]) == []
        assert await store.fragments([]) == []

    world.run(play)


def test_fragment_keys_are_never_given_out_twice(world: World) -> None:
    """E-86: a name can be created again at once, because its rows get another key."""
    seen = []

    async def play(store: Any) -> None:
        seen.append(add_fragment(store))
        await store.flush()
        store.batch().fragments_dropped.append(seen[-1])
        await store.flush()
        while await store.sweep_dropped(1_000):
            pass
        seen.append(add_fragment(store))

    world.run(play)
    world.run(play)
    assert len(set(seen)) == 4


def fill(store: Any, fragment: Any) -> None:
    put_in_session(store, fragment, "a", *range(1, 101))
    put(store, fragment, *[message(n, session_id="a") for n in range(101, 201)], place=PLACE_DEFERRED)
    put(store, fragment, *[message(n, scheduled_at_ms=n) for n in range(201, 301)], place=PLACE_SCHEDULED)
    batch = store.batch()
    batch.expiry_entries.extend((fragment, n, n) for n in range(1, 101))
    batch.duplicate_ids.extend((fragment, f"id-{n}", n) for n in range(100))
    batch.session_states.append((fragment, "a", b"state", 1))


async def assert_invisible(store: Any, fragment: Any) -> None:
    for place in (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED):
        assert numbers_of(await store.messages(fragment, place, 0, 10, LOTS)) == []
        assert numbers_of(await store.by_number(fragment, place, [1, 101, 201])) == []
    assert numbers_of(await store.peek(fragment, 1, 10, LOTS, None)) == []
    assert numbers_of(await store.peek(fragment, 1, 10, LOTS, "a")) == []
    assert numbers_of(await store.session_messages(fragment, "a", 0, 10, LOTS)) == []
    assert await store.session(fragment, "a") is None
    assert await store.next_sessions(fragment, 0, 10) == []
    assert await store.sessions(fragment, None, 0, 10) == []
    assert await store.known_ids(fragment, ["id-1"], 0) == set()
    assert await store.next_due_ms() is None
    assert await store.next_expiry_ms() is None
    assert await store.fragments() == []


def test_a_dropped_fragment_is_invisible_at_once_and_swept_in_slices(world: World) -> None:
    """E-86: joined, committed, half swept, swept, after a restart: no read shows it."""
    fragments = []

    async def drop(store: Any) -> None:
        fragments.append(add_fragment(store))
        fill(store, fragments[0])
        await store.flush()
        store.hold_commits()
        store.batch().fragments_dropped.append(fragments[0])
        await assert_invisible(store, fragments[0])
        store.release_commits()
        await store.flush()
        await assert_invisible(store, fragments[0])
        assert await store.sweep_dropped(50)
        await assert_invisible(store, fragments[0])

    async def sweep(store: Any) -> None:
        await assert_invisible(store, fragments[0])
        rounds = 0
        while await store.sweep_dropped(100):
            rounds += 1
            await assert_invisible(store, fragments[0])
        assert rounds >= 3
        assert not await store.sweep_dropped(100)
        await assert_invisible(store, fragments[0])

    world.run(drop)
    world.run(sweep)


def test_the_sweep_leaves_other_fragments_alone(world: World) -> None:
    async def play(store: Any) -> None:
        first, doomed, last = add_fragment(store), add_fragment(store), add_fragment(store)
        for fragment in (first, doomed, last):
            fill(store, fragment)
        await store.flush()
        store.batch().fragments_dropped.append(doomed)
        await store.flush()
        while await store.sweep_dropped(77):
            pass
        for fragment in (first, last):
            assert await active_numbers(store, fragment) == list(range(1, 101))
            assert len((await store.peek(fragment, 1, 1_000, LOTS, "a")).messages) == 200
            assert len(await store.known_ids(fragment, [f"id-{n}" for n in range(100)], 0)) == 100
            assert (await store.session(fragment, "a")).state == b"state"
        assert len(await store.due(1_000, 1_000)) == 200
        assert len(await store.expired_entries(1_000, 1_000)) == 200

    world.run(play)


def test_everything_is_there_after_closing_and_opening(world: World) -> None:
    """Contract: the same data directory again."""
    keys = []

    async def first(store: Any) -> None:
        keys.append(add_fragment(store, "orders"))
        fill(store, keys[0])
        store.batch().catalogue["queue/orders"] = "{}"
        store.batch().catalogue_version = 2

    async def second(store: Any) -> None:
        assert await active_numbers(store, keys[0]) == list(range(1, 101))
        assert len((await store.peek(keys[0], 1, 1_000, LOTS, None)).messages) == 300
        assert 0 < (await store.session(keys[0], "a")).active <= 100
        assert await store.known_ids(keys[0], ["id-5"], 0) == {"id-5"}
        assert await store.next_due_ms() == 201
        assert await store.next_expiry_ms() == 1
        assert await store.catalogue() == (2, {"queue/orders": "{}"})
        # The index of an earlier life is kept up to date, too.
        store.batch().deletes.append((keys[0], PLACE_ACTIVE, list(range(1, 100))))
        await store.flush()
        assert await store.next_sessions(keys[0], 0, 10) == [("a", 100)]
        assert await store.expired_entries(1_000, 10) == [(keys[0], 100, 100)]

    world.run(first)
    world.run(second)


def test_closing_twice_and_opening_twice_do_no_harm(world: World) -> None:
    async def play() -> None:
        store = world.store()
        await store.close()
        await store.open()
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.close()
        await store.close()
        await store.reopen()
        assert await active_numbers(store, fragment) == [1]
        await store.close()

    asyncio.run(play())
