"""Logs: chunks of events and the producers that a log remembers."""

import asyncio
from typing import Any

import pytest

from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import CommitRefused, CommitUnknown, FragmentKey, StoreState, StoreUnavailable
from tests.harness.memory_store import MemoryStore
from tests.store_contract.log_scenario import (
    append,
    changes,
    chunk,
    forget,
    head_values,
    heads_of,
    numbers_in,
    numbers_of_log,
    producers_of,
    remember,
    retire,
)
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

FAR = 1 << 70


# -- writing and reading
def test_a_chunk_comes_back_as_it_was_written(world: World) -> None:
    """H-16: byte for byte, with what is known of it."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        builder = chunk(0, 1, 2)
        append(store, log, builder)
        await store.flush()
        page = await store.chunks(log, 0, LOTS)
        assert page.chunks == [builder.data()]
        assert (page.damaged, page.more) == ([], False)
        assert await heads_of(store, log) == [(0, 2, 1_000, 1_020, 3, len(builder.data()))]

    world.run(play)


def test_chunks_are_there_after_a_restart(world: World) -> None:
    """H-1: a partition is a log that stays."""
    logs: list[FragmentKey] = []

    async def write(store: Any) -> None:
        logs.append(add_fragment(store, "hub"))
        append(store, logs[0], chunk(0, 1), chunk(2))
        remember(store, logs[0], (7, 1, 2, 3))

    async def look(store: Any) -> None:
        assert await numbers_of_log(store, logs[0]) == [0, 1, 2]
        assert await producers_of(store, logs[0]) == [(7, 1, 2, 3)]

    world.run(write)
    world.run(look)


def test_events_that_join_a_chunk_before_its_batch_closes_are_part_of_it(world: World) -> None:
    """Contract: a chunk's bytes are taken when the batch closes, not before and not later."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        await store.flush()
        store.hold_commits()
        builder = ChunkBuilder()
        append(store, log, builder)
        builder.add(0, 1, b"zero", 0)
        builder.add(1, 2, b"one", 0)
        await let_commits_start(store)
        expected = builder.data()
        builder.add(2, 3, b"too late", 0)
        store.release_commits()
        await store.flush()
        assert (await store.chunks(log, 0, LOTS)).chunks == [expected]

    world.run(play)


def test_a_chunk_without_events_is_none(world: World) -> None:
    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, ChunkBuilder(), chunk(0))
        await store.flush()
        assert await numbers_of_log(store, log) == [0]
        assert len(await heads_of(store, log)) == 1

    world.run(play)


def test_logs_do_not_see_each_other(world: World) -> None:
    async def play(store: Any) -> None:
        first, second, third = (add_fragment(store, "hub") for _ in range(3))
        for number in range(5):
            append(store, first, chunk(number))
            append(store, third, chunk(10 + number))
        remember(store, first, (1, 1, 1, 1))
        await store.flush()
        assert await numbers_of_log(store, first) == [0, 1, 2, 3, 4]
        assert await numbers_of_log(store, second) == []
        assert await numbers_of_log(store, third) == [10, 11, 12, 13, 14]
        assert await store.first_number_since(second, 0) is None
        assert await producers_of(store, third) == []
        assert await store.chunk_heads(FragmentKey(99), 0, 10) == []

    world.run(play)


def test_a_fragment_holds_messages_and_events_side_by_side(world: World) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        append(store, fragment, chunk(1))
        await store.flush()
        assert await active_numbers(store, fragment) == [1]
        assert await numbers_of_log(store, fragment) == [1]

    world.run(play)


