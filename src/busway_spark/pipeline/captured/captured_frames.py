"""Captured files as a table of Spark: exactly the files that were listed, with entity, date, hour and partition.

Columns are asked for by name: one that a file lacks is null, one that nobody asked for is not read. What the folders
say Spark takes from the paths, as far as they are what we write. A Delta table's optimize may put files anywhere; for
those it is looked up by their names, of which there is one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from busway_spark.pipeline.capture.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS, CapturedFile, folder_of
from busway_spark.pipeline.captured.captured_files import ListedFile, SpannedFile
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.hadoop_driver import driver_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NAME: Final = "file name of captured messages"
_FOLDERS_DDL: Final = f"`{_NAME}` STRING, entity STRING, date STRING, hour STRING, partition INT"


def captured_frame(
    spark: SparkSession, root: CaptureRoot, files: Sequence[ListedFile | SpannedFile], schema: StructType
) -> DataFrame:
    """`schema`: the wanted columns; with the folders' own, which are behind the others then."""
    usual = [each for each in files if each.path.parent == _usual_folder(each.file)]
    strange = [each for each in files if each.path.parent != _usual_folder(each.file)]
    frames: list[DataFrame] = []
    if usual:
        place = root.spark_location
        paths = [f"{place}/{each.path}" for each in usual]
        with _telling_drivers():
            frames.append(spark.read.schema(schema).option("basePath", place).parquet(*paths))
    if strange:
        frames.append(_looked_up(spark, root, strange, schema))
    if not frames:
        return spark.createDataFrame([], schema)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _usual_folder(file: CapturedFile) -> object:
    return folder_of(file.entity, file.hour, file.partition)


def _looked_up(
    spark: SparkSession, root: CaptureRoot, files: Sequence[ListedFile | SpannedFile], schema: StructType
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    told = [(each.path.name, *_folder_values(each.file)) for each in files]
    folders = spark.createDataFrame(told, _FOLDERS_DDL)
    own = StructType([field for field in schema.fields if field.name not in FOLDERS])
    paths = [f"{root.spark_location}/{each.path}" for each in files]
    with _telling_drivers():
        rows = spark.read.schema(own).parquet(*paths).withColumn(_NAME, F.col("_metadata.file_name"))
    return rows.join(F.broadcast(folders), _NAME).select(*(field.name for field in schema.fields))


@contextmanager
def _telling_drivers() -> Iterator[None]:
    """Spark looks for the files at once, by a driver that it may not have."""
    try:
        yield
    except Exception as error:
        sentence = driver_sentence(str(error))
        if sentence is None:
            raise
        raise JobFailed(sentence) from error


def _folder_values(file: CapturedFile) -> tuple[str, str, str, int]:
    return file.entity, f"{file.hour:%Y-%m-%d}", f"{file.hour:%H}", file.partition
