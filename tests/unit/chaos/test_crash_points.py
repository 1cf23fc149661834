"""Crash points are only worth something if they notice: steps that lie about their durability must be found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.crash_points import KILLED, WAYS, Trial, crash_at_every_write, fast_folder
from tests.chaos.crash_scenarios import SCENARIOS, Act, CrashScenario, Step, text
from tests.chaos.crash_world import CrashWorld

pytestmark = pytest.mark.fault


def violations_of(folder: Path, *acts: Act, way: str = KILLED) -> list[str]:
    scenario = CrashScenario("planted", tuple(Step(act) for act in acts))
    violations: Counter[str] = Counter()
    with fast_folder(folder) as quick:
        trial = Trial(scenario, quick / "planted", random.Random(1))
        for write in range(1, trial.prepare() + 1):
            trial.play(write, way, violations)
    return list(violations)


async def _send(world: CrashWorld) -> None:
    await world.send(text("honest", 3000))


async def _send_and_claim(world: CrashWorld) -> None:
    """Says that it is stored before it is."""
    world.queue.send([text("too early", 3000)], lambda _: None)


async def _send_in_two_commits(world: CrashWorld) -> None:
    await world.send(text("first half", 3000))
    await world.send(text("second half", 3000))


@pytest.mark.parametrize("way", WAYS)
def test_honest_steps_hold(tmp_path: Path, way: str) -> None:
    assert violations_of(tmp_path / way, _send, way=way) == []


def test_an_answer_before_the_commit_is_found(tmp_path: Path) -> None:
    found = violations_of(tmp_path / "early", _send_and_claim, _send)
    assert any("steps were acknowledged" in what for what in found), found


def test_half_a_step_is_found(tmp_path: Path) -> None:
    found = violations_of(tmp_path / "half", _send_in_two_commits)
    assert any("a part of one is there" in what for what in found), found


def test_an_id_that_is_forgotten_is_found(tmp_path: Path) -> None:
    """S-40: a probe that stores something shows that what was stored is not known again."""
    scenario = next(each for each in SCENARIOS if each.name == "duplicates")

    async def send_others(world: CrashWorld, _: int) -> None:
        await world.send(text("unknown", message_id="never seen"))

    trial = Trial(replace(scenario, probe=send_others), tmp_path / "ids", random.Random(1))
    violations: Counter[str] = Counter()
    trial.prepare()
    trial.play(1, KILLED, violations)
    assert any("not recognised" in what for what in violations), violations


def test_a_part_of_make_chaos_prints_how_many_points_it_crashed_at(tmp_path: Path) -> None:
    """F2: for one scenario."""
    result = crash_at_every_write(tmp_path, 1, 1)
    assert result.violations == {}
    assert result.holds
    assert result.planned >= 150
    assert result.note.startswith("(1 scenarios: ")
