"""A driver of its own, to be killed: reads a queue into files, one for each batch, written whole or not at all.

python -m tests.spark.stream_driver CONNECTION_STRING QUEUE CHECKPOINT FOLDER
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from busway_spark import spark_session


def main() -> None:
    connection_string, queue, checkpoint, folder = sys.argv[1:]
    spark = spark_session(
        "a driver that is killed", master="local[1]", config={"spark.driver.memory": "600m"}
    )
    spark.sparkContext.setLogLevel("OFF")

    def keep(rows: DataFrame, batch_id: int) -> None:
        bodies = sorted(bytes(row.body).decode() for row in rows.select("body").collect())
        part = Path(folder) / f"{batch_id}.part"
        part.write_text(json.dumps(bodies))
        os.replace(part, Path(folder) / f"{batch_id}.json")

    rows = spark.readStream.format("servicebus").options(
        connectionString=connection_string, queue=queue, maxMessagesPerTrigger="40"
    )
    writer = rows.load().writeStream.option("checkpointLocation", checkpoint).foreachBatch(keep)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
