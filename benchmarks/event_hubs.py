"""Event hubs: publishing, reading by AMQP and in bulk, and what many gibibytes cost.

The rate of a plain file, appended to and synced for each batch, is measured in the same run: it is what the disk can
do. The official Python client's own rate is printed beside; there the client is the slow part.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, PartitionContext

from benchmarks import bulk_read
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, run
from benchmarks.measurement import Figure, cpu_s, measure, middle
from benchmarks.parts import Bench
from benchmarks.report import Report

BODY_BYTES = 1024
BATCH = 100
PARTITIONS = 4
_GROUP = "ConsumerGroups/$Default"


def event_hubs(bench: Bench, report: Report) -> None:
    """event hubs: publishing, reading by AMQP and in bulk, 10 GiB passing through"""
    with BuswayServer(bench.folder / "event-hubs") as server:
        server.start()
        _rates(bench, report, server)
        _official_client(bench, report, server)
    with BuswayServer(bench.folder / "event-hubs-large") as server:
        server.start()
        _large(bench, report, server)


# -- rates


def _rates(bench: Bench, report: Report, server: BuswayServer) -> None:
    events = 4 * bench.load.messages
    batches = Load(events, BODY_BYTES, window=40 * BATCH, batch=BATCH)
    singles = Load(events // 4, BODY_BYTES)
    reading = Load(events, BODY_BYTES, window=4_000)
    found: dict[str, list[Figure]] = {}
    raw: list[float] = []
    bulk: list[tuple[float, float]] = []
    for number in range(bench.rounds):
        hub = server.hub(f"hub-{number}", "--partitions", str(PARTITIONS))
        found.setdefault("batches", []).append(measure(hub, "send", batches))
        found.setdefault("singles", []).append(measure(hub, "send", singles))
        one = server.hub(f"one-{number}", "--partitions", "1")
        run(one, "send", batches)
        partition = replace(one, address=f"{one.address}/{_GROUP}/Partitions/0")
        found.setdefault("read", []).append(measure(partition, "recv", reading))
        raw.append(_raw_rate(bench.folder / f"raw-{number}", events))
        bulk.append(_bulk_rate(server, one.address))
    best = {name: middle(figures) for name, figures in found.items()}
    report.no_less(f"publish 1 KiB events in batches of {BATCH}", best["batches"].rate, 100_000, "/s")
    report.no_less("publish single events", best["singles"].rate, 60_000, "/s")
    report.no_less("read events by AMQP, one partition", best["read"].rate, 200_000, "/s")
    report.no_less("read events in bulk, one partition", max(rate for rate, _ in bulk), 500_000, "/s")
    for name, words in (("batches", "publishing in batches"), ("singles", "publishing single events")):
        report.note(f"broker CPU, {words}", f"{best[name].cpu_us:.2f} µs/event")
    report.note("broker CPU, reading by AMQP", f"{best['read'].cpu_us:.2f} µs/event")
    report.note("broker CPU, reading in bulk", f"{min(cpu for _, cpu in bulk):.2f} µs/event")
    report.beside(
        "the same batches appended to a plain file with fdatasync",
        best["batches"].rate,
        sorted(raw)[len(raw) // 2],
        "/s",
    )


def _raw_rate(path: Path, events: int) -> float:
    """Events per second of a file that is synced after each batch."""
    piece = os.urandom(BODY_BYTES * BATCH)
    with path.open("wb", buffering=0) as file:
        begun = time.monotonic()
        for _ in range(events // BATCH):
            file.write(piece)
            os.fdatasync(file.fileno())
        took_s = time.monotonic() - begun
    path.unlink()
    return events / took_s


def _bulk_rate(server: BuswayServer, hub: str, number: int = 0) -> tuple[float, float]:
    """(events per second, broker CPU µs per event) of one partition from a number on."""
    before, begun = cpu_s(server.server.pid), time.monotonic()
    count = sum(bulk_read.counts(server.server.connection_string, hub, number))
    took_s = time.monotonic() - begun
    return count / took_s, (cpu_s(server.server.pid) - before) / count * 1e6


def _official_client(bench: Bench, report: Report, server: BuswayServer) -> None:
    count = 5_000 if bench.quick else 50_000
    server.hub("official", "--partitions", "1")
    text = server.server.connection_string
    with EventHubProducerClient.from_connection_string(text, eventhub_name="official") as producer:
        begun = time.monotonic()
        for _ in range(count // BATCH):
            batch = producer.create_batch()
            for _ in range(BATCH):
                batch.add(EventData(b"x" * BODY_BYTES))
            producer.send_batch(batch)
        report.note(
            f"official Python client, batches of {BATCH}", f"{count / (time.monotonic() - begun):,.0f}/s"
        )
    consumer = EventHubConsumerClient.from_connection_string(text, "$Default", eventhub_name="official")
    received = 0

    def on_events(_: PartitionContext, events: list[EventData]) -> None:
        nonlocal received
        received += len(events)
        if received >= count:
            consumer.close()

    begun = time.monotonic()
    consumer.receive_batch(on_event_batch=on_events, starting_position="-1", max_batch_size=1_000)
    report.note("official Python client, reading", f"{received / (time.monotonic() - begun):,.0f}/s")


# -- size


def _large(bench: Bench, report: Report, server: BuswayServer) -> None:
    gibibytes = 0.25 if bench.quick else 10
    events = int(gibibytes * (1 << 30) / (BODY_BYTES + 100))
    hub = server.hub("large", "--partitions", "1", "--retention-hours", "-1")
    load = Load(events // 10, BODY_BYTES, window=40 * BATCH, batch=BATCH)
    sizes: list[float] = []
    for _ in range(10):
        run(hub, "send", load)
        sizes.append(server.rss_mib())
    report.note(
        f"RSS after each tenth of {gibibytes:g} GiB", " ".join(f"{size:.0f}" for size in sizes) + " MiB"
    )
    report.within("growth of RSS from the third tenth to the last", max(0.0, sizes[-1] - sizes[2]), 32, "MiB")
    server.stop()
    begun = time.monotonic()
    server.start()
    first = server.target(f"large/{_GROUP}/Partitions/0")
    run(first, "recv", Load(1, BODY_BYTES, window=1))
    report.within(
        f"start with {gibibytes:g} GiB of events, to first delivery", time.monotonic() - begun, 1.0, "s"
    )
    count = min(events // 10, 200_000)
    oldest = measure(first, "recv", Load(count, BODY_BYTES, window=4_000))
    report.note("broker CPU, reading the oldest events", f"{oldest.cpu_us:.2f} µs/event")
    _, young = _bulk_rate(server, "large", 10 * (events // 10) - count)
    _, middle_aged = _bulk_rate(server, "large", 5 * (events // 10))
    report.beside(
        "broker CPU in bulk, the newest events against the younger half", young, middle_aged, "µs/event"
    )
