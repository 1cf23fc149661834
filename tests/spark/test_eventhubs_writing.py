"""Writing to hubs by `format("eventhubs")`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.streams.key_hash import partition_of_key
from busway_spark.eventhubs import sink
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.sink import EventHubsWriter, EventsSent, WrittenColumns, stage_rows
from busway_spark.wire.bus import BusFailure
from busway_spark.writing.two_phase import decide, drop_stages
from busway_spark.writing.write_names import STREAM, SinkWrite
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import expected, fill, frame, stream, texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def write(rows: DataFrame, connection: str, hub: str, mode: str = "append") -> None:
    rows.write.format("eventhubs").mode(mode).options(connectionString=connection, name=hub).save()


def test_rows_go_where_they_say(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-10, H-12: to the named partition, by the key's hash, or in turn; properties travel along."""
    rows = spark.createDataFrame(
        [
            (b"named", "1", None, {"a": "1"}),
            (b"keyed", None, "the key", {}),
            (b"free", None, None, None),
        ],
        "body binary, partitionId string, partitionKey string, properties map<string,string>",
    )
    write(rows, server.connection_string, hub)
    found = {bytes(row.body): row for row in frame(spark, server.connection_string, hub).collect()}
    assert found[b"named"].partition == "1"
    assert found[b"named"].properties == {"a": '"1"'}
    assert found[b"keyed"].partition == str(partition_of_key("the key", 2))
    assert found[b"keyed"].partitionKey == "the key"
    assert len(found) == 3


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("select 'x' as text", "'body' is missing"),
        ("select 'x' as body, 'k' as partitionkey", "must be called 'partitionKey'"),
        ("select 1 as body", "'body' is int"),
        ("select 'x' as body, '0' as partitionId, 'k' as partitionKey", "both partitionId and partitionKey"),
        ("select 'x' as body, '2' as partitionId", "row 0 of its task: .*between 0 and 1"),
        ("select cast(null as string) as body", "no body"),
    ],
)
def test_rows_that_cannot_be_written_are_told(
    spark: SparkSession, server: RunningServer, hub: str, query: str, sentence: str
) -> None:
    """H-12: and the hub stays as it is."""
    with pytest.raises(Exception, match=sentence):
        write(spark.sql(query), server.connection_string, hub)
    assert frame(spark, server.connection_string, hub).count() == 0


def test_a_hub_is_never_overwritten(spark: SparkSession, server: RunningServer, hub: str) -> None:
    """H-1: events are only added."""
    with pytest.raises(Exception, match="append"):
        write(spark.sql("select 'x' as body"), server.connection_string, hub, "overwrite")


# -- each row once


def batches(count: int, dies_after: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows in batches of ten, until the task dies."""
    for first in range(0, count, 10):
        if dies_after is not None and first >= dies_after:
            raise RuntimeError("the task dies")
        rows = [b"%d" % number for number in range(first, min(first + 10, count))]
        yield pa.RecordBatch.from_pydict({"body": pa.array(rows, pa.binary())})


def test_a_task_that_is_repeated_leaves_nothing_of_its_first_try(
    spark: SparkSession, server: RunningServer, hub: str
) -> None:
    """Two-phase sinks: a batch is decided once, with the stages that are named; a lower one is refused."""
    options = EventHubsOptions.parse({"connectionString": server.connection_string, "name": hub})
    name = SinkWrite(f"query-{hub}", 7, STREAM)
    with pytest.raises(RuntimeError, match="the task dies"):
        stage_rows(batches(300, dies_after=200), options, name)
    first, second = stage_rows(batches(300), options, name), stage_rows(batches(300), options, name)
    assert (first.count, second.count) == (300, 300)
    assert frame(spark, server.connection_string, hub).count() == 0, "nobody sees what is staged"
    assert decide(options.bus, [first]) == 300
    drop_stages(options.bus, [first, second])  # as Spark does when `commit` raised after it took effect
    assert texts(frame(spark, server.connection_string, hub)) == sorted(str(number) for number in range(300))
    known = stage_rows(batches(20), options, name)
    assert (known.is_known, known.count) == (True, 0)
    with pytest.raises(BusFailure, match="checkpoint"):
        stage_rows(batches(20), options, replace(name, batch=6))
    assert frame(spark, server.connection_string, hub).count() == 300


def test_rows_that_cannot_be_staged_are_sent_at_least_once(
    spark: SparkSession, server: RunningServer, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-10: by AMQP alone, as other services get them, and it is said."""
    said: list[str] = []
    monkeypatch.setattr(sink, "say_loudly", said.append)
    options = EventHubsOptions.parse(
        {"connectionString": server.connection_string, "name": hub, "transport": "amqp"}
    )
    message = EventHubsWriter(options, WrittenColumns(("body",)), "job").write(batches(30))
    assert message == EventsSent(30)
    assert "at least once" in said[0]
    assert hub in said[0]
    assert frame(spark, server.connection_string, hub).count() == 30


def copy(
    spark: SparkSession, connection: str, hubs: tuple[str, str], checkpoint: str, fuse: str = ""
) -> StreamingQuery:
    """A stream from the first hub into the second, a hundred events a batch; it dies once where the fuse says."""
    start = json.dumps({"offset": "-1"})
    rows = stream(spark, connection, hubs[0], startingPosition=start, maxEventsPerTrigger="100").load()
    body = f"case when {fuse} then raise_error('the task dies') else body end as body" if fuse else "body"
    query = (
        rows.selectExpr(body, "partition as partitionId")
        .writeStream.format("eventhubs")
        .options(connectionString=connection, name=hubs[1], checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_stream_writes_each_row_once_through_crashes(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    hub: str,
    checkpoint: str,
) -> None:
    """H-18, H-19: a task that dies in the middle, and a batch that was written but not committed, come again."""
    target = f"{hub}-copy"
    admin.hubs.create(target, {"PartitionCount": 2})
    fill(server.connection_string, hub, 200)
    with pytest.raises(Exception, match="the task dies"):
        copy(
            spark,
            server.connection_string,
            (hub, target),
            checkpoint,
            "partition = '1' and sequenceNumber = 75",
        )
    # Batch 0 in full, and nothing of batch 1.
    assert frame(spark, server.connection_string, target).count() == 100
    copy(spark, server.connection_string, (hub, target), checkpoint)
    assert texts(frame(spark, server.connection_string, target)) == expected(200)
    commits = sorted((int(path.name), path) for path in (Path(checkpoint) / "commits").glob("[0-9]*"))
    last = commits[-1][1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    copy(spark, server.connection_string, (hub, target), checkpoint)
    assert texts(frame(spark, server.connection_string, target)) == expected(200)
