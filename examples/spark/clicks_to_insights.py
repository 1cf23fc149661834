# %% [markdown]
# # From clicks to insights
#
# A hub full of clicks becomes a table of visits by page and minute, which grows while clicks come in. One
# command, from the root of the repository, with a bus that runs (`make run`) and Spark installed
# (`make setup-spark`):
#
#     .venv/bin/busway exec --data data -- .venv/bin/python examples/spark/clicks_to_insights.py
#
# Editors that know cells (`# %%`) show this file as a notebook; every cell can be run by itself, in order.

# %%
import os
import tempfile
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from pyspark.sql import functions as f

from busway.client.administration import ServiceBusAdministrationClient
from busway_spark import spark_session

connection_string = os.environ["BUSWAY_CONNECTION_STRING"]
hub = f"clicks-{uuid4().hex[:8]}"
bus = {"eventhubs.connectionString": connection_string, "eventhubs.name": hub}

# %% [markdown]
# A hub with four partitions. Events of one user keep their order, because the user is their partition key.

# %%
with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
    administration.hubs.create(hub, {"PartitionCount": 4})

spark = spark_session("clicks to insights", master=os.environ.get("SPARK_MASTER", "local[2]"))
spark.conf.set("spark.sql.shuffle.partitions", "2")

# %% [markdown]
# Somebody clicks. Spark writes the events here, but any program with an Event Hubs SDK would do. One of
# them is not what the others are: a client that was updated too early.

# %%
start = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
clicks = spark.createDataFrame(
    [(f"user-{n % 7}", f"/page/{n % 3}", start + timedelta(seconds=2 * n)) for n in range(120)],
    "user STRING, page STRING, at TIMESTAMP",
)
bodies = clicks.select(
    f.to_json(f.struct("user", "page", "at")).alias("body"), f.col("user").alias("partitionKey")
)
strange = spark.createDataFrame([('{"user": 12, "page": ["/page/0"]}', "user-x")], bodies.schema)
bodies.union(strange).write.format("eventhubs").mode("append").options(**bus).save()

# %% [markdown]
# The stream. `bodyFormat` makes columns of the bodies: `body.page` and not bytes. What does not fit the
# schema is not lost; its bytes are in `_corrupt`, and everything else goes on.

# %%
events = (
    spark.readStream.format("eventhubs")
    .options(**bus)
    .option("eventhubs.startingPosition", '{"offset": "-1"}')
    .option("bodyFormat", "json")
    .option("bodySchema", "user STRING, page STRING, at TIMESTAMP")
    .load()
)
visits = (
    events.where("_corrupt IS NULL")
    .withColumn("at", f.col("body.at"))
    .withWatermark("at", "1 minute")
    .groupBy(f.window("at", "1 minute"), "body.page")
    .agg(f.count("*").alias("clicks"), f.approx_count_distinct("body.user").alias("users"))
)

# %% [markdown]
# `availableNow` reads what is there and ends; without it the query goes on for ever. Where it stands is in
# the checkpoint, as ranges of sequence numbers: kill it at any moment, start it again, and no click is
# counted twice.

# %%
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        visits.writeStream.format("memory")
        .queryName("insights")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

insights = spark.table("insights").select("window.start", "page", "clicks", "users").orderBy("start", "page")
insights.show(truncate=False)

# %% [markdown]
# And those that did not fit, by a batch query over the same hub:

# %%
odd = (
    spark.read.format("eventhubs")
    .options(**bus)
    .options(bodyFormat="json", bodySchema="user STRING, page STRING, at TIMESTAMP")
    .load()
    .where("_corrupt IS NOT NULL")
)
for row in odd.select("partition", "sequenceNumber", f.col("_corrupt").cast("string")).collect():
    print(f"event {row.sequenceNumber} of partition {row.partition} is odd: {row._corrupt}")

counted = insights.agg(f.sum("clicks")).collect()[0][0]
print(f"{counted} clicks counted in {insights.count()} windows.")
assert counted == 120

# %%
with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
    administration.hubs.delete(hub)
