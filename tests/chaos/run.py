"""make chaos, make soak: hurt a real server and check what its clients saw.

  python -m tests.chaos.run [--only SCENARIO …] [--rounds N] [--long] [--seed N] [--hours H]

Prints one table and one JSON line with seed and verdict; exit status 1 on any violation, and also when a scenario did
too little to mean something. With --hours the scenarios repeat with new seeds until the time is over.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.chaos import (
    backups,
    changes,
    clock_steps,
    crash_points,
    cuts,
    damage,
    disk_full,
    fuzz,
    kill,
    long_tests,
    nodes,
    partitions,
    patience,
    postgres_faults,
    power_cut,
    spark_kills,
    stalls,
    stream_runs,
    sync_errors,
    transactions,
)
from tests.chaos.crash_scenarios import SCENARIOS as CRASH_SCENARIOS
from tests.chaos.crash_spread import SPREAD_SCENARIOS
from tests.chaos.crash_transactions import TRANSACTION_SCENARIOS
from tests.chaos.mutations.play import FAULTS, break_on_purpose
from tests.chaos.scenario import Outcome
from tests.simulator.simulation import simulated_seeds

#: name → (scenario, rounds of a short run)
SCENARIOS: dict[str, tuple[Callable[[Path, int, int], Outcome], int]] = {
    "kill": (kill.kill_under_load, 30),
    "backups": (backups.backups_under_load, 6),
    "power": (power_cut.power_cuts, 40),
    "crash": (crash_points.crash_at_every_write, len(CRASH_SCENARIOS)),
    "crash-spread": (crash_points.crash_in_spread_entities, len(SPREAD_SCENARIOS)),
    "crash-transactions": (crash_points.crash_in_transactions, len(TRANSACTION_SCENARIOS)),
    "changes": (changes.change_under_traffic, 10),
    "changes-cells": (changes.all_cells, 1),
    "partitions": (partitions.stores_come_and_go, 20),
    "transactions": (transactions.kill_transactions, 20),
    **stream_runs.STREAM_SCENARIOS,
    "cuts": (cuts.cut_connections, 200),
    "postgres-kill": (postgres_faults.killed, 4),
    "postgres-pause": (postgres_faults.paused, 4),
    "postgres-cut": (postgres_faults.cut, 4),
    "nodes-kill": (nodes.nodes_killed, 20),
    "nodes-pause": (nodes.nodes_paused, 20),
    "postgres-tests": (long_tests.stores_in_postgres, 500),
    "disk-full": (disk_full.fill_and_drain, 1),
    "sync-errors": (sync_errors.failing_syncs, 6),
    "stall": (stalls.slow_disk, 3),
    "clock": (clock_steps.steps_of_the_clock, len(clock_steps.STEPS_S)),
    "damage": (damage.damaged_files, 200),
    "fuzz": (fuzz.fuzz_decoder_and_engine, 60),
    "simulator": (simulated_seeds, 300),
    "mutations": (break_on_purpose, len(FAULTS)),
    "spark": (spark_kills.kill_streams, 10),
    "spark-jobs": (long_tests.jobs_on_spark, 14),
    "long-tests": (long_tests.every_point, 56),
}
#: Only with --long, or by name: minutes of waiting.
LONG_SCENARIOS: dict[str, tuple[Callable[[Path, int, int], Outcome], int]] = {
    "stop": (stalls.stopped_for_long, 1),
    "patience": (patience.held_for_long, 60),
}
#: Rounds with --long.
LONG_ROUNDS: dict[str, int] = {"postgres-kill": 24, "postgres-pause": 24, "postgres-cut": 24}


def main() -> int:
    options = _options()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    deadline = time.monotonic() + options.hours * 3600
    outcomes: list[Outcome] = []
    while True:
        for name in options.only or [*SCENARIOS, *(LONG_SCENARIOS if options.long else ())]:
            outcomes.append(_run(name, seed, options))
        seed += 1
        if time.monotonic() >= deadline:
            break
    _print_table(outcomes)
    holds = all(outcome.holds for outcome in outcomes)
    print(json.dumps({"seed": seed - 1, "holds": holds, "outcomes": [asdict(row) for row in outcomes]}))
    return 0 if holds else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*SCENARIOS, *LONG_SCENARIOS], default=[])
    parser.add_argument("--long", action="store_true", help="also what takes minutes of waiting")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each scenario, instead of its own number")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices")
    parser.add_argument("--hours", type=float, default=0.0)
    return parser.parse_args()


def _run(name: str, seed: int, options: argparse.Namespace) -> Outcome:
    """The folder of a run that went wrong stays, with the server's log and the histories."""
    scenario, rounds = {**SCENARIOS, **LONG_SCENARIOS}[name]
    rounds = options.rounds or (LONG_ROUNDS.get(name, rounds) if options.long else rounds)
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"busway-{name}-"))
    try:
        outcome = scenario(folder, rounds, seed)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(name, 0, rounds, violations={f"{type(error).__name__}: {error}": 1})
    if outcome.holds:
        shutil.rmtree(folder, ignore_errors=True)
    verdict = "skipped: " + outcome.skipped if outcome.skipped else "holds" if outcome.holds else "VIOLATED"
    where = "" if outcome.holds else f", see {folder}"
    print(
        f"{outcome.scenario}: {verdict} ({time.monotonic() - begun:.0f} s{where})",
        file=sys.stderr,
        flush=True,
    )
    return outcome


def _print_table(outcomes: list[Outcome]) -> None:
    print(f"{'scenario':<30} {'rounds':>9} {'sent':>8} {'received':>9}  verdict")
    for row in outcomes:
        rounds = f"{row.rounds}/{row.planned}"
        print(
            f"{row.scenario:<30} {rounds:>9} {row.sent:>8} {row.received:>9}  {_verdict(row)} {row.note}".rstrip()
        )


def _verdict(row: Outcome) -> str:
    if row.skipped:
        return "skipped: " + row.skipped
    if row.holds:
        return "holds"
    return f"VIOLATED {row.violations}" if row.violations else "VIOLATED: did too little"


if __name__ == "__main__":
    sys.exit(main())
