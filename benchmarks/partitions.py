"""Partitioned queues: their cost beside a plain one, one store that hangs, and whether every fragment gets its turn.

Messages have no key, so they go round (P-30). The hanging store's disk is strace, which holds up every sync of that
store's commit thread; where strace may not attach, this part is left out.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run, run_both
from benchmarks.measurement import Figure, measure, measure_both, middle
from benchmarks.parts import Bench
from benchmarks.report import Report
from busway.client.service_bus_client import ServiceBusClient
from busway.store.contract import first_number_base
from tests.chaos.syscall_faults import SyscallFault, why_not_here

STORE_COUNTS = (1, 2, 4, 8)
BODIES_BYTES = (100, 1024)
FRAGMENTS = 16
#: The bar: CPU of a message on a partitioned queue against a plain one.
FACTOR_MAX = 1.15
#: The bars with one of four stores hanging so long in every sync: what is left of the rate, and how long sends take.
HANGS_S, RATE_MIN, P99_MS_MAX = 2.0, 0.6, 100.0
#: The bar: the oldest message of any fragment against the median of all fragments.
AGE_FACTOR_MAX = 2.0
#: Younger ones are only just passing through.
AGE_S_MIN = 0.1
MANY = 10_000_000


def partitions(bench: Bench, report: Report) -> None:
    """a partitioned queue on 1, 2, 4 and 8 stores beside a plain one; one store that hangs; fairness"""
    for stores in STORE_COUNTS:
        with BuswayServer(bench.folder / f"stores-{stores}", "--stores", str(stores)) as server:
            server.start()
            for body_bytes in BODIES_BYTES:
                _compare(bench, report, server, stores, body_bytes)
            if stores == 4:
                _measure_fairness(bench, report, server)
    with BuswayServer(bench.folder / "hanging", "--stores", "4") as server:
        server.start()
        _measure_hanging(bench, report, server)


def _partitioned(server: BuswayServer) -> Target:
    return server.queue("--partitioned", "--max-size-in-megabytes", "5120")


# -- the cost of a message


def _compare(bench: Bench, report: Report, server: BuswayServer, stores: int, body_bytes: int) -> None:
    queues = {"plain": server.queue("--max-size-in-megabytes", "5120"), "partitioned": _partitioned(server)}
    load = replace(bench.load, body_bytes=body_bytes, is_bare=True)
    found: dict[tuple[str, str], list[Figure]] = {}
    for target in queues.values():
        run_both(target, replace(load, messages=2_000))  # what only the first message of a queue costs
    for _ in range(bench.rounds):
        for name, target in queues.items():
            for mode in ("send", "recv"):
                found.setdefault((name, mode), []).append(measure(target, mode, load))
            found.setdefault((name, "both"), []).append(measure_both(target, load))
    best = {key: middle(figures) for key, figures in found.items()}
    where = f"partitioned on {stores} store{'s' if stores > 1 else ''}, {body_bytes} B"
    for mode, verb in (("send", "send"), ("recv", "receive"), ("both", "send + receive at once")):
        report.beside(f"{verb}, {where}", best["partitioned", mode].rate, best["plain", mode].rate, "/s")
    for mode, verb in (("send", "send"), ("recv", "receive")):
        ours, plain = best["partitioned", mode].cpu_us, best["plain", mode].cpu_us
        report.beside(f"broker CPU, {verb}, {where}", ours, plain, "µs/message")
    ours, plain = (best[name, "send"].cpu_us + best[name, "recv"].cpu_us for name in ("partitioned", "plain"))
    report.at_most(f"broker CPU, send, then receive, {where}", ours, plain, FACTOR_MAX, "µs/message")
    ours, plain = best["partitioned", "both"].cpu_us, best["plain", "both"].cpu_us
    report.at_most(f"broker CPU, send + receive at once, {where}", ours, plain, FACTOR_MAX, "µs/message")


# -- one store that hangs


def _measure_hanging(bench: Bench, report: Report, server: BuswayServer) -> None:
    reason = why_not_here(bench.folder)
    if reason is not None:
        report.note("one of 4 stores hangs", f"left out: {reason}")
        return
    target = _partitioned(server)
    seconds = 8.0 if bench.quick else 16.0
    thread = _commit_threads(server, target, bench.folder)[-1]
    normal = _loaded(target, seconds)
    with _hanging(thread, bench.folder):
        hanging = _loaded(target, seconds)
    what = f"one of 4 stores {HANGS_S:g} s in every sync"
    report.at_least(f"keyless sends, {what}, against none", hanging.rate, normal.rate, RATE_MIN)
    report.note("p99 of keyless sends beside that load, no store hanging", f"{normal.p99_ms:.1f} ms")
    report.within(f"the same, {what}, after its first slow commit", hanging.p99_ms, P99_MS_MAX, "ms")


def _loaded(target: Target, seconds: float) -> Figure:
    """The rate of a pipelined sender; beside it, once the first slow commit is over, how long single sends take."""
    load = Load(MANY, body_bytes=100, is_bare=True, seconds_max=seconds)
    with ThreadPoolExecutor(1) as pool:
        pipelined = pool.submit(run, target, "send", load)
        time.sleep(HANGS_S + 1)
        rest_s = seconds - HANGS_S - 2
        single = run(target, "lat", replace(load, messages=200_000, seconds_max=rest_s))
        rate = pipelined.result()["rate"]
    return Figure(rate, 0.0, single["p50_ms"], single["p99_ms"])


@contextmanager
def _hanging(thread: int, folder: Path) -> Iterator[None]:
    """Only that one thread is traced: the others run as always."""
    injection = f"fdatasync,fsync:delay_enter={int(HANGS_S * 1e6)}"
    with SyscallFault(thread, injection, folder, follows=False) as fault:
        yield
        assert fault.injected() > 0, "no sync was held up"


def _commit_threads(server: BuswayServer, target: Target, folder: Path) -> list[int]:
    """Of each store, in the order of their names: who syncs its log while messages come in."""
    log = folder / "syncs.log"
    command = ["strace", "-f", "-y", "-e", "trace=fdatasync", "-o", str(log), "-p", str(server.server.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        while "attached" not in strace.stderr.readline():
            assert strace.poll() is None, "strace could not attach"
        run(target, "send", Load(2_000, body_bytes=100, is_bare=True))
        strace.terminate()
        strace.communicate()
    syncs = re.findall(r"^(\d+) +fdatasync\(\d+<.*/(store-\d+)\.db-wal>", log.read_text(), re.MULTILINE)
    return [int(thread) for _, thread in sorted({store: thread for thread, store in syncs}.items())]


# -- fairness


def _measure_fairness(bench: Bench, report: Report, server: BuswayServer) -> None:
    """While a backlog is received and as much comes in."""
    target = _partitioned(server)
    load = Load(60_000 if bench.quick else 200_000, body_bytes=100, is_bare=True)
    run(target, "send", replace(load, messages=30_000))
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        ages = pool.submit(asyncio.run, _watch_ages(server, target.address, over))
        try:
            run_both(target, load)
        finally:
            over.set()
        worst = [max(some) / median(some) for some in ages.result()]
    metric = (
        f"the oldest message of any fragment against the median fragment's, worst of {len(worst)} samples"
    )
    report.within(metric, max(worst, default=float("inf")), AGE_FACTOR_MAX, "x")


async def _watch_ages(server: BuswayServer, queue: str, over: threading.Event) -> list[list[float]]:
    """Samples of how long the oldest message of each fragment has been there."""
    found: list[list[float]] = []
    bases = [first_number_base(index) for index in range(FRAGMENTS)]
    async with ServiceBusClient.from_connection_string(server.server.connection_string) as client:
        management = client.get_management(queue)
        while not over.is_set():
            peeked = await asyncio.gather(*[management.peek_messages(1, low + 1) for low in bases])
            now_ms = time.time() * 1000
            ages = [
                (now_ms - (oldest[0].enqueued_time_ms or 0)) / 1000
                for oldest, low in zip(peeked, bases, strict=True)
                if oldest and (oldest[0].sequence_number or 0) - low < first_number_base(1)
            ]
            if len(ages) == FRAGMENTS and median(ages) >= AGE_S_MIN:
                found.append(ages)
    return found
