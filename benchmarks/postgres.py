"""Busway on PostgreSQL beside RabbitMQ's quorum queue, and what its ways cost beside each other.

CPU is that of the broker and of all of PostgreSQL's processes, vacuum included. Where generator, broker and database
fill the machine, rates tell how they share it, and CPU decides.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks import bars, skip_locked_queue
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import Figure, measure, measure_both, measure_from_window, middle
from benchmarks.meter import REST_S
from benchmarks.parts import Bench
from benchmarks.postgres_rig import STORES, BusOnPostgres, why_not_here
from benchmarks.report import Report
from benchmarks.today import compared

_BATCH = 100
_WARM_UP = 4_000


def postgres(bench: Bench, report: Report) -> None:
    """messages in PostgreSQL beside RabbitMQ and beside a queue with SKIP LOCKED; partitioned beside plain"""
    reason = why_not_here()
    if reason is not None:
        report.note("messages in PostgreSQL", f"left out: {reason}")
        return
    with BusOnPostgres(bench.folder / "postgres") as bus:
        bus.start()
        _beside_quorum(bench, report, bus)
        _one_at_a_time(bench, report, bus)
        _partitioned(bench, report, bus)
    _beside_skip_locked(bench, report)


# -- beside the peer


def _targets(bench: Bench, bus: BusOnPostgres) -> dict[str, Target]:
    found = {"ours": bus.queue("--max-size-in-megabytes", "5120")}
    if bench.peer is not None:
        found["quorum"] = bench.peer.target("quorum")
    return found


_TITLES = {
    "send": "send until accepted",
    "backlog": "receive + accept from a backlog",
    "window": "receive + accept from the window",
    "both": "send + receive at once",
}
_BARS = {
    "send": bars.POSTGRES_SEND,
    "backlog": bars.POSTGRES_RECEIVE,
    "window": bars.POSTGRES_RECEIVE,
    "both": bars.POSTGRES_BOTH,
}


def _beside_quorum(bench: Bench, report: Report, bus: BusOnPostgres) -> None:
    targets = _targets(bench, bus)
    found: dict[tuple[str, str], list[Figure]] = {}
    for target in targets.values():
        _each(target, replace(bench.load, messages=_WARM_UP), 0.0)
    for _ in range(bench.rounds):
        for name, target in targets.items():
            for way, figure in _each(target, bench.load, REST_S).items():
                found.setdefault((name, way), []).append(figure)
    best = {key: middle(figures) for key, figures in found.items()}
    for way, title in _TITLES.items():
        ours, peer = best["ours", way], best.get(("quorum", way))
        metric = f"PostgreSQL, {title}"
        if peer is not None and ours.is_machine_full:
            report.at_least_by_cpu(metric, (ours.rate, peer.rate), (ours.cpu_us, peer.cpu_us), _BARS[way])
        else:
            report.at_least(metric, ours.rate, peer.rate if peer else None, _BARS[way])
    for way, title in _TITLES.items():
        ours, peer = best["ours", way], best.get(("quorum", way))
        metric = f"CPU of broker and PostgreSQL, {title}"
        if way == "both":
            report.at_most(
                metric, ours.cpu_us, peer.cpu_us if peer else None, bars.POSTGRES_CPU, "µs/message"
            )
        else:
            report.beside(metric, ours.cpu_us, peer.cpu_us if peer else None, "µs/message")
        report.note(
            f"of this PostgreSQL's, {title}",
            f"{ours.database_us:.2f} µs/message; all and the generator used {ours.cores:.2f} cores",
        )


def _each(target: Target, load: Load, rest_s: float) -> dict[str, Figure]:
    """In this order: the backlog is what was sent before."""
    return {
        "send": measure(target, "send", load, rest_s),
        "backlog": measure(target, "recv", load, rest_s),
        "window": measure_from_window(target, load, rest_s),
        "both": measure_both(target, load, rest_s),
    }


def _one_at_a_time(bench: Bench, report: Report, bus: BusOnPostgres) -> None:
    targets = _targets(bench, bus)
    load = Load(messages=500 if bench.quick else 3_000)
    found: dict[str, list[Figure]] = {name: [] for name in targets}
    for _ in range(bench.rounds):
        for name, target in targets.items():
            found[name].append(measure(target, "lat", load))
            run(target, "recv", load)
    best = {name: middle(figures) for name, figures in found.items()}
    ours, peer = best["ours"], best.get("quorum")
    report.at_most(
        "PostgreSQL, send latency p50", ours.p50_ms, peer.p50_ms if peer else None, bars.POSTGRES_P50, "ms"
    )
    report.at_most(
        "PostgreSQL, send latency p99", ours.p99_ms, peer.p99_ms if peer else None, bars.POSTGRES_P99, "ms"
    )
    report.beside(
        "CPU of broker and PostgreSQL, one send at a time",
        ours.cpu_us,
        peer.cpu_us if peer else None,
        "µs/message",
    )
    report.note("of this PostgreSQL's, one send at a time", f"{ours.database_us:.0f} µs/message")


# -- beside itself


def _partitioned(bench: Bench, report: Report, bus: BusOnPostgres) -> None:
    queues = {
        name: bus.queue("--max-size-in-megabytes", "5120", *options)
        for name, options in (("plain", ()), ("partitioned", ("--partitioned",)))
    }
    load = replace(bench.load, is_bare=True)
    found: dict[str, list[Figure]] = {name: [] for name in queues}
    for target in queues.values():
        measure_both(target, replace(load, messages=_WARM_UP), 0.0)
    for _ in range(max(bench.rounds, 3)):
        for name, target in queues.items():
            found[name].append(measure_both(target, load, REST_S))
    best = {name: middle(figures) for name, figures in found.items()}
    report.at_most(
        f"PostgreSQL, partitioned over {STORES} stores against plain, CPU of both ways at once",
        best["partitioned"].cpu_us,
        best["plain"].cpu_us,
        bars.POSTGRES_PARTITIONED,
        "µs/message",
    )
    report.beside(
        "of this PostgreSQL's", best["partitioned"].database_us, best["plain"].database_us, "µs/message"
    )


def _beside_skip_locked(bench: Bench, report: Report) -> None:
    batches = bench.load.messages // _BATCH
    found = [skip_locked_queue.compared(bench.load.body_bytes, _BATCH, batches) for _ in range(bench.rounds)]
    joint, apart, other = (median(each) for each in zip(*found, strict=True))
    title = f"PostgreSQL's own CPU, batches of {_BATCH}, beside a queue with SKIP LOCKED"
    report.beside(f"{title}: put and deleted in joint commits", joint, other, "µs/message")
    report.beside(f"{title}: in commits of their own", apart, other, "µs/message")
    for name, text in skip_locked_queue.SQL.items():
        report.note(f"that queue's SQL, {name}", f"`{' '.join(text.split())}`")


def without_postgres(bench: Bench, report: Report) -> None:
    """what stores in PostgreSQL cost those who do not use them: SQLite against the commit before there were any"""
    names = ("send", "receive", "both")
    found = compared(bench, report, names, is_pure=False, commit=bars.BEFORE_POSTGRES)
    for name, pairs in found.items():
        base_us, new_us = pairs.cpu_us()
        report.at_most(
            f"SQLite in one process against commit {bars.BEFORE_POSTGRES}, {len(pairs)} pairs, {name}, CPU",
            new_us,
            base_us,
            bars.SQLITE_BESIDE_POSTGRES,
            "µs/message",
            median(pairs.cpu_ratios()),
        )