# -- pages
@pytest.mark.parametrize("count", [1, 2, 3, 12])
@pytest.mark.parametrize("body", [b"small", b"x" * 9_000, b"x" * 70_000], ids=["small", "medium", "large"])
def test_pages_of_any_size_give_every_chunk_once(world: World, count: int, body: bytes) -> None:
    """H-20: few and many chunks, small and large, in pages of all kinds."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        written = []
        for number in range(0, 2 * count, 2):
            builder = chunk(number, number + 1, body=body)
            written.append(builder.data())
            append(store, log, builder)
        await store.flush()
        size = len(written[0])
        for bytes_max in (0, 1, size, 2 * size + 100, 5 * size, LOTS):
            found: list[bytes] = []
            at = 0
            while True:
                page = await store.chunks(log, at, bytes_max)
                found += page.chunks
                assert len(page.chunks) == 1 or sum(map(len, page.chunks)) <= bytes_max
                if not page.more:
                    break
                at = numbers_in(page.chunks[-1])[-1] + 1
            assert found == written

    world.run(play)


def test_the_first_chunk_of_a_page_may_be_of_any_size(world: World) -> None:
    """Contract: at least one when any is left, however large."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0, body=b"x" * 3_000_000), chunk(1), chunk(2))
        await store.flush()
        page = await store.chunks(log, 0, 10)
        assert ([numbers_in(data) for data in page.chunks], page.more) == ([[0]], True)
        page = await store.chunks(log, 2, 10)
        assert ([numbers_in(data) for data in page.chunks], page.more) == ([[2]], False)

    world.run(play)


def test_a_page_begins_with_the_chunk_that_holds_the_number(world: World) -> None:
    """H-20: at a chunk's borders, inside, between chunks, and beyond both ends."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(5, 6, 7), chunk(8, 9), chunk(20, 25))
        await store.flush()
        firsts = {-FAR: 5, -1: 5, 5: 5, 7: 5, 8: 8, 9: 8, 10: 20, 19: 20, 21: 20, 25: 20, 26: None, FAR: None}
        for number, first in firsts.items():
            page = await store.chunks(log, number, 1)
            assert [numbers_in(data)[0] for data in page.chunks] == ([] if first is None else [first]), number
            assert page.more is (first not in (20, None))
            heads = await store.chunk_heads(log, number, 1)
            assert [head.first_number for head in heads] == ([] if first is None else [first])
        assert [head.first_number for head in await store.chunk_heads(log, 0, 2)] == [5, 8]
        assert await store.chunk_heads(log, 0, 0) == []

    world.run(play)


def test_a_time_finds_the_first_chunk_that_reaches_it(world: World) -> None:
    """H-20: at a chunk's borders, inside, in gaps, and beyond both ends."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0, 1, 2), chunk(3, 4), chunk(10, 12))  # 1000–1020, 1030–1040, 1100–1120
        await store.flush()
        for at_ms, first in {
            -FAR: 0,
            0: 0,
            1_000: 0,
            1_020: 0,
            1_021: 3,
            1_030: 3,
            1_040: 3,
            1_041: 10,
            1_100: 10,
            1_120: 10,
            1_121: None,
            FAR: None,
        }.items():
            assert await store.first_number_since(log, at_ms) == first, at_ms

    world.run(play)


def test_of_chunks_of_one_time_the_first_is_found(world: World) -> None:
    """H-20: also when it was written anew after the others."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        chunks = [ChunkBuilder() for _ in range(3)]
        for number, builder in enumerate(chunks):
            builder.add(2 * number, 7, b"first", 0)
            builder.add(2 * number + 1, 7, b"second", 0)
        append(store, log, *chunks)
        await store.flush()
        rewritten = ChunkBuilder()
        rewritten.add(1, 7, b"second", 0)
        retire(store, log, 0)
        append(store, log, rewritten)
        await store.flush()
        assert await store.first_number_since(log, 7) == 1
        assert await numbers_of_log(store, log) == [1, 2, 3, 4, 5]

    world.run(play)


# -- deletions
def test_retention_takes_whole_chunks(world: World) -> None:
    """H-30: the oldest go, the others stay as they are."""

    async def play(store: Any) -> None:
        log, other = add_fragment(store, "hub"), add_fragment(store, "hub")
        for each in (log, other):
            append(store, each, *[chunk(number, number + 1) for number in range(0, 20, 2)])
        await store.flush()
        retire(store, log, 0, 2, 4)
        await store.flush()
        assert await numbers_of_log(store, log) == list(range(6, 20))
        assert await numbers_of_log(store, other) == list(range(20))
        assert await store.first_number_since(log, 0) == 6

    world.run(play)


def test_a_chunk_that_is_not_there_can_be_deleted(world: World) -> None:
    """Contract: no error, and no other chunk goes instead: not one that holds the number without beginning there."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(2, 3, 4), chunk(8))
        await store.flush()
        retire(store, log, 0, 3, 4, 5, 9)
        retire(store, FragmentKey(99), 2)
        await store.flush()
        assert await numbers_of_log(store, log) == [2, 3, 4, 8]

    world.run(play)


