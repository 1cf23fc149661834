"""Runs of the simulator: they hold, and the same seed does the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.simulation import Sum, simulate, simulated_seeds


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_few_seeds_hold(seed: int) -> None:
    """P-2, P-24, P-25, P-31, P-47, P-48, TX-8, F-1, S-1: faults of every kind, nothing lost, torn or twice."""
    report = simulate(seed, 600)
    assert dict(report.verdict.violations) == {}
    assert report.simulated_s > 60
    assert any(what.startswith("fault: ") for what in report.verdict.counts)


@pytest.mark.parametrize("seed", [11, 23])
def test_the_same_seed_does_the_same_again(seed: int) -> None:
    """Simulator: to the last event; another seed does something else."""
    first, again, other = simulate(seed, 500), simulate(seed, 500), simulate(seed + 1, 500)
    assert first.trace == again.trace
    assert first.digest() != other.digest()


def test_the_same_seed_does_the_same_in_another_process() -> None:
    """Simulator: what a failing run prints can be replayed."""
    command = [sys.executable, "-m", "tests.simulator", "--seed", "5", "--operations", "300", "--trace"]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count("\n") > 300


def test_a_run_that_does_too_little_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: silence proves nothing."""
    monkeypatch.setattr("tests.simulator.producers.Producer.act", _does_nothing)
    report = simulate(1, 100)
    assert "did too little" in report.verdict.violations


async def _does_nothing(self: object) -> None:
    del self


def test_many_runs_that_never_meet_a_fault_fail() -> None:
    """Simulator: so does a crowd of seeds that avoids what it is for."""
    together = Sum(seeds=100, operations=1_000, counts={"send ok": 1})
    together.close()
    assert "fault: crash" in together.not_met
    assert "10 messages accepted for a hundred operations" in together.not_met
    assert "10 messages received for a hundred operations" in together.not_met
    assert not together.holds


def test_a_failing_seed_is_told_and_its_trace_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator: as a scenario of make chaos."""
    monkeypatch.setattr("tests.simulator.simulation.OPERATIONS", 100)
    monkeypatch.setattr("tests.simulator.producers.Producer.act", _does_nothing)
    outcome = simulated_seeds(tmp_path, 1, 77)
    assert not outcome.holds
    assert list(outcome.violations) == ["['did too little'], replay: python -m tests.simulator --seed 77"]
    assert (tmp_path / "trace-77.txt").read_text()
