"""Reading hubs as streams by `format("eventhubs")`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark.eventhubs.offsets import EventRange, limited, split
from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import expected, fill, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FROM_START = json.dumps({"offset": "-1"})


class Sink:
    """Keeps the rows of each batch under its id: a batch that comes again replaces itself."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.batches: dict[int, list[str]] = {}
        self.seen: list[int] = []
        self._fails_after = fails_after

    def take(self, rows: DataFrame, batch_id: int) -> None:
        self.seen.append(batch_id)
        bodies = sorted(row[0] for row in rows.selectExpr("cast(body as string)").collect())
        assert self.batches.setdefault(batch_id, bodies) == bodies, (
            "a batch that comes again has the same rows"
        )
        if batch_id == self._fails_after:
            self._fails_after = None
            raise RuntimeError("the sink has committed and dies")

    @property
    def rows(self) -> list[str]:
        return sorted(row for rows in self.batches.values() for row in rows)


def run(
    spark: SparkSession, connection: str, hub: str, checkpoint: str, sink: Sink, **options: str
) -> list[dict[str, Any]]:
    """To the end of what is there; the progress of its batches."""
    options = {"startingPosition": FROM_START, **options}
    rows = stream(spark, connection, hub, **options).load()
    query = (
        rows.writeStream.foreachBatch(sink.take)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress]
    finally:
        query.stop()


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, server: RunningServer, hub: str, checkpoint: str
) -> None:
    """H-21: the position is in the checkpoint; limits cut batches, and the progress shows how far the hub is."""
    fill(server.connection_string, hub, 100)
    sink = Sink()
    progress = run(spark, server.connection_string, hub, checkpoint, sink, maxEventsPerTrigger="60")
    assert sink.rows == expected(100)
    assert max(len(rows) for rows in sink.batches.values()) == 60
    source = next(one for one in progress if one["numInputRows"])["sources"][0]
    assert source["endOffset"]["partitions"] == {"0": 30, "1": 30}
    assert source["latestOffset"]["partitions"] == {"0": 100, "1": 100}
    fill(server.connection_string, hub, 20, first=100)
    run(spark, server.connection_string, hub, checkpoint, sink, maxEventsPerTrigger="60")
    assert sink.rows == expected(120)


def test_rows_come_exactly_once_through_a_crash(
    spark: SparkSession, server: RunningServer, hub: str, checkpoint: str
) -> None:
    """H-21: the sink commits a batch and dies before Spark knows; the batch that comes again is the same one."""
    fill(server.connection_string, hub, 150)
    sink = Sink(fails_after=1)
    with pytest.raises(Exception, match="the sink has committed"):
        run(spark, server.connection_string, hub, checkpoint, sink, maxEventsPerTrigger="100")
    fill(server.connection_string, hub, 50, first=150)
    run(spark, server.connection_string, hub, checkpoint, sink, maxEventsPerTrigger="100", minPartitions="4")
    assert sink.seen[:3] == [0, 1, 1]
    assert sink.rows == expected(200)


def test_bytes_cut_batches_too(spark: SparkSession, server: RunningServer, hub: str, checkpoint: str) -> None:
    """H-20: maxBytesPerTrigger, by the size of the events that come next."""
    fill(server.connection_string, hub, 300)
    sink = Sink()
    run(spark, server.connection_string, hub, checkpoint, sink, maxBytesPerTrigger="20000")
    assert sink.rows == expected(300)
    assert 3 <= len(sink.batches) <= 10


def test_a_hub_made_again_is_not_taken_for_the_old_one(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    hub: str,
    checkpoint: str,
) -> None:
    """H-2: failOnDataLoss names the cause; without it the stream goes on at the new hub's first event."""
    fill(server.connection_string, hub, 10)
    sink = Sink()
    run(spark, server.connection_string, hub, checkpoint, sink)
    admin.hubs.delete(hub)
    admin.hubs.create(hub, {"PartitionCount": 2})
    fill(server.connection_string, hub, 30, first=500)
    with pytest.raises(Exception, match="was deleted and made again"):
        run(spark, server.connection_string, hub, checkpoint, sink)
    run(spark, server.connection_string, hub, checkpoint, sink, failOnDataLoss="false")
    assert sink.rows == sorted(expected(10) + expected(30, first=500))


def test_another_hub_needs_another_checkpoint(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    hub: str,
    checkpoint: str,
) -> None:
    """H-21: numbers of one hub are never used on another."""
    sink = Sink()
    fill(server.connection_string, hub, 2)
    run(spark, server.connection_string, hub, checkpoint, sink)
    other = f"{hub}-other"
    admin.hubs.create(other, {"PartitionCount": 2})
    with pytest.raises(Exception, match="belongs to the hub"):
        run(spark, server.connection_string, other, checkpoint, sink)


def test_a_limit_is_shared_in_proportion() -> None:
    """H-20: partitions with more waiting get more, none more than it has, and nothing of the limit is left over."""
    start, end = {"0": 10, "1": 0, "2": 5}, {"0": 110, "1": 50, "2": 5}
    assert limited(start, end, 30) == {"0": 30, "1": 10, "2": 5}
    assert limited(start, end, 1000) == end
    assert sum(limited(start, end, 31).values()) - sum(start.values()) == 31
    assert limited(start, end, 1) == {"0": 11, "1": 1, "2": 5}


def test_pieces_cover_their_range() -> None:
    """H-20: cutting loses and repeats nothing."""
    pieces = split([EventRange("0", 3, 103), EventRange("1", 0, 0), EventRange("2", 7, 8)], 5)
    assert len(pieces) >= 5
    assert sorted(
        n for piece in pieces if piece.partition == "0" for n in range(piece.first, piece.end)
    ) == list(range(3, 103))
    assert [piece for piece in pieces if piece.partition == "2"] == [EventRange("2", 7, 8)]