def test_compaction_puts_chunks_in_the_place_of_others(world: World) -> None:
    """H-31: in one batch, also under the same first and last numbers."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0, 1, 2), chunk(3, 4, 5), chunk(6, 7))
        await store.flush()
        retire(store, log, 0, 3)
        append(store, log, chunk(0, 2, 5, body=b"kept"))
        await store.flush()
        assert await numbers_of_log(store, log) == [0, 2, 5, 6, 7]
        assert [values[4] for values in await heads_of(store, log)] == [3, 2]
        retire(store, log, 0)
        append(store, log, chunk(0, 5, body=b"again"))
        await store.flush()
        assert await numbers_of_log(store, log) == [0, 5, 6, 7]
        assert [values[:2] for values in await heads_of(store, log)] == [(0, 5), (6, 7)]

    world.run(play)


def test_a_deletion_that_has_joined_may_still_be_seen_and_is_gone_when_durable(world: World) -> None:
    """Contract: what is shown is always a durable state of the log."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0), chunk(1))
        await store.flush()
        retire(store, log, 0)
        assert await numbers_of_log(store, log) in ([0, 1], [1])
        await store.flush()
        assert await numbers_of_log(store, log) == [1]

    world.run(play)


# -- what is durable
def test_chunks_that_have_merely_joined_are_not_shown(world: World) -> None:
    """H-21: only durable events are ever delivered."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0))
        await store.flush()
        store.hold_commits()
        append(store, log, chunk(1))
        remember(store, log, (1, 1, 1, 1))
        await let_commits_start(store)
        append(store, log, chunk(2))
        assert await numbers_of_log(store, log) == [0]
        assert [values[0] for values in await heads_of(store, log)] == [0]
        assert await store.first_number_since(log, 1_010) is None
        assert await producers_of(store, log) == []
        told = Outcomes()
        store.batch().callbacks.append(told)
        store.release_commits()
        await store.flush()
        assert told == [None]
        assert await numbers_of_log(store, log) == [0, 1, 2]

    world.run(play)


def test_a_read_during_a_commit_is_answered_with_one_state(world: World) -> None:
    """Contract: a page that was read while its log was rewritten shows the old chunks or the new ones."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, *[chunk(number) for number in range(6)])
        await store.flush()
        store.hold_reads()
        read = asyncio.create_task(store.chunks(log, 0, LOTS))
        await store.read_rows_taken()
        retire(store, log, 0, 1, 2)
        append(store, log, chunk(0, 2))
        await store.flush()
        store.release_reads()
        page = await read
        seen = [number for data in page.chunks for number in numbers_in(data)]
        assert (seen, page.damaged) in (([0, 1, 2, 3, 4, 5], []), ([0, 2, 3, 4, 5], []))

    world.run(play)


