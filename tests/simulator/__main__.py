"""See `tests.simulator`. Exit status 1 when anything is wrong, or when too little happened."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from tests.simulator.simulation import OPERATIONS, Report, Sum, simulate


def main() -> int:
    _fix_hashes()
    options = _options()
    if options.seed is not None:
        return _replay(options.seed, options.operations, options.trace)
    return _run_many(options)


def _fix_hashes() -> None:
    """Sets of texts are walked in the order of their hashes, which differ from process to process unless they are
    told not to: a replay must not depend on them."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulator", *sys.argv[1:]])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="The seeded simulator.")
    parser.add_argument("--seed", type=int, default=None, help="replay this one")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of clients, in each run")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--seeds", type=int, default=300, help="how many runs")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--keep-going", action="store_true", help="also after a run that failed")
    return parser.parse_args()


def _replay(seed: int, operations: int, is_traced: bool) -> int:
    report = simulate(seed, operations)
    if is_traced:
        print("\n".join(report.trace))
    _print_violations(report)
    print(
        json.dumps(
            {
                "seed": seed,
                "operations": operations,
                "holds": report.holds,
                "digest": report.digest(),
                "simulated_s": round(report.simulated_s, 3),
                "violations": report.verdict.violations,
                "counts": report.verdict.counts,
            }
        )
    )
    return 0 if report.holds else 1


def _run_many(options: argparse.Namespace) -> int:
    together, began, cpu_began = Sum(), time.monotonic(), time.process_time()
    for seed in range(options.first, options.first + options.seeds):
        report = simulate(seed, options.operations)
        together.add(report)
        if not report.holds:
            _print_violations(report)
            if not options.keep_going:
                break
    together.close()
    for what, count in sorted(together.counts.items()):
        print(f"{count:>9}  {what}")
    print(
        json.dumps(
            {
                "first_seed": options.first,
                "seeds": together.seeds,
                "planned": options.seeds,
                "operations": options.operations,
                "holds": together.holds and together.seeds == options.seeds,
                "failed": together.failed,
                "not_met": together.not_met,
                "simulated_hours": round(together.simulated_s / 3600, 2),
                "seconds": round(time.monotonic() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu_began, 1),
            }
        )
    )
    return 0 if together.holds and together.seeds == options.seeds else 1


def _print_violations(report: Report) -> None:
    if report.holds:
        return
    for what, which in report.verdict.violations.items():
        for each in which[:5]:
            print(f"seed {report.seed}: {what}: {each[:500]}", file=sys.stderr)
        if len(which) > 5:
            print(f"seed {report.seed}: {what}: and {len(which) - 5} more", file=sys.stderr)
    print(
        f"Replay it: python -m tests.simulator --seed {report.seed} --operations {report.operations} --trace",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
