"""Captured files as history: which there are, and their rows in order.

Files of a partition are read one behind the other, hour by hour. Where the numbers of some overlap (sessions, several
stores) these are read together and merged, so that rows of a partition and hour come in the order of their numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, repeat
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.capture_commit import FileSpan, span_of
from busway_spark.pipeline.capture_root import TOP, CaptureRoot
from busway_spark.pipeline.captured import SCHEMA, CapturedFile, entity_folder, parse_path
from busway_spark.pipeline.compact_swap import hidden_by, read_swaps
from busway_spark.pipeline.job import JobFailed

_BATCH_ROWS: Final = 2_048
_LISTINGS_MAX: Final = 20
_HOUR_US: Final = 3_600_000_000
_TIMES: Final = ("enqueuedTime", "expiresAt", "scheduledEnqueueTime")


class HistoryRow(NamedTuple):
    """The columns of `captured`, in their order; times in microseconds since 1970."""

    number: int
    time_us: int
    body: bytes | None
    message_id: str | None
    session_id: str | None
    partition_key: str | None
    subject: str | None
    content_type: str | None
    correlation_id: str | None
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    expires_us: int | None
    scheduled_us: int | None
    enqueued_number: int | None
    offset: str | None
    publisher: str | None
    properties: str | None
    property_types: str | None


class Mark(NamedTuple):
    """A place in the history of a partition: everything up to it, in this order."""

    hour: int
    number: int


START: Final = Mark(0, -1)
END: Final = Mark(1 << 60, 1 << 62)


def captured_files(root: CaptureRoot, entity: str | None = None) -> dict[CapturedFile, int]:
    """With their sizes, sorted by entity, hour, partition and number. What a compaction is replacing right now is
    left out; a listing that it has overtaken is made again."""
    for _ in range(_LISTINGS_MAX):
        swaps = read_swaps(root)
        hidden = hidden_by(root, swaps)
        found = {path: size for folder in _entity_folders(root, entity) for path, size in root.files(folder)}
        if read_swaps(root) == swaps and hidden_by(root, swaps) == hidden:
            files = {parse_path(path): size for path, size in found.items() if path not in hidden}
            known = {file: size for file, size in files.items() if file is not None}
            return {file: known[file] for file in sorted(known)}
    raise JobFailed(f"{root.location} is compacted all the time; try again later.")


def _entity_folders(root: CaptureRoot, entity: str | None) -> list[PurePosixPath]:
    if entity is not None:
        return [entity_folder(entity)]
    return [folder for folder in root.folders(TOP) if folder.name.startswith("entity=")]


@dataclass(frozen=True)
class HistoryFile:
    file: CapturedFile
    span: FileSpan

    @property
    def hour(self) -> int:
        """Hours since 1970."""
        return int(self.file.hour.timestamp()) // 3600

    @property
    def end(self) -> Mark:
        return Mark(self.hour, self.span.last_number)


class Selection:
    """Which numbers of a partition and hour are wanted."""

    def numbers(self, file: CapturedFile) -> NDArray[np.int64] | None:
        """Sorted; None: all of them."""
        del file
        return None


class History:
    """The captured messages of one entity, from one time up to, not including, another."""

    def __init__(
        self, root: CaptureRoot, entity: str, since_us: int | None = None, until_us: int | None = None
    ) -> None:
        self._root = root
        self._since_us = -(1 << 62) if since_us is None else since_us
        self._until_us = 1 << 62 if until_us is None else until_us
        found = [file for file in captured_files(root, entity) if self._may_have(file)]
        files = [HistoryFile(file, span_of(root, file.path)) for file in found]
        self.files = [each for each in files if self._is_wanted(each.span)]

    def _may_have(self, file: CapturedFile) -> bool:
        start_us = int(file.hour.timestamp()) * 1_000_000
        return start_us < self._until_us and start_us + _HOUR_US > self._since_us

    def _is_wanted(self, span: FileSpan) -> bool:
        return span.rows > 0 and span.last_time_us >= self._since_us and span.first_time_us < self._until_us

    def partitions(self) -> dict[int, Mark]:
        """With the end of each."""
        ends: dict[int, Mark] = {}
        for each in self.files:
            partition = each.file.partition
            ends[partition] = max(each.end, ends.get(partition, START))
        return ends

    def rows(
        self, partition: int, after: Mark = START, last: Mark = END, selection: Selection | None = None
    ) -> Iterator[HistoryRow]:
        """Behind one mark, up to and with another."""
        files = sorted(
            (each for each in self.files if each.file.partition == partition),
            key=lambda each: (each.hour, each.span.first_number),
        )
        for chain in _chains(files):
            if max(each.end for each in chain) <= after or chain[0].hour > last.hour:
                continue
            wanted = (selection or Selection()).numbers(chain[0].file)
            parts = [self._file_rows(each, after, last, wanted) for each in chain]
            yield from parts[0] if len(parts) == 1 else heapq.merge(*parts, key=_number)

    def _file_rows(
        self, file: HistoryFile, after: Mark, last: Mark, wanted: NDArray[np.int64] | None
    ) -> Iterator[HistoryRow]:
        low = after.number if file.hour == after.hour else -1 if file.hour > after.hour else END.number
        high = last.number if file.hour == last.hour else END.number
        for batch in _batches(self._root, file.file.path):
            numbers: Any = batch.column(0).to_numpy()
            times: Any = batch.column(1).cast(pa.int64()).to_numpy()
            keep = (numbers > low) & (numbers <= high) & (times >= self._since_us) & (times < self._until_us)
            if wanted is not None:
                keep &= np.isin(numbers, wanted, assume_unique=True)
            if keep.all():
                yield from _rows(batch)
            elif keep.any():
                yield from _rows(batch.filter(pa.array(keep)))


def _number(row: HistoryRow) -> int:
    return row.number


def _chains(files: Iterable[HistoryFile]) -> Iterator[list[HistoryFile]]:
    """Files of one hour whose numbers overlap, together."""
    for _, of_hour in groupby(files, key=lambda each: each.hour):
        chain: list[HistoryFile] = []
        reach = -1
        for each in of_hour:
            if chain and each.span.first_number > reach:
                yield chain
                chain = []
            chain.append(each)
            reach = max(reach, each.span.last_number)
        yield chain


def _batches(root: CaptureRoot, path: PurePosixPath) -> Iterator[pa.RecordBatch]:
    try:
        with root.filesystem.open_input_file(root.full(path)) as source:
            for batch in pq.ParquetFile(source).iter_batches(_BATCH_ROWS):
                yield batch.select(SCHEMA.names)
    except FileNotFoundError:
        raise JobFailed(
            f"{root.full(path)} is gone: its folder was compacted meanwhile. Start again; it goes on where it was."
        ) from None
    except (pa.ArrowException, KeyError) as error:
        raise JobFailed(f"{root.full(path)} cannot be read: {error}") from error


def _rows(batch: pa.RecordBatch) -> Iterator[HistoryRow]:
    count = batch.num_rows
    columns: list[Iterable[Any]] = []
    for name, column in zip(SCHEMA.names, batch.columns, strict=True):
        values: Any = column.cast(pa.int64()) if name in _TIMES else column
        columns.append(repeat(None, count) if values.null_count == count else values.to_pylist())
    return map(HistoryRow._make, zip(*columns, strict=True))
