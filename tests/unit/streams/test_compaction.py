"""Of the events with one key only the last stays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from busway.message.event_chunk import BODY_ELSEWHERE, Chunk, ChunkBuilder
from busway.message.event_record import Event, event_of
from busway.model.errors import ServerBusy
from busway.streams import retention
from busway.streams.hub_descriptions import RetentionDescription
from busway.streams.retention import is_tombstone, key_of
from tests.harness.event_records import record_of
from tests.unit.streams.rig import HubRig, Told, chunk_of, event, play

HOUR = 3600.0
COMPACT = RetentionDescription("Compact", -1, tombstone_retention_hours=2)


async def put(rig: HubRig, *pairs: tuple[str | None, str]) -> None:
    """(key, text), all in one chunk."""
    told = Told()
    rig.log.append([event(text, key) for key, text in pairs], told)
    await rig.calm()
    assert told.error is None


async def entries(rig: HubRig) -> list[tuple[int, str]]:
    reader = await rig.read()
    return list(zip(reader.numbers, reader.bodies(), strict=True))


async def check_counts(rig: HubRig) -> None:
    """What is counted is what is there."""
    heads = await rig.store.chunk_heads(rig.log.key, 0, 1000)
    info = rig.log.info()
    assert info.events == sum(head.events for head in heads)
    assert info.bytes == sum(head.size_bytes for head in heads)
    assert [head.first_number for head in heads] == sorted(head.first_number for head in heads)
    for before, after in pairwise(heads):
        assert before.last_number < after.first_number


def test_the_last_event_of_each_key_stays() -> None:
    """H-31: under its number, in order; events without a key stay too."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("b", "b1"), (None, "n2"), ("a", "a3"))
        await put(rig, ("a", "a4"), (None, "n5"))
        await put(rig, ("c", "c6"))
        await rig.advance(61)
        assert await entries(rig) == [(1, "b1"), (2, "n2"), (4, "a4"), (5, "n5"), (6, "c6")]
        await check_counts(rig)
        assert rig.log.info().begin_number == 1
        await put(rig, ("b", "b7"), ("c", "c8"), ("a", "a9"))
        await rig.advance(61)
        assert await entries(rig) == [(2, "n2"), (5, "n5"), (7, "b7"), (8, "c8"), (9, "a9")]
        await check_counts(rig)
        assert rig.log.info().begin_number == 2

    play(scenario, retention=COMPACT)


def test_positions_and_offsets_do_not_change() -> None:
    """H-31: a reader goes on where it was; a number that has left begins with the next."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("b", "b1"), ("a", "a2"), ("b", "b3"), ("a", "a4"))
        before = (await rig.read()).records
        reader = rig.reader(credit=1)
        await rig.calm()
        await rig.advance(61)
        assert (await rig.read()).records == [before[3], before[4]]
        assert (await rig.read(1)).numbers == [3, 4]
        assert (await rig.read(4)).numbers == [4]
        reader.credit = 10
        reader.pull()
        await rig.calm()
        assert reader.numbers[-1] == 4
        assert reader.numbers == sorted(reader.numbers)

    play(scenario, retention=COMPACT)


def test_a_tombstone_removes_its_key_and_then_itself() -> None:
    """H-31: after the time that tombstones are kept."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("b", "b1"))
        await put(rig, ("a", ""))
        await rig.advance(61)
        assert await entries(rig) == [(1, "b1"), (2, "")]
        await rig.advance(HOUR * 2 + 61)
        await rig.advance(61)
        assert await entries(rig) == [(1, "b1")]
        await check_counts(rig)

    play(scenario, retention=COMPACT)


def test_young_events_are_left_alone() -> None:
    """H-31: those younger than the lag, and those before them."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("a", "a1"))
        await rig.advance(301)
        await put(rig, ("a", "a2"))
        await rig.advance(301)
        assert await entries(rig) == [(1, "a1"), (2, "a2")]
        await rig.advance(HOUR)
        await rig.advance(61)
        assert await entries(rig) == [(2, "a2")]
        await check_counts(rig)

    play(scenario, retention=RetentionDescription("Compact", -1, min_compaction_lag_minutes=10))


def test_time_and_compaction_go_together() -> None:
    """H-2: DeleteOrCompact."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("a", "a1"))
        await rig.advance(61)
        assert await entries(rig) == [(1, "a1")]
        await rig.advance(HOUR)
        assert await entries(rig) == []
        assert rig.log.info().begin_number == 2
        await check_counts(rig)

    play(scenario, retention=RetentionDescription("DeleteOrCompact", 1))


def test_a_hub_that_deletes_does_not_compact() -> None:
    """H-2: and one that compacts does not delete by time."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("a", "a1"))
        await rig.advance(HOUR * 3)
        assert len(await entries(rig)) == 2

    async def compacting(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("a", "a1"))
        await rig.advance(HOUR * 24 * 400)
        assert await entries(rig) == [(1, "a1")]

    play(scenario)
    play(compacting, retention=RetentionDescription("Compact", 24))


def test_everything_of_the_first_chunks_may_leave() -> None:
    """H-31: the log then begins where its first event is."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"))
        await put(rig, ("a", "a1"))
        await put(rig, ("a", "a2"))
        await rig.advance(61)
        assert await entries(rig) == [(2, "a2")]
        assert rig.log.info().begin_number == 2
        await rig.restart()
        assert rig.log.info().begin_number == 2
        assert rig.log.counters.compacted_to == 3

    play(scenario, retention=COMPACT)


