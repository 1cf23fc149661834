"""How many messages a stream of `format("servicebus")` takes each second, and what one costs in all processes.

    python -m benchmarks.claim_stream [--messages 60000] [--per-trigger 20000] [--body-bytes 1024] [key=value …]

A server and a session of Spark (local[2]) are started; a queue is filled; a first run warms everything up, then a
stream empties the queue with `availableNow` into Spark's sink that keeps nothing. Further words are options of the
stream, such as claimOperations=stock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway_spark import spark_session
from tests.harness.running_server import RunningServer

_TICKS = os.sysconf("SC_CLK_TCK")
_SENT_TOGETHER = 2_000
_WARM_MESSAGES = 4_000


def cpu_s(pid: int) -> float:
    """Of one process, with what it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / _TICKS


def family_cpu_s(pid: int) -> dict[str, float]:
    """Of a process and everything that it started, by the name of the program."""
    found: dict[str, float] = {}
    parents: dict[int, tuple[int, str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
                fields = tail.split()
                name = head.partition("(")[2]
                parents[int(entry.name)] = int(fields[1]), name, cpu_s(int(entry.name))
            except (OSError, IndexError):
                continue
    for each, (_, name, used_s) in parents.items():
        above = each
        while above in parents and above != pid:
            above = parents[above][0]
        if above == pid:
            found[name] = found.get(name, 0.0) + used_s
    return found


async def fill(connection_string: str, queue: str, count: int, body_bytes: int) -> None:
    body = os.urandom(body_bytes)
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for first in range(0, count, _SENT_TOGETHER):
            messages = [
                ServiceBusMessage(
                    body,
                    {"region": "north", "amount": at},
                    message_id=f"message-{at}",
                    subject="order",
                    content_type="application/json",
                    correlation_id=f"correlation-{at % 100}",
                )
                for at in range(first, min(first + _SENT_TOGETHER, count))
            ]
            await sender.send_messages(messages)


def run_stream(spark: Any, options: dict[str, str], folder: Path) -> tuple[int, float, list[dict[str, Any]]]:
    rows = spark.readStream.format("servicebus").options(**options).load()
    started = time.monotonic()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(folder / uuid4().hex))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken_s = time.monotonic() - started
    progress = [each if isinstance(each, dict) else each.__dict__ for each in query.recentProgress]
    return sum(int(each["numInputRows"]) for each in query.recentProgress), taken_s, progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--per-trigger", type=int, default=20_000)
    parser.add_argument("--body-bytes", type=int, default=1_024)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("options", nargs="*", help="options of the stream: name=value")
    given = parser.parse_args()
    extra = dict(each.split("=", 1) for each in given.options)
    with tempfile.TemporaryDirectory() as name, RunningServer(Path(name) / "bus") as server:
        measure(given, extra, Path(name), server)


def measure(given: argparse.Namespace, extra: dict[str, str], folder: Path, server: RunningServer) -> None:
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as administration:
        for queue in ("warm", "full"):
            administration.create_queue(queue)
    spark = spark_session("claim-stream", master=given.master, config={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    options = {
        "connectionString": server.connection_string,
        "maxMessagesPerTrigger": str(given.per_trigger),
        **extra,
    }
    asyncio.run(fill(server.connection_string, "warm", _WARM_MESSAGES, given.body_bytes))
    run_stream(spark, {**options, "queue": "warm"}, folder)
    asyncio.run(fill(server.connection_string, "full", given.messages, given.body_bytes))
    before, server_before_s = family_cpu_s(os.getpid()), cpu_s(server.pid)
    count, taken_s, progress = run_stream(spark, {**options, "queue": "full"}, folder)
    after, server_after_s = family_cpu_s(os.getpid()), cpu_s(server.pid)
    print(
        f"load {os.getloadavg()[0]:.1f}; {count} messages in {taken_s:.2f} s: {count / taken_s:.0f} messages/s"
    )
    server_s = server_after_s - server_before_s
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    total_s = sum(used.values())
    print(f"  CPU per message {total_s / count * 1e6:.0f} us in all; server {server_s / count * 1e6:.0f} us")
    print("  " + ", ".join(f"{n} {s / count * 1e6:.0f} us" for n, s in used.items() if s / count > 1e-6))
    for each in progress:
        print(f"  batch {each['batchId']}: {each['numInputRows']} rows, {dict(each['durationMs'])}")
    spark.stop()


if __name__ == "__main__":
    main()
