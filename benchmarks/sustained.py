"""Ten minutes at full send, minute by minute: does the last one go as fast as the first?

First with receivers that keep up, then with receivers that are a minute behind: in every minute they take, evenly,
what was sent in the minute before. Beside that load one message at a time is sent to a queue of its own; its p99 is
told for each minute. Two queues share the load, because one holds five gibibytes at most.
"""

from __future__ import annotations

import re
import shutil
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from benchmarks import bars
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run
from benchmarks.parts import Bench
from benchmarks.report import Report

MINUTES = 10
QUEUES = 2
MANY = 100_000_000
#: A minute of messages lies on the disk, twice where a log stands before the store, and some room is left.
_DISK_GIB_MIN = 30


@dataclass(frozen=True)
class Minute:
    #: Messages sent to each queue.
    sent: list[int]
    rate: float
    p99_ms: float


def sustained(bench: Bench, report: Report) -> None:
    """10 minutes at full send, then the same with receivers 60 s behind: the last minute against the first"""
    minute_s, minutes = (5, 3) if bench.quick else (60, MINUTES)
    if not bench.quick and shutil.disk_usage(bench.folder).free < _DISK_GIB_MIN << 30:
        report.note("sustained", f"left out: fewer than {_DISK_GIB_MIN} GiB are free")
        return
    for is_behind in (False, True):
        with BuswayServer(bench.folder / f"sustained-{is_behind}") as server, ThreadPoolExecutor(1) as pool:
            server.start()
            over = Event()
            logs = pool.submit(_most_log_mib, server.server.data, over)
            try:
                found = _minutes(server, minute_s, minutes, is_behind)
            finally:
                over.set()
            who = f"receivers {minute_s} s behind" if is_behind else "receivers keep up"
            _report(
                report,
                f"{minutes} x {minute_s} s at full send, {who}",
                found,
                logs.result(),
                _longest_turn_ms(server),
            )


def _minutes(server: BuswayServer, minute_s: int, minutes: int, is_behind: bool) -> list[Minute]:
    queues = [server.queue("--max-size-in-megabytes", "5120") for _ in range(QUEUES)]
    single = server.queue("--max-size-in-megabytes", "5120")
    found: list[Minute] = []
    for _ in range(minutes):
        before = found[-1].sent if found else [0] * QUEUES
        found.append(_minute(queues, single, minute_s, before if is_behind else None))
    return found


def _minute(queues: list[Target], single: Target, minute_s: int, before: list[int] | None) -> Minute:
    """`before`: what receivers take evenly; None when they take what comes."""
    sending = Load(MANY, window=1_000 // QUEUES, seconds_max=minute_s)
    probing = Load(200 * minute_s, body_bytes=100, rate=100, seconds_max=minute_s)
    with ThreadPoolExecutor(2 * QUEUES + 1) as pool:
        sends = [pool.submit(run, queue, "send", sending) for queue in queues]
        probe = pool.submit(run, single, "lat", probing)
        loads = _receiving(minute_s, before)
        receives = [pool.submit(run, queue, "recv", load) for queue, load in zip(queues, loads, strict=False)]
        results = [future.result() for future in sends]
        p99_ms = probe.result()["p99_ms"]
        for each in receives:
            each.result()
    sent = [round(result["n"]) for result in results]
    return Minute(sent, sum(result["rate"] for result in results), p99_ms)


def _receiving(minute_s: int, before: list[int] | None) -> list[Load]:
    """In the first minute those that are behind take nothing."""
    if before is None:
        return [Load(MANY, seconds_max=minute_s)] * QUEUES
    return [Load(count, rate=count // minute_s) for count in before if count > 0]


def _report(report: Report, title: str, found: list[Minute], log_mib: float, turn_ms: float) -> None:
    first, last = found[0], found[-1]
    report.note(f"{title}, rates", " ".join(f"{minute.rate:,.0f}" for minute in found) + "/s")
    report.at_least(f"{title}, the last rate against the first", last.rate, first.rate, bars.SUSTAINED_RATE)
    report.note(f"{title}, p99 of single sends", " ".join(f"{minute.p99_ms:.1f}" for minute in found) + " ms")
    metric = f"{title}, the last p99 against the first"
    report.at_most(metric, last.p99_ms, first.p99_ms, bars.SUSTAINED_P99, "ms")
    report.within(f"{title}, the most that logs took on disk", log_mib, bars.LOG_MIB, "MiB")
    report.within(f"{title}, longest turn of the loop, CPU", turn_ms, bars.LONGEST_TURN_MS, "ms")


def _most_log_mib(data: Path, over: Event) -> float:
    """Of everything in the data directory but the stores' own files, looked at once a second."""
    most = 0
    while not over.wait(1.0):
        size = 0
        for path in data.rglob("*"):
            with suppress(FileNotFoundError):  # recycled meanwhile
                size += path.stat().st_blocks * 512 if path.is_file() and path.suffix != ".db" else 0
        most = max(most, size)
    return most / (1 << 20)


def _longest_turn_ms(server: BuswayServer) -> float:
    """CPU time, which other programs do not lengthen, of the longest turn in the last minute or two."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    turns = re.findall(r"^busway_loop_longest_turn_seconds\{(.*)\} (\S+)$", text, re.MULTILINE)
    return max(float(seconds) for labels, seconds in turns if "cpu" in labels) * 1000
