"""The table of pipelines: what is kept of reports, for how long, and how many."""

from __future__ import annotations

import pytest

from busway.model.errors import QuotaExceeded
from busway.signals import pipelines
from busway.signals.pipelines import (
    FAILED,
    RUNNING,
    STOPPED,
    NameTaken,
    PipelineReport,
    Pipelines,
    ReadSource,
)
from tests.harness.manual_clock import ManualClock


def report(
    query: str = "q", entity: str = "clicks", state: str = RUNNING, partitions: int = 1
) -> PipelineReport:
    numbers = dict.fromkeys(range(partitions), 0)
    return PipelineReport(query, "run", state, 10.0, (ReadSource(entity, next_numbers=numbers),))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Pipelines:
    return Pipelines(clock)


def names(table: Pipelines) -> list[str]:
    return [each.name for each in table.all()]


def test_a_report_takes_the_place_of_the_one_before_it(table: Pipelines) -> None:
    """Pipelines: one entry for a name, with what was said last."""
    table.put("copy", report(partitions=1))
    kept = table.put("copy", report(partitions=4))
    assert names(table) == ["copy"]
    assert table.get("copy") is kept
    assert kept.report.positions == 4


def test_a_pipeline_that_says_nothing_for_three_intervals_is_stale(
    table: Pipelines, clock: ManualClock
) -> None:
    """Pipelines: one that ended said so, and is not."""
    running, stopped = table.put("a", report()), table.put("b", report(state=STOPPED))
    clock.advance(30)
    assert table.is_alive(running)
    clock.advance(0.001)
    assert table.is_stale(running)
    assert not table.is_stale(stopped)
    assert not table.is_alive(running)
    assert table.is_alive(table.put("a", report()))


def test_an_hour_after_its_last_report_a_pipeline_is_forgotten(table: Pipelines, clock: ManualClock) -> None:
    """Pipelines: whatever it said; one that reports again stays."""
    for name in ("silent", "stopped", "lively"):
        table.put(name, report(state=STOPPED if name == "stopped" else RUNNING))
    clock.advance(3_600)
    table.put("lively", report())
    assert names(table) == ["lively", "silent", "stopped"]
    clock.advance(0.001)
    assert names(table) == ["lively"]
    assert table.get("silent") is None


def test_a_clock_that_is_set_makes_nobody_stale(table: Pipelines, clock: ManualClock) -> None:
    """Pipelines: ages are of the monotonic clock."""
    pipeline = table.put("copy", report())
    clock.step_wall(100_000)
    assert table.is_alive(pipeline)
    assert table.age_s(pipeline) == 0


def test_a_name_belongs_to_the_query_that_lives(table: Pipelines, clock: ManualClock) -> None:
    """Pipelines: two streams do not overwrite each other in turns; a dead one makes way."""
    table.put("copy", report("first"))
    with pytest.raises(NameTaken):
        table.put("copy", report("second"))
    clock.advance(31)
    table.put("copy", report("second"))
    table.put("copy", report("second", state=FAILED))
    table.put("copy", report("third"))
    found = table.get("copy")
    assert found is not None
    assert found.report.query == "third"


def test_when_all_places_are_taken_the_silent_make_room(
    table: Pipelines, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: the number of pipelines is bounded, and one that lives is never pushed out."""
    monkeypatch.setattr(pipelines, "PIPELINES_MAX", 3)
    table.put("ended", report(state=STOPPED))
    table.put("a", report())
    table.put("b", report())
    table.put("c", report())
    assert names(table) == ["a", "b", "c"]
    with pytest.raises(QuotaExceeded, match="At most 3"):
        table.put("d", report())
    table.put("a", report())
    clock.advance(31)
    table.put("b", report())
    table.put("d", report())
    assert names(table) == ["a", "b", "d"]


def test_one_entity_cannot_take_all_places(table: Pipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: whoever may listen to one entity only leaves room for others, under whatever spelling."""
    monkeypatch.setattr(pipelines, "ENTITY_PIPELINES_MAX", 2)
    table.put("a", report(entity="clicks"))
    table.put("b", report(entity="CLICKS"))
    with pytest.raises(QuotaExceeded, match="one entity"):
        table.put("c", report(entity="clicks"))
    table.put("d", report(entity="orders"))
    table.put("b", report(entity="orders"))
    table.put("c", report(entity="clicks"))
    assert names(table) == ["a", "b", "c", "d"]


def test_positions_are_bounded_together(table: Pipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: many partitions of many pipelines; a report that is refused changes nothing."""
    monkeypatch.setattr(pipelines, "POSITIONS_MAX", 10)
    table.put("a", report(partitions=4))
    kept = table.put("b", report(partitions=6))
    with pytest.raises(QuotaExceeded, match="10 partitions"):
        table.put("b", report(partitions=7))
    assert table.get("b") is kept
    table.put("a", report(partitions=3))
    table.put("b", report(partitions=7))
    assert table.delete("a")
    assert not table.delete("a")
    table.put("c", report(partitions=3))
