"""Rows are staged, decided and published; nobody sees a row that is not decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.model.errors import QuotaExceeded, ServerBusy
from busway.model.limits import Limits
from busway.staging.decisions import BEHIND, GAP, GONE, RowRefused, StagingRefused
from tests.unit.broker.topic_bench import encoded
from tests.unit.staging.staging_bench import StagingBench, on_a_staging_bench, texts


def test_staged_rows_are_invisible_until_they_are_decided() -> None:
    """Staging: nobody sees a row of an undecided batch; after the decision all of them are there, in order."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        stage = await bench.stage("orders", 1, *texts(0, 3))
        assert stage is not None
        assert stage.rows() == 3
        await bench.stage("orders", 1, *texts(3, 2), part=1)
        await bench.publish_all()
        assert await bench.rows("orders") == []
        assert (await bench.namespace.counts("orders")).active == 0
        decided = await bench.decide({1: 5})
        assert (decided.rows, decided.is_known) == (5, False)
        assert await bench.stagings.published(decided.decision, 0.0) in (True, False)
        await bench.publish_all()
        assert decided.decision.is_published
        assert await bench.rows("orders") == [f"row {number}" for number in range(5)]
        assert await bench.leftovers() == ["decision:query"]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_batch_that_is_known_is_not_written_again() -> None:
    """Staging: the last decided batch is known, its new stages are dropped, later parts are not even stored."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 3))
        await bench.stage("orders", 2, *texts(50, 3))
        await bench.decide({1: 3})
        again = await bench.decide({2: 3})
        assert again.is_known
        assert await bench.stage("orders", 3, *texts(0, 3)) is None
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1", "row 2"]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_lower_batch_is_refused_with_a_sentence() -> None:
    """Staging: the checkpoint of the query went back."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 1), batch=7)
        await bench.decide({1: 1}, batch=7)
        with pytest.raises(StagingRefused, match="checkpoint of the query went back") as told:
            await bench.stage("orders", 2, *texts(0, 1), batch=6)
        assert told.value.code == BEHIND
        with pytest.raises(StagingRefused, match="checkpoint") as told:
            await bench.decide({2: 1}, batch=6)
        assert told.value.code == BEHIND

    on_a_staging_bench(test)


def test_stages_that_no_decision_names_never_mix_in() -> None:
    """Staging: what a dead task left is dropped with the decision of its batch."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.stage("orders", 2, *texts(0, 2))
        await bench.stage("orders", 3, *texts(2, 2))
        await bench.decide({2: 2, 3: 2})
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1", "row 2", "row 3"]
        assert bench.is_clean()
        assert await bench.leftovers() == ["decision:query"]

    on_a_staging_bench(test)


def test_a_commit_whose_stages_are_gone_fails() -> None:
    """Staging: nothing is decided when a stage is missing or has other rows than the client counted."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        for stages in ({1: 3}, {1: 2, 2: 1}):
            with pytest.raises(StagingRefused) as told:
                await bench.decide(stages)
            assert told.value.code == GONE
        assert await bench.drop(1)
        assert not await bench.drop(1)
        with pytest.raises(StagingRefused) as told:
            await bench.decide({1: 2})
        assert told.value.code == GONE
        await bench.publish_all()
        assert await bench.rows("orders") == []
        assert await bench.leftovers() == []

    on_a_staging_bench(test)


def test_an_abort_after_a_decision_drops_nothing() -> None:
    """Staging: Spark calls abort also after a commit that took effect and raised."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        bench.stores[0].hold_commits()
        deciding = bench.namespace.background.start(bench.decide({1: 2}))
        dropping = bench.namespace.background.start(bench.drop(1))
        await bench.publish_all()
        assert not deciding.done()
        bench.stores[0].release_commits()
        assert not await dropping
        await deciding
        assert not await bench.drop(1)
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1"]

    on_a_staging_bench(test)


def test_a_repeated_part_is_staged_once() -> None:
    """Staging: a lost answer is asked for again; parts that are left out are refused."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        again = await bench.stage("orders", 1, *texts(0, 2), again=True)
        assert again is not None
        assert again.rows() == 2
        with pytest.raises(StagingRefused) as told:
            await bench.stage("orders", 1, *texts(4, 1), part=2)
        assert told.value.code == GAP
        await bench.stage("orders", 1, *texts(2, 1), part=1)
        late = await bench.stage("orders", 1, *texts(0, 2), part=0)
        assert late is not None
        assert late.rows() == 3

    on_a_staging_bench(test)


