"""How much a capture of many entities costs its driver, and that it goes on with what earlier versions have left."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.pipeline.capture import capture as capturing
from busway_spark.pipeline.capture.capture import CaptureOptions, capture
from busway_spark.pipeline.job import JobPlace, JobProgress
from busway_spark.shared_python import lent_python
from busway_spark.start.session import JAVA_OPTIONS, small_java
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import captured
from tests.spark.driver_memory import processes_below, processes_of_session
from tests.spark.hub_traffic import expected, fill
from tests.spark.job_driver import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Java, the command and all Python processes of a capture of ENTITIES.
BOUND_MIB = 1536
ENTITIES = 20
#: What makes Java and Python of other tests small and quick.
OF_TESTS = ("PYTHONPATH", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "BUSWAY_TESTS_WARM_FORKS")
STREAM_SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"


def made_hubs(server: RunningServer, count: int) -> list[str]:
    stem = uuid4().hex[:8]
    names = [f"many-{stem}-{at}" for at in range(count)]
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        for name in names:
            admin.hubs.create(name, {"PartitionCount": 2})
    return names


def test_streams_of_a_capture_are_forks_of_one_process(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Driver memory: none of them is a Python that has imported everything for itself."""
    hubs = made_hubs(server, 3)
    for hub in hubs:
        fill(server.connection_string, hub, 5)
    context: Any = spark.sparkContext
    java = int(context._jvm.java.lang.ProcessHandle.current().pid())
    seen: set[object] = set()
    alone: list[tuple[str, ...]] = []

    def tell(_sentence: str, figures: Mapping[str, object]) -> None:
        seen.add(figures["entity"])
        if len(seen) == len(hubs):
            alone.extend(each.words for each in processes_below(java) if STREAM_SOURCE in each.words)
            progress.stop()

    progress = JobProgress(tell)
    options = CaptureOptions(tuple(hubs), str(tmp_path), follows=True, every_s=0.2)
    rows = capture(JobPlace(Bus(server.connection_string), "local[2]"), options, progress).rows
    assert rows == dict.fromkeys(hubs, 10)
    assert alone == []
    assert "BUSWAY_PYTHON_NURSERY" not in context.environment


@pytest.mark.long
def test_a_capture_goes_on_when_the_process_that_forks_is_killed(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Driver memory: what was forked works on, what is started later is on its own; nothing is lost or doubled."""
    assert spark is not None
    hubs = made_hubs(server, 2)
    for hub in hubs:
        fill(server.connection_string, hub, 5)
    done: dict[object, object] = {}

    def tell(_sentence: str, figures: Mapping[str, object]) -> None:
        done[figures["entity"]] = figures.get("captured", done.get(figures["entity"]))
        if len(done) == len(hubs) and set(done.values()) == {10}:
            assert lent_python._lent is not None
            os.kill(lent_python._lent.process_id, signal.SIGKILL)
            for hub in hubs:
                fill(server.connection_string, hub, 5, first=5)
        elif set(done.values()) == {20}:
            progress.stop()

    progress = JobProgress(tell)
    options = CaptureOptions(tuple(hubs), str(tmp_path), follows=True, every_s=0.2)
    capture(JobPlace(Bus(server.connection_string), "local[2]"), options, progress)
    rows = captured(tmp_path)
    for hub in hubs:
        assert sorted(row["body"].decode() for row in rows if row["entity"] == hub) == expected(10)
    again = CaptureOptions(tuple(hubs), str(tmp_path))
    assert capture(
        JobPlace(Bus(server.connection_string), "local[2]"), again, JobProgress()
    ).rows == dict.fromkeys(hubs, 0)


def test_a_capture_goes_on_where_the_version_before_has_stopped(
    spark: SparkSession, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture: its checkpoint named no format; entities come and go between two starts."""
    assert spark is not None
    first, second = made_hubs(server, 2)

    def run(*entities: str) -> dict[str, int]:
        options = CaptureOptions(entities, str(tmp_path))
        return capture(JobPlace(Bus(server.connection_string), "local[2]"), options, JobProgress()).rows

    fill(server.connection_string, first, 5)
    fill(server.connection_string, second, 5)
    with monkeypatch.context() as before:
        before.setattr(capturing, "CAPTURED_HUB", "eventhubs")
        assert run(first) == {first: 10}
    fill(server.connection_string, first, 5, first=5)
    assert run(first, second) == {first: 10, second: 10}
    assert run(second) == {second: 0}
    rows = captured(tmp_path)
    assert sorted(row["body"].decode() for row in rows if row["entity"] == first) == expected(10)
    assert sorted(row["body"].decode() for row in rows if row["entity"] == second) == expected(5)


def test_java_is_told_to_stay_small_unless_somebody_else_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver memory: two collectors would be refused by Java; what is told elsewhere stays."""
    for name in OF_TESTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert small_java({"a": "b"})[JAVA_OPTIONS].startswith("-XX:+UseSerialGC -XX:MinHeapFreeRatio=")
    assert small_java({JAVA_OPTIONS: "-Xss1m"}) == {JAVA_OPTIONS: "-Xss1m"}
    other = {"spark.driver.extraJavaOptions": "-Da=b -XX:+UseG1GC"}
    assert "GC" not in small_java(other)[JAVA_OPTIONS]
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseParallelGC\n")
    assert "GC" not in small_java({})[JAVA_OPTIONS]


@pytest.mark.long
def test_twenty_captured_hubs_cost_a_driver_less_than_a_gibibyte_and_a_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver memory: Java, the command and all Python processes together, at any moment, with traffic."""
    for name in OF_TESTS:
        monkeypatch.delenv(name, raising=False)
    with RunningServer(tmp_path / "bus") as server:
        hubs = made_hubs(server, ENTITIES)
        over = threading.Event()

        def send() -> None:
            number = 0
            while not over.is_set():
                for hub in hubs:
                    fill(server.connection_string, hub, 5, first=number)
                number += 5
                over.wait(1)

        sending = threading.Thread(target=send)
        sending.start()
        arguments = ("capture", *hubs, "--to", str(tmp_path / "lake"), "--follow", "--every", "2")
        try:
            with Job(tmp_path, server.connection_string, *arguments, settings={}) as job:
                peak, deadline = 0.0, time.monotonic() + 500
                while batches_of_the_slowest(tmp_path / "lake", hubs) < 5:
                    peak = max(peak, sum(each.mib for each in processes_of_session(job.pid)))
                    assert time.monotonic() < deadline, job.said
                    time.sleep(1)
        finally:
            over.set()
            sending.join()
    assert peak <= BOUND_MIB


def batches_of_the_slowest(lake: Path, hubs: list[str]) -> int:
    """How many batches are noted as captured."""
    notes = [lake / f"_capture/entity={hub}/committed.json" for hub in hubs]
    if not all(note.exists() for note in notes):
        return 0
    return min(int(json.loads(note.read_text())["batch"]) for note in notes) + 1
