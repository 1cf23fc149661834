"""Replay, backfill and report over a capture in a Delta table, and over captured and journalled traffic at once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.service_bus_client import ServiceBusClient
from busway.rules.rule import Rule, SqlFilter
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.eventhubs.ranges import BulkReader
from busway_spark.pipeline.backfill.backfill import backfill
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS
from busway_spark.pipeline.captured.captured_files import History, captured_frame, listed_files
from busway_spark.pipeline.job import JobPlace, JobProgress
from busway_spark.pipeline.replay import ReplayState, chosen, history_schema
from busway_spark.pipeline.report.report import ReportJob, ReportResult, run
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import writer
from tests.spark.captured_topic import CapturedTopic
from tests.spark.table_rig import NEW, OLD, optimise, put, rewrite

LAYOUTS = pytest.mark.parametrize("layout", [PARQUET, DELTA])


def counted(told: ReportResult) -> dict[tuple[str, str], int]:
    return {(row["entity"], row["operation"]): row["count"] for row in told.figures.operations}


def test_a_report_counts_a_table_as_it_counts_files(spark: SparkSession, tmp_path: Path) -> None:
    """Delta: a report counts what the log names, before and after optimize, and Parquet files beside it."""
    for first in range(0, 60, 20):
        put(tmp_path, range(first, first + 20), "a/b c")
    put(tmp_path, range(7), "a/b c", partition=1)
    put(tmp_path, range(5), "files", PARQUET)
    expected = {("a/b c", "captured"): 67, ("files", "captured"): 5}
    assert counted(run(spark, ReportJob(str(tmp_path)))) == expected
    optimise(tmp_path)
    told = run(spark, ReportJob(str(tmp_path)))
    assert counted(told) == expected
    [spread] = [row for row in told.figures.skew if row["entity"] == "a/b c"]
    assert (spread["fragments"], spread["hottest"]) == (2, 0)


@LAYOUTS
def test_tables_of_spark_have_old_and_new_columns(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    """Columns: Spark reads files with a column less and a column more as it reads ours, with folders' columns; of
    a file in a folder of another's making the log tells these."""
    for first in (0, 10, 20):
        put(tmp_path, range(first, first + 10), layout=layout, partition=first // 10)
    old, new, _ = sorted(tmp_path.rglob("*-000*.parquet"))
    rewrite(old, OLD)
    rewrite(new, NEW)
    root = CaptureRoot(str(tmp_path))
    files = listed_files(root)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / files[0].path).rename(tmp_path / "elsewhere" / files[0].path.name)
    moved = files[0]._replace(path=PurePosixPath("elsewhere", files[0].path.name))
    frame = captured_frame(spark, root, [moved, *files[1:]], history_schema())
    rows = (
        frame.orderBy("sequenceNumber")
        .select("sequenceNumber", "propertyTypes", "offset", *FOLDERS)
        .collect()
    )
    assert [tuple(row) for row in rows] == [
        (number, None, str(number), "clicks", "2026-11-15", "09", number // 10) for number in range(30)
    ]


def test_a_condition_chooses_from_an_optimised_table(spark: SparkSession, tmp_path: Path) -> None:
    """Delta: a replay with a condition sends the rows that it holds for, in the order of their numbers."""
    for first in range(0, 60, 20):
        put(tmp_path, range(first, first + 20))
    optimise(tmp_path)
    root = CaptureRoot(str(tmp_path))
    history = History(root, "clicks")
    place = JobPlace(Bus("Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"), "local[2]")
    where = "sequenceNumber % 7 = 0 AND partition = 0 AND hour = '09'"
    selection = chosen(place, root, history, where, ReplayState("r", 1, {}))
    assert [row.number for row in history.rows(0, selection=selection)] == [*range(0, 60, 7)]
    assert spark.version


def as_table(root: Path) -> None:
    """Captured files by hand become a table, of which optimize has made one file for each folder."""
    table = root.with_name("table")
    for path in sorted(root.rglob("*.parquet")):
        folders = dict(part.split("=", 1) for part in path.relative_to(root).parent.parts)
        rows = pq.ParquetFile(path).read()
        for name in FOLDERS:
            kind = pa.int32() if name == "partition" else pa.string()
            value: Any = int(folders[name]) if name == "partition" else folders[name]
            rows = rows.append_column(name, pa.array([value] * len(rows), kind))
        write_deltalake(str(table), rows, partition_by=list(FOLDERS), mode="append")
    DeltaTable(str(table)).optimize.compact()
    shutil.rmtree(root)
    table.rename(root)


@pytest.mark.usefixtures("spark")
def test_a_backfill_from_a_table_gives_what_a_live_subscription_received(
    server: RunningServer, tmp_path: Path
) -> None:
    """Delta: written and optimised by others, of a partitioned topic; each message once."""
    topic = CapturedTopic(server.connection_string, tmp_path / "lake", is_partitioned=True)
    rule = Rule("some", SqlFilter("a = 'a' OR size > 2 OR sys.Label LIKE 'a%'"))
    topic.subscribe("live", rule)
    topic.publish(80)
    topic.subscribe("late", rule)
    topic.publish(20)
    topic.capture(files=3)
    as_table(topic.root)
    assert not all(each.is_rising for each in listed_files(CaptureRoot(str(topic.root))))
    done = backfill(topic.place(), topic.options("late"), JobProgress())
    assert (done.wanted, done.captured, done.is_done) == (80, 80, True)
    assert topic.seen("late") == topic.seen("live")


# -- captured and journalled


class Traffic:
    """A hub and a topic of a server that keeps a journal at times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = f"hub-{uuid4().hex[:8]}"
        self.topic: CapturedTopic | None = None
        self._batch = 0

    def made(self, server: RunningServer) -> CapturedTopic:
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
            client.hubs.create(self.hub, {"PartitionCount": 2})
        self.topic = CapturedTopic(server.connection_string, self.folder / "lake")
        return self.topic

    def publish(self, server: RunningServer, count: int) -> None:
        assert self.topic is not None
        self.topic.publish(count)

        async def send() -> None:
            async with ServiceBusClient.from_connection_string(server.connection_string) as client:
                for partition in range(2):
                    producer = client.get_event_producer(self.hub, str(partition), None)
                    await producer.open()
                    await producer.send([_event(at) for at in range(count)])
                    await producer.flush()
                    await producer.close()

        asyncio.run(send())

    def capture(self, server: RunningServer, first: int, last: int) -> None:
        """What the topic's subscription holds, and events of each partition by their numbers."""
        assert self.topic is not None
        self.topic.capture(files=1)
        reader = BulkReader(Bus(server.connection_string), self.hub)
        sink = writer(self.folder / "lake", self.hub)
        ranges = [EventRange(str(partition), first, last) for partition in range(2)]
        name = BatchName("query", self._batch)
        sink.commit([sink.write_batch(name, iter(reader.batches(each))) for each in ranges], self._batch)
        self._batch += 1


def _event(at: int) -> Any:
    from busway.amqp.sections import DATA, AmqpMessage

    return AmqpMessage([b"event %d" % at], DATA)


@pytest.mark.usefixtures("spark")
def test_what_is_captured_and_journalled_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    """Report: of a hub and a topic, the first messages are captured only, then both, the last are in the journal
    only: each arrival counts once, and all keep their entity."""
    traffic = Traffic(tmp_path)
    with RunningServer(tmp_path / "server") as server:
        topic = traffic.made(server)
        traffic.publish(server, 20)
    journal = str(tmp_path / "journal")
    with RunningServer(tmp_path / "server", "--journal", journal) as server:
        topic.connection_string = server.connection_string
        traffic.publish(server, 30)
        traffic.capture(server, 0, 50)
        traffic.publish(server, 10)
    lake = str(tmp_path / "lake")
    assert counted(run(spark, ReportJob(lake))) == {
        (topic.name, "captured"): 50,
        (traffic.hub, "captured"): 100,
    }
    told = run(spark, ReportJob(lake, journal))
    assert _arrivals(told, [topic.name, traffic.hub]) == {
        (topic.name, "captured"): 20,
        (topic.name, "send"): 40,
        (traffic.hub, "captured"): 40,
        (traffic.hub, "publish"): 80,
    }
    spread = {row["entity"]: (row["count"], row["source"]) for row in told.figures.skew}
    assert spread[traffic.hub] == (120, "captured and journal")
    assert spread[topic.name] == (60, "captured and journal")


def _arrivals(told: ReportResult, entities: Sequence[str]) -> dict[tuple[str, str], int]:
    return {key: count for key, count in counted(told).items() if key[0] in entities}
