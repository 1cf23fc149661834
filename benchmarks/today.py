"""What a message costs against the commit that the bars are set by (`bars.TODAY`), both trees in turns in one run.

The comparison is that of `benchmarks.compare`, with a rest after each burst that is long enough for work that a store
puts off. The ratio that counts is the median of those of pairs.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks import bars, trees
from benchmarks.bars import TODAY, Bar
from benchmarks.meter import REST_S
from benchmarks.pair_ratios import PAIRS_MIN, interval_of
from benchmarks.pairing import Comparison, Pairs, Plan
from benchmarks.parts import Bench
from benchmarks.report import Report
from benchmarks.trees import Tree, TreeFault
from benchmarks.workloads import GROUPS, TITLES

PLAIN = ("send", "receive", "both")
PAIRS = 10


def today(bench: Bench, report: Report) -> None:
    """sessions, duplicates, topics, partitions and hubs: CPU against the commit that the bars are set by"""
    names = (*PLAIN, *bars.AGAINST_TODAY)
    found = compared(bench, report, names, is_pure=False)
    for name, pairs in found.items():
        _row(report, TITLES[name], pairs, bars.AGAINST_TODAY.get(name))
    if "partitioned" in found:
        ours, plain = found["partitioned"].cpu_us()[1], found["both"].cpu_us()[1]
        report.beside("partitioned : plain, both at once", ours, plain, "µs/message")


def today_pure(bench: Bench, report: Report) -> None:
    """the same for the Python sources, without compiled modules"""
    for name, pairs in compared(bench, report, PLAIN, is_pure=True).items():
        _row(report, f"pure Python, {TITLES[name]}", pairs, bars.PURE_AGAINST_TODAY)


def base_tree(report: Report, *, is_pure: bool, commit: str = TODAY) -> Tree | None:
    """The commit's, compiled; None when it cannot be had, which the report says."""
    try:
        tree = trees.of_commit(commit)
        trees.check(tree)
        if not is_pure:
            trees.compile_trees([tree])
    except TreeFault as error:
        report.note(f"against commit {commit}", f"left out: {error}")
        return None
    return tree


def compared(
    bench: Bench, report: Report, names: tuple[str, ...], *, is_pure: bool, commit: str = TODAY
) -> dict[str, Pairs]:
    """The pairs of these workloads; none when that commit cannot be had."""
    base = base_tree(report, is_pure=is_pure, commit=commit)
    if base is None:
        return {}
    new = trees.of_working_tree()
    if not is_pure:
        trees.compile_trees([new])
    pairs = bench.rounds if bench.quick else max(bench.rounds, PAIRS)
    comparison = Comparison(
        (base, new),
        [group for group in GROUPS if set(names) & set(group.names)],
        Plan(pairs_min=pairs, pairs_max=pairs, rest_s=REST_S),
        is_pure=is_pure,
        counts_instructions=False,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    comparison.run()
    return {name: comparison.found[name] for name in names}


def _row(report: Report, title: str, pairs: Pairs, bar: Bar | None) -> None:
    ratios, (base_us, new_us) = pairs.cpu_ratios(), pairs.cpu_us()
    metric = f"CPU against commit {TODAY}, {len(ratios)} pairs: {title}"
    if len(ratios) >= PAIRS_MIN:
        interval = interval_of(ratios)
        metric += f" ({interval.low:.2f} … {interval.high:.2f})"
    if bar is None:
        report.beside(metric, new_us, base_us, "µs/message")
    else:
        report.at_most(metric, new_us, base_us, bar, "µs/message", median(ratios))
