"""What the operation journal costs: two servers, one with a journal, one without, in turn.

A machine that others use is noisier than the journal is dear, so each round is several short runs, in turn, and the
mean of the middle half of them counts. The journal's writer is a process of its own that works in its own time: its
CPU is taken over all runs, until its last file is finished, and laid on the messages of a run by the rows that they
have.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import fmean

import psutil

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run, run_both
from benchmarks.measurement import cpu_s
from benchmarks.parts import Bench
from benchmarks.report import Report

COST_MAX = 0.05
TITLES = {"send": "send until accepted", "recv": "receive + accept", "both": "send + receive at once"}
#: Rows that one message has: send, receive, complete.
_ROWS = {"send": 1, "recv": 2, "both": 3}
_RUNS_A_ROUND = 4
_FILE_S = 20
#: Sealed after a second at most, finished so long after its first row.
_SETTLE_S = _FILE_S + 2

Figures = dict[tuple[str, str], list[tuple[float, float]]]


def journal(bench: Bench, report: Report) -> None:
    """what the operation journal costs, its writer's CPU included"""
    folder = bench.folder / "journal"
    options = ("--journal", str(folder / "files"), "--journal-seconds", str(_FILE_S))
    with BuswayServer(folder / "without") as without, BuswayServer(folder / "with", *options) as kept:
        servers = {"without": without, "with": kept}
        for server in servers.values():
            server.start()
        targets = {name: server.queue() for name, server in servers.items()}
        load = replace(bench.load, messages=bench.load.messages // _RUNS_A_ROUND)
        _in_turn(targets, 1, load)  # what is made once is made
        time.sleep(_SETTLE_S)
        [writer] = psutil.Process(kept.server.pid).children()
        before = cpu_s(writer.pid)
        count = bench.rounds * _RUNS_A_ROUND
        found = _in_turn(targets, count, load)
        time.sleep(_SETTLE_S)
        row_us = (cpu_s(writer.pid) - before) / (count * load.messages * sum(_ROWS.values())) * 1e6
    report.note("the journal's writer", f"{row_us:.3f} µs/row")
    for mode, title in TITLES.items():
        _report(report, title, found["with", mode], found["without", mode], row_us * _ROWS[mode])


def _in_turn(targets: dict[str, Target], count: int, load: Load) -> Figures:
    """(server, mode) → rate and the server's own CPU microseconds for each message."""
    found: Figures = {}
    for turn in range(count):
        # Whoever begins finds the machine as the one before has left it.
        names = list(targets) if turn % 2 == 0 else list(reversed(targets))
        for mode in TITLES:
            for name in names:
                target = targets[name]
                before = cpu_s(target.pid)
                done = run_both(target, load) if mode == "both" else run(target, mode, load)
                cost = (cpu_s(target.pid) - before) / load.messages * 1e6
                found.setdefault((name, mode), []).append((done["rate"], cost))
    return found


def _middle(values: list[float]) -> float:
    """CPU time is told in hundredths of a second: a median would jump."""
    outside = len(values) // 4
    return fmean(sorted(values)[outside : len(values) - outside])


def _report(
    report: Report,
    title: str,
    kept: list[tuple[float, float]],
    without: list[tuple[float, float]],
    writer_us: float,
) -> None:
    rates = [_middle([rate for rate, _ in figures]) for figures in (kept, without)]
    costs = [_middle([cost for _, cost in figures]) for figures in (kept, without)]
    report.at_least(f"with a journal, {title}; without", rates[0], rates[1], 1 - COST_MAX)
    metric = f"CPU with a journal and its writer, {title}; without"
    report.at_most(metric, costs[0] + writer_us, costs[1], 1 + COST_MAX, "µs/message")