def test_two_drivers_decide_the_same_batch_once() -> None:
    """Staging: whoever comes second finds the batch known, and his stages are dropped."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.stage("orders", 2, *texts(0, 2))
        first = bench.namespace.background.start(bench.decide({1: 2}))
        second = bench.namespace.background.start(bench.decide({2: 2}))
        assert not (await first).is_known
        assert (await second).is_known
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1"]
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_row_that_is_refused_refuses_its_part() -> None:
    """Staging: what can refuse a row refuses it when it is staged, and tells which one it was."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.queue("sessions", requires_session=True)
        with pytest.raises(RowRefused, match="larger than") as told:
            await bench.stage("orders", 1, encoded("ok"), encoded("x" * 300_000))
        assert told.value.row == 1
        with pytest.raises(RowRefused, match="SessionId was not set") as told:
            await bench.stage("sessions", 1, encoded("a", group_id="s"), encoded("b"))
        assert told.value.row == 1
        with pytest.raises(RowRefused, match="no message") as told:
            await bench.stage("orders", 1, b"\x00")
        assert told.value.row == 0
        assert bench.is_clean()
        assert await bench.leftovers() == []

    on_a_staging_bench(test)


def _make_small(bench: StagingBench) -> None:
    inlet = bench.namespace.queue("orders").inlet
    inlet.replace_settings(replace(inlet.settings, size_bytes_max=1_000_000))


def test_staged_bytes_count_against_the_entity_over_a_restart() -> None:
    """S-9: what is staged is reserved: others are refused, publication is not, and a restart changes nothing."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        _make_small(bench)
        size = 100_000
        bodies = [encoded(f"{number}" * size) for number in range(8)]
        await bench.stage("orders", 1, *bodies)
        reserved = dict(bench.namespace.runtime.reserved_bytes)
        assert 800_000 < sum(reserved.values()) < 801_000
        refused = await bench.try_publish("orders", encoded("x" * 150_000), encoded("x" * 150_000))
        assert [type(error) for _, error in refused] == [QuotaExceeded]
        with pytest.raises(QuotaExceeded):
            await bench.stage("orders", 2, *bodies[:4])
        await bench.crash()
        _make_small(bench)
        assert bench.namespace.runtime.reserved_bytes == reserved
        assert bench.stagings.table.undecided_bytes == sum(reserved.values())
        await bench.decide({1: 8})
        await bench.publish_all()
        assert (await bench.namespace.counts("orders")).active == 9
        assert bench.is_clean()

    on_a_staging_bench(test)


def test_a_batch_above_the_bound_is_refused_with_a_sentence_about_triggers() -> None:
    """Staging: bytes of undecided batches are bounded; what is decided does not count any more."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, encoded("x" * 600))
        with pytest.raises(QuotaExceeded, match="maxBytesPerTrigger"):
            await bench.stage("orders", 2, encoded("x" * 600))
        await bench.decide({1: 1})
        await bench.stage("orders", 2, encoded("x" * 600), batch=1)

    on_a_staging_bench(test, limits=Limits(staging_bytes_max=1_000))


def test_nothing_is_decided_while_the_home_is_away() -> None:
    """Staging: 503, and nothing is dropped either."""

    async def test(bench: StagingBench) -> None:
        await bench.queue("orders")
        await bench.stage("orders", 1, *texts(0, 2))
        await bench.namespace.stores.disable("store-0")
        for action in (bench.decide({1: 2}), bench.drop(1)):
            with pytest.raises(ServerBusy):
                await action
        await bench.namespace.stores.enable("store-0")
        await bench.decide({1: 2})
        await bench.publish_all()
        assert await bench.rows("orders") == ["row 0", "row 1"]

    on_a_staging_bench(test)
