"""Crashes of everything that takes part in a stream of messages: each message is processed once, none is left behind.

The first half plays Spark's part itself, step by step, so that it can fall over between any two of them; the second
kills real drivers.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.servicebus.claim import Claim
from busway_spark.servicebus.claim_reader import ClaimStreamReader
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.options import read_options
from busway_spark.wire.bus import close_bridge
from tests.harness.running_server import RunningServer
from tests.spark.servicebus_rig import ServiceBusRig, Sink, numbers

Offset = dict[str, object]
#: Between any two of these everything may end.
STEPS = ("before the offset", "logged", "planned", "half read", "kept by the sink", "committed")


class PlayedSpark:
    """What survives a driver: offset log, commit log, and a sink that keeps a batch by its number."""

    def __init__(self, bus: RunningServer, queue: str, operations: str) -> None:
        self._options = read_options(
            {
                "connectionString": bus.connection_string,
                "queue": queue,
                "columns": "body,sequenceNumber",
                "messagesPerPartition": "20",
                "maxWaitSeconds": "0.2",
                "claimOperations": operations,
            }
        )
        self._queue = queue
        self._offsets: list[Offset] = [Claim(queue).offset()]
        self._committed = 0
        self.batches: dict[int, list[bytes]] = {}
        self._reader = self._started()

    def _started(self) -> ClaimStreamReader:
        return ClaimStreamReader(readable_schema(self._options), self._options, is_durable=True)

    def crash(self) -> None:
        """A process that is not used any more. What it told the log stays, in the log's own form."""
        self._reader.stop()
        self._reader = self._started()
        self._offsets = json.loads(json.dumps(self._offsets))

    def run_batch(self, until: str) -> bool:
        """One batch, up to that step; a batch that is in the log is planned again first. False: there is nothing."""
        if len(self._offsets) == self._committed + 1:
            start = self._offsets[-1]
            end = self._reader.latestOffset(start, ReadMaxRows(60))
            if end == start:
                return False
            if until == STEPS[0]:
                return True
            self._offsets.append(end)
        if until != STEPS[1]:
            self._process(until)
        return True

    def _process(self, until: str) -> None:
        at = self._committed
        partitions = self._reader.partitions(self._offsets[at], self._offsets[at + 1])
        if until == STEPS[2]:
            return
        found: list[bytes] = []
        for partition in partitions:
            for batch in self._reader.read(partition):
                found += [bytes(body) for body in batch.column("body").to_pylist() if body is not None]
            if until == STEPS[3]:
                return
        assert self.batches.setdefault(at, sorted(found)) == sorted(found), "a repeated batch has other rows"
        if until != STEPS[4]:
            self._committed += 1

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in self.batches.values() for body in batch]


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path) as running:
        yield running
        close_bridge()


def _make(bus: RunningServer, queue: str, count: int) -> None:
    with ServiceBusAdministrationClient.from_connection_string(bus.connection_string) as administration:
        administration.create_queue(queue, {"LockDuration": "PT5S"})

    async def send() -> None:
        async with (
            ServiceBusClient.from_connection_string(bus.connection_string) as client,
            client.get_queue_sender(queue) as sender,
        ):
            for at in range(0, count, 50):
                await sender.send_messages([ServiceBusMessage(str(at + n).encode()) for n in range(50)])

    asyncio.run(send())


def _compete(bus: RunningServer, queue: str, count: int) -> list[bytes]:
    async def receive() -> list[bytes]:
        async with (
            ServiceBusClient.from_connection_string(bus.connection_string) as client,
            client.get_queue_receiver(queue, receive_mode=RECEIVE_AND_DELETE) as receiver,
        ):
            return [message.body for message in await receiver.receive_messages(count, 0.1)]

    return asyncio.run(receive())


@pytest.mark.parametrize("operations", ["bulk", "stock"])
def test_whatever_falls_over_between_any_two_steps_each_message_is_processed_once(
    bus: RunningServer, operations: str
) -> None:
    """R-19, R-50, R-52: driver and broker crash between all steps, while another receiver competes."""
    chance = random.Random(f"crashes {operations}")
    _make(bus, "q", 1_000)
    spark = PlayedSpark(bus, "q", operations)
    taken: list[bytes] = []
    steps = [step for step in STEPS for _ in range(2)]
    chance.shuffle(steps)
    for at, step in enumerate(steps):
        spark.run_batch(step)
        if at in (3, 8):
            bus.kill()
            bus.start()
        elif step != STEPS[-1]:
            spark.crash()
        if at % 3 == 0:
            taken += _compete(bus, "q", 13)
    deadline = time.monotonic() + 120
    while len(spark.bodies) + len(taken) < 1_000 and time.monotonic() < deadline:
        spark.run_batch(STEPS[-1])
    assert not spark.run_batch(STEPS[-1])
    assert sorted(spark.bodies + taken) == sorted(str(at).encode() for at in range(1_000))
    assert _left(bus, "q") == 0


def _left(bus: RunningServer, queue: str) -> int:
    with ServiceBusAdministrationClient.from_connection_string(bus.connection_string) as administration:
        return int(str(administration.get_queue(queue).numbers["MessageCount"]))


def test_a_query_changes_between_the_two_kinds_of_operations_with_every_batch(bus: RunningServer) -> None:
    """Both leave the same marks and the same offsets."""
    _make(bus, "q", 300)
    spark = PlayedSpark(bus, "q", "bulk")
    ways = [PlayedSpark(bus, "q", way)._options for way in ("stock", "bulk")]
    for at in range(10):
        spark._options = ways[at % 2]
        spark.run_batch("planned" if at % 3 else STEPS[-1])
        spark.crash()
        spark._options = ways[(at + 1) % 2]
        spark.crash()
        spark.run_batch(STEPS[-1])
    deadline = time.monotonic() + 120
    while len(spark.bodies) < 300 and time.monotonic() < deadline:
        spark.run_batch(STEPS[-1])
    assert not spark.run_batch(STEPS[-1])
    assert sorted(spark.bodies) == sorted(str(at).encode() for at in range(300))
    assert _left(bus, "q") == 0


# -- drivers that are killed


class KilledDriver:
    """A process group: Spark, its Java and its Python workers."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_driver", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def is_running(self) -> bool:
        return self._process.poll() is None


@pytest.mark.long
def test_drivers_that_are_killed_leave_every_message_for_the_next_one(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """kill -9 in the middle of batches, twice; a third driver goes on with the checkpoint to the end."""
    rig = ServiceBusRig(spark, server.connection_string)
    queue = rig.queue({"LockDuration": "PT5S"})
    rig.send_numbered(queue, 2_000)
    checkpoint, folder = str(tmp_path / "checkpoint"), tmp_path / "kept"
    folder.mkdir()
    for life in range(2):
        driver = KilledDriver(server.connection_string, queue, checkpoint, str(folder))
        wanted = len(list(folder.glob("*.json"))) + 2 + life
        deadline = time.monotonic() + 240
        while len(list(folder.glob("*.json"))) < wanted:
            assert driver.is_running(), "the driver ended by itself"
            assert time.monotonic() < deadline, "the driver does not get on"
            time.sleep(0.01)
        driver.kill()
    sink = Sink()
    for file in folder.glob("*.json"):
        sink.batches[int(file.stem)] = json.loads(file.read_text())
    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=1_000)
    deadline = time.monotonic() + 120
    while len(sink.bodies) < 2_000 and time.monotonic() < deadline:
        rig.run_now(rows, checkpoint, sink)
    assert sink.bodies == numbers(2_000)
    assert rig.peek(queue) == []
