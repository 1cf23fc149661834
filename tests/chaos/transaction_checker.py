"""Was every transaction of a run carried out as a whole or not at all, and did nobody see one that was not?

Each job is taken by one transaction after another until one commits: it completes the job and sends results that bear
the attempt's own name. So in the end a job is there, or the results of exactly one of its attempts are: all of them,
each once. `ok`, `fail` and `info` of an attempt mean what they mean in `history`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.checker import Verdict
from tests.chaos.history import FAIL, INFO, OK


@dataclass(frozen=True)
class Attempt:
    """One transaction."""

    job: str
    results: tuple[str, ...]
    outcome: str


@dataclass
class TransactionHistory:
    #: Jobs by the outcome of their sending.
    jobs: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    #: Results that somebody saw while all was under way.
    glimpsed: set[str] = field(default_factory=set)
    #: What is there in the end, and how often.
    left: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    def committed(self) -> int:
        return sum(1 for attempt in self.attempts if attempt.outcome == OK)

    def save(self, file: Path) -> None:
        with file.open("w") as out:
            for attempt in self.attempts:
                out.write(json.dumps(asdict(attempt)) + "\n")
            out.write(json.dumps({"jobs": self.jobs, "left": self.left, "found": self.found}) + "\n")


def check_transactions(history: TransactionHistory) -> Verdict:
    verdict = Verdict()
    by_job: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        by_job[attempt.job].append(attempt)
        _check_attempt(attempt, history, verdict)
    for job, sent in history.jobs.items():
        _check_job(job, sent, by_job[job], history, verdict)
    _check_strangers(history, verdict)
    outcomes = Counter(attempt.outcome for attempt in history.attempts)
    verdict.counts = {
        "sent": outcomes[OK],
        "received": sum(history.found.values()),
        "rolled back": outcomes[FAIL],
        "unknown": outcomes[INFO],
    }
    return verdict


def _check_attempt(attempt: Attempt, history: TransactionHistory, verdict: Verdict) -> None:
    there = [history.found[result] for result in attempt.results]
    if any(count > 1 for count in there):
        verdict.found("txn doubled", attempt.job)
    if any(there) and not all(there):
        verdict.found("txn torn", attempt.job)
    if attempt.outcome == OK and not any(there):
        verdict.found("txn lost", attempt.job)
    seen = any(there) or not history.glimpsed.isdisjoint(attempt.results)
    if attempt.outcome == FAIL and seen:
        verdict.found("txn aborted read", attempt.job)
    if attempt.outcome != FAIL and seen and not any(there):
        verdict.found("txn vanished", attempt.job)


def _check_job(
    job: str, sent: str, attempts: list[Attempt], history: TransactionHistory, verdict: Verdict
) -> None:
    carried_out = sum(1 for each in attempts if any(history.found[result] for result in each.results))
    if history.left[job] and carried_out:
        verdict.found("txn torn", job)
    if history.left[job] > 1:
        verdict.found("job doubled", job)
    if carried_out > 1:
        verdict.found("job done twice", job)
    if sent == OK and not history.left[job] and not carried_out:
        verdict.found("job lost", job)


def _check_strangers(history: TransactionHistory, verdict: Verdict) -> None:
    known = {result for attempt in history.attempts for result in attempt.results}
    for value in history.found.keys() - known:
        verdict.found("unexpected", value)
    for value in history.left.keys() - history.jobs.keys():
        verdict.found("unexpected", value)
