"""What a server costs that nobody asks for anything: CPU of one core, alone and with 1,000 connections at rest.

Each connection has a receiver with credit on an empty queue, as a client that waits, and sends the heartbeats that
the server asks for.
"""

from __future__ import annotations

import subprocess
import time

import psutil

from benchmarks import bars, generator
from benchmarks.busway_server import BuswayServer
from benchmarks.generator import Load
from benchmarks.meter import REST_S, Meter
from benchmarks.parts import Bench
from benchmarks.report import Report

CONNECTIONS = 1_000
#: They attach one after the other; then everything about them is over.
_SETTLE_S = 15.0


def idle(bench: Bench, report: Report) -> None:
    """CPU of a server that nobody uses: without a client, and with 1,000 idle connections"""
    seconds = 10.0 if bench.quick else 60.0
    with BuswayServer(bench.folder / "idle") as server:
        server.start()
        target, meter = server.queue(), Meter(server.server.pid)
        time.sleep(REST_S)
        title = f"idle server, CPU of one core over {seconds:.0f} s"
        report.within(f"{title}, no client", meter.idle_over(seconds) * 100, bars.IDLE_PERCENT, "%")
        load = Load(
            CONNECTIONS, window=CONNECTIONS, connections=CONNECTIONS, seconds_max=_SETTLE_S + seconds + 10
        )
        command = generator.command(target, "idle", load)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as clients:
            try:
                time.sleep(_SETTLE_S)
                share, count = meter.idle_over(seconds), _connections(server)
                assert count >= CONNECTIONS, f"only {count} connections stayed"
            finally:
                clients.terminate()
    report.within(
        f"{title}, {CONNECTIONS:,} idle connections", share * 100, bars.IDLE_CONNECTIONS_PERCENT, "%"
    )


def _connections(server: BuswayServer) -> int:
    """That the server holds."""
    found = psutil.Process(server.server.pid).connections("tcp")
    return sum(1 for each in found if each.status == psutil.CONN_ESTABLISHED)
