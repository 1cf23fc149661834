"""Transactions: each completes a message of a queue and sends two more to it, as a worker with results does.

The generator waits for the outcome of every step before it takes the next, as the SDKs do: declare, then the three
operations at once, then the discharge. The peer has nothing to compare with: over AMQP 1.0 RabbitMQ knows no
transactions.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, run
from benchmarks.measurement import Figure, measure, middle
from benchmarks.parts import Bench
from benchmarks.report import Report

IN_FLIGHT = 100
#: (connections, the bar: committed transactions per second)
SPREADS = ((1, 5_000), (10, None))


def transactions(bench: Bench, report: Report) -> None:
    """transactions of one completion and two sends, 100 in flight"""
    folder = bench.folder / "transactions"
    with (
        BuswayServer(folder / "compiled") as compiled,
        BuswayServer(folder / "pure", pure=True) as pure,
    ):
        servers = {"compiled": compiled, "pure": pure}
        for server in servers.values():
            server.start()
        found: dict[tuple[str, int], list[Figure]] = {}
        for _ in range(bench.rounds):
            for connections, _ in SPREADS:
                for name, server in servers.items():
                    found.setdefault((name, connections), []).append(_committed(bench, server, connections))
    _report(report, {key: middle(figures) for key, figures in found.items()})


def _committed(bench: Bench, server: BuswayServer, connections: int) -> Figure:
    """In a queue of its own, which holds enough to begin with."""
    queue = server.queue("--max-size-in-megabytes", "5120")
    run(queue, "send", replace(bench.load, messages=2 * IN_FLIGHT, window=IN_FLIGHT))
    load = Load(bench.load.messages // 4, bench.load.body_bytes, IN_FLIGHT, connections)
    return measure(queue, "txn", load)


def _report(report: Report, best: dict[tuple[str, int], Figure]) -> None:
    for connections, rate_min in SPREADS:
        for name, words in (("compiled", ""), ("pure", ", pure Python")):
            figure = best[name, connections]
            title = (
                f"transactions of 1 completion + 2 sends, {IN_FLIGHT} in flight on {connections} connection"
            )
            title += f"{'s' if connections > 1 else ''}{words}"
            if rate_min is not None and name == "compiled":
                report.no_less(title, figure.rate, rate_min, "/s")
            else:
                report.note(title, f"{figure.rate:,.0f}/s")
            report.note(f"broker CPU, {title}", f"{figure.cpu_us:.1f} µs/transaction")
