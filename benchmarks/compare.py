"""Two trees against each other: does a message cost more than it did?

  make bench-compare BASE=main            the working tree against a commit, all workloads
  make bench-compare BASE=main ARGS=--quick
  python -m benchmarks.compare BASE --only send both --pairs 30
  python -m benchmarks.compare --self-test --quick

Both trees are copied and compiled below build/compare (kept for the next time). Both servers run at once on the same
processor and get the same bursts; each pair of bursts gives a ratio of CPU time per message, and the median of the
ratios comes with its 95 % interval. A workload is worse when its whole interval lies above 1.03; then the exit status
is 1. It is 2 when nothing could be measured.

Needs Linux, gcc and Debian's libqpid-proton11-dev.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from benchmarks import generator, planted_slowness, trees
from benchmarks.comparison_table import table, verdict_of
from benchmarks.meter import REST_S, SOON_S
from benchmarks.pair_ratios import PAIRS_MIN, Verdict
from benchmarks.pairing import Comparison, Plan
from benchmarks.planted_slowness import Finding
from benchmarks.process_counters import NoCounter, why_no_counter
from benchmarks.trees import Tree, TreeFault
from benchmarks.workloads import GROUPS, TITLES, Group

WHOLE = Plan(pairs_min=10, pairs_max=60, seconds_max=1_500.0, half_width=0.01)
#: With 200 s for compiling an old tree, an answer within ten minutes.
QUICK = Plan(pairs_min=10, pairs_max=20, seconds_max=270.0, half_width=0.015)
WORSE, NOT_MEASURED, INTERRUPTED = 1, 2, 130


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    signal.signal(signal.SIGTERM, _end)  # as Ctrl-C: servers are stopped on the way out
    signal.signal(signal.SIGHUP, _end)
    try:
        generator.build()
        return _self_test(options) if options.self_test else _compare(options)
    except generator.Unavailable as error:
        _say(f"The load generator cannot be built: {error}")
    except (TreeFault, NoCounter) as error:
        _say(str(error))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    return NOT_MEASURED


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    lines = [f"  {name:<13}{title}" for name, title in TITLES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        epilog="workloads:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", nargs="?", metavar="BASE", help="the commit to compare with; to prove it on")
    parser.add_argument("--new", metavar="COMMIT", help="instead of the working tree as it is now")
    parser.add_argument("--quick", action="store_true", help="a first answer in ten minutes at most")
    parser.add_argument("--pure", action="store_true", help="the Python sources, without compiling")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help=f"exactly so many of each workload, {PAIRS_MIN} or more"
    )
    parser.add_argument(
        "--rest",
        type=float,
        metavar="SECONDS",
        default=SOON_S,
        help=f"after each burst, which counts what is done meanwhile ({SOON_S:g}); {REST_S:g} for a store that puts"
        " off work until it has nothing else to do",
    )
    parser.add_argument(
        "--only", nargs="+", choices=[*TITLES], metavar="WORKLOAD", help="these, see below", default=[*TITLES]
    )
    parser.add_argument(
        "--self-test",
        action="store_true",
        help=f"prove it on equal trees and on one that costs {planted_slowness.SHARE:.0%}% more",
    )
    options = parser.parse_args(words)
    if options.pairs is not None and options.pairs < PAIRS_MIN:
        parser.error(f"--pairs {options.pairs}: an interval of 95 % needs at least {PAIRS_MIN} pairs")
    if options.base is None and not options.self_test:
        parser.error("name the commit to compare with: make bench-compare BASE=commit")
    return options


def _compare(options: argparse.Namespace) -> int:
    base = trees.of_commit(options.base)
    new = trees.of_working_tree() if options.new is None else trees.of_commit(options.new)
    _prepare([base, new], options.pure)
    comparison = _measured(base, new, options)
    print(_table(comparison, options), end="")
    wanted = (comparison.found[name] for name in options.only)
    return WORSE if any(verdict_of(pairs) is Verdict.WORSE for pairs in wanted) else 0


def _self_test(options: argparse.Namespace) -> int:
    tree = trees.of_commit(options.base) if options.base else trees.of_working_tree()
    _prepare([tree], options.pure)
    slow = planted_slowness.planted(tree)
    _prepare([slow], options.pure)
    findings: list[Finding] = []
    for other in (tree, slow):
        comparison = _measured(tree, other, options)
        print(_table(comparison, options))
        for name in options.only:
            findings.append(Finding(name, comparison.found[name].cpu(), other is slow))
    print("\n".join(finding.sentence() for finding in findings))
    return 0 if all(finding.holds for finding in findings) else 1


def _prepare(wanted: list[Tree], is_pure: bool) -> None:
    for tree in wanted:
        trees.check(tree)
    if not is_pure:
        _say(f"compiling {' and '.join(tree.title for tree in wanted)} (minutes, unless it was done before)")
        begun = time.monotonic()
        trees.compile_trees(wanted)
        _say(f"compiled after {time.monotonic() - begun:.0f} s")


def _measured(base: Tree, new: Tree, options: argparse.Namespace) -> Comparison:
    load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > processors:
        _say(f"the machine is busy (load {load:.1f}, {processors} processors): intervals will be wide")
    comparison = Comparison(
        (base, new),
        _groups(options.only),
        plan_of(options),
        is_pure=options.pure,
        counts_instructions=why_no_counter() is None,
        say=_say,
    )
    comparison.run()
    return comparison


def plan_of(options: argparse.Namespace) -> Plan:
    plan = replace(QUICK if options.quick else WHOLE, rest_s=options.rest)
    if options.pairs is None:
        return plan
    return replace(plan, pairs_min=options.pairs, pairs_max=options.pairs)


def _groups(only: Sequence[str]) -> list[Group]:
    return [group for group in GROUPS if set(only) & set(group.names)]


def _table(comparison: Comparison, options: argparse.Namespace) -> str:
    base, new = comparison.trees
    how = "pure Python" if options.pure else "compiled"
    headline = (
        f"{new.title} against {base.title}, {how}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC,"
        f" Python {platform.python_version()}, {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    found = {name: pairs for name, pairs in comparison.found.items() if name in options.only}
    return table(found, headline, why_no_counter())


def _end(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
