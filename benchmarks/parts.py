"""The parts of the benchmark, each one row or a few of the bar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import Figure, measure, measure_both, middle
from benchmarks.rabbitmq import RabbitMq
from benchmarks.report import Report

#: metric → (first bar compiled, first bar pure)
FACTORS = {"send": (2.0, 1.5), "recv": (3.0, 1.5), "both": (2.5, 1.5)}
TITLES = {"send": "send until accepted", "recv": "receive + accept", "both": "send + receive at once"}


@dataclass(frozen=True)
class Bench:
    folder: Path
    servers: dict[str, BuswayServer]
    peer: RabbitMq | None
    rounds: int
    load: Load
    quick: bool

    def targets(self, queues: dict[str, Target]) -> dict[str, Target]:
        if self.peer is None:
            return queues
        return {**queues, "quorum": self.peer.target("quorum"), "classic": self.peer.target("classic")}

    def fresh_queues(self) -> dict[str, Target]:
        return {name: server.queue() for name, server in self.servers.items()}


def throughput(bench: Bench, report: Report) -> None:
    """rates and broker CPU of sending, receiving and both at once"""
    targets = bench.targets(bench.fresh_queues())
    figures: dict[tuple[str, str], list[Figure]] = {}
    for _ in range(bench.rounds):
        for name, target in targets.items():
            load = (
                bench.load
                if name in bench.servers
                else replace(bench.load, messages=bench.load.messages // 3)
            )
            for mode in ("send", "recv"):
                figures.setdefault((name, mode), []).append(measure(target, mode, load))
            figures.setdefault((name, "both"), []).append(measure_both(target, load))
    best = {key: middle(found) for key, found in figures.items()}
    for mode, (compiled, pure) in FACTORS.items():
        peer = best.get(("quorum", mode))
        rate = peer.rate if peer else None
        report.at_least(TITLES[mode], best["compiled", mode].rate, rate, compiled)
        report.at_least(f"{TITLES[mode]}, pure Python", best["pure", mode].rate, rate, pure)
    for mode in FACTORS:
        peer = best.get(("quorum", mode))
        cpu = peer.cpu_us if peer else None
        factor = 1 / 3 if mode == "both" else 1.0
        report.at_most(
            f"broker CPU, {TITLES[mode]}", best["compiled", mode].cpu_us, cpu, factor, "µs/message"
        )
        report.note(f"broker CPU, {TITLES[mode]}, pure Python", f"{best['pure', mode].cpu_us:.2f} µs/message")
    for mode in FACTORS:
        if ("classic", mode) in best:
            report.note(f"RabbitMQ classic, {TITLES[mode]}", f"{best['classic', mode].rate:,.0f}/s")


def latency(bench: Bench, report: Report) -> None:
    """one send at a time: the round trip until accepted"""
    targets = bench.targets(bench.fresh_queues())
    load = Load(messages=500 if bench.quick else 3_000)
    found: dict[str, list[Figure]] = {}
    for _ in range(bench.rounds):
        for name, target in targets.items():
            found.setdefault(name, []).append(measure(target, "lat", load))
            run(target, "recv", load)
    best = {name: middle(figures) for name, figures in found.items()}
    peer = best.get("quorum")
    report.at_most("send latency p50", best["compiled"].p50_ms, peer.p50_ms if peer else None, 0.8, "ms")
    report.at_most("send latency p99", best["compiled"].p99_ms, peer.p99_ms if peer else None, 1.0, "ms")


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
    peer = best.get("quorum")
    report.at_least(
        "200 connections x 5 outstanding, send", best["compiled"].rate, peer.rate if peer else None, 1.5
    )


def start(bench: Bench, report: Report) -> None:
    """from the command to the first accepted message"""
    with BuswayServer(bench.folder / "start") as server:
        first_s = server.start()
        target = server.queue()
        server.stop()
        begun = time.monotonic()
        server.start()
        run(server.target(target.address), "send", Load(messages=1))
        report.within("start to first accepted message", time.monotonic() - begun, 1.0, "s")
        report.note("first start ever, authority and key made", f"{first_s:.2f} s")


def memory(bench: Bench, report: Report) -> None:
    """resident memory, idle and with a backlog; the start with a backlog"""
    less = 10 if bench.quick else 1
    with BuswayServer(bench.folder / "memory") as server:
        server.start()
        report.within("RSS idle", server.rss_mib(), 100, "MiB")
        server.fill(server.queue(), 100_000 // less, 1024)
        report.within(f"RSS with {100_000 // less:,} x 1 KiB queued", server.rss_mib(), 250, "MiB")
        backlog = server.queue("--max-size-in-megabytes", "5120")
        server.fill(backlog, 1_000_000 // less, 100)
        report.within(f"RSS with {1_000_000 // less:,} x 100 B queued besides", server.rss_mib(), 400, "MiB")
        server.stop()
        begun = time.monotonic()
        server.start()
        run(server.target(backlog.address), "recv", Load(messages=1, window=1))
        metric = f"start with {1_000_000 // less:,} messages queued, to first delivery"
        report.within(metric, time.monotonic() - begun, 2.0, "s")


def backlog(bench: Bench, report: Report) -> None:
    """the cost of a message that is sent and received while a backlog stands in the queue"""
    load = Load(messages=60_000, body_bytes=100)
    costs: dict[int, float] = {}
    sizes = (1_000, 10_000, 100_000) if bench.quick else (1_000, 100_000, 1_000_000)
    with BuswayServer(bench.folder / "backlog") as server:
        server.start()
        for size in sizes:
            target = server.queue("--max-size-in-megabytes", "5120")
            server.fill(target, size, 100)
            found = [measure_both(target, load) for _ in range(bench.rounds)]
            costs[size] = middle(found).cpu_us
    for size, cost in costs.items():
        report.note(f"cost per message at a backlog of {size:,}", f"{cost:.2f} µs/message")
    growth = max(costs.values()) / costs[sizes[0]] - 1
    report.within("growth of that cost", max(0.0, growth) * 100, 20, "%")


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
