"""Ten jobs as people write them for azure-event-hubs-spark, from its lists of options and columns. Nothing in them is
ours but the format's name, which they are given."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType


@dataclass(frozen=True)
class Place:
    """What a job finds: a format, two hubs by their connection strings, room for a checkpoint."""

    spark: SparkSession
    format: str
    source: str
    target: str
    source_name: str
    checkpoint: str

    def conf(self, connection: str | None = None, **more: str) -> dict[str, str]:
        conf = {"eventhubs.connectionString": connection or self.source}
        conf.update({f"eventhubs.{name}": value for name, value in more.items()})
        return conf

    def frame(self, conf: dict[str, str]) -> DataFrame:
        return self.spark.read.format(self.format).options(**conf).load()

    def stream(self, conf: dict[str, str]) -> DataFrame:
        return self.spark.readStream.format(self.format).options(**conf).load()

    def run(self, writer: Any) -> None:
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def written(self) -> list[Any]:
        return sorted(
            self.frame(self.conf(self.target)).collect(), key=lambda row: (row.partition, row.sequenceNumber)
        )


START = {"offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True}


def body_as_text(place: Place) -> list[str]:
    """Everything from the start of the stream to now."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
    end = {
        "offset": None,
        "seqNo": -1,
        "enqueuedTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "isInclusive": True,
    }
    conf = place.conf(startingPosition=json.dumps(START), endingPosition=json.dumps(end))
    frame = place.frame(conf)
    frame = frame.withColumn("body", frame["body"].cast("string"))
    return sorted(row.body for row in frame.select("body").collect())


def positions_of_partitions(place: Place) -> list[str]:
    """One partition from a number on, another from its end."""
    first = json.dumps({"ehName": place.source_name, "partitionId": 0})
    second = json.dumps({"ehName": place.source_name, "partitionId": 1})
    positions = {
        first: {"offset": None, "seqNo": 2, "enqueuedTime": None},
        second: {"offset": "@latest", "seqNo": -1, "enqueuedTime": None, "isInclusive": True},
    }
    conf = place.conf(startingPositions=json.dumps(positions))
    return sorted(row.text for row in place.frame(conf).selectExpr("cast(body as string) text").collect())


def tuned_stream(place: Place) -> list[str]:
    """With the options that a tuned job has."""
    conf = place.conf(
        startingPosition=json.dumps(START),
        consumerGroup="$Default",
        receiverTimeout=datetime.time(0, 3, 20).strftime("PT%HH%MM%SS"),
        operationTimeout=datetime.time(0, 5, 0).strftime("PT%HH%MM%SS"),
        prefetchCount="500",
        threadPoolSize="16",
        useExclusiveReceiver="true",
        useAadAuth="false",
        dynamicPartitionDiscovery="true",
        slowPartitionAdjustment="true",
        maxAcceptableBatchReceiveTime="PT30S",
    )
    conf["maxEventsPerTrigger"] = "6"
    conf["partitionPreferredLocationStrategy"] = "BalancedHash"
    place.run(place.stream(conf).writeStream.format("memory").queryName("tuned").outputMode("append"))
    return sorted(row[0] for row in place.spark.sql("select cast(body as string) from tuned").collect())


def windows(place: Place) -> int:
    """Events counted by windows of the time when they were enqueued."""
    conf = place.conf(startingPosition=json.dumps(START))
    counted = (
        place.stream(conf)
        .withWatermark("enqueuedTime", "1 minute")
        .groupBy(F.window("enqueuedTime", "1 hour"), "partition")
        .count()
    )
    place.run(counted.writeStream.format("memory").queryName("windows").outputMode("complete"))
    return int(place.spark.sql("select sum(count) from windows").collect()[0][0])


def json_bodies(place: Place) -> list[tuple[Any, ...]]:
    """Bodies by a schema, and a property out of its JSON."""
    schema = StructType([StructField("device", StringType()), StructField("reading", IntegerType())])
    frame = place.frame(place.conf(startingPosition=json.dumps(START)))
    parsed = frame.select(
        F.from_json(F.col("body").cast("string"), schema).alias("json"),
        F.get_json_object(F.col("properties")["kind"], "$").alias("kind"),
        F.col("systemProperties")["content-type"].alias("type"),
    )
    found = parsed.where("kind is not null").select("json.device", "json.reading", "kind", "type").collect()
    return sorted(tuple(row) for row in found)


def bodies_alone(place: Place) -> int:
    """Round robin."""
    frame = place.frame(place.conf(startingPosition=json.dumps(START)))
    frame.select("body").write.format(place.format).options(**place.conf(place.target)).mode("append").save()
    return len(place.written())


def keyed(place: Place) -> list[tuple[str, str]]:
    """Texts as bodies, each with a key."""
    frame = place.spark.createDataFrame(
        [("a", "red"), ("b", "blue"), ("c", "red")], "body string, partitionKey string"
    )
    frame.write.format(place.format).options(**place.conf(place.target)).mode("append").save()
    return sorted((bytes(row.body).decode(), row.partitionKey) for row in place.written())


def to_partitions(place: Place) -> list[tuple[str, str, dict[str, str]]]:
    """Into the partition that the column says, with properties and a column that nobody needs."""
    frame = place.spark.sql(
        "select string(id) as body, string(id % 2) as partition, map('n', string(id)) as properties, id from range(4)"
    )
    frame.write.format(place.format).options(**place.conf(place.target)).mode("append").save()
    found = [(row.partition, bytes(row.body).decode(), row.properties) for row in place.written()]
    return sorted(found, key=lambda row: row[:2])


def copied(place: Place) -> list[Any]:
    """A stream from one hub into the other, all columns as they come."""
    frame = place.stream(place.conf(startingPosition=json.dumps(START)))
    place.run(frame.writeStream.format(place.format).options(**place.conf(place.target)).outputMode("append"))
    columns = ("body", "partition", "partitionKey", "properties", "systemProperties")
    return [tuple(row[name] for name in columns) for row in place.written()]


def each_batch(place: Place) -> list[str]:
    """Every batch made into something else and sent on by foreachBatch."""

    def send(rows: DataFrame, _: int) -> None:
        upper = rows.selectExpr("upper(cast(body as string)) as body", "partitionKey", "properties")
        upper.write.format(place.format).options(**place.conf(place.target)).mode("append").save()

    frame = place.stream({**place.conf(startingPosition=json.dumps(START)), "maxEventsPerTrigger": "100"})
    place.run(frame.writeStream.foreachBatch(send))
    return sorted(bytes(row.body).decode() for row in place.written())


JOBS: dict[str, Callable[[Place], Any]] = {
    job.__name__: job
    for job in (
        body_as_text, positions_of_partitions, tuned_stream, windows, json_bodies, bodies_alone, keyed, to_partitions,
        copied, each_batch,
    )
}  # fmt: skip