def test_little_that_is_new_waits() -> None:
    """H-31: reading all of a log must be worth it, or an hour has passed."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, *[(str(number), "x") for number in range(20)])
        await rig.advance(61)
        reads = rig.store.reads
        await put(rig, ("0", "y"))
        await rig.advance(61)
        assert rig.store.reads == reads
        assert len(await entries(rig)) == 21
        await rig.advance(HOUR)
        assert len(await entries(rig)) == 20

    play(scenario, retention=COMPACT)


def test_many_keys_are_handled_in_several_goes() -> None:
    """H-31: memory is bounded."""

    async def scenario(rig: HubRig) -> None:
        for round_ in range(3):
            await put(rig, *[(str(key), f"{round_}") for key in range(10)])
        for _ in range(20):
            await rig.advance(HOUR)
        found = await entries(rig)
        assert [text for _, text in found] == ["2"] * 10
        await check_counts(rig)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "KEYS_MAX", 4)
        play(scenario, retention=COMPACT)


def test_a_tombstone_outlives_what_it_removes() -> None:
    """H-31: also when its stretch of the log is not compacted in the same go."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "a0"), ("b", "b1"), ("t", "t2"), ("t", ""))
        rig.clock.advance(HOUR * 3)
        for _ in range(4):
            await rig.advance(HOUR)
            assert (2, "t2") not in await entries(rig) or (3, "") in await entries(rig)
        assert await entries(rig) == [(0, "a0"), (1, "b1")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "KEYS_MAX", 2)
        play(scenario, retention=COMPACT)


def test_what_was_compacted_away_is_not_shown_from_memory() -> None:
    """H-31: the tail follows."""

    async def scenario(rig: HubRig) -> None:
        standing = rig.reader()
        await put(rig, ("a", "a0"), ("a", "a1"))
        await rig.advance(61)
        assert await entries(rig) == [(1, "a1")]
        await put(rig, ("a", "a2"))
        assert standing.numbers == [0, 1, 2]

    play(scenario, retention=COMPACT)


def test_it_pauses_between_steps() -> None:
    """H-31: others have a turn, and may close the log meanwhile."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, *[("a", str(number)) for number in range(1000)])
        log = rig.log
        rig.clock.advance(61)
        rig.timers.run(rig.clock.monotonic())
        await rig.turns(30)
        assert rig.tasks
        assert len(rig.timers) == 1  # the pause
        rig.hub.lose_partition(0, ServerBusy())
        await rig.calm()
        assert not rig.tasks
        assert log.is_closed
        assert len(await rig.store.chunk_heads(log.key, 0, 10)) == 1

    play(scenario, retention=COMPACT)


def test_appends_go_on_meanwhile() -> None:
    """H-31: what comes during a pause lies behind, and is not lost."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, *[("a", str(number)) for number in range(1000)])
        rig.clock.advance(61)
        rig.timers.run(rig.clock.monotonic())
        await rig.turns(30)
        told = rig.append_later("during", key="a")
        await rig.calm()
        assert told.error is None
        assert await entries(rig) == [(999, "999"), (1000, "during")]
        await check_counts(rig)

    play(scenario, retention=COMPACT)


def test_damaged_chunks_keep_their_place() -> None:
    """H-31: what cannot be read is neither removed nor joined over."""

    async def scenario(rig: HubRig) -> None:
        for text in ("0", "1", "2", "3", "4"):
            await put(rig, ("a", text))
        await put(rig, ("b", "5"))
        rig.store.damaged = {2}
        await rig.advance(61)
        rig.store.damaged = set()
        assert await entries(rig) == [(2, "2"), (4, "4"), (5, "5")]
        await check_counts(rig)

    play(scenario, retention=COMPACT)


def test_a_failed_commit_leaves_the_log_as_it_was() -> None:
    """S-1: and it is compacted later."""

    async def scenario(rig: HubRig) -> None:
        await put(rig, ("a", "0"), ("a", "1"), ("b", "2"))
        rig.store.refuse_next_commit()
        await rig.advance(61)
        await rig.reopen()
        assert len(await entries(rig)) == 3
        await rig.advance(61)
        assert len(await entries(rig)) == 2
        await check_counts(rig)

    play(scenario, retention=COMPACT)


def message(body: bytes) -> Event:
    return event_of(b"\x00Ss\xc0\x04\x01\xa1\x01i" + body)


def chunk_with(made: Event) -> Chunk:
    return chunk_of((0, 0, record_of(made, 0, 0)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", True),
        (b"\x00Sw\x40", True),
        (b"\x00Su\xa0\x00", True),
        (b"\x00Su\xb0\x00\x00\x00\x00", True),
        (b"\x00Su\xa0\x01x", False),
        (b"\x00Su\xa0\x00\x00Su\xa0\x00", False),
        (b"\x00Sw\xa1\x00", False),
        (b"\x00Sv\x45", False),
    ],
)
def test_a_tombstone_has_no_body(body: bytes, expected: bool) -> None:
    """H-31: nothing, a null, or no bytes."""
    assert is_tombstone(chunk_of_unknown_body(message(body)), 0) is expected


def chunk_of_unknown_body(made: Event) -> Chunk:
    builder = ChunkBuilder()
    builder.add(0, 0, record_of(made, 0, 0), BODY_ELSEWHERE)
    return Chunk(builder.data())


def test_a_key_is_found_in_the_annotations_only() -> None:
    """H-31: a body may speak of keys as it likes."""
    assert key_of(chunk_with(event("x-opt-partition-key")), 0) is None
    keyed = key_of(chunk_with(event("body", "k")), 0)
    assert keyed == key_of(chunk_with(event("another", "k")), 0)
    assert keyed != key_of(chunk_with(event("body", "l")), 0)
    long = key_of(chunk_with(event("body", "k" * 70_000)), 0)
    assert long is not None
    assert len(long) == 16
