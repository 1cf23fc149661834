"""What a captured file holds, by its footer."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_root import CaptureRoot
from busway_spark.pipeline.job import JobFailed


class FileSpan(NamedTuple):
    rows: int
    first_number: int
    last_number: int
    first_time_us: int
    last_time_us: int


def span_of(root: CaptureRoot, path: PurePosixPath) -> FileSpan:
    """Raises JobFailed for what is no captured file."""
    where = root.full(path)
    try:
        with root.filesystem.open_input_file(where) as source:
            file = pq.ParquetFile(source)
            if not file.metadata.num_rows:
                return FileSpan(0, 0, -1, 0, -1)
            numbers, times = (_bounds(file, name, where) for name in ("sequenceNumber", "enqueuedTime"))
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise JobFailed(f"{where} is no file of captured messages: {error}") from error
    return FileSpan(file.metadata.num_rows, *numbers, *map(_microseconds, times))


def _bounds(file: pq.ParquetFile, name: str, where: str) -> tuple[Any, Any]:
    """By the footer; where whoever wrote the file has kept none there, by the column itself."""
    metadata: Any = file.metadata
    group = metadata.row_group(0)
    # By its path: a column that consists of several parts moves all that stand behind it.
    at = next((at for at in range(group.num_columns) if group.column(at).path_in_schema == name), None)
    if at is None:
        raise JobFailed(f"{where} is no file of captured messages: it has no column '{name}'.")
    found = [metadata.row_group(each).column(at).statistics for each in range(metadata.num_row_groups)]
    if all(each is not None and each.has_min_max for each in found):
        return min(each.min for each in found), max(each.max for each in found)
    bounds: Any = pc.min_max(file.read([name]).column(0))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _microseconds(time: Any) -> int:
    found: Any = pa.scalar(time, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()
    return int(found)
