"""A seed → a report; many seeds → a sum."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.checker import Verdict
from tests.chaos.scenario import Outcome
from tests.simulator.expectations import Expectations
from tests.simulator.finale import Finale
from tests.simulator.operated import SUBJECTS
from tests.simulator.operators import possible_changes
from tests.simulator.verdict import judge
from tests.simulator.virtual_time import NEVER_S, NoEnd, NothingWillHappen, TimeStandsStill, VirtualLoop
from tests.simulator.world import LoudLog, World

OPERATIONS: Final = 2_000
#: Many runs together must have done something: for every hundred operations so many messages accepted, and so many
#: received. A single one may have drawn a world in which its stores are hardly ever there.
_SENT_PERCENT_MIN: Final = 10
_SEEN_PERCENT_MIN: Final = 10
#: The longest runs, with all that must be waited for, take a quarter of it.
_SIMULATED_S_MAX: Final = 10_000.0
#: Many runs together must have met everything there is.
_ALL_MET_FROM_SEEDS: Final = 100
_MUST_BE_MET: Final = (
    *("send ok", "send fail", "send info", "batch ok", "batch info", "schedule ok", "cancel ok"),
    *("complete ok", "complete info", "abandon ok", "defer ok", "dead-letter ok", "release ok"),
    *("transaction ok", "transaction fail", "transaction info", "rollback fail", "via ok"),
    *("accept ok", "renew ok", "renew-session ok", "set-state ok", "get-state ok", "delete ok"),
    *("seen: receive", "seen: delete", "seen: deferred", "seen: peek", "seen: drain"),
    *("fault: refused", "fault: unknown", "fault: hang", "fault: slow", "fault: lost", "fault: disabled"),
    *("fault: reads", "fault: full", "fault: clock", "fault: crash", "disable ok", "enable ok"),
    *("step ok", "step fail", "step info", "look ok", "change interrupted by a crash"),
    *sorted({f"change: {change.name}" for path in SUBJECTS for change in possible_changes(path)}),
)


@dataclass(frozen=True)
class Report:
    """What one seed led to."""

    seed: int
    operations: int
    verdict: Verdict
    trace: list[str]
    simulated_s: float

    @property
    def holds(self) -> bool:
        return self.verdict.holds

    def digest(self) -> str:
        """Two runs of one seed have the same."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def simulate(seed: int, operations: int = OPERATIONS) -> Report:
    """The same seed and operations do the same."""
    loop = VirtualLoop()
    world = World(seed, operations, loop)
    log, listener = logging.getLogger("busway"), LoudLog(world.journal)
    level, propagates = log.level, log.propagate
    log.addHandler(listener)
    log.setLevel(logging.WARNING)
    log.propagate = False
    began = loop.time()
    loop.ends_at_s = began + _SIMULATED_S_MAX
    try:
        loop.run_until_complete(_played(world))
    except (NothingWillHappen, TimeStandsStill, NoEnd) as error:
        world.journal.find("does not end", str(error))
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
        log.propagate = propagates
        _end(loop)
    verdict = judge(world.journal, Expectations(world.timeline) if world.has_operator else None)
    _demand_enough(world, verdict)
    return Report(seed, operations, verdict, world.journal.trace, loop.time() - began)


async def _played(world: World) -> None:
    await world.play()
    await Finale(world).play()


def _end(loop: VirtualLoop) -> None:
    """Whatever a failed run has left behind."""
    loop.ends_at_s = NEVER_S
    tasks = loop.live_tasks()
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=60.0))
    loop.close()


def _sent_and_shown(counts: dict[str, int]) -> tuple[int, int]:
    """Messages accepted, and messages received."""
    sent = counts.get("send ok", 0) + counts.get("batch ok", 0)
    return sent, counts.get("seen: receive", 0) + counts.get("seen: delete", 0)


def _demand_enough(world: World, verdict: Verdict) -> None:
    sent, shown = _sent_and_shown(verdict.counts)
    if world.operations_left > 0 or not sent or not shown:
        verdict.found(
            "did too little",
            f"{sent} messages accepted, {shown} received, {world.operations_left} operations left",
        )


@dataclass
class Sum:
    """Many seeds."""

    seeds: int = 0
    operations: int = 0
    simulated_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failed: dict[int, dict[str, int]] = field(default_factory=dict)
    not_met: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.failed and not self.not_met

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.operations += report.operations
        self.simulated_s += report.simulated_s
        for what, count in report.verdict.counts.items():
            self.counts[what] = self.counts.get(what, 0) + count
        if not report.holds:
            self.failed[report.seed] = {what: len(which) for what, which in report.verdict.violations.items()}

    def close(self) -> None:
        """The last one is in."""
        if self.seeds >= _ALL_MET_FROM_SEEDS:
            self.not_met = [what for what in _MUST_BE_MET if not self.counts.get(what)]
            sent, shown = _sent_and_shown(self.counts)
            if sent * 100 < self.operations * _SENT_PERCENT_MIN:
                self.not_met.append(f"{_SENT_PERCENT_MIN} messages accepted for a hundred operations")
            if shown * 100 < self.operations * _SEEN_PERCENT_MIN:
                self.not_met.append(f"{_SEEN_PERCENT_MIN} messages received for a hundred operations")


def simulated_seeds(folder: Path, rounds: int, seed: int) -> Outcome:
    """The scenario of `make chaos`: so many seeds from this one on. A failing one leaves its trace in the folder."""
    together = Sum()
    for number in range(seed, seed + rounds):
        report = simulate(number)
        together.add(report)
        if not report.holds:
            (folder / f"trace-{number}.txt").write_text("\n".join(report.trace))
    together.close()
    violations = {
        f"{sorted(what)}, replay: python -m tests.simulator --seed {number}": 1
        for number, what in together.failed.items()
    }
    violations |= {f"never met: {what}": 1 for what in together.not_met}
    return Outcome(
        "simulator",
        together.seeds,
        rounds,
        *_sent_and_shown(together.counts),
        violations,
        f"seeds {seed}…{seed + rounds - 1}, {together.simulated_s / 3600:.1f} simulated hours",
    )
