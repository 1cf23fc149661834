"""The world changes while rows are staged, decided and published."""

from __future__ import annotations

import pytest

from busway.model.errors import ServerBusy
from busway.model.limits import Limits
from busway.staging.decisions import CHANGED, FORGOTTEN, GONE, StagingRefused
from busway.store.contract import StoreError
from tests.unit.broker.topic_bench import encoded
from tests.unit.staging.staging_bench import JOB, WRITE, StagingBench, on_a_staging_bench, patiently, texts

DAY_S = 24 * 3600.0


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_entity_that_goes_before_the_decision_refuses_it(is_made_again: bool) -> None:
    """E-86: deleted or made again: 409, and the batch can be sent anew."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.namespace.delete("orders")
        if is_made_again:
            await bench.queue("orders")
        with pytest.raises(StagingRefused) as told:
            await bench.decide({1: 2})
        assert told.value.code == CHANGED
        assert await bench.drop(1)
        if not is_made_again:
            await bench.queue("orders")
        await bench.stage("orders", 2, *texts(0, 2))
        await bench.decide({2: 2})
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1"]
        assert bench.is_clean()

    on_a_staging_bench(test)


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("kind", ["queue", "topic", "hub"])
def test_an_entity_that_goes_after_the_decision_drops_its_rows_and_counts_them(
    kind: str, is_made_again: bool
) -> None:
    """E-86: what was decided for another entity of that name is never put into the new one."""

    async def test(bench: StagingBench) -> None:
        make = {"queue": bench.queue, "topic": bench.topic, "hub": bench.hub}[kind]
        remove = bench.hubs.delete if kind == "hub" else bench.namespace.delete
        await make("orders")
        await bench.queue("other")
        await bench.stage("orders", 1, *texts(0, 3))
        await bench.stage("other", 1, *texts(3, 1), part=1)
        decided = await bench.decide({1: 4})
        await remove("orders")
        if is_made_again:
            await make("orders")
        await bench.publish_all()
        await bench.advance(10.0)
        assert decided.decision.is_published
        assert await bench.rows("other") == ["row 3"]
        if is_made_again and kind == "queue":
            assert await bench.rows("orders") == []
        publisher = bench.stagings.decider.publisher
        assert publisher.rows_dropped + publisher.rows_published == 4
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_commit_waits_for_publication_as_long_as_it_is_told() -> None:
    """Staging: so that what a job wrote can be read when it ends, or it is told that this is still to come."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 3))
        await bench.change("orders", status="Disabled")
        decision = (await bench.decide({1: 3})).decision
        waiting = [
            bench.namespace.background.start(bench.stagings.published(decision, seconds))
            for seconds in (0.0, 5.0, 30.0)
        ]
        await bench.advance(6.0, 1.0)
        assert [task.done() for task in waiting] == [True, True, False]
        await bench.change("orders", status="Active")
        await bench.advance(10.0, 1.0)
        assert [await task for task in waiting] == [False, False, True]
        assert decision.waiting == []

    on_a_staging_bench(test)


