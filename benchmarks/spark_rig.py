"""What the benchmark of Spark stands on: a server, a session, messages, and what each process costs.

CPU time is read of four groups: the server, Spark's JVM, the Python workers, in which tasks run, and the planners,
which are all other processes that the JVM started: those that make and plan sources. Both may be forks of a process
of ours instead (`busway_spark.shared_python`), which counts as a planner. CPU time of what comes and goes is sampled
while a run lasts.

Memory is sampled only in runs that are not timed. It is the proportional set size: workers are forked, and a page
that four of them share counts once, not four times. Planners come and go by Spark's own timers, so they are told
apart from the workers, whose memory is ours to bound.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.busway_server import BuswayServer
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays.encoding import ENVELOPE_BYTES, EncodedRows
from busway_spark.servicebus.row_messages import encode_rows
from busway_spark.start.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY_BYTES = 1024
PARTITIONS = 4
SAMPLE_S = 0.1
_PIECE = 2_000
SERVER, JVM, WORKERS, PLANNERS = "server", "JVM", "workers", "planners"
#: What the command of a process ends with that runs tasks, or that such processes are forked from.
_TASKS = "pyspark.worker"
#: The same of what is forked by the nursery: its command is the nursery's, its name is not.
_FORKED_TASKS = "worker"
_NURSERY = "nursery.py"


@dataclass(frozen=True)
class Run:
    """One measured run."""

    rows: int
    seconds: float
    #: CPU seconds by group of processes.
    cpu_s: dict[str, float]
    #: The most MiB by group of processes; empty where it was not watched.
    memory_mib: dict[str, float]
    #: MiB of the server before it.
    server_before_mib: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def cpu_us(self) -> dict[str, float]:
        return {name: spent / self.rows * 1e6 for name, spent in self.cpu_s.items()}

    def costs(self) -> str:
        return ", ".join(f"{name} {spent:.1f}" for name, spent in self.cpu_us().items()) + " µs/row"

    def memory(self) -> str:
        return ", ".join(f"{name} {size:.0f}" for name, size in self.memory_mib.items()) + " MiB"


class Processes:
    """The groups of processes of a server and a session."""

    def __init__(self, server_pid: int, jvm_pid: int) -> None:
        self._server = psutil.Process(server_pid)
        self._jvm = psutil.Process(jvm_pid)
        self._groups: dict[psutil.Process, str] = {}
        #: CPU seconds of each child of the JVM as it was last seen: they end when Spark needs them no longer.
        self._child_cpu_s: dict[psutil.Process, float] = {}

    def cpu_s(self) -> dict[str, float]:
        for each, _ in self._children():
            with suppress(psutil.NoSuchProcess):
                self._child_cpu_s[each] = _cpu_s(each)
        found = {SERVER: _cpu_s(self._server), JVM: _cpu_s(self._jvm), WORKERS: 0.0, PLANNERS: 0.0}
        for each, spent in self._child_cpu_s.items():
            found[self._groups[each]] += spent
        return found

    def memory_mib(self) -> dict[str, float]:
        found = {SERVER: _memory(self._server), JVM: _memory(self._jvm), WORKERS: 0.0, PLANNERS: 0.0}
        for each, group in self._children():
            found[group] += _memory(each)
        return {name: size / (1 << 20) for name, size in found.items()}

    def server_mib(self) -> float:
        return _memory(self._server) / (1 << 20)

    def _children(self) -> Iterator[tuple[psutil.Process, str]]:
        for each in [*self._jvm.children(recursive=True), *_forks()]:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if each not in self._groups:
                    is_task = each.cmdline()[-1:] == [_TASKS] or each.name() == _FORKED_TASKS
                    self._groups[each] = WORKERS if is_task else PLANNERS
                yield each, self._groups[each]


def _forks() -> Iterator[psutil.Process]:
    """The nursery of this process, if there is one, and all below it."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any(Path(word).name == _NURSERY for word in child.cmdline()):
                yield child
                yield from child.children(recursive=True)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> float:
    """What is shared with other processes counts in parts."""
    try:
        return float(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0


class Rig:
    """A server, and at most one session at a time."""

    def __init__(self, server: BuswayServer) -> None:
        self.server = server
        self.connection_string = server.server.connection_string
        self._spark: SparkSession | None = None
        self._cores = 0

    @property
    def session(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def spark(self, cores: int) -> SparkSession:
        """A session with so many cores; another one ends first."""
        if self._spark is not None and self._cores == cores:
            return self._spark
        self.stop()
        self._cores = cores
        self._spark = spark_session(
            "busway-benchmark",
            master=f"local[{cores}]",
            config={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.metricsEnabled": "false",
            },
        )
        self._spark.sparkContext.setLogLevel("OFF")
        return self._spark

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def measure(self, rows: int, work: Callable[[], None], *, watches_memory: bool = False) -> Run:
        """Watching memory takes time of its own: such a run says nothing about rates."""
        processes = Processes(self.server.server.pid, _jvm_pid(self.session))
        server_mib = processes.server_mib()
        before, begun = processes.cpu_s(), time.monotonic()
        with _watched(processes, watches_memory) as peak:
            work()
        seconds = time.monotonic() - begun
        after = processes.cpu_s()
        spent = {name: after[name] - before[name] for name in after}
        return Run(rows, seconds, spent, peak, server_mib)

    # -- messages

    def fill_hub(self, name: str, events: int) -> None:
        """A new hub with events that have properties, ids and keys."""
        self.server.hub(name, "--partitions", str(PARTITIONS))
        share = events // PARTITIONS
        asyncio.run(self._send([(f"{name}/Partitions/{at}", share, _events) for at in range(PARTITIONS)]))

    def fill_queue(self, messages: int) -> str:
        """A new queue with messages in it."""
        name = self.queue()
        self.fill(name, messages)
        return name

    def fill(self, queue: str, messages: int) -> None:
        asyncio.run(self._send([(queue, messages, _messages)]))

    def queue(self) -> str:
        return self.server.queue("--max-size-in-megabytes", "5120").address

    async def _send(self, targets: list[tuple[str, int, Callable[[int, int], pa.RecordBatch]]]) -> None:
        async with ServiceBusClient.from_connection_string(self.connection_string) as client:
            for target, count, rows in targets:
                async with client.get_queue_sender(target) as sender:
                    for first in range(0, count, _PIECE):
                        piece = rows(first, min(_PIECE, count - first))
                        messages = encode_rows(piece, "bench", first)
                        found = EncodedRows.of(np.arange(len(messages)), messages)
                        cut = found.cut(sender.batch_bytes_max - ENVELOPE_BYTES)
                        posted = [await sender.post(found.batch(*each), is_batch=True) for each in cut]
                        await asyncio.gather(*posted)

    def rows(self, count: int) -> DataFrame:
        """Rows to write, with every column that a sender may set."""
        return self.session.range(0, count, 1, 4).selectExpr(
            f"cast(repeat('x', {BODY_BYTES}) as binary) body",
            "concat('id-', id) messageId",
            "cast(null as string) sessionId",
            "cast(null as string) partitionKey",
            "concat('subject-', id % 13) subject",
            "'application/json' contentType",
            "concat('c-', id) correlationId",
            "'there' `to`",
            "'here' replyTo",
            "'session' replyToSessionId",
            "3600000L timeToLive",
            "cast(null as timestamp) scheduledEnqueueTime",
            "map('region', concat('r', id % 7), 'order', cast(id as string)) properties",
            "cast(null as string) entity",
        )


def _jvm_pid(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


@contextmanager
def _watched(processes: Processes, watches_memory: bool) -> Iterator[dict[str, float]]:
    peak = processes.memory_mib() if watches_memory else {}
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            processes.cpu_s()
            for name, size in processes.memory_mib().items() if watches_memory else ():
                peak[name] = max(peak[name], size)

    sampling = threading.Thread(target=sample, daemon=True)
    sampling.start()
    try:
        yield peak
    finally:
        over.set()
        sampling.join()


def _events(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            **_common(first, count),
            "partitionKey": pa.array([f"key-{at % 100}" for at in range(first, first + count)]),
        }
    )


def _messages(first: int, count: int) -> pa.RecordBatch:
    more = {name: pa.array([name] * count) for name in ("to", "replyTo", "replyToSessionId", "correlationId")}
    return pa.RecordBatch.from_pydict({**_common(first, count), **more})


def _common(first: int, count: int) -> dict[str, Any]:
    numbers = range(first, first + count)
    entries = [[("region", f"r{at % 7}"), ("order", str(at))] for at in numbers]
    return {
        "body": pa.array([b"x" * BODY_BYTES] * count, pa.binary()),
        "messageId": pa.array([f"id-{at}" for at in numbers]),
        "subject": pa.array([f"subject-{at % 13}" for at in numbers]),
        "contentType": pa.array(["application/json"] * count),
        "properties": pa.array(entries, pa.map_(pa.string(), pa.string())),
    }


def load() -> str:
    return " ".join(f"{each:.1f}" for each in os.getloadavg())
