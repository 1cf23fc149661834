# %% [markdown]
# # Orders, exactly once
#
# A queue is read by Spark and by somebody else at the same time, Spark's job dies at the worst moment, and
# still every order is in the lake once or was taken by the other one: none lost, none double. One command,
# from the root of the repository, with a bus that runs (`make run`) and Spark installed
# (`make setup-spark`):
#
#     .venv/bin/busway exec --data data -- .venv/bin/python examples/spark/orders_exactly_once.py

# %%
import asyncio
import os
import tempfile
import threading
from pathlib import Path
from uuid import uuid4

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.service_bus_client import ServiceBusClient
from busway_spark import spark_session

connection_string = os.environ["BUSWAY_CONNECTION_STRING"]
queue = f"orders-{uuid4().hex[:8]}"
ORDERS = 600

spark = spark_session("orders exactly once", master=os.environ.get("SPARK_MASTER", "local[2]"))
spark.sparkContext.setLogLevel("OFF")  # a failure on purpose comes below

# %% [markdown]
# A queue, and orders in it. Tasks stage their rows, and all of them are seen at once when the last task has
# ended, so a task that Spark repeats sends nothing twice.

# %%
with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
    administration.create_queue(queue)

orders = spark.range(ORDERS).selectExpr("to_json(struct(id AS order, id % 90 AS amount)) AS body")
orders.write.format("servicebus").mode("append").options(
    connectionString=connection_string, queue=queue
).save()

# %% [markdown]
# Somebody else: an ordinary receiver, which takes a few orders now and then.

# %%
taken: set[int] = set()
is_over = threading.Event()


async def compete() -> None:
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while not is_over.is_set() and len(taken) < 60:
            for message in await receiver.receive_messages(5, 0.2):
                taken.add(int(message.body.split(b":")[1].split(b",")[0]))
                await receiver.complete_message(message)
            await asyncio.sleep(0.1)


competitor = threading.Thread(target=lambda: asyncio.run(compete()))
competitor.start()

# %% [markdown]
# The sink. A batch has a number that stays the same when Spark repeats it, so it is written to a folder of
# that number and replaces what an earlier try left there: an idempotent sink. The second batch fails right
# after it was written, before Spark could note it down; that is the moment at which other set-ups lose or
# double.

# %%
folder = tempfile.TemporaryDirectory()
lake = Path(folder.name) / "lake"
failures = [1]


def keep(batch: DataFrame, batch_id: int) -> None:
    batch.select("body.*", "sequenceNumber").write.mode("overwrite").parquet(f"{lake}/batch={batch_id}")
    if batch_id in failures:
        failures.remove(batch_id)
        raise RuntimeError("the lights went out")


def run() -> None:
    messages = (
        spark.readStream.format("servicebus")
        .options(connectionString=connection_string, queue=queue, maxMessagesPerTrigger="150")
        .options(bodyFormat="json", bodySchema="`order` BIGINT, amount BIGINT", badRecords="fail")
        .load()
    )
    query = messages.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder.name}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


# %% [markdown]
# Run until it is through. Messages of a batch are claimed: others cannot see them, they outlive a crash,
# and they are completed only when Spark has noted the batch.

# %%
try:
    run()
except StreamingQueryException:
    print("The job fell over after it had written a batch. Once more, with the same checkpoint:")
run()
is_over.set()
competitor.join()

# %% [markdown]
# The books must balance.

# %%
stored = [row.order for row in spark.read.parquet(str(lake)).select("order").collect()]
print(f"{len(stored)} orders in the lake, {len(taken)} taken by the other receiver, {ORDERS} sent.")
assert len(stored) == len(set(stored)), "an order is in the lake twice"
assert not taken & set(stored), "an order went both ways"
assert taken | set(stored) == set(range(ORDERS)), "an order is lost"
left = spark.read.format("servicebus").options(connectionString=connection_string, queue=queue).load().count()
print(f"{left} messages are left in the queue.")
assert left == 0

# %%
with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
    administration.delete_queue(queue)
folder.cleanup()
