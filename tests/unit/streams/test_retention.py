"""Old events leave."""

from __future__ import annotations

from dataclasses import replace

from busway.model.errors import ServerBusy
from busway.model.limits import Limits
from busway.streams.hub_descriptions import RetentionDescription
from tests.unit.streams.rig import HubRig, play

HOUR = 3600.0
ONE_HOUR = RetentionDescription(retention_hours=1)


def test_events_leave_after_the_retention_time() -> None:
    """H-30: not before, and not much later; what comes next goes on with the numbers."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        await rig.advance(HOUR / 2)
        await rig.fill("c")
        await rig.advance(HOUR / 2 - 1)
        assert await rig.numbers() == [0, 1, 2]
        await rig.advance(61)
        assert await rig.numbers() == [2]
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.events) == (2, 2, 1)
        await rig.advance(HOUR)
        assert await rig.numbers() == []
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.is_empty) == (3, 2, True)
        assert (info.events, info.bytes) == (0, 0)
        await rig.append("d")
        assert await rig.numbers() == [3]
        assert rig.log.info().begin_number == 3

    play(scenario, retention=ONE_HOUR)


def test_a_chunk_leaves_when_its_last_event_may() -> None:
    """H-30: an event may stay somewhat longer."""

    async def scenario(rig: HubRig) -> None:
        rig.store.hold_commits()
        await rig.calm()
        rig.append_later("first")
        await rig.calm()
        rig.append_later("a")
        rig.clock.advance(HOUR / 2)
        rig.append_later("b")
        rig.store.release_commits()
        await rig.calm()
        await rig.advance(HOUR / 2 + 61)
        assert await rig.numbers() == [1, 2]
        await rig.advance(HOUR / 2)
        assert await rig.numbers() == []

    play(scenario, retention=ONE_HOUR)


def test_what_was_kept_is_known_after_a_restart() -> None:
    """H-30: begin and counts lie beside the events."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        await rig.advance(HOUR / 2)
        await rig.fill("c", "d")
        await rig.advance(HOUR / 2 + 61)
        before = rig.log.info()
        await rig.restart()
        after = rig.log.info()
        assert (after.begin_number, after.last_number) == (2, 3)
        assert (after.events, after.bytes) == (before.events, before.bytes)
        heads = await rig.store.chunk_heads(rig.log.key, 0, 100)
        assert after.bytes == sum(head.size_bytes for head in heads)
        await rig.advance(HOUR)
        assert await rig.numbers() == []

    play(scenario, retention=ONE_HOUR)


def test_for_ever_is_for_ever() -> None:
    """H-2: retention -1."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        await rig.advance(HOUR * 24 * 10_000)
        assert await rig.numbers() == [0]

    play(scenario, retention=RetentionDescription(retention_hours=-1))


def test_many_chunks_leave_in_slices() -> None:
    """H-30: each slice is durable before the next."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill(*["x"] * 10)
        await rig.advance(HOUR + 61)
        assert await rig.numbers() == []
        assert rig.log.info().events == 0

    play(scenario, Limits(sweep_rows_max=3), retention=ONE_HOUR)


def test_the_oldest_leave_above_a_size() -> None:
    """H-30, ours: but never the newest chunk."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill(*["x" * 200] * 10)
        await rig.advance(61)
        assert rig.log.info().bytes <= 1000
        numbers = await rig.numbers()
        assert numbers == list(range(numbers[0], 10))
        await rig.append("x" * 5000)
        await rig.advance(61)
        assert await rig.numbers() == [10]

    play(scenario, retention=RetentionDescription(retention_hours=-1, partition_bytes_max=1000))


def test_what_is_not_durable_does_not_leave() -> None:
    """H-30: a commit that is under way for long."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        rig.store.hold_commits()
        told = rig.append_later("b")
        await rig.calm()
        rig.clock.advance(HOUR + 61)
        rig.timers.run(rig.clock.monotonic())
        await rig.turns(20)
        rig.store.release_commits()
        await rig.calm()
        assert told.error is None
        assert rig.log.info().last_number == 1
        await rig.advance(61)
        assert await rig.numbers() == []

    play(scenario, retention=ONE_HOUR)


def test_a_shorter_time_takes_effect() -> None:
    """H-2: at the next look after the update."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        await rig.advance(HOUR * 2)
        assert await rig.numbers() == [0]
        rig.hub.replace_description(replace(rig.description, retention=ONE_HOUR))
        await rig.advance(61)
        assert await rig.numbers() == []

    play(scenario)


def test_a_reader_that_is_behind_goes_on_with_the_oldest() -> None:
    """H-22: what left meanwhile is not waited for."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b", "c")
        reader = rig.reader(credit=0)
        await rig.advance(HOUR + 61)
        await rig.fill("d")
        reader.credit = 10
        reader.pull()
        await rig.calm()
        assert reader.numbers == [3]

    play(scenario, retention=ONE_HOUR)


def test_what_has_left_is_not_shown_from_memory() -> None:
    """H-30: the tail follows."""

    async def scenario(rig: HubRig) -> None:
        standing = rig.reader()
        await rig.fill("a", "b")
        assert rig.runtime.tail_budget.bytes_used > 0
        await rig.advance(HOUR + 61)
        assert rig.runtime.tail_budget.bytes_used == 0
        assert (await rig.read(0)).numbers == []
        await rig.fill("c")
        assert standing.numbers == [0, 1, 2]

    play(scenario, retention=ONE_HOUR)


def test_looks_cost_nothing_while_everything_is_young() -> None:
    """H-30: the oldest time is remembered."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        await rig.advance(61)
        looks = rig.store.head_reads
        await rig.advance(61)
        await rig.advance(61)
        assert rig.store.head_reads == looks

    play(scenario, retention=ONE_HOUR)


def test_a_failed_removal_brings_nothing_back() -> None:
    """S-1: the log closes; the next one finds what is there."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        rig.store.lose_next_commit(is_applied=True)
        await rig.advance(HOUR + 61)
        assert len(rig.store_failures) == 1
        await rig.reopen()
        assert await rig.numbers() == []
        info = rig.log.info()
        assert (info.begin_number, info.last_number, info.events, info.bytes) == (2, 1, 0, 0)

    play(scenario, retention=ONE_HOUR)


def test_a_refused_removal_is_tried_again() -> None:
    """H-30: by the next life of the log."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a", "b")
        rig.store.refuse_next_commit()
        await rig.advance(HOUR + 61)
        await rig.reopen()
        assert await rig.numbers() == [0, 1]
        await rig.advance(61)
        assert await rig.numbers() == []

    play(scenario, retention=ONE_HOUR)


def test_a_closed_log_looks_no_more() -> None:
    """H-2: its hub is gone."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill("a")
        rig.hub.lose_partition(0, ServerBusy())
        assert len(rig.timers) == 0

    play(scenario, retention=ONE_HOUR)
