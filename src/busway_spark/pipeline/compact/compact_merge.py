"""The files of one folder put together: written, checked and on the disk, but nobody's data yet.

Theory of operation. It runs where `compact` runs, or in a task of Spark. Old files are read and nothing else is
touched: what was written takes their place by the swap alone (`compact_swap`). Each try writes into a staging folder
of its own. So a try that Spark repeats, behind a dead one or beside one that it only believes dead, shares no file
with it; what is left of a killed one is removed when a compaction begins or ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_root import CaptureRoot
from busway_spark.pipeline.capture.captured_writer import parquet_writer
from busway_spark.pipeline.captured.captured import CapturedFile, folder_of
from busway_spark.pipeline.captured.captured_columns import fitted, with_others
from busway_spark.pipeline.captured.file_span import FileSpan, span_of
from busway_spark.pipeline.compact.compact_plan import FolderPlan, SizedFile
from busway_spark.pipeline.compact.compact_swap import COMPACTION
from busway_spark.pipeline.job import JobFailed

_BATCH_ROWS: Final = 16 * 1024
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class MergedFile:
    name: str
    bytes: int
    span: FileSpan


@dataclass(frozen=True)
class MergedFolder:
    """What a try has written. Travels back to the driver."""

    #: Of its staging folder.
    name: str
    files: tuple[MergedFile, ...]


MergedFolders = Generator[tuple[FolderPlan, MergedFolder], None, None]


@dataclass(frozen=True)
class FolderMerge:
    """What to do with a plan, here or in a task."""

    root: CaptureRoot
    compression: str

    def __call__(self, plan: FolderPlan) -> MergedFolder:
        """Raises JobFailed and OSError, with nothing left behind."""
        name = uuid4().hex
        staging = COMPACTION / name
        try:
            files = [self._merge(staging, group) for group in plan.groups]
            self.root.sync_folder(staging)
        except Exception:
            with contextlib.suppress(OSError):
                self.root.delete_folder(staging)
            raise
        return MergedFolder(name, tuple(files))

    def _merge(self, staging: PurePosixPath, group: tuple[SizedFile, ...]) -> MergedFile:
        spans = [span_of(self.root, each.file.path) for each in group]
        first, last = min(each.first_number for each in spans), max(each.last_number for each in spans)
        one = group[0].file
        target = CapturedFile(one.entity, one.hour, one.partition, first, last)
        overlap = any(before.last_number >= after.first_number for before, after in pairwise(spans))
        paths = [each.file.path for each in group]
        schema = with_others((self.root.full(path), _schema(self.root, path)) for path in paths)
        batches = (_sorted_batches if overlap else _batches)(self.root, paths, schema)
        path = staging / target.path.name
        rows, size = _write(self.root, path, batches, self.compression, schema)
        if rows != sum(each.rows for each in spans):
            raise JobFailed(
                f"{folder_of(one.entity, one.hour, one.partition)} changed while it was compacted."
            )
        times = [each.first_time_us for each in spans], [each.last_time_us for each in spans]
        return MergedFile(path.name, size, FileSpan(rows, first, last, min(times[0]), max(times[1])))


def _write(
    root: CaptureRoot,
    path: PurePosixPath,
    batches: Iterator[pa.RecordBatch],
    compression: str,
    schema: pa.Schema,
) -> tuple[int, int]:
    """Its rows and bytes."""
    root.make_folder(path.parent)
    rows, last = 0, -1
    with root.filesystem.open_output_stream(root.full(path)) as sink:
        with parquet_writer(sink, compression, schema) as writer:
            for table in _tables(batches):
                last = _check_rising(table, last, path)
                writer.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
        told = sink.tell()
    root.sync_file(path)
    return rows, root.written_size(path, told)


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches in lots that make good row groups."""
    lot: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        lot.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(lot)
            lot, rows, size = [], 0, 0
    if lot:
        yield pa.Table.from_batches(lot)


def _check_rising(table: pa.Table, last: int, path: PurePosixPath) -> int:
    numbers: Any = table.column("sequenceNumber").to_numpy()
    if (np.diff(numbers, prepend=last) <= 0).any():
        raise JobFailed(f"A message is in two files that belong to {path.name}; nothing of them was changed.")
    return int(numbers[-1])


def _schema(root: CaptureRoot, path: PurePosixPath) -> pa.Schema:
    try:
        with root.filesystem.open_input_file(root.full(path)) as source:
            return pq.read_schema(source)
    except pa.ArrowException as error:
        raise JobFailed(f"{root.full(path)} cannot be read: {error}") from error


def _batches(root: CaptureRoot, paths: list[PurePosixPath], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        try:
            with root.filesystem.open_input_file(root.full(path)) as source:
                for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS):
                    yield fitted(batch, schema)
        except pa.ArrowException as error:
            raise JobFailed(f"{root.full(path)} cannot be read: {error}") from error


def _sorted_batches(
    root: CaptureRoot, paths: list[PurePosixPath], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(_batches(root, paths, schema)))
    yield from table.sort_by("sequenceNumber").to_batches(_BATCH_ROWS)
