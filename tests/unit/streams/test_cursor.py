"""Reading a log."""

from __future__ import annotations

import pytest

from busway.message.event_chunk import ChunkBuilder
from busway.model.errors import EntityDisabled, EventsLost, ServerBusy
from busway.model.limits import Limits
from busway.store.contract import LogChanges
from tests.unit.streams.rig import HubRig, Recorder, play

TEXTS = [str(number) for number in range(10)]


def test_two_readers_each_see_everything() -> None:
    """H-1: reading removes nothing."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*TEXTS)
        assert (await rig.read()).bodies() == TEXTS
        assert (await rig.read()).bodies() == TEXTS

    play(scenario)


def test_a_reader_begins_where_it_says() -> None:
    """H-20: also in the middle of a chunk."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*TEXTS[:4])
        await rig.append(*TEXTS[4:])
        assert (await rig.read(6)).numbers == [6, 7, 8, 9]

    play(scenario)


def test_a_run_keeps_to_its_bounds() -> None:
    """H-21: so many events, so many bytes, but at least one."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*["x" * 100] * 10)
        size = len((await rig.read()).records[0])
        reader = rig.reader(credit=0)
        assert reader.cursor is not None
        assert reader.cursor.next_run(3, 1 << 30) is None  # it must be fetched
        await rig.calm()
        sizes = []
        for events_max, bytes_max in ((3, 1 << 30), (9, 2 * size), (9, 2 * size - 1), (9, 1), (9, 1 << 30)):
            run = reader.cursor.next_run(events_max, bytes_max)
            assert run is not None
            sizes.append(run.count)
        assert sizes == [3, 2, 1, 1, 3]
        assert reader.cursor.next_run(0, 1 << 30) is None

    play(scenario)


def test_a_reader_at_the_end_is_woken_by_the_next_commit() -> None:
    """H-21: once for each commit, and only when it waits."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader()
        assert reader.wakes == 0
        for _ in range(3):
            rig.append_later("a", "b")
        await rig.calm()
        assert reader.wakes == 1
        assert reader.numbers == [0, 1, 2, 3, 4, 5]
        reader.credit = 0
        await rig.append("c")
        assert reader.wakes == 2  # it had asked before
        await rig.append("d")
        assert reader.wakes == 2
        reader.credit = 10
        reader.pull()
        await rig.calm()
        assert reader.numbers == list(range(8))

    play(scenario)


def test_a_reader_that_keeps_up_reads_nothing_from_the_store() -> None:
    """H-21: the newest chunks are in memory."""

    async def scenario(rig: HubRig) -> None:
        first, second = rig.reader(), rig.reader()
        for text in TEXTS:
            await rig.append(text)
        assert first.bodies() == second.bodies() == TEXTS
        assert rig.store.reads == 0

    play(scenario)


def test_only_durable_events_are_shown() -> None:
    """H-21: a commit that fails was never seen by anybody."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader()
        rig.store.hold_commits()
        rig.append_later("a")
        await rig.calm()
        assert reader.numbers == []
        rig.store.refuse_next_commit()
        rig.store.release_commits()
        await rig.calm()
        assert reader.numbers == []
        assert [type(error) for error in reader.evicted_with] == [ServerBusy]

    play(scenario)


def test_a_read_that_sees_more_than_was_reported_shows_what_was_reported() -> None:
    """H-21: the store may know of a commit before its report arrives."""

    async def scenario(rig: HubRig) -> None:
        await rig.append("a")
        builder = ChunkBuilder()
        builder.add(1, rig.clock.wall_ms(), b"unreported", 0)
        batch = rig.store.batch()
        batch.logs = LogChanges()
        batch.logs.chunks.append((rig.log.key, builder))
        await rig.store.flush()
        assert (await rig.read()).numbers == [0]

    play(scenario)


def test_a_slow_reader_falls_back_to_the_store() -> None:
    """H-21: the tail is bounded, nothing is skipped."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader(credit=1)
        await rig.fill(*["x" * 300] * 10)
        assert reader.numbers == [0]
        assert rig.runtime.tail_budget.bytes_used < 1000
        reader.credit = 100
        reader.pull()
        await rig.calm()
        assert reader.numbers == list(range(10))
        assert rig.store.reads > 0
        assert reader.cursor is not None
        reader.cursor.close()
        assert rig.runtime.tail_budget.bytes_used == 0

    play(scenario, Limits(tail_bytes_max=800))


