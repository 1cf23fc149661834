"""A hub as a table that grows, and a view over it that is kept up to date. Spark finds the order by itself."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table(comment="Every click of the hub, once, with its place there.")
def clicks() -> DataFrame:
    return (
        spark.readStream.format("eventhubs")
        .option("eventhubs.connectionString", os.environ["BUSWAY_CONNECTION_STRING"])
        .option("eventhubs.name", os.environ.get("CLICKS_HUB", "clicks"))
        .option("eventhubs.startingPosition", '{"offset": "-1"}')
        .option("bodyFormat", "json")
        .option("bodySchema", "page INT, user STRING")
        .option("badRecords", "drop")
        .load()
        .select("body.page", "body.user", "enqueuedTime", "partition", "sequenceNumber")
    )


@dp.materialized_view(comment="How often each page was visited, and by how many.")
def pages() -> DataFrame:
    return (
        spark.read.table("clicks")
        .groupBy("page")
        .agg(f.count("*").alias("clicks"), f.count_distinct("user").alias("users"))
    )
