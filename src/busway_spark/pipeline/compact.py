"""`busway pipeline compact`: many small captured files become few large ones.

Files of one partition and hour are put together up to a size, in the order of their numbers; what is large enough
already stays. Hours that are not over for some minutes are left alone, as are files that a capture is just about to
move: so it may run beside captures, and beside readers (`compact_swap` says what they see). What was begun by a
compaction that was killed is finished first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture_commit import MOVING, notes_of, read_note, span_of
from busway_spark.pipeline.capture_root import CaptureRoot
from busway_spark.pipeline.captured import SCHEMA, CapturedFile, folder_of
from busway_spark.pipeline.captured_history import captured_files
from busway_spark.pipeline.captured_writer import COMPRESSIONS, ZSTD, parquet_writer
from busway_spark.pipeline.compact_swap import COMPACTION, Swap, carry_out, read_swaps
from busway_spark.pipeline.job import JobFailed, Progress

TARGET_BYTES: Final = 128 * 1024 * 1024
_BATCH_ROWS: Final = 16 * 1024
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024
#: An hour is over when nothing of it can come any more but from a capture that lags behind.
_OVER_AFTER: Final = timedelta(minutes=10)
_DELTA_LOG: Final = PurePosixPath("_delta_log")


@dataclass(frozen=True)
class CompactOptions:
    root: str
    #: None: all.
    entity: str | None = None
    target_bytes: int = TARGET_BYTES
    compression: str = ZSTD
    #: Tells what would be done.
    dry_run: bool = False


@dataclass(frozen=True)
class SizedFile:
    file: CapturedFile
    bytes: int


@dataclass(frozen=True)
class FolderPlan:
    """What becomes one file each, in one folder."""

    folder: PurePosixPath
    groups: tuple[tuple[SizedFile, ...], ...]

    @property
    def files(self) -> list[SizedFile]:
        return [file for group in self.groups for file in group]


@dataclass
class CompactResult:
    folders: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def compact(options: CompactOptions, progress: Progress, now: datetime | None = None) -> CompactResult:
    """Raises JobFailed."""
    if options.compression not in COMPRESSIONS:
        raise JobFailed(f"The compression must be one of {', '.join(COMPRESSIONS)}.")
    root = CaptureRoot(options.root)
    lock = root.locked(COMPACTION / "lock", f"Another compaction of {root.location} is running.")
    with root.telling(), lock:
        if root.exists(_DELTA_LOG):
            raise JobFailed(f"{root.location} is a Delta table: its own 'optimize' puts files together.")
        if not options.dry_run:
            recover(root)
        result = CompactResult()
        for plan in plan_folders(root, options, now or datetime.now(UTC)):
            if progress.is_stopping:
                break
            _compact_folder(root, plan, options, result)
            progress.tell(_sentence(plan, options), folder=str(plan.folder), files=len(plan.files))
        return result


def recover(root: CaptureRoot) -> None:
    for swap in read_swaps(root):
        carry_out(root, swap)
    for folder in root.folders(COMPACTION):
        root.delete_folder(folder)
    root.forget_halves(COMPACTION)


# -- the plan


def plan_folders(root: CaptureRoot, options: CompactOptions, now: datetime) -> Iterator[FolderPlan]:
    """The files are listed before notes of captures are read: a file that is in place and in no note stays so."""
    sizes = _sized_files(root, options.entity)
    moving: dict[str, set[str]] = {}
    for folder, files in groupby(sizes, key=lambda each: each.file.path.parent):
        found = list(files)
        entity = found[0].file.entity
        if entity not in moving:
            note = read_note(root, notes_of(entity) / MOVING)
            moving[entity] = {final for _, final in note.get("moves", ())}
        still = [each for each in found if str(each.file.path) not in moving[entity]]
        groups = tuple(_groups(still, options.target_bytes)) if _is_over(found[0].file.hour, now) else ()
        if groups:
            yield FolderPlan(folder, groups)


def _sized_files(root: CaptureRoot, entity: str | None) -> list[SizedFile]:
    return [SizedFile(file, size) for file, size in captured_files(root, entity).items()]


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


# -- the work


def _compact_folder(
    root: CaptureRoot, plan: FolderPlan, options: CompactOptions, result: CompactResult
) -> None:
    result.folders += 1
    result.files_before += len(plan.files)
    result.files_after += len(plan.groups)
    result.bytes_before += sum(each.bytes for each in plan.files)
    if options.dry_run:
        return
    name = uuid4().hex
    merged = [_merge(root, COMPACTION / name, group, options.compression) for group in plan.groups]
    result.bytes_after += sum(root.size(COMPACTION / name / each) for each in merged)
    replaced = tuple(each.file.path.name for each in plan.files)
    swap = Swap(name, plan.folder, tuple(merged), replaced)
    root.sync_folder(swap.staging)
    root.write_text(swap.note, swap.to_json())
    carry_out(root, swap)


def _merge(root: CaptureRoot, staging: PurePosixPath, group: tuple[SizedFile, ...], compression: str) -> str:
    """The name of the merged file."""
    spans = [span_of(root, each.file.path) for each in group]
    first, last = min(each.first_number for each in spans), max(each.last_number for each in spans)
    one = group[0].file
    target = CapturedFile(one.entity, one.hour, one.partition, first, last)
    overlap = any(before.last_number >= after.first_number for before, after in pairwise(spans))
    paths = [each.file.path for each in group]
    batches = _sorted_batches(root, paths) if overlap else _batches(root, paths)
    path = staging / target.path.name
    rows = _write(root, path, batches, compression)
    if rows != sum(each.rows for each in spans):
        raise JobFailed(f"{folder_of(one.entity, one.hour, one.partition)} changed while it was compacted.")
    return path.name


def _write(
    root: CaptureRoot, path: PurePosixPath, batches: Iterator[pa.RecordBatch], compression: str
) -> int:
    root.make_folder(path.parent)
    rows, last = 0, -1
    with (
        root.filesystem.open_output_stream(root.full(path)) as sink,
        parquet_writer(sink, compression) as writer,
    ):
        for table in _tables(batches):
            last = _check_rising(table, last, path)
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
    root.sync_file(path)
    return rows


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


def _batches(root: CaptureRoot, paths: list[PurePosixPath]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with root.filesystem.open_input_file(root.full(path)) as source:
            file = pq.ParquetFile(source)
            if file.schema_arrow.names != SCHEMA.names:
                raise JobFailed(f"{root.full(path)} has other columns than captured messages have.")
            for batch in file.iter_batches(_BATCH_ROWS):
                yield batch.cast(SCHEMA)


def _sorted_batches(root: CaptureRoot, paths: list[PurePosixPath]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(_batches(root, paths)))
    yield from table.sort_by("sequenceNumber").to_batches(_BATCH_ROWS)


def _sentence(plan: FolderPlan, options: CompactOptions) -> str:
    verb = "would become" if options.dry_run else "became"
    return f"{plan.folder}: {len(plan.files)} files {verb} {len(plan.groups)}"
