"""What bulk readers cost everybody else: `python -m benchmarks.neighbours`.

One client sends a message at a time and waits for its acknowledgement, first alone, then beside 64 readers that fetch
a hub in bulk without a pause, in one process of low priority. Told are the latencies of both, the longest turn of the
server's loop, the memory that the server holds more, and how much the readers got together. `--tree PATH` measures
the sources of another tree by the same program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.running_server import RunningServer

HUB: Final = "clicks"
QUEUE: Final = "orders"
PARTITIONS: Final = 8
EVENT_BYTES: Final = 1_024
EVENTS: Final = 16_000
READERS: Final = 64
_NICE: Final = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role is not None:
        role, connection = given.role
        if role == "send":
            print(json.dumps(asyncio.run(_send(connection, given.seconds))))
        else:
            print(json.dumps(_read(connection, given.seconds, given.readers)))
        return
    source = str(given.tree / "src")
    environment = {"PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parents[1]}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningServer(Path(folder), environment=environment) as server,
    ):
        _prepare(server.connection_string)
        bench = _Bench(server, environment, given.seconds, given.readers)
        print(json.dumps(bench.run(), indent=1))


class _Bench:
    def __init__(
        self, server: RunningServer, environment: dict[str, str], seconds: float, readers: int
    ) -> None:
        self._server = server
        self._environment = {**os.environ, **environment}
        self._seconds = seconds
        self._readers = readers

    def run(self) -> dict[str, object]:
        self._await(self._start("send", 2.0))  # warm
        before = _rss_mib(self._server.pid)
        alone = self._await(self._start("send", self._seconds))
        turn_before_ms = self._longest()
        reading = self._start("read", self._seconds + 4)
        time.sleep(2)
        sending = self._start("send", self._seconds)
        highest = before
        while sending.poll() is None:
            highest = max(highest, _rss_mib(self._server.pid))
            time.sleep(0.1)
        beside = self._await(sending)
        turn_ms = self._longest()
        bulk = self._await(reading)
        return {
            "load": os.getloadavg()[0],
            "alone": alone,
            "beside": beside,
            "p99 ratio": round(beside["p99_ms"] / alone["p99_ms"], 1),
            "bulk MiB/s": bulk["mib_per_s"],
            "slowest and fastest reader, MiB": [bulk["least_mib"], bulk["most_mib"]],
            "longest turn before and with them, ms (wall, CPU)": [turn_before_ms, turn_ms],
            "memory, MiB": [before, highest],
        }

    def _start(self, role: str, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.neighbours", "--seconds", str(seconds)]
        command += ["--readers", str(self._readers), "--role", role, self._server.connection_string]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
            preexec_fn=_lower if role == "read" else None,
        )

    def _await(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        said, _ = process.communicate()
        found: dict[str, Any] = json.loads(said)
        return found

    def _longest(self) -> list[float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._server.port}/metrics") as answer:
            text = answer.read().decode()
        return [
            round(float(n) * 1000, 1)
            for n in re.findall(r"^busway_\w*longest\w*(?:\{.*\})? (\S+)$", text, re.M)
        ]


def _lower() -> None:
    """Below everybody, also where this whole program runs at the lowest priority."""
    if os.nice(0) + _NICE > 19:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(_NICE)


def _prepare(connection: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(connection) as admin:
        admin.hubs.create(HUB, {"PartitionCount": PARTITIONS})
        admin.create_queue(QUEUE)

    async def fill() -> None:
        body = os.urandom(EVENT_BYTES)
        async with ServiceBusClient.from_connection_string(connection) as client:
            for partition in range(PARTITIONS):
                async with client.get_queue_sender(f"{HUB}/Partitions/{partition}") as sender:
                    for _ in range(EVENTS // 200):
                        await sender.send_messages([ServiceBusMessage(body) for _ in range(200)])

    asyncio.run(fill())


async def _send(connection: str, seconds: float) -> dict[str, float]:
    spent: list[float] = []
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            await sender.send_messages([ServiceBusMessage(b"x" * 100)])
            spent.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    spent.sort()
    return {
        "sent": len(spent),
        "p50_ms": round(spent[len(spent) // 2] * 1000, 2),
        "p99_ms": round(spent[len(spent) * 99 // 100] * 1000, 2),
        "most_ms": round(spent[-1] * 1000, 2),
    }


def _read(connection: str, seconds: float, readers: int) -> dict[str, float]:
    from busway_spark.eventhubs.offsets import EventRange
    from busway_spark.eventhubs.ranges import BulkReader
    from busway_spark.wire.bus import Bus

    got = [0] * readers
    end = time.monotonic() + seconds
    bus = Bus(connection)

    def read(number: int) -> None:
        reader = BulkReader(bus, HUB)
        while time.monotonic() < end:
            got[number] += len(reader._fetch(EventRange(str(number % PARTITIONS), 0, EVENTS)))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = sum(got) / (time.monotonic() - began) / (1 << 20)
    return {"mib_per_s": round(rate, 1), "least_mib": min(got) >> 20, "most_mib": max(got) >> 20}


def _rss_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) >> 10


if __name__ == "__main__":
    main()
