"""A session that does a little of everything, so that an archive of Java's classes has what tests load
(`class_archive`).

python -m tests.spark.class_training
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from busway_spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAIT_S_MAX = 120.0


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield partition.value, "text"


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield partition.value, "text"


class _Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()


class _StreamWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "training"

    def schema(self) -> str:
        return "number int, body string"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        return _Writer()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return _StreamReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        return _StreamWriter()


def train(spark: SparkSession, folder: Path) -> None:
    spark.dataSource.register(_Source)
    rows = spark.read.format("training").load()
    rows.write.format("training").mode("append").save()
    rows.write.partitionBy("body").parquet(str(folder / "rows"))
    stored = spark.read.parquet(str(folder / "rows"))
    joined = stored.join(rows, "number").groupBy("number").count().orderBy("number")
    joined.selectExpr("to_json(struct(*))", "parse_json('{}')").collect()
    stream = spark.readStream.format("training").load().writeStream.trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(folder / "first"))
    stream.format("training").start().awaitTermination()
    stream = stream.option("checkpointLocation", str(folder / "second"))
    stream.foreachBatch(_collect).start().awaitTermination()


def _collect(rows: DataFrame, _: int) -> None:
    rows.collect()


def main() -> None:
    from pyspark import cloudpickle

    register: Callable[[object], None] = cloudpickle.register_pickle_by_value
    register(sys.modules[__name__])
    spark = spark_session(
        "training",
        master="local[2]",
        config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
    )
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = spark.sparkContext._gateway
    with TemporaryDirectory() as folder:
        train(spark, Path(folder))
        spark.stop()
    # Java writes the archive when it ends, and it ends when nobody speaks to it any more.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WAIT_S_MAX)


if __name__ == "__main__":
    main()
