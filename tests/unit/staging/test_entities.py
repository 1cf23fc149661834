"""All kinds of entities: where rows are staged, and what becomes of them at publication."""

from __future__ import annotations

import pytest

from busway.model.errors import ArgumentOutOfRange, EntityDisabled, InvalidOperation
from busway.model.limits import Limits
from tests.unit.broker.topic_bench import encoded, sql
from tests.unit.staging.staging_bench import StagingBench, on_a_staging_bench, patiently, texts


def test_a_partitioned_queue_over_several_stores_gets_each_row_once() -> None:
    """P-20, P-30: keys choose the fragment; parts without a key go round; a repeated part finds its first try."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        keyed = [encoded(f"key {n}", annotations={"x-opt-partition-key": f"k{n % 7}"}) for n in range(40)]
        for part in range(8):
            rows = [*texts(part * 10, 10), *keyed[part * 5 : part * 5 + 5]]
            await bench.stage("orders", 1, *rows, part=part)
            again = await bench.stage("orders", 1, *rows, part=part, again=True)
            assert again is not None
            assert again.rows() == (part + 1) * 15
        assert len(await bench.leftovers()) > 4
        await bench.decide({1: 120})
        await bench.publish_all()
        wanted = [f"row {n}" for n in range(80)] + [f"key {n}" for n in range(40)]
        assert sorted(await bench.rows("orders")) == sorted(wanted)
        used = [each for each in bench.namespace.fragment_counts("orders") if each.counts.active]
        assert len(used) > 6
        assert bench.is_clean()
        assert await bench.leftovers() == ["decision:query"]

    on_a_staging_bench(test, store_count=3, limits=Limits(partition_count=12))


def test_rows_of_one_key_keep_their_order_over_parts_and_batches() -> None:
    """P-24, S-4: one key lies in one fragment, and a fragment publishes in the order of the decisions."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        number = 0
        for batch in range(3):
            for part in range(3):
                rows = texts(number, 4, annotations={"x-opt-partition-key": "one"})
                await bench.stage("orders", batch + 1, *rows, part=part, batch=batch)
                number += 4
            await bench.decide({batch + 1: 12}, batch=batch)
        await bench.publish_all()
        assert await bench.rows("orders") == [f"row {n}" for n in range(36)]

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=4))


def test_rules_of_a_topic_are_applied_at_publication() -> None:
    """T-1: by the rules of that moment, also of subscriptions made after the rows were staged."""

    async def test(bench: StagingBench) -> None:
        await bench.topic("news")
        await bench.subscription("news", "early", sql("n > 2"))
        rows = [encoded(f"row {n}", properties={"n": n}) for n in range(6)]
        await bench.stage("news", 1, *rows)
        await bench.subscription("news", "late", sql("n < 2", "SET done = 1"))
        await bench.decide({1: 6})
        await bench.publish_all()
        assert await bench.rows("news/Subscriptions/early") == ["row 3", "row 4", "row 5"]
        late = await bench.peek("news/Subscriptions/late")
        assert [(seen.body, seen.properties["done"]) for seen in late] == [("row 0", 1), ("row 1", 1)]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_topic_that_nobody_reads_drops_the_rows() -> None:
    """T-1, E-53: also one that prefilters: what was accepted is not refused any more."""

    async def test(bench: StagingBench) -> None:
        await bench.topic("plain")
        await bench.topic("wants", filtering_messages_before_publishing=True)
        await bench.stage("plain", 1, *texts(0, 3))
        await bench.stage("wants", 1, *texts(0, 3), part=1)
        await bench.decide({1: 6})
        await bench.publish_all()
        assert bench.is_clean()
        assert bench.stagings.decider.publisher.rows_dropped == 0

    on_a_staging_bench(test)


@pytest.mark.parametrize("copies_max", [100_000, 60])
def test_a_publish_over_several_turns_and_batches_loses_and_doubles_nothing(copies_max: int) -> None:
    """T-9: a topic with many subscriptions takes a slice in parts, each of which leaves the stage with its copies."""

    async def test(bench: StagingBench) -> None:
        await bench.topic("news")
        for number in range(40):
            await bench.subscription("news", f"s{number}")
        await bench.stage("news", 1, *texts(0, 200))
        await bench.decide({1: 200})
        for _ in range(20):
            await bench.publish_all()
        wanted = [f"row {n}" for n in range(200)]
        for number in range(40):
            assert await bench.rows(f"news/Subscriptions/s{number}") == wanted
        assert bench.is_clean()

    on_a_staging_bench(test, limits=Limits(publish_copies_max=copies_max))


