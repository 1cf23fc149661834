"""Captured files as history: their rows in order.

Files of a partition are read one behind the other, hour by hour. Where the numbers of some overlap (sessions, several
stores) these are read together and merged, and a file whose rows stand in another order is sorted, so that rows of a
partition and hour come in the order of their numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile, fitted_batches
from busway_spark.pipeline.captured.captured_files import SpannedFile, listed_files, spanned
from busway_spark.pipeline.captured.manifests import FileSpan
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.capture_root import CaptureRoot

_BATCH_ROWS: Final = 2_048
_SORTED_ROWS: Final = 64 * 1024
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


class RowSelection:
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
        files = spanned(root, listed_files(root, entity, since_us, until_us))
        self.files = [each for each in files if self._is_wanted(each.span)]

    def _is_wanted(self, span: FileSpan) -> bool:
        return span.last_time_us >= self._since_us and span.first_time_us < self._until_us

    def partitions(self) -> dict[int, Mark]:
        """With the end of each."""
        ends: dict[int, Mark] = {}
        for each in self.files:
            partition = each.file.partition
            ends[partition] = max(_end(each), ends.get(partition, START))
        return ends

    def rows(
        self, partition: int, after: Mark = START, last: Mark = END, selection: RowSelection | None = None
    ) -> Iterator[HistoryRow]:
        """Behind one mark, up to and with another."""
        files = sorted(
            (each for each in self.files if each.file.partition == partition),
            key=lambda each: (each.file.hour, each.span.first_number),
        )
        for chain in _chains(files):
            if max(_end(each) for each in chain) <= after or _end(chain[0]).hour > last.hour:
                continue
            wanted = (selection or RowSelection()).numbers(chain[0].file)
            parts = [self._file_rows(each, after, last, wanted) for each in chain]
            yield from parts[0] if len(parts) == 1 else heapq.merge(*parts, key=_number)

    def _file_rows(
        self, file: SpannedFile, after: Mark, last: Mark, wanted: NDArray[np.int64] | None
    ) -> Iterator[HistoryRow]:
        hour = _end(file).hour
        low = after.number if hour == after.hour else -1 if hour > after.hour else END.number
        high = last.number if hour == last.hour else END.number
        for batch in _batches(self._root, file):
            numbers: Any = batch.column(0).to_numpy()
            times: Any = batch.column(1).cast(pa.int64()).to_numpy()
            keep = (numbers > low) & (numbers <= high) & (times >= self._since_us) & (times < self._until_us)
            if wanted is not None:
                keep &= np.isin(numbers, wanted, assume_unique=True)
            if keep.all():
                yield from _rows(batch)
            elif keep.any():
                yield from _rows(batch.filter(pa.array(keep)))


def _end(file: SpannedFile) -> Mark:
    return Mark(int(file.file.hour.timestamp()) // 3600, file.span.last_number)


def _number(row: HistoryRow) -> int:
    return row.number


def _chains(files: Iterable[SpannedFile]) -> Iterator[list[SpannedFile]]:
    """Files of one hour whose numbers overlap, together."""
    for _, of_hour in groupby(files, key=lambda each: each.file.hour):
        chain: list[SpannedFile] = []
        reach = -1
        for each in of_hour:
            if chain and each.span.first_number > reach:
                yield chain
                chain = []
            chain.append(each)
            reach = max(reach, each.span.last_number)
        yield chain


def _batches(root: CaptureRoot, file: SpannedFile) -> Iterator[pa.RecordBatch]:
    """In the order of their numbers."""
    where = root.full(file.path)
    try:
        with root.filesystem.open_input_file(where) as source:
            parquet = pq.ParquetFile(source)
            if file.is_rising or _rises(parquet):
                yield from fitted_batches(parquet, where, _BATCH_ROWS)
            else:
                yield from _sorted_batches(parquet, where)
    except FileNotFoundError:
        raise JobFailed(
            f"{where} is gone: it was put together with others meanwhile. Start again; it goes on where it was."
        ) from None
    except (pa.ArrowException, KeyError) as error:
        raise JobFailed(f"{where} cannot be read: {error}") from error


def _rises(parquet: pq.ParquetFile) -> bool:
    numbers: Any = parquet.read([SCHEMA.names[0]]).column(0).to_numpy()
    return bool((np.diff(numbers) > 0).all())


def _sorted_batches(parquet: pq.ParquetFile, where: str) -> Iterator[pa.RecordBatch]:
    """Of a file that a table's optimize has put together. It is in memory, whole, while it is read."""
    table = pa.Table.from_batches(list(fitted_batches(parquet, where, _SORTED_ROWS)), SCHEMA)
    yield from table.sort_by(SCHEMA.names[0]).to_batches(_BATCH_ROWS)


def _rows(batch: pa.RecordBatch) -> Iterator[HistoryRow]:
    count = batch.num_rows
    columns: list[Iterable[Any]] = []
    for name, column in zip(SCHEMA.names, batch.columns, strict=True):
        values: Any = column.cast(pa.int64()) if name in _TIMES else column
        columns.append(repeat(None, count) if values.null_count == count else values.to_pylist())
    return map(HistoryRow._make, zip(*columns, strict=True))
