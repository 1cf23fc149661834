"""Which captured files become one, folder by folder; and the files of one folder put together: written, checked and
on the disk, but nobody's data yet.

Theory of operation. Merging runs where `compact` runs, or in a task of Spark. Old files are read and nothing else is
touched: what was written takes their place by the swap alone (`captured.swap`). Each try writes into a staging folder
of its own. So a try that Spark repeats, behind a dead one or beside one that it only believes dead, shares no file
with it; what is left of a killed one is removed when a compaction begins or ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.capture_commit import promised_files
from busway_spark.pipeline.capture.captured_writer import parquet_writer
from busway_spark.pipeline.captured.captured import CapturedFile, fitted, folder_of, with_others
from busway_spark.pipeline.captured.captured_files import listed_files
from busway_spark.pipeline.captured.manifests import FileSpan, span_of
from busway_spark.pipeline.captured.swap import COMPACTION
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.capture_root import CaptureRoot

#: An hour is over when nothing of it can come any more but from a capture that lags behind.
_OVER_AFTER: Final = timedelta(minutes=10)
_BATCH_ROWS: Final = 16 * 1024
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class SizedFile:
    file: CapturedFile
    bytes: int


@dataclass(frozen=True)
class FolderPlan:
    """What becomes one file each, in one folder. Travels to executors."""

    folder: PurePosixPath
    groups: tuple[tuple[SizedFile, ...], ...]

    @property
    def files(self) -> list[SizedFile]:
        return [file for group in self.groups for file in group]


def plan_folders(
    root: CaptureRoot, entity: str | None, target_bytes: int, now: datetime
) -> Iterator[FolderPlan]:
    """The files are listed before notes of captures are read: a file that is in place and in no note stays so."""
    sizes = [SizedFile(each.file, each.bytes) for each in listed_files(root, entity)]
    moving: dict[str, set[str]] = {}
    for folder, files in groupby(sizes, key=lambda each: each.file.path.parent):
        found = list(files)
        name = found[0].file.entity
        if name not in moving:
            moving[name] = promised_files(root, name)
        still = [each for each in found if str(each.file.path) not in moving[name]]
        groups = tuple(_groups(still, target_bytes)) if _is_over(found[0].file.hour, now) else ()
        if groups:
            yield FolderPlan(folder, groups)


def _is_over(hour: datetime, now: datetime) -> bool:
    return hour + timedelta(hours=1) + _OVER_AFTER <= now


def _groups(files: list[SizedFile], target_bytes: int) -> Iterator[tuple[SizedFile, ...]]:
    """Small files that stand beside each other, as many as fit."""
    group: list[SizedFile] = []
    for each in files:
        is_full = sum(one.bytes for one in group) + each.bytes > target_bytes
        if is_full and len(group) > 1:
            yield tuple(group)
        if is_full:
            group = []
        if each.bytes < target_bytes:
            group.append(each)
    if len(group) > 1:
        yield tuple(group)


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
