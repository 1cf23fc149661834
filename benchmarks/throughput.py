"""Rates, CPU, latency and many connections beside the peers: the rows that the peers' figures stand in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks import bars
from benchmarks.bars import Bar
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import Figure, measure, measure_both, measure_from_window, meter_of, middle
from benchmarks.meter import REST_S
from benchmarks.parts import Bench
from benchmarks.report import Report

Best = dict[tuple[str, str], Figure]
#: In this order in every round: the backlog is what was sent before.
_WAYS: dict[str, Callable[[Target, Load, float], Figure]] = {
    "send": lambda target, load, rest_s: measure(target, "send", load, rest_s),
    "backlog": lambda target, load, rest_s: measure(target, "recv", load, rest_s),
    "window": measure_from_window,
    "both": measure_both,
}
_BARS = {
    "send": bars.SEND,
    "backlog": bars.RECEIVE_BACKLOG,
    "window": bars.RECEIVE_WINDOW,
    "both": bars.BOTH,
}
#: It is slow and only told for information.
_LESS_FOR_CLASSIC = 3
#: They take a second each, and the 99th percentile of one is that of thirty sends. Who comes after whom changes.
_LATENCY_ROUNDS_MIN = 5


def throughput(bench: Bench, report: Report) -> None:
    """rates and broker CPU of sending, receiving and both at once, beside RabbitMQ and Artemis"""
    targets = bench.targets(bench.fresh_queues())
    figures: dict[tuple[str, str], list[Figure]] = {}
    for (
        target
    ) in targets.values():  # what only the first messages of a queue cost, and a JVM that is still cold
        _each(target, replace(bench.load, messages=4_000), 0.0)
    for _ in range(bench.rounds):
        for name, target in targets.items():
            less = _LESS_FOR_CLASSIC if name == "classic" else 1
            load = replace(bench.load, messages=bench.load.messages // less)
            for way, figure in _each(target, load, REST_S).items():
                figures.setdefault((name, way), []).append(figure)
    best = {key: middle(found) for key, found in figures.items()}
    _report_rates(report, best, _titles(bench.load.messages))
    _report_costs(report, best, _titles(bench.load.messages))


def _each(target: Target, load: Load, rest_s: float) -> dict[str, Figure]:
    return {way: work(target, load, rest_s) for way, work in _WAYS.items()}


def _titles(messages: int) -> dict[str, str]:
    return {
        "send": "send until accepted",
        "backlog": f"receive + accept from a backlog of {messages:,}",
        "window": "receive + accept from the window",
        "both": "send + receive at once",
    }


def _report_rates(report: Report, best: Best, titles: dict[str, str]) -> None:
    for way, title in titles.items():
        ours, pure, peer = best["compiled", way], best["pure", way], best.get(("quorum", way))
        _rate(report, title, ours, peer, _BARS[way])
        _rate(report, f"{title}, pure Python", pure, peer, bars.PURE_RATE)
        artemis = best.get(("artemis", way))
        if artemis is not None and way == "both":
            _rate(report, f"{title}, against Artemis", ours, artemis, bars.BOTH_ARTEMIS)
        elif artemis is not None:
            report.beside(f"{title}, against Artemis", ours.rate, artemis.rate, "/s")
    for way, title in titles.items():
        if ("classic", way) in best:
            report.note(f"RabbitMQ classic, {title}", f"{best['classic', way].rate:,.0f}/s")


def _rate(report: Report, title: str, ours: Figure, peer: Figure | None, bar: Bar) -> None:
    if peer is not None and ours.is_machine_full:
        report.at_least_by_cpu(title, (ours.rate, peer.rate), (ours.cpu_us, peer.cpu_us), bar)
    else:
        report.at_least(title, ours.rate, peer.rate if peer else None, bar)


def _report_costs(report: Report, best: Best, titles: dict[str, str]) -> None:
    for way, title in titles.items():
        ours, peer, artemis = (best.get((name, way)) for name in ("compiled", "quorum", "artemis"))
        assert ours is not None
        cost = f"broker CPU, {title}"
        if way == "both":
            report.at_most(cost, ours.cpu_us, peer.cpu_us if peer else None, bars.CPU_BOTH, "µs/message")
        else:
            report.beside(cost, ours.cpu_us, peer.cpu_us if peer else None, "µs/message")
        if artemis is not None:
            report.beside(f"{cost}, against Artemis", ours.cpu_us, artemis.cpu_us, "µs/message")
        report.note(f"{cost}, pure Python", f"{best['pure', way].cpu_us:.2f} µs/message")
        report.beside(
            f"written to disk, {title}", ours.written_bytes, peer.written_bytes if peer else None, "B/message"
        )
    for way, title in titles.items():
        for name in ("compiled", "quorum", "artemis"):
            if (name, way) in best:
                figure = best[name, way]
                shown = f"{figure.generator_us:.2f} µs/message; with the broker {figure.cores:.2f} cores"
                report.note(f"the load generator's own CPU, {title}, {_NAMES[name]}", shown)


_NAMES = {"compiled": "Busway", "quorum": "RabbitMQ quorum", "artemis": "Artemis"}


def latency(bench: Bench, report: Report) -> None:
    """one send at a time: the round trip until accepted"""
    targets = bench.targets(bench.fresh_queues())
    load = Load(messages=500 if bench.quick else 3_000)
    found: dict[str, list[Figure]] = {}
    names = list(targets)
    for turn in range(bench.rounds if bench.quick else max(bench.rounds, _LATENCY_ROUNDS_MIN)):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            target = targets[name]
            found.setdefault(name, []).append(measure(target, "lat", load))
            run(target, "recv", load)
            meter_of(target.pid).wait_until_quiet()  # the next one has the disk for itself
    best = {name: middle(figures) for name, figures in found.items()}
    ours, peer, artemis = best["compiled"], best.get("quorum"), best.get("artemis")
    report.at_most("send latency p50", ours.p50_ms, peer.p50_ms if peer else None, bars.LATENCY_P50, "ms")
    report.at_most("send latency p99", ours.p99_ms, peer.p99_ms if peer else None, bars.LATENCY_P99, "ms")
    if artemis is not None:
        report.beside("send latency p50, against Artemis", ours.p50_ms, artemis.p50_ms, "ms")
        report.beside("send latency p99, against Artemis", ours.p99_ms, artemis.p99_ms, "ms")


def connections(bench: Bench, report: Report) -> None:
    """200 connections with five messages outstanding each"""
    targets = bench.targets(bench.fresh_queues())
    targets.pop("classic", None)
    load = replace(bench.load, messages=bench.load.messages // 2, window=1000, connections=200)
    found: dict[str, list[Figure]] = {}
    for _ in range(bench.rounds):
        for name, target in targets.items():
            found.setdefault(name, []).append(measure(target, "send", load))
            run(target, "recv", replace(load, connections=1))
    best = {name: middle(figures) for name, figures in found.items()}
    title = "200 connections x 5 outstanding, send"
    _rate(report, title, best["compiled"], best.get("quorum"), bars.CONNECTIONS)
    if "artemis" in best:
        report.beside(f"{title}, against Artemis", best["compiled"].rate, best["artemis"].rate, "/s")