def test_two_chunks_that_end_alike_are_refused_with_their_batch(world: World) -> None:
    """Contract: certain: nothing of the batch is stored."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0, 1))
        remember(store, log, (1, 1, 1, 1))
        await store.flush()
        told = Outcomes()
        retire(store, log, 0)
        append(store, log, chunk(2), chunk(0, 1, 2))
        remember(store, log, (1, 2, 2, 2), (2, 2, 2, 2))
        forget(store, log, LOTS)
        store.batch().callbacks.append(told)
        with pytest.raises(CommitRefused):
            await store.flush()
        assert told.kinds() == [CommitRefused]
        assert store.state is StoreState.FAILED
        await store.reopen()
        assert await numbers_of_log(store, log) == [0, 1]
        assert await producers_of(store, log) == [(1, 1, 1, 1)]
        append(store, log, chunk(2))
        await store.flush()
        assert await numbers_of_log(store, log) == [0, 1, 2]

    world.run(play)


def test_a_store_that_is_not_open_gives_no_events(world: World) -> None:
    """Contract: like every other read."""

    async def refuses(store: Any, log: FragmentKey) -> None:
        for read in (
            store.chunks(log, 0, 1),
            store.chunk_heads(log, 0, 1),
            store.first_number_since(log, 0),
            store.producers(log),
        ):
            with pytest.raises(StoreUnavailable):
                await read

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0))
        await store.flush()
        append(store, log, chunk(0))
        with pytest.raises(CommitRefused):
            await store.flush()
        await refuses(store, log)
        await store.reopen()
        assert await numbers_of_log(store, log) == [0]
        await store.close()
        await refuses(store, log)

    world.run(play)


@pytest.mark.parametrize("is_applied", [False, True])
def test_the_memory_store_can_lose_track_of_events(is_applied: bool) -> None:
    """Contract: an unknown outcome may turn out either way, but whole."""

    async def play() -> None:
        store = MemoryStore("memory")
        await store.open()
        log = add_fragment(store, "hub")
        append(store, log, chunk(0))
        await store.flush()
        store.lose_next_commit(is_applied=is_applied)
        append(store, log, chunk(1), chunk(2, 3))
        remember(store, log, (1, 1, 1, 1))
        with pytest.raises(CommitUnknown):
            await store.flush()
        await store.reopen()
        assert await numbers_of_log(store, log) == ([0, 1, 2, 3] if is_applied else [0])
        assert await producers_of(store, log) == ([(1, 1, 1, 1)] if is_applied else [])

    asyncio.run(play())


def test_a_crash_of_the_memory_store_forgets_what_is_not_committed() -> None:
    async def play() -> None:
        store = MemoryStore("memory")
        await store.open()
        log = add_fragment(store, "hub")
        append(store, log, chunk(0))
        await store.flush()
        store.hold_commits()
        append(store, log, chunk(1))
        await let_commits_start(store)
        append(store, log, chunk(2))
        store.crash()
        await store.open()
        store.release_commits()
        assert await numbers_of_log(store, log) == [0]

    asyncio.run(play())


def test_events_count_into_the_byte_cap_while_they_gather(sqlite_world: World) -> None:
    """F6: what an append adds to the batch's bytes congests the store until the batch is closed."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        await store.flush()
        append(store, log, chunk(0, body=b"x" * 600))
        assert store.accepts_payload()
        append(store, log, chunk(1, body=b"x" * 600))
        assert store.is_congested()
        assert not store.accepts_payload()
        await store.flush()
        assert store.accepts_payload()
        assert await numbers_of_log(store, log) == [0, 1]

    sqlite_world.run(play, batch_bytes_max=1_000)


# -- producers
def test_a_producer_is_remembered_as_it_was_last(world: World) -> None:
    """H-18, H-19: laid over what is there, listed by id."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        remember(store, log, (9, 0, -1, 100), (3, 0, 5, 100), (1 << 62, 3, (1 << 31) - 1, 100))
        await store.flush()
        remember(store, log, (9, 1, 0, 200), (9, 1, 4, 210))
        await store.flush()
        assert await producers_of(store, log) == [
            (3, 0, 5, 100),
            (9, 1, 4, 210),
            (1 << 62, 3, (1 << 31) - 1, 100),
        ]

    world.run(play)


def test_what_a_producer_is_known_by_is_kept_as_it_is(world: World) -> None:
    """H-18: digests of its last groups, opaque to a store."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        remember(store, log, (3, 0, 5, 100), (9, 0, 1, 100))
        changes(store).producers[-1][1].groups = b"\x00first"
        await store.flush()
        remember(store, log, (9, 0, 2, 100))
        changes(store).producers[-1][1].groups = b"\x00first\xffsecond"
        await store.flush()
        assert [row.groups for row in await store.producers(log)] == [b"", b"\x00first\xffsecond"]

    world.run(play)


