"""A comparison as a table: what a message costs in both trees, the ratio, and whether that is worse."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.pair_ratios import HALF_WIDTH_MAX, WORSE_FROM, Interval, Verdict
from benchmarks.pairing import Pairs
from benchmarks.workloads import TITLES

_HEADS = ("workload", "base µs", "new µs", "CPU ratio", "95 % interval", "pairs", "verdict")
_COUNTED_HEADS = ("base instr.", "new instr.", "instr. ratio", "95 % interval")


def verdict_of(pairs: Pairs) -> Verdict:
    """By CPU time, which is what a message costs; instructions help to understand it."""
    return pairs.cpu().verdict


def table(found: dict[str, Pairs], headline: str, why_no_counter: str | None) -> str:
    heads = [*_HEADS[:-1], *(() if why_no_counter is not None else _COUNTED_HEADS), _HEADS[-1]]
    rows = [_row(name, pairs, why_no_counter is None) for name, pairs in found.items()]
    lines = ["# Comparison", "", headline, "", *_aligned(heads, rows), "", *_remarks(found, why_no_counter)]
    return "\n".join(lines) + "\n"


def _row(name: str, pairs: Pairs, is_counted: bool) -> list[str]:
    base_us, new_us = pairs.cpu_us()
    cells = [name, f"{base_us:.2f}", f"{new_us:.2f}", *_ratio(pairs.cpu()), str(len(pairs))]
    interval = pairs.instructions() if is_counted else None
    if interval is not None:
        base, new = (median(side) for side in zip(*pairs.counted(), strict=True))
        cells += [f"{base:,.0f}", f"{new:,.0f}", *_ratio(interval)]
    return [*cells, verdict_of(pairs).value]


def _ratio(interval: Interval) -> list[str]:
    return [f"{interval.middle:.3f}x", f"{interval.low:.3f} … {interval.high:.3f}"]


def _aligned(heads: list[str], rows: list[list[str]]) -> Iterable[str]:
    """A Markdown table that can be read on a terminal too."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for cells in (heads, ["-" * width for width in widths], *rows):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _remarks(found: dict[str, Pairs], why_no_counter: str | None) -> Iterable[str]:
    yield "Ratios are new ÷ base. CPU and instructions are those of the server, for each message."
    yield (
        f"{Verdict.WORSE.value}: the whole interval lies above {WORSE_FROM:g}. {Verdict.WIDE.value}: it does not, but"
        f" it is wider than ± {HALF_WIDTH_MAX:.0%}, so measure again with more pairs or on a quieter machine."
    )
    if why_no_counter is not None:
        yield f"Instructions: no counter here ({why_no_counter})."
    yield ""
    yield from (f"{name}: {TITLES[name]}" for name in found)