def test_a_full_budget_slows_readers_and_stops_nobody() -> None:
    """H-21: without a tail they read from the store."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader()
        await rig.fill(*["x" * 300] * 5)
        assert reader.numbers == list(range(5))
        assert rig.runtime.tail_budget.bytes_used == 0
        assert rig.store.reads == 5

    play(scenario, Limits(tails_bytes_max=10))


def test_many_chunks_of_one_commit_keep_the_newest_in_memory() -> None:
    """H-21: and the others are read."""

    async def scenario(rig: HubRig) -> None:
        reader = rig.reader()
        rig.append_later(*["x" * 400_000] * 12)
        await rig.calm()
        assert reader.numbers == list(range(12))
        assert rig.store.reads > 0
        assert rig.runtime.tail_budget.bytes_used <= 1_300_000

    play(scenario)


def test_pages_follow_one_another() -> None:
    """H-21: a backlog of many chunks, none of them skipped."""

    async def scenario(rig: HubRig) -> None:
        for _ in range(6):
            await rig.append(*["x" * 300_000] * 2)
        reader = await rig.read()
        assert reader.numbers == list(range(12))
        assert rig.store.reads >= 3

    play(scenario)


def test_only_one_read_is_under_way() -> None:
    """H-21: however often somebody asks."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*TEXTS)
        reader = rig.reader()
        assert reader.cursor is not None
        for _ in range(5):
            reader.pull()
        assert reader.cursor.is_fetching()
        await rig.calm()
        assert not reader.cursor.is_fetching()
        assert rig.store.reads == 1
        assert reader.bodies() == TEXTS

    play(scenario)


def test_a_failed_read_is_tried_again() -> None:
    """H-21: after a moment."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*TEXTS)
        rig.store.refuses_reads = True
        reader = rig.reader()
        await rig.calm()
        assert reader.numbers == []
        rig.store.refuses_reads = False
        await rig.advance(1.0)
        assert reader.bodies() == TEXTS

    play(scenario)


def test_a_closed_cursor_gives_nothing_more() -> None:
    """H-21: also when a read was under way."""

    async def scenario(rig: HubRig) -> None:
        await rig.append(*TEXTS)
        reader = rig.reader()
        assert reader.cursor is not None
        reader.cursor.close()
        reader.cursor.close()
        await rig.calm()
        assert reader.wakes == 0
        assert reader.cursor.next_run(1, 1) is None

    play(scenario)


def test_a_reader_that_comes_to_damage_is_evicted() -> None:
    """H-21: what lies before is delivered, what is lost is named, whoever begins behind reads on."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill(*TEXTS[:3])
        await rig.append(*TEXTS[3:5])
        await rig.fill(*TEXTS[5:])
        rig.store.damaged = {3}
        reader = rig.reader()
        rig.log.readers.add("g", reader)
        await rig.calm()
        assert reader.numbers == [0, 1, 2]
        (error,) = reader.evicted_with
        assert isinstance(error, EventsLost)
        assert error.sentence.startswith("Events 3 to 4 of partition 0 of 'clicks' cannot be read")
        assert rig.log.readers.all() == []
        assert (await rig.read(5)).numbers == [5, 6, 7, 8, 9]
        middle = await rig.read(4)
        assert middle.numbers == []
        assert len(middle.evicted_with) == 1

    play(scenario)


def test_gaps_are_stepped_over() -> None:
    """H-31: numbers that were compacted away, at the end too."""

    async def scenario(rig: HubRig) -> None:
        await rig.fill(*TEXTS)
        batch = rig.store.batch()
        batch.logs = LogChanges()
        batch.logs.deleted += [(rig.log.key, number) for number in (0, 1, 5, 9)]
        await rig.store.flush()
        reader = rig.reader()
        await rig.calm()
        assert reader.numbers == [2, 3, 4, 6, 7, 8]
        assert rig.store.reads <= 3
        await rig.append("next")
        assert reader.numbers[-1] == 10

    play(scenario)


def test_nobody_reads_where_reading_is_disabled() -> None:
    """H-2: status ReceiveDisabled."""

    async def scenario(rig: HubRig) -> None:
        with pytest.raises(EntityDisabled):
            rig.log.cursor(0, Recorder())

    play(scenario, status="ReceiveDisabled")


def test_nobody_reads_from_a_closed_log() -> None:
    """H-12: its store is away."""

    async def scenario(rig: HubRig) -> None:
        log = rig.log
        reader = rig.reader()
        log.close(ServerBusy())
        assert len(reader.evicted_with) == 1
        with pytest.raises(ServerBusy):
            log.cursor(0, Recorder())

    play(scenario)


def test_a_reader_that_fails_leaves_the_others_awake() -> None:
    """H-21: a bug at one end stays there."""

    class Broken(Recorder):
        def wake(self) -> None:
            raise ZeroDivisionError

    async def scenario(rig: HubRig) -> None:
        broken = Broken(10)
        broken.cursor = rig.log.cursor(0, broken)
        broken.pull()
        reader = rig.reader()
        await rig.append("a")
        assert reader.numbers == [0]

    play(scenario)
