"""Busway, RabbitMQ and Artemis interleaved in one run, as ratios, against the bars of `benchmarks.bars`.

Absolute figures of a shared machine mean little; ratios inside one run, and CPU microseconds per message, mean a
lot. The table is printed and, unless the run is quick, written to benchmarks/results: a whole run under its date,
some parts under the date and their names. The exit status is 1 when a bar does not hold.

Needs gcc and Debian's libqpid-proton11-dev. RabbitMQ is installed when it is missing and that is possible, Artemis is
fetched from Maven Central where Java and Maven are; else figures come without their ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import artemis, generator, partitions, parts, rabbitmq, scale, throughput, topics
from benchmarks.artemis import Artemis
from benchmarks.busway_server import BuswayServer
from benchmarks.event_hubs import event_hubs
from benchmarks.generator import Load
from benchmarks.idle import idle
from benchmarks.journal import journal
from benchmarks.postgres import postgres, without_postgres
from benchmarks.postgres_age import postgres_age
from benchmarks.postgres_start import postgres_start
from benchmarks.rabbitmq import RabbitMq
from benchmarks.report import Report
from benchmarks.sustained import sustained
from benchmarks.today import today, today_pure
from benchmarks.transactions import transactions
from benchmarks.writes import writes

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[parts.Bench, Report], None]] = {
    "throughput": throughput.throughput,
    "latency": throughput.latency,
    "connections": throughput.connections,
    "start": parts.start,
    "memory": parts.memory,
    "backlog": parts.backlog,
    "scale": scale.scale,
    "topics": topics.topics,
    "transactions": transactions,
    "event-hubs": event_hubs,
    "partitions": partitions.partitions,
    "journal": journal,
    "postgres": postgres,
    "postgres-age": postgres_age,
    "postgres-start": postgres_start,
    "without-postgres": without_postgres,
    "writes": writes,
    "idle": idle,
    "today": today,
    "today-pure": today_pure,
    "sustained": sustained,
    "sdk": parts.official_sdk,
}
#: Parts that run on the two servers that stand for the whole run, and those that run on RabbitMQ too.
ON_STANDING_SERVERS = {"throughput", "latency", "connections", "sdk"}
ON_PEER = {"throughput", "latency", "connections", "topics", "postgres"}
ON_ARTEMIS = {"throughput", "latency", "connections"}
#: Takes so long that it has to be asked for.
ON_REQUEST = {"sustained"}
#: Fills two servers first, or compiles another tree: in a quick run only when it is asked for.
NOT_QUICK = {
    "scale",
    "writes",
    "today",
    "today-pure",
    "postgres",
    "postgres-age",
    "postgres-start",
    "without-postgres",
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
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / _result_name(options.only)).write_text(text)
    return 0 if report.bar_holds() else 1


def _options() -> argparse.Namespace:
    lines = [f"  {name:<17}{(part.__doc__ or '').strip()}" for name, part in PARTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        epilog="parts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="interleaved; the median counts (3)"
    )
    parser.add_argument("--messages", type=int, default=100_000, metavar="N", help="per round (100000)")
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the messages, no file")
    parser.add_argument("--only", nargs="+", choices=[*PARTS], metavar="PART", help="these parts, see below")
    options = parser.parse_args()
    if options.only is None:
        left_out = ON_REQUEST | (NOT_QUICK if options.quick else set())
        options.only = [name for name in PARTS if name not in left_out]
    if options.quick:
        options.rounds, options.messages = 1, options.messages // 10
    return options


def _run(folder: Path, options: argparse.Namespace, report: Report) -> None:
    wanted = set(options.only)
    with ExitStack() as stack:
        servers = {
            "compiled": stack.enter_context(BuswayServer(folder / "compiled")),
            "pure": stack.enter_context(BuswayServer(folder / "pure", pure=True)),
        }
        if wanted & ON_STANDING_SERVERS:
            for server in servers.values():
                server.start()
        fan_outs = topics.FAN_OUTS if "topics" in wanted else ()
        peer = _peer(folder, stack, fan_outs) if wanted & ON_PEER else None
        second = _second_peer(folder, stack) if wanted & ON_ARTEMIS else None
        load = Load(options.messages)
        bench = parts.Bench(folder, servers, peer, second, options.rounds, load, options.quick)
        for name in options.only:
            begun = time.monotonic()
            PARTS[name](bench, report)
            print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)


def _peer(folder: Path, stack: ExitStack, fan_outs: tuple[int, ...]) -> RabbitMq | None:
    if not rabbitmq.is_installable():
        print("RabbitMQ cannot be installed here: figures without ratios", file=sys.stderr)
        return None
    peer = stack.enter_context(RabbitMq(folder / "rabbitmq", fan_outs))
    peer.start()
    return peer


def _second_peer(folder: Path, stack: ExitStack) -> Artemis | None:
    reason = artemis.why_not_here()
    if reason is not None:
        print(f"Artemis cannot be had here ({reason}): figures without its ratios", file=sys.stderr)
        return None
    peer = stack.enter_context(Artemis(folder / "artemis"))
    peer.start()
    print(f"Artemis {artemis.VERSION}, journal {peer.journal}, synced", file=sys.stderr)
    return peer


def _result_name(only: list[str]) -> str:
    names = [] if set(only) == set(PARTS) - ON_REQUEST else only
    return "-".join([f"{datetime.now(UTC):%Y-%m-%d}", *names]) + ".md"


def _headline() -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {machine}"


if __name__ == "__main__":
    sys.exit(main())
