"""A driver of its own that speculates: `python -m tests.spark.speculation MASTER CONNECTION QUEUE FOLDER` writes
rows to a queue by four tasks, of which one is slow in its first try, so that Spark starts a second one beside
it, on another host."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from busway_spark import spark_session
from tests.spark.cluster import EXECUTOR_SETTINGS

ROWS = 80
SLOW_S = 60.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


def main(master: str, connection: str, queue: str, folder: str) -> None:
    settings = {**EXECUTOR_SETTINGS, **SPECULATION}
    spark = spark_session("busway-speculation", master=master, config=settings)
    spark.sparkContext.setLogLevel("OFF")

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first that comes to the first rows waits, the second goes on."""
        for batch in batches:
            if 0 in batch.column("id").to_pylist():
                tries = len(list(Path(folder).glob("try-*")))
                Path(folder, f"try-{tries}").touch()
                time.sleep(SLOW_S if tries == 0 else 0)
            yield batch

    rows = spark.range(0, ROWS, 1, 4).mapInArrow(slow, "id long").selectExpr("cast(id as string) body")
    options = {"connectionString": connection, "queue": queue}
    rows.write.format("servicebus").mode("append").options(**options).save()
    print(len(list(Path(folder).glob("try-*"))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
