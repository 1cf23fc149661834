"""Moving by tasks and triage as a stream, without Spark: what is tried again, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from busway_spark.pipeline.deadletters import tasks as deadletters_tasks
from busway_spark.pipeline.deadletters import triage as deadletters_triage
from busway_spark.pipeline.deadletters.plan import (
    LOCKED,
    PLANNED,
    REFUSED,
    RESUBMITTED,
    TRANSACTION,
    LetterRoute,
    Plan,
)
from busway_spark.pipeline.deadletters.tasks import LettersOutcome, Parcel, ParcelOutcome, TaskMover
from busway_spark.pipeline.deadletters.triage import Policy, PolicyRule, Round, TriageOptions, _followed
from busway_spark.pipeline.job import JobFailed, JobProgress


class Naps(JobProgress):
    """Nobody sleeps, and everybody believes he did. Stops after so many waits."""

    def __init__(self, waits_max: int = 1_000) -> None:
        super().__init__()
        self.now = 100.0
        self.waits: list[float] = []
        self._waits_max = waits_max

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        if len(self.waits) >= self._waits_max:
            self.stop()
        return self.is_stopping

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    made = Naps()
    monkeypatch.setattr(deadletters_tasks, "time", made)
    return made


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    with Plan(tmp_path / "plan") as made:
        made.add((0, number, False, {}) for number in range(1, 201))
        yield made


def mover(plan: Plan, naps: Naps, answers: list[list[LettersOutcome]], wait_s: float = 5.0) -> TaskMover:
    """Whose tasks tell this in turn of what was not moved, the last for ever."""
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    bus: Any = None
    made = TaskMover(spark, bus, LetterRoute("q", "q", TRANSACTION), 0, plan, naps, wait_s=wait_s)

    def moved(parcels: list[Parcel]) -> list[ParcelOutcome]:
        [parcel] = parcels
        return [(parcel, answers.pop(0) if len(answers) > 1 else answers[0])]

    made._moved = moved  # type: ignore[method-assign]
    return made


def test_what_somebody_holds_is_tried_again_for_a_while(plan: Plan, naps: Naps) -> None:
    """Dead letters: with pauses; time begins anew with each that went, and in the end it is told as locked."""
    work = mover(plan, naps, [[LettersOutcome(LOCKED, [200])]])
    work.run()
    assert plan.counts() == {RESUBMITTED: 199, LOCKED: 1}
    assert (work.moved, work.ended_early, sum(naps.waits)) == (199, None, 5.0)
    assert max(naps.waits) == 1.0


def test_a_destination_that_refuses_everything_is_left_alone(plan: Plan, naps: Naps) -> None:
    """Dead letters: the rest is not tried, and the next run finds it."""
    later = LettersOutcome(PLANNED, list(range(101, 201)), "the server was busy")
    work = mover(plan, naps, [[LettersOutcome(REFUSED, list(range(1, 101)), "it is full"), later]])
    work.run()
    assert plan.counts() == {REFUSED: 100, PLANNED: 100}
    assert work.ended_early == "'q' refused 100 messages one after the other"
    assert naps.waits == []


def test_a_stop_leaves_the_rest_for_the_next_run(plan: Plan, naps: Naps) -> None:
    """Dead letters: between rounds."""
    naps.stop()
    work = mover(plan, naps, [[]])
    work.run()
    assert (plan.counts(), work.ended_early) == ({PLANNED: 200}, "it was asked to stop")


def test_a_round_that_fails_is_made_again_less_and_less_often() -> None:
    """Triage: the bus is away for some rounds; the stream goes on, and ends when it is stopped."""
    naps = Naps(waits_max=5)
    outcomes: list[Round | None] = [None, None, Round(False), None, Round(False)]

    class Rounds:
        def round(self) -> Round:
            found = outcomes.pop(0)
            if found is None:
                raise JobFailed("Nobody is there.")
            return found

    work: Any = Rounds()
    options = TriageOptions(("q",), Policy((PolicyRule(1),)), resubmits=True, follows=True, every_s=10.0)
    last = _followed(work, options, naps)
    assert naps.waits == [20.0, 40.0, 10.0, 20.0, 10.0]
    assert (last.is_complete, outcomes) == (True, [])


def test_groups_have_a_bound() -> None:
    """Triage: a million different errors are counted, not remembered."""
    done = Round(True)
    for at in range(500):
        group = deadletters_triage.TriagedGroup("q", f"reason {at}", "", deadletters_triage.LEAVE, None)
        deadletters_triage._count(done.groups, group)
    assert (done.total, len(done.groups)) == (500, deadletters_triage.GROUPS_MAX + 1)
