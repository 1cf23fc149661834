"""Writing the rows of one task of Spark into files that nobody sees yet.

Theory of operation. Rows of a partition and an hour go into one file; a batch over the full hour makes several. It
is written under a name of its own in a staging folder, row group by row group, so that memory holds one group and
not a file, and is on the disk when `close` returns. It becomes a captured file when the driver moves it
(`capture_commit`). The name that it will have is told by its partition and first number alone, so whoever
repeats the same rows asks for the same name.

Which rows a batch had is told by extents: of each partition how many, and the first and the last number. Spark
repeats a batch with the rows that it had. It does not when its own note of the batch was lost, as by a power failure,
while ours was not: then a batch of that number is planned anew, and whoever left out all of its rows as known would
lose those that are new. So what is left out is compared with what was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.capture.captured_rows import CapturedRun
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile
from busway_spark.pipeline.captured.manifests import FileSpan
from busway_spark.pipeline.places.capture_root import CaptureRoot

ZSTD: Final = "zstd"
COMPRESSIONS: Final = (ZSTD, "snappy", "none")
_LEVELS: Final = {ZSTD: 1}
#: Columns that hardly repeat; all others have few values, or none.
_WITHOUT_DICTIONARY: Final = frozenset({"sequenceNumber", "enqueuedTime", "body", "messageId", "offset"})
_GROUP_ROWS: Final = 64 * 1024
_GROUP_BYTES: Final = 32 * 1024 * 1024
#: Files of a task that are open together: rows that go back and forth between hours.
_OPEN_MAX: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StagedFile:
    """A file that is written but no captured file yet."""

    staged: str
    final: str
    rows: int
    bytes: int
    first_number: int
    last_number: int
    first_time_us: int
    last_time_us: int

    @property
    def partition(self) -> int:
        """Or fragment, as its name says."""
        return int(PurePosixPath(self.final).name.split("-", 1)[0])

    @property
    def span(self) -> FileSpan:
        return FileSpan(self.rows, self.first_number, self.last_number, self.first_time_us, self.last_time_us)


class CapturedWriter:
    def __init__(
        self,
        root: CaptureRoot,
        entity: str,
        staged_path: Callable[[CapturedFile], PurePosixPath],
        compression: str = ZSTD,
    ) -> None:
        self._root = root
        self._entity = entity
        self._staged_path = staged_path
        self._compression = compression
        self._open: dict[tuple[int, int], _OpenFile] = {}
        self._done: list[StagedFile] = []

    def take(self, run: CapturedRun) -> None:
        key = (run.partition, run.hour)
        file = self._open.get(key)
        first = int(run.rows.column(0)[0].as_py())
        if file is not None and first <= file.last_number:
            self._finish(key)
            file = None
        if file is None:
            if len(self._open) >= _OPEN_MAX:
                self._finish(next(iter(self._open)))
            file = self._open[key] = self._begin(run, first)
        file.add(run.rows)

    def close(self) -> list[StagedFile]:
        for key in list(self._open):
            self._finish(key)
        return self._done

    def discard(self) -> None:
        """Nothing of it stays."""
        for file in self._open.values():
            file.discard()
        for done in self._done:
            self._root.delete(PurePosixPath(done.staged))
        self._open.clear()
        self._done.clear()

    def _begin(self, run: CapturedRun, first: int) -> _OpenFile:
        target = CapturedFile(self._entity, _EPOCH + timedelta(hours=run.hour), run.partition, first)
        return _OpenFile(self._root, self._staged_path(target), target, self._compression)

    def _finish(self, key: tuple[int, int]) -> None:
        self._done.append(self._open[key].close())
        del self._open[key]


class _OpenFile:
    def __init__(
        self, root: CaptureRoot, path: PurePosixPath, target: CapturedFile, compression: str
    ) -> None:
        self._root = root
        self._path = path
        self._target = target
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._rows = 0
        self._times = (1 << 62, -(1 << 62))
        self.last_number = -1
        root.make_folder(path.parent)
        self._sink: Any = root.filesystem.open_output_stream(root.full(path))
        self._writer = parquet_writer(self._sink, compression)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        self.last_number = int(rows.column(0)[-1].as_py())
        times = rows.column(1).cast(pa.int64()).to_numpy()
        self._times = (min(self._times[0], int(times.min())), max(self._times[1], int(times.max())))
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> StagedFile:
        self._write_group()
        self._writer.close()
        told = self._sink.tell()
        self._sink.close()
        self._root.sync_file(self._path)
        return StagedFile(
            str(self._path),
            str(self._target.path),
            self._rows,
            self._root.written_size(self._path, told),
            self._target.first_number,
            self.last_number,
            *self._times,
        )

    def discard(self) -> None:
        for part in (self._writer, self._sink):
            try:
                part.close()
            except (OSError, pa.ArrowException):
                continue  # the disk that was full still is
        self._root.delete(self._path)

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def parquet_writer(sink: Any, compression: str, schema: pa.Schema = SCHEMA) -> pq.ParquetWriter:
    settings: dict[str, Any] = {
        "compression": compression,
        "compression_level": _LEVELS.get(compression),
        "use_dictionary": [name for name in SCHEMA.names if name not in _WITHOUT_DICTIONARY],
        "write_statistics": ["sequenceNumber", "enqueuedTime", "enqueuedSequenceNumber"],
    }
    return pq.ParquetWriter(sink, schema, **settings)


def staged_name(file: CapturedFile) -> str:
    """No two tries share it, and it is no name of data."""
    return f"{file.partition}-{file.first_number}-{uuid4().hex}.tmp"


@dataclass(frozen=True)
class Extent:
    rows: int
    first: int
    last: int

    def __or__(self, other: Extent) -> Extent:
        return Extent(self.rows + other.rows, min(self.first, other.first), max(self.last, other.last))

    def may_hold(self, other: Extent) -> bool:
        """Fewer rows are no loss: somebody else may have removed messages meanwhile."""
        return other.rows <= self.rows and self.first <= other.first and other.last <= self.last


#: By partition or fragment.
Extents = dict[int, Extent]


def extents_of(parts: Iterable[tuple[int, Extent]]) -> Extents:
    found: Extents = {}
    for partition, extent in parts:
        found[partition] = found[partition] | extent if partition in found else extent
    return found


def extents_of_files(files: Iterable[StagedFile]) -> Extents:
    return extents_of(
        (file.partition, Extent(file.rows, file.first_number, file.last_number)) for file in files
    )


def has_more(repeated: Extents, captured: Extents) -> bool:
    """Rows that are not among those that were captured."""
    return any(
        partition not in captured or not captured[partition].may_hold(extent)
        for partition, extent in repeated.items()
    )


def to_note(extents: Extents) -> dict[str, list[int]]:
    return {str(partition): [each.rows, each.first, each.last] for partition, each in extents.items()}


def of_note(note: Mapping[str, object]) -> Extents | None:
    """None in notes of earlier versions."""
    rows = note.get("rows")
    return {int(name): Extent(*each) for name, each in rows.items()} if isinstance(rows, dict) else None