def test_duplicates_are_found_at_publication() -> None:
    """S-40: against the history and among the rows themselves; they leave the stage all the same."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", requires_duplicate_detection=True)
        await bench.publish("orders", encoded("sent", message_id="a"))
        rows = [encoded(f"row {n}", message_id=name) for n, name in enumerate("abcbdaa")]
        await bench.stage("orders", 1, *rows)
        await bench.decide({1: 7})
        await bench.publish_all()
        assert await bench.rows("orders") == ["sent", "row 1", "row 2", "row 4"]
        assert bench.is_clean()
        await bench.stage("orders", 2, *rows, batch=1)
        await bench.decide({2: 7}, batch=1)
        await bench.publish_all()
        assert len(await bench.rows("orders")) == 4
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_sessions_and_scheduled_messages_are_as_if_they_were_sent() -> None:
    """X-1, S-30: session ids, partition keys, times to live and times of the future survive staging."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("sessions", requires_session=True)
        rows = [encoded(f"row {n}", group_id=f"s{n % 2}") for n in range(4)]
        await bench.stage("sessions", 1, *rows)
        await bench.decide({1: 4})
        await bench.publish_all()
        assert await bench.namespace.queue("sessions").inlet.list_sessions(None, 0, 10) == ["s0", "s1"]
        assert [seen.message.session_id for seen in await bench.peek("sessions")] == ["s0", "s1", "s0", "s1"]

    on_a_staging_bench(test)


def test_a_hub_gets_events_by_key_by_partition_and_in_turn() -> None:
    """H-10, H-11, H-12: as if they were published."""

    async def test(bench: StagingBench) -> None:
        await bench.hub("telemetry", 4)
        keyed = [encoded(f"key {n}", annotations={"x-opt-partition-key": "k"}) for n in range(5)]
        await bench.stage("telemetry", 1, *texts(0, 10), part=0)
        await bench.stage("telemetry", 1, *texts(10, 10), part=1)
        await bench.stage("telemetry", 1, *keyed, part=2)
        await bench.stage("telemetry", 1, *texts(20, 5), part=3, partition="3")
        await bench.publish_all()
        assert await bench.events("telemetry") == []
        await bench.decide({1: 30})
        await bench.publish_all()
        wanted = [f"row {n}" for n in range(25)] + [f"key {n}" for n in range(5)]
        assert sorted(await bench.events("telemetry")) == sorted(wanted)
        counts = [log.counters.events for log in bench.hubs.hub("telemetry").logs()]
        assert sum(1 for count in counts if count) >= 3
        assert bench.is_clean()
        with pytest.raises(ArgumentOutOfRange):
            await bench.stage("telemetry", 2, *texts(0, 1), batch=1, partition="4")

    on_a_staging_bench(test, store_count=2)


def test_what_cannot_be_sent_to_cannot_be_staged_for() -> None:
    """E-9, E-84: a subscription, a disabled queue."""

    async def test(bench: StagingBench) -> None:
        await bench.topic("news")
        await bench.subscription("news", "s")
        await bench.queue("off", status="SendDisabled")
        with pytest.raises(InvalidOperation):
            await bench.stage("news/Subscriptions/s", 1, *texts(0, 1))
        with pytest.raises(EntityDisabled):
            await bench.stage("off", 1, *texts(0, 1))
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_one_stage_may_hold_rows_for_several_entities() -> None:
    """Staging: parts are counted over all of them, and one decision publishes all."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("a")
        await bench.queue("b")
        await bench.hub("c", 2)
        for part, path in enumerate(("a", "b", "c", "a")):
            await patiently(
                lambda path=path, part=part: bench.stage(path, 1, *texts(part * 2, 2), part=part), bench
            )
        await bench.decide({1: 8})
        await bench.publish_all()
        assert await bench.rows("a") == ["row 0", "row 1", "row 6", "row 7"]
        assert await bench.rows("b") == ["row 2", "row 3"]
        assert sorted(await bench.events("c")) == ["row 4", "row 5"]
        assert bench.is_clean()

    on_a_staging_bench(test, store_count=3)
