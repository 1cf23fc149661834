"""The messages of a history for which a condition of Spark SQL holds: only their numbers are kept, once for a replay.

ROOT/_capture/replay/3f9a…/chosen-1/date=2026-11-15/hour=09/partition=3/….parquet
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.capture.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS, SCHEMA, CapturedFile, folder_of
from busway_spark.pipeline.captured.captured_frames import captured_frame
from busway_spark.pipeline.captured.captured_history import History, Selection
from busway_spark.pipeline.job import JobFailed, Place
from busway_spark.pipeline.replay.replay_state import ReplayState

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NUMBER: Final = "sequenceNumber"
#: Written by Spark when all files are.
_COMPLETE: Final = "_SUCCESS"
_WORDS_MAX: Final = 600


class ChosenNumbers(Selection):
    def __init__(self, root: CaptureRoot, folder: PurePosixPath) -> None:
        self._root = root
        self._folder = folder

    def numbers(self, file: CapturedFile) -> NDArray[np.int64]:
        place = self._folder.joinpath(*folder_of(file.entity, file.hour, file.partition).parts[1:])
        found = [self._read(path) for path, _ in self._root.files(place) if path.suffix == ".parquet"]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _read(self, path: PurePosixPath) -> NDArray[np.int64]:
        with self._root.filesystem.open_input_file(self._root.full(path)) as source:
            numbers: Any = pq.ParquetFile(source).read([_NUMBER]).column(0).to_numpy()
        return np.asarray(numbers, np.int64)


def chosen(
    place: Place, root: CaptureRoot, history: History, where: str | None, state: ReplayState
) -> Selection:
    """Raises JobFailed when Spark does not take the condition."""
    if where is None:
        return Selection()
    folder = state.folder / f"chosen-{state.run}"
    if not root.exists(folder / _COMPLETE):
        _choose(place, root, history, where, folder)
    return ChosenNumbers(root, folder)


def _choose(place: Place, root: CaptureRoot, history: History, where: str, folder: PurePosixPath) -> None:
    from pyspark.errors import PySparkException

    spark = place.session("replay")
    try:
        rows = captured_frame(spark, root, history.files, history_schema()).where(where)
        chosen_rows = rows.select("date", "hour", "partition", _NUMBER)
        chosen_rows.write.mode("overwrite").partitionBy("date", "hour", "partition").parquet(
            f"{root.spark_location}/{folder}"
        )
    except PySparkException as error:
        raise JobFailed(f"The condition '{where[:200]}' cannot be used: {str(error)[:_WORDS_MAX]}") from error


def history_schema() -> StructType:
    """As Spark reads captured files: with the folders' columns, the hour as it is written."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    folders = [StructField(name, IntegerType() if name == "partition" else StringType()) for name in FOLDERS]
    return StructType([*from_arrow_schema(SCHEMA).fields, *folders])