def test_staging_is_a_use_of_the_entity() -> None:
    """E-41: an entity that is deleted when nobody uses it stays while rows are staged for it."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", auto_delete_on_idle_ms=600_000)
        for part in range(4):
            await bench.advance(400.0)
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        await bench.decide({1: 4})
        await bench.publish_all()
        assert len(await bench.rows("orders")) == 4

    on_a_staging_bench(test)


def test_whoever_waits_is_told_when_his_own_batch_is_published() -> None:
    """Staging: also when the next batch was decided meanwhile, and when the home was read again."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("first")
        await bench.queue("second")
        await bench.stage("first", 1, *texts(0, 2))
        await bench.change("first", status="Disabled")
        first = (await bench.decide({1: 2})).decision
        await bench.stage("second", 2, *texts(2, 2), batch=1)
        await bench.change("second", status="Disabled")
        second = (await bench.decide({2: 2}, batch=1)).decision
        await bench.namespace.stores.disable("store-0")
        await bench.namespace.stores.enable("store-0")
        waiting = bench.namespace.background.start(bench.stagings.published(first, 30.0))
        await bench.change("first", status="Active")
        await bench.advance(10.0, 1.0)
        assert waiting.done()
        assert (first.is_published, second.is_published) == (True, False)
        await bench.change("second", status="Active")
        await bench.advance(10.0, 1.0)
        assert second.is_published
        assert await bench.rows("second") == ["row 2", "row 3"]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_disabled_entity_is_waited_for() -> None:
    """E-84: what is decided is published when it is enabled again, however long that takes."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 3))
        await bench.change("orders", status="Disabled")
        decided = await bench.decide({1: 3})
        await bench.advance(3_600.0, 60.0)
        assert not decided.decision.is_published
        await bench.change("orders", status="Active")
        await bench.advance(10.0)
        assert decided.decision.is_published
        assert await bench.rows("orders") == ["row 0", "row 1", "row 2"]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_an_update_between_two_parts_and_during_publication_changes_nothing_else() -> None:
    """E-80: links and fragments may be made anew; rows go where they were staged for."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.queue("next")
        await bench.stage("orders", 1, *texts(0, 300))
        await bench.change("orders", lock_duration_ms=30_000)
        await bench.stage("orders", 1, *texts(300, 300), part=1)
        await bench.decide({1: 600})
        await bench.change("orders", forward_to="next")
        await bench.publish_all()
        await bench.advance(10.0)
        await bench.publish_all()
        assert (await bench.namespace.counts("next")).active == 600
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_store_that_is_lost_between_parts_is_waited_for_by_a_repetition() -> None:
    """P-31: a first try passes it over; whoever repeats a part waits, since the rows may lie there."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        for part in range(4):
            await bench.stage("orders", 1, *texts(part * 5, 5), part=part)
        bench.stores[1].lose_next_commit(is_applied=True)
        failed = 0
        for part in range(4, 8):
            try:
                await bench.stage("orders", 1, *texts(part * 5, 5), part=part)
            except ServerBusy:
                failed += 1
                with pytest.raises(ServerBusy):
                    await bench.stage("orders", 1, *texts(part * 5, 5), part=part, again=True)
                await patiently(
                    lambda part=part: bench.stage("orders", 1, *texts(part * 5, 5), part=part, again=True),
                    bench,
                )
        assert failed == 1
        await patiently(lambda: bench.decide({1: 40}), bench)
        await bench.publish_all()
        assert sorted(await bench.rows("orders")) == sorted(f"row {n}" for n in range(40))
        assert bench.is_clean()

    on_a_staging_bench(test, store_count=3, limits=Limits(partition_count=6))


def test_a_first_try_passes_over_a_store_that_is_away() -> None:
    """P-31: keyless parts go elsewhere; those with a key wait."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        await bench.namespace.stores.disable("store-1")
        for part in range(6):
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        refused = 0
        for number in range(8):
            row = encoded("keyed", annotations={"x-opt-partition-key": f"k{number}"})
            try:
                await bench.stage("orders", number + 2, row)
            except ServerBusy:
                refused += 1
        assert 0 < refused < 8
        await bench.decide({1: 6})
        await bench.publish_all()
        assert len(await bench.rows("orders")) == 6

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=4))


def test_a_decision_waits_for_the_stores_of_its_stages() -> None:
    """Staging: 503 while one of them is away; nothing is decided."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        for part in range(4):
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        await bench.namespace.stores.disable("store-1")
        with pytest.raises(ServerBusy):
            await bench.decide({1: 4})
        assert bench.stagings.decisions.get("query") is None
        await bench.namespace.stores.enable("store-1")
        await bench.decide({1: 4})
        await bench.publish_all()
        assert sorted(await bench.rows("orders")) == [f"row {n}" for n in range(4)]

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=4))


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("parts", [2, 8])
def test_publication_rolls_forward_when_a_store_comes_back(parts: int, is_applied: bool) -> None:
    """Staging: after the decision each store publishes for itself; rows whose commit failed have not left."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        for part in range(parts):
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        bench.stores[1].hold_commits()
        decided = await bench.decide({1: parts})
        await bench.publish_all()
        assert not decided.decision.is_published
        bench.stores[1].lose_next_commit(is_applied=is_applied)
        bench.stores[1].release_commits()
        await bench.publish_all()
        assert not decided.decision.is_published
        next_batch = await bench.decide({}, batch=1)
        assert not next_batch.decision.is_published
        await bench.advance(30.0, 1.0)
        await bench.publish_all()
        assert next_batch.decision.is_published
        assert sorted(await bench.rows("orders")) == [f"row {n}" for n in range(parts)]
        assert bench.is_clean()

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=2))