def test_producers_that_were_not_used_for_long_are_forgotten(world: World) -> None:
    """H-19: by the time of their last use, per log; what the same batch remembers is looked at, too."""

    async def play(store: Any) -> None:
        log, other = add_fragment(store, "hub"), add_fragment(store, "hub")
        for each in (log, other):
            remember(store, each, (1, 0, 0, 99), (2, 0, 0, 100), (3, 0, 0, 101))
        await store.flush()
        remember(store, log, (1, 0, 1, 150), (4, 0, 0, 50))
        forget(store, log, 101)
        await store.flush()
        assert await producers_of(store, log) == [(1, 0, 1, 150), (3, 0, 0, 101)]
        assert len(await producers_of(store, other)) == 3

    world.run(play)


def test_a_producer_counts_with_its_events(world: World) -> None:
    """H-18: its state and its events are one commit; a live row is written as it is when the batch closes."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        await store.flush()
        remember(store, log, (1, 0, 0, 10))
        row = changes(store).producers[-1][1]
        row.last_sequence = 7
        append(store, log, chunk(0))
        await store.flush()
        row.last_sequence = 8
        assert await producers_of(store, log) == [(1, 0, 7, 10)]
        assert await numbers_of_log(store, log) == [0]

    world.run(play)


# -- dropping
def test_a_dropped_log_shows_nothing_from_the_join_on(world: World) -> None:
    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        append(store, log, chunk(0))
        remember(store, log, (1, 1, 1, 1))
        await store.flush()
        store.hold_commits()
        store.batch().fragments_dropped.append(log)
        for _ in range(2):
            assert (await store.chunks(log, 0, LOTS)).chunks == []
            assert await store.chunk_heads(log, 0, 10) == []
            assert await store.first_number_since(log, 0) is None
            assert await store.producers(log) == []
            await let_commits_start(store)

    world.run(play)


def test_a_dropped_log_is_swept_in_slices(world: World) -> None:
    """F8: no slice holds the store up, none of the log is left, its neighbour is untouched."""

    async def play(store: Any) -> None:
        log, other = add_fragment(store, "hub"), add_fragment(store, "hub")
        for each in (log, other):
            append(store, each, *[chunk(number) for number in range(20)])
            remember(store, each, *[(number, 0, 0, 0) for number in range(10)])
        await store.flush()
        store.batch().fragments_dropped.append(log)
        slices = 1
        while await store.sweep_dropped(7):
            slices += 1
        assert slices >= 5
        assert await store.sweep_dropped(7) is False
        assert await numbers_of_log(store, other) == list(range(20))
        assert len(await producers_of(store, other)) == 10

    world.run(play)


def test_a_slice_of_large_chunks_is_smaller(sqlite_world: World) -> None:
    """F8: pages are freed one by one, so the bytes of a chunk count."""

    async def play(store: Any) -> None:
        logs = [add_fragment(store, "hub") for _ in range(2)]
        for log in logs:
            append(store, log, *[chunk(number, body=b"x" * 1_000_000) for number in range(5)])
        await store.flush()
        store.batch().fragments_dropped.extend(logs)
        left = []
        while await store.sweep_dropped(100):
            [(rows,)] = store._connection.execute("SELECT count(*) FROM log_chunks").fetchall()
            left.append(rows)
        assert left == [6, 3, 0][: len(left)]
        assert len(left) >= 2

    sqlite_world.run(play)


def test_heads_of_compacted_chunks_tell_what_is_left(world: World) -> None:
    """H-31: fewer events than numbers, and the bytes that are really there."""

    async def play(store: Any) -> None:
        log = add_fragment(store, "hub")
        builder = chunk(0, 4, 9)
        append(store, log, builder)
        await store.flush()
        [head] = await store.chunk_heads(log, 3, 10)
        assert head_values(head) == (0, 9, 1_000, 1_090, 3, builder.size_bytes())

    world.run(play)
