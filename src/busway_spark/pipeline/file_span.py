"""What a captured file holds, by its footer."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture_root import CaptureRoot
from busway_spark.pipeline.job import JobFailed


class FileSpan(NamedTuple):
    rows: int
    first_number: int
    last_number: int
    first_time_us: int
    last_time_us: int


def span_of(root: CaptureRoot, path: PurePosixPath) -> FileSpan:
    """Raises JobFailed for what is no captured file."""
    try:
        with root.filesystem.open_input_file(root.full(path)) as source:
            metadata = pq.ParquetFile(source).metadata
            numbers, times = _bounds(metadata, "sequenceNumber"), _bounds(metadata, "enqueuedTime")
    except (pa.ArrowException, KeyError, AttributeError) as error:
        raise JobFailed(f"{root.full(path)} is no file of captured messages: {error}") from error
    return FileSpan(metadata.num_rows, *numbers, *(_microseconds(time) for time in times))


def _bounds(metadata: Any, column: str) -> tuple[Any, Any]:
    at = metadata.schema.to_arrow_schema().get_field_index(column)
    found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    return min(each.min for each in found), max(each.max for each in found)


def _microseconds(time: Any) -> int:
    found: Any = pa.scalar(time, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()
    return int(found)