def test_a_home_that_comes_back_does_not_forget_what_another_store_is_about_to_write() -> None:
    """Staging: rows that have joined a commit are out of their stage in memory; only the commit makes it true."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        for part in range(2):
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        bench.stores[1].hold_commits()
        await bench.decide({1: 2})
        await bench.publish_all()
        bench.stores[0].refuse_next_commit()
        with pytest.raises(ServerBusy):
            await bench.decide({}, batch=1)
        await bench.advance(10.0, 1.0)
        await bench.publish_all()
        await bench.crash()
        await bench.publish_all()
        assert sorted(await bench.rows("orders")) == ["row 0", "row 1"]
        assert bench.is_clean()

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=2))


def test_a_restart_without_the_home_neither_publishes_nor_drops_what_it_cannot_know() -> None:
    """Staging: decisions lie in the home; while it is away stages stay as they are."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        for part in range(8):
            await bench.stage("orders", 1, *texts(part, 1), part=part)
        bench.stores[1].hold_commits()
        await bench.decide({1: 8})
        await bench.publish_all()
        for store in bench.stores:
            store.crash()
        await bench.namespace.background.close()
        home = bench.stores[0]
        opened = home.open

        async def refused() -> None:
            raise StoreError("away")

        home.open = refused  # type: ignore[method-assign]
        bench.stores[1].release_commits()
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await bench.advance(2 * DAY_S, 600.0)
        with pytest.raises(ServerBusy):
            await bench.stage("orders", 9, *texts(0, 1), batch=1)
        home.open = opened  # type: ignore[method-assign]
        await bench.advance(120.0, 5.0)
        await bench.publish_all()
        assert sorted(await bench.rows("orders")) == [f"row {n}" for n in range(8)]
        assert bench.is_clean()

    on_a_staging_bench(test, store_count=2, limits=Limits(partition_count=4))


def test_what_nobody_decides_goes_when_its_time_is_over() -> None:
    """Staging: 24 hours after the last activity of the batch, which each part renews."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.stage("orders", 2, *texts(0, 2), batch=1)
        await bench.advance(DAY_S - 600, 60.0)
        await bench.stage("orders", 3, *texts(0, 2))
        await bench.advance(1_200.0, 60.0)
        assert sorted(bench.stagings.table.stages) == [f"{1:032x}", f"{3:032x}"]
        await bench.advance(DAY_S, 60.0)
        assert bench.is_clean()
        assert bench.stagings.decider.rows_abandoned == 6
        with pytest.raises(StagingRefused) as told:
            await bench.decide({1: 2})
        assert told.value.code == GONE
        assert await bench.leftovers() == []

    on_a_staging_bench(test)


def test_time_does_not_end_what_is_decided() -> None:
    """Staging: a decided stage that cannot be published waits for ever."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2), kind=WRITE)
        await bench.change("orders", status="Disabled")
        await bench.decide({1: 2}, kind=WRITE)
        await bench.advance(3 * DAY_S, 600.0)
        await bench.change("orders", status="Active")
        await bench.advance(10.0)
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1"]
        assert await bench.leftovers() == ["decision:query"]
        await bench.advance(DAY_S + 120, 60.0)
        assert await bench.leftovers() == []

    on_a_staging_bench(test)


def test_a_stream_is_remembered_for_90_days_and_then_refused() -> None:
    """Staging: one row for each query, with a stated life; what comes later is never sent twice in silence."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.decide({1: 2})
        await bench.advance(89 * DAY_S, 3_600.0)
        assert (await bench.decide({1: 2})).is_known
        await bench.advance(2 * DAY_S, 3_600.0)
        for batch in (0, 1):
            with pytest.raises(StagingRefused, match="90 days") as told:
                await bench.stage("orders", 2, *texts(0, 2), batch=batch)
            assert told.value.code == FORGOTTEN
        await bench.crash()
        with pytest.raises(StagingRefused) as told:
            await bench.decide({}, batch=2)
        assert told.value.code == FORGOTTEN
        assert await bench.leftovers() == ["decision:query"]

    on_a_staging_bench(test)


@pytest.mark.parametrize(("kind", "life_s"), [(WRITE, DAY_S), (JOB, 3_600.0)])
@pytest.mark.parametrize("jobs", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_finished_jobs_leave_no_row_behind(jobs: int, kind: str, life_s: float) -> None:
    """Staging: a job's decision goes a day after its publication, and an hour where nobody has named it."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders", enable_partitioning=True)
        row = texts(0, 1)
        for job in range(jobs):
            await bench.stage("orders", job, *row, write=f"job-{job}", kind=kind)
            await bench.decide({job: 1}, write=f"job-{job}", kind=kind)
        await bench.publish_all()
        assert (await bench.namespace.counts("orders")).active == jobs
        assert len(bench.stagings.decisions) == jobs
        await bench.advance(life_s - 600.0, 600.0)
        assert len(bench.stagings.decisions) == jobs
        await bench.advance(600.0, 600.0)
        await bench.advance(1_200.0, 60.0)
        await bench.publish_all()
        assert await bench.leftovers() == []
        assert len(bench.stagings.decisions) == 0
        assert bench.is_clean()
        assert not any(store._dropped for store in bench.stores)

    on_a_staging_bench(test, store_count=2)
