"""What the bus and Prometheus learn of streams: `busway_spark.watch`, with real streams and a real bus."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import busway_spark
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import ClientError
from busway_spark.pipeline.job import JobPlace
from busway_spark.watching.watch import WATCH, Watch
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import fill, stream
from tests.spark.servicebus_rig import ServiceBusRig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FROM_START = '{"offset": "-1"}'
SECRET = "c2VjcmV0IGtleSBvZiBhIGJ1cywgMzIgYnl0ZXMgbG8="
#: A client of Spark Connect with a server of its own on this machine, which watches what it starts.
_CLIENT = """
import sys, time
from pyspark.sql import SparkSession
import busway_spark
from busway_spark.start.session import prepare_environment
from tests.spark.hub_traffic import stream

connection, hub, checkpoint = sys.argv[1:]
prepare_environment()
spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
watch = busway_spark.watch(spark, connection, every_s=1.0)
rows = stream(spark, connection, hub, startingPosition='{"offset": "-1"}').load()
writer = rows.writeStream.format("noop").queryName(f"connect-{hub}").trigger(availableNow=True)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
deadline = time.monotonic() + 30
while not any(each.is_told and each.state == "stopped" for each in watch.watched.all()):
    assert time.monotonic() < deadline, watch.watched.all()
    time.sleep(0.05)
watch.stop()
spark.stop()
"""


@contextmanager
def watching(spark: SparkSession, connection: str, **options: Any) -> Iterator[Watch]:
    made = busway_spark.watch(spark, connection, every_s=1.0, **options)
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def running(
    spark: SparkSession, connection: str, hub: str, name: str, checkpoint: Path, **options: str
) -> Iterator[StreamingQuery]:
    """One batch of 20 events, and none for the next hour."""
    options = {"startingPosition": FROM_START, "maxEventsPerTrigger": "20", **options}
    writer = stream(spark, connection, hub, **options).load().writeStream.format("noop").queryName(name)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 hour").start()
    try:
        yield query
    finally:
        query.stop()


def seen(connection: str, name: str, state: str = "running", seconds_max: float = 60.0) -> dict[str, Any]:
    """As the bus tells it, once it is in this state."""
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            with ServiceBusAdministrationClient.from_connection_string(connection) as admin:
                found: dict[str, Any] = admin.pipelines.get(name)
            if found["state"] == state:
                return found
        except ClientError as error:
            found = {"error": str(error)}
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_the_bus_knows_who_lags_who_ended_and_who_failed(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Pipelines: one stream that is behind, one that has done its work, one that fails; Prometheus hears the same."""
    connection = server.connection_string
    fill(connection, hub, 100)

    def fail(rows: DataFrame, batch: int) -> None:
        del rows
        raise RuntimeError(f"Batch {batch} cannot be written with SharedAccessKey={SECRET}")

    with watching(spark, connection, port=0) as watch:
        source = stream(spark, connection, hub, startingPosition=FROM_START).load()
        whole = source.writeStream.format("noop").queryName(f"whole {hub}").trigger(availableNow=True)
        whole.option("checkpointLocation", str(tmp_path / "whole")).start().awaitTermination()
        broken = source.writeStream.foreachBatch(fail).queryName(f"broken-{hub}")
        query = broken.option("checkpointLocation", str(tmp_path / "broken")).start()
        with pytest.raises(Exception, match="cannot be written"):
            query.awaitTermination()
        with running(spark, connection, hub, f"behind-{hub}", tmp_path / "behind"):
            behind = seen(connection, f"behind-{hub}")
            text = urllib.request.urlopen(str(watch.address)).read().decode()
        ended, failed = (
            seen(connection, f"whole-{hub}", "stopped"),
            seen(connection, f"broken-{hub}", "failed"),
        )
        stopped = seen(connection, f"behind-{hub}", "stopped")
    assert (behind["lagEvents"], behind["rows"], behind["batches"]) == (180, 20, 1)
    assert behind["lagBytes"] > 180
    assert 0 < behind["lagSeconds"] < 600
    read = behind["sources"][0]
    assert (read["entity"], read["consumerGroup"]) == (hub, "$Default")
    assert [each["next"] for each in read["partitions"]] == [10, 10]
    assert (ended["lagEvents"], ended["lagSeconds"], ended["rows"]) == (0, 0.0, 200)
    assert (failed["failures"], failed["sources"]) == (1, [])
    assert failed["sentence"] == "Batch 0 cannot be written with SharedAccessKey=***"
    assert stopped["lagEvents"] == 180
    assert f'busway_pipeline_up{{pipeline="behind-{hub}"}} 1.0' in text
    lag = f'{{pipeline="behind-{hub}",entity="{hub}",consumer_group="$Default",partition="0"}}'
    assert f"busway_pipeline_lag_events{lag} 90.0" in text


def test_a_stream_of_messages_tells_what_waits(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Pipelines: a queue has no positions; what is there and not claimed is what waits."""
    rig = ServiceBusRig(spark, server.connection_string)
    queue = rig.queue()
    rig.send_numbered(queue, 30)
    options = {"connectionString": server.connection_string, "queue": queue, "maxMessagesPerTrigger": "10"}
    rows = spark.readStream.format("servicebus").options(**options).load()
    writer = rows.writeStream.format("noop").queryName(f"of-{queue}").trigger(processingTime="1 hour")
    with watching(spark, server.connection_string):
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            found = seen(server.connection_string, f"of-{queue}")
        finally:
            query.stop()
    assert (found["lagEvents"], found["sources"][0]["held"]) == (20, 10)
    assert found["sources"][0]["entity"] == queue


def test_after_a_restart_of_the_bus_the_next_report_brings_everything_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Pipelines: nothing is stored; the stream and its reports go on by themselves."""
    with RunningServer(tmp_path / "bus") as server:
        connection = server.connection_string
        with ServiceBusAdministrationClient.from_connection_string(connection) as admin:
            admin.hubs.create("clicks", {"PartitionCount": 2})
        fill(connection, "clicks", 100)
        with (
            watching(spark, connection),
            running(spark, connection, "clicks", "back", tmp_path / "checkpoint") as query,
        ):
            before = seen(connection, "back")
            server.kill()
            server.start()
            after = seen(connection, "back")
            assert query.isActive
    assert after["lagEvents"] == before["lagEvents"] == 180
    assert after["run"] == before["run"]


@pytest.mark.long
@pytest.mark.skipif(find_spec("grpc") is None, reason="make setup-spark installs what Spark Connect needs")
def test_with_spark_connect_the_client_watches(server: RunningServer, hub: str, tmp_path: Path) -> None:
    """Pipelines: listeners run in the client there; what they hear is the same."""
    fill(server.connection_string, hub, 100)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CLIENT, server.connection_string, hub, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = seen(server.connection_string, f"connect-{hub}", "stopped")
    assert (found["lagEvents"], found["rows"], found["failures"]) == (0, 200, 0)
    assert found["sources"][0]["consumerGroup"] == "$Default"


def test_jobs_are_watched_unless_somebody_says_no(spark: SparkSession, server: RunningServer) -> None:
    """Pipelines: once for a session and a bus, however often a job asks for its session."""
    from busway_spark.watching import watch

    bus = Bus(server.connection_string)
    assert watch.watch_job(spark, bus, {WATCH: "False"}) is None
    place = JobPlace(bus, str(spark.sparkContext.master))
    try:
        assert place.session("test") is place.session("test")
        made = watch.watch_job(spark, bus, {})
        assert made is not None
        assert made is watch.watch_job(spark, bus, {})
    finally:
        watch._of_jobs.pop(bus.target.authority).stop()
