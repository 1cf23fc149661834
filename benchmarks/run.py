"""make bench: Busway and RabbitMQ interleaved in one run, as ratios, against the bar.

  python -m benchmarks.run [--rounds 3] [--messages 100000] [--quick] [--only PART …]

Parts: throughput, latency, connections, start, memory, backlog, sdk. The table is printed and written to
benchmarks/results/. Absolute figures of a shared machine mean little; ratios inside one run, and CPU
microseconds per message, mean a lot.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import generator, parts, rabbitmq
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load
from benchmarks.rabbitmq import RabbitMq
from benchmarks.report import Report

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[parts.Bench, Report], None]] = {
    "throughput": parts.throughput,
    "latency": parts.latency,
    "connections": parts.connections,
    "start": parts.start,
    "memory": parts.memory,
    "backlog": parts.backlog,
    "sdk": parts.official_sdk,
}


def main() -> int:
    options = _options()
    try:
        generator.build()
    except generator.Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    report = Report(_headline())
    with tempfile.TemporaryDirectory(prefix="busway-bench-") as folder:
        _run(Path(folder), options, report)
    text = report.text()
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.md").write_text(text)
    return 0 if report.bar_holds() else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; the median counts")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the messages")
    parser.add_argument("--only", nargs="*", choices=[*PARTS], default=[*PARTS])
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages = 1, options.messages // 10
    return options


def _run(folder: Path, options: argparse.Namespace, report: Report) -> None:
    servers = {
        "compiled": BuswayServer(folder / "compiled"),
        "pure": BuswayServer(folder / "pure", pure=True),
    }
    peer = RabbitMq(folder / "rabbitmq") if rabbitmq.is_installable() else None
    if peer is None:
        print("RabbitMQ cannot be installed here: figures without ratios", file=sys.stderr)
    try:
        for server in servers.values():
            server.start()
        if peer is not None:
            peer.start()
        bench = parts.Bench(folder, servers, peer, options.rounds, Load(options.messages), options.quick)
        for name in options.only:
            begun = time.monotonic()
            PARTS[name](bench, report)
            print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    finally:
        for server in servers.values():
            server.stop()
        if peer is not None:
            peer.stop()


def _headline() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main())
