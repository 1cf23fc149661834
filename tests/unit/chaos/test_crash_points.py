"""Crash points are only worth something if they notice: steps that lie about their durability must be found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busway.model.descriptions import QueueDescription
from busway.model.settlement import Settlement, Verb
from tests.chaos.crash_points import (
    KILLED,
    WAYS,
    Trial,
    crash_at_every_write,
    crash_in_spread_entities,
    crash_in_transactions,
    fast_folder,
)
from tests.chaos.crash_scenarios import SCENARIOS, Act, CrashScenario, Step, text
from tests.chaos.crash_spread import LAST
from tests.chaos.crash_world import CrashWorld, queue
from tests.chaos.scenario import Outcome

pytestmark = pytest.mark.fault


def violations_of(folder: Path, *acts: Act | Step, way: str = KILLED, **of: Any) -> list[str]:
    steps = tuple(act if isinstance(act, Step) else Step(act) for act in acts)
    scenario = CrashScenario("planted", steps, **of)
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


async def _forward_by_hand(world: CrashWorld) -> None:
    """A move in two commits without a mark: what every forward would be without `transfers`."""
    await world.send(text("moved", 3000))
    await world.send(text("moved", 3000), path=LAST)
    await world.settle(await world.receive(1), Settlement(Verb.COMPLETE))


def test_a_move_without_a_mark_is_found(tmp_path: Path) -> None:
    """F14: either there twice, or not yet moved."""
    found = violations_of(
        tmp_path / "move", _forward_by_hand, store_count=2, others=(QueueDescription(LAST),)
    )
    assert any("a part of one is there" in what for what in found), found


async def _complete_and_send_apart(world: CrashWorld) -> None:
    """A transaction that is none."""
    await world.settle(await world.receive(1), Settlement(Verb.COMPLETE))
    await world.send(text("result", 3000))


def test_a_torn_transaction_is_found(tmp_path: Path) -> None:
    """F13."""
    found = violations_of(tmp_path / "torn", _complete_and_send_apart, prepare=_send)
    assert any("a part of one is there" in what for what in found), found


def test_parts_may_be_done_but_what_was_promised_must(tmp_path: Path) -> None:
    """P-31: a send to several fragments is acknowledged message by message."""

    def claims(*, too_much: bool) -> Step:
        async def act(world: CrashWorld) -> None:
            present = {each.bare for each in await world.queue.inlet.peek(1, 100)}
            for name in ("b", "d"):
                message = text(f"for-{name}", 3000, partition_key=name)
                if too_much:
                    world.promised.add(message.bare)
                if message.bare not in present:
                    await world.send_parts(message)

        return Step(act, is_in_parts=True)

    spread: dict[str, Any] = {
        "description": queue(enable_partitioning=True),
        "store_count": 2,
        "is_loose": True,
    }
    assert violations_of(tmp_path / "parts", claims(too_much=False), **spread) == []
    assert violations_of(tmp_path / "claims", claims(too_much=True), **spread) != []


@pytest.mark.parametrize(
    "crash", [pytest.param(crash_in_spread_entities, marks=pytest.mark.long), crash_in_transactions]
)
def test_the_first_scenario_of_each_kind_holds(
    tmp_path: Path, crash: Callable[[Path, int, int], Outcome]
) -> None:
    """F2, F13, F14."""
    result = crash(tmp_path, 1, 1)
    assert result.violations == {}
    assert result.holds
    assert result.planned >= 60


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


@pytest.mark.long
def test_a_part_of_make_chaos_prints_how_many_points_it_crashed_at(tmp_path: Path) -> None:
    """F2: for one scenario."""
    result = crash_at_every_write(tmp_path, 1, 1)
    assert result.violations == {}
    assert result.holds
    assert result.planned >= 150
    assert result.note.startswith("(1 scenarios: ")
