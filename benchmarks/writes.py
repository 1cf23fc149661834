"""Bytes written to disk for each message of 1 KiB: with a receiver that keeps up, and with one a minute behind.

Sender and receiver go at a steady pace that every server follows, so that a receiver stays as far behind as it began.
This checkout and the commit that the bars are set by run at the same time, under the same load: bytes do not depend
on who else uses the machine, only on how messages group themselves into commits, which the pace keeps alike.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from benchmarks import bars
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import meter_of
from benchmarks.meter import REST_S
from benchmarks.parts import Bench
from benchmarks.report import Report
from benchmarks.today import base_tree

#: A store writes whole pages for each commit: at a slow pace commits are small, and pages count, not messages.
RATE = 20_000
BEHIND_S = 60
#: A store may look again for what it has put off, and has more to do when it was given more.
_REST_S = 5 * REST_S


def writes(bench: Bench, report: Report) -> None:
    """bytes written per 1 KiB message: a receiver that keeps up, and one that is 60 s behind"""
    behind_s = 8 if bench.quick else BEHIND_S
    base = base_tree(report, is_pure=False)
    with ExitStack() as stack:
        servers = {"new": stack.enter_context(BuswayServer(bench.folder / "writes"))}
        if base is not None:
            servers["base"] = stack.enter_context(BuswayServer(bench.folder / "writes-base", tree=base))
        for server in servers.values():
            server.start()
            meter_of(server.target(""))
        full_speed = _at_once(servers, Load(bench.load.messages), 0)
        paced = Load(2 * behind_s * RATE, rate=RATE, stall_s=2 * behind_s + 30)
        soon = _at_once(servers, paced, 0)
        late = _at_once(servers, paced, behind_s)
    title = "written to disk per 1 KiB message"
    report.within(f"{title}, receiver keeps up, full speed", full_speed["new"], bars.WRITTEN_BYTES, "B")
    report.beside(
        f"{title}, the same, against commit {bars.TODAY}", full_speed["new"], full_speed.get("base"), "B"
    )
    metric = f"{title}, receiver keeps up, {RATE:,}/s, against commit {bars.TODAY}"
    report.beside(metric, soon["new"], soon.get("base"), "B")
    metric = f"{title}, receiver {behind_s} s behind, {RATE:,}/s, against commit {bars.TODAY}"
    report.at_most(metric, late["new"], late.get("base"), bars.WRITTEN_BEHIND, "B")


def _at_once(servers: dict[str, BuswayServer], load: Load, behind_s: int) -> dict[str, float]:
    """By server: bytes for each message, until nothing is left to be written."""
    with ThreadPoolExecutor(len(servers)) as pool:
        running = {name: pool.submit(_written, server, load, behind_s) for name, server in servers.items()}
        return {name: future.result() for name, future in running.items()}


def _written(server: BuswayServer, load: Load, behind_s: int) -> float:
    meter, target = meter_of(server.target("")), server.queue("--max-size-in-megabytes", "5120")
    before = meter.now()
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(_received, target, load, behind_s)
        run(target, "send", load)
        receiving.result()
    return (meter.rested(_REST_S) - before).written_bytes / load.messages


def _received(target: Target, load: Load, behind_s: int) -> None:
    time.sleep(behind_s)
    run(target, "recv", load)
