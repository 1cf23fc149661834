"""What a chaos scenario gives back: one row of the table, and whether it did enough to mean something."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.checker import Verdict


@dataclass(frozen=True)
class Outcome:
    scenario: str
    rounds: int
    planned: int
    sent: int = 0
    received: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    note: str = ""
    skipped: str = ""

    @property
    def holds(self) -> bool:
        """A run that did too little proves nothing and counts as failed."""
        return bool(self.skipped) or (not self.violations and self.rounds >= 0.9 * self.planned)


def outcome(scenario: str, rounds: int, planned: int, verdict: Verdict, note: str = "") -> Outcome:
    violations = {what: len(values) for what, values in verdict.violations.items()}
    if not verdict.counts.get("sent"):
        violations["nothing was acknowledged"] = 1
    return Outcome(
        scenario,
        rounds,
        planned,
        verdict.counts.get("sent", 0),
        verdict.counts.get("received", 0),
        violations,
        note,
    )


def add_verdict(together: Verdict, verdict: Verdict) -> None:
    for what, values in verdict.violations.items():
        together.violations[what] += values
    for what, count in verdict.counts.items():
        together.counts[what] = together.counts.get(what, 0) + count
