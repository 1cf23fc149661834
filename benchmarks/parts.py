"""The parts of the benchmark, each one row or a few of the bar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from benchmarks import bars
from benchmarks.artemis import Artemis
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import cpu_s, measure_both
from benchmarks.meter import REST_S
from benchmarks.rabbitmq import RabbitMq
from benchmarks.report import Report

#: The levels take turns; single rounds differ by more than what is looked for.
_BACKLOG_ROUNDS_MIN = 5


@dataclass(frozen=True)
class Bench:
    folder: Path
    servers: dict[str, BuswayServer]
    peer: RabbitMq | None
    artemis: Artemis | None
    rounds: int
    load: Load
    quick: bool

    def targets(self, queues: dict[str, Target]) -> dict[str, Target]:
        """With the peers that are there."""
        found = dict(queues)
        if self.peer is not None:
            found |= {name: self.peer.target(name) for name in ("quorum", "classic")}
        if self.artemis is not None:
            found["artemis"] = self.artemis.target()
        return found

    def fresh_queues(self) -> dict[str, Target]:
        return {name: server.queue() for name, server in self.servers.items()}


def start(bench: Bench, report: Report) -> None:
    """from the command to the first accepted message: empty, and after kill -9 under load"""
    with BuswayServer(bench.folder / "start") as server:
        first_s = server.start()
        target = server.queue("--max-size-in-megabytes", "5120")
        server.stop()
        found = [_until_accepted(server, target.address) for _ in range(bench.rounds)]
        _report_start(report, "start to first accepted message", found, bars.START_S)
        report.note("first start ever, authority and key made", f"{first_s:.2f} s")
        server.start()
        count = 50_000 if bench.quick else 1_000_000  # more than a log of commits may hold
        server.fill(server.target(target.address), count, 1024)
        server.server.kill()
        metric = f"start after kill -9 behind {count:,} sends of 1 KiB, to first accepted"
        _report_start(report, metric, [_until_accepted(server, target.address)], bars.START_KILLED_S)


@dataclass(frozen=True)
class Started:
    """Seconds until the first message was accepted, and the server's CPU time in them, which noise hardly touches."""

    wall_s: float
    cpu_s: float


def _report_start(report: Report, metric: str, found: list[Started], bar: bars.Bar) -> None:
    report.within(metric, median(each.wall_s for each in found), bar, "s")
    report.note(f"{metric}, CPU of the server", f"{median(each.cpu_s for each in found):.2f} s")


def _until_accepted(server: BuswayServer, address: str) -> Started:
    """From the command on; then it is stopped."""
    begun = time.monotonic()
    server.start()
    run(server.target(address), "send", Load(messages=1))
    took = Started(time.monotonic() - begun, cpu_s(server.server.pid))
    server.stop()
    return took


def memory(bench: Bench, report: Report) -> None:
    """resident memory, idle and with a backlog; the start with a backlog"""
    less = 10 if bench.quick else 1
    million = 1_000_000 // less
    with BuswayServer(bench.folder / "memory") as server:
        server.start()
        report.within("RSS idle", server.rss_mib(), bars.RSS_IDLE_MIB, "MiB")
        backlog = server.queue("--max-size-in-megabytes", "5120")
        server.fill(backlog, million, 100)
        report.within(f"RSS with {million:,} x 100 B queued", server.rss_mib(), bars.RSS_QUEUED_MIB, "MiB")
        server.fill(server.queue(), 100_000 // less, 1024)
        report.within(f"RSS with {100_000 // less:,} x 1 KiB queued besides", server.rss_mib(), 250, "MiB")
        server.stop()
        title = f"start with {million:,} messages queued"
        found = [_until_accepted(server, backlog.address) for _ in range(bench.rounds)]
        _report_start(report, f"{title}, to first accepted", found, bars.START_QUEUED_S)
        begun = time.monotonic()
        server.start()
        run(server.target(backlog.address), "recv", Load(messages=1, window=1))
        report.within(f"{title}, to first delivery", time.monotonic() - begun, 2.0, "s")


def backlog(bench: Bench, report: Report) -> None:
    """what a message costs more that is sent and received while a backlog of a million stands in the queue"""
    load = Load(messages=60_000, body_bytes=100)
    sizes = (1_000, 100_000) if bench.quick else (1_000, 100_000, 1_000_000)
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    with BuswayServer(bench.folder / "backlog") as server:
        server.start()
        queues = {size: server.queue("--max-size-in-megabytes", "5120") for size in sizes}
        for size, target in queues.items():
            server.fill(target, size, 100)
            measure_both(target, load)  # what is made once is made
        for turn in range(max(bench.rounds, _BACKLOG_ROUNDS_MIN)):
            for size in sizes if turn % 2 == 0 else reversed(sizes):
                costs[size].append(measure_both(queues[size], load, REST_S).cpu_us)
    for size, found in costs.items():
        report.note(f"cost per message at a backlog of {size:,}", f"{median(found):.2f} µs/message")
    extra = [most - least for most, least in zip(costs[sizes[-1]], costs[sizes[0]], strict=True)]
    title = f"extra CPU per message at a backlog of {sizes[-1]:,} against {sizes[0]:,}"
    report.within(
        f"{title}, median of {len(extra)} rounds", median(extra), bars.BACKLOG_EXTRA_US, "µs/message"
    )
    report.note("the least and the most of these", f"{min(extra):.2f} and {max(extra):.2f} µs/message")


def official_sdk(bench: Bench, report: Report) -> None:
    """the official Python SDK end to end; here the client is the slow part"""
    server = bench.servers["compiled"]
    name = server.queue().address
    count = 500 if bench.quick else 3_000
    results = asyncio.run(_sdk_rates(server.server.connection_string, name, count))
    for what, rate in results.items():
        report.note(f"official Python SDK, {what}", f"{rate:,.0f}/s")


async def _sdk_rates(connection_string: str, queue: str, count: int) -> dict[str, float]:
    rates: dict[str, float] = {}

    def timed(what: str, begun: float) -> None:
        rates[what] = count / (time.monotonic() - begun)

    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue) as sender:
            begun = time.monotonic()
            for _ in range(count):
                await sender.send_messages(ServiceBusMessage(b"x" * 1024))
            timed("one send at a time", begun)
            begun = time.monotonic()
            for _ in range(count // 100):
                await sender.send_messages([ServiceBusMessage(b"x" * 1024) for _ in range(100)])
            timed("batches of 100", begun)
        await _sdk_receive(client, queue, count, timed)
    return rates


async def _sdk_receive(
    client: ServiceBusClient, queue: str, count: int, timed: Callable[[str, float], None]
) -> None:
    async with client.get_queue_receiver(queue, prefetch_count=200) as receiver:
        begun, received = time.monotonic(), 0
        while received < count:
            for message in await receiver.receive_messages(max_message_count=200, max_wait_time=5):
                await receiver.complete_message(message)
                received += 1
        timed("receive and complete", begun)
