"""Writing the rows of one task of Spark into files that nobody sees yet.

Theory of operation. Rows of the formats "eventhubs" and "servicebus" become rows of captured files. Batches hold
many thousand rows, so nothing goes row by row that can go by column. Properties of an event come as a map of JSON
texts: all names and texts of a batch lie flat behind each other, names are few and are quoted once each, and one
join makes an object of each row's share. What an event's properties section brought is found in the flat names of
`systemProperties`. Most events have neither, and then nothing is done at all.

Rows of a partition and an hour go into one file; a batch over the full hour makes several. It is written under a
name of its own in a staging folder, row group by row group, so that memory holds one group and not a file, and is
on the disk when `close` returns. It becomes a captured file when the driver moves it (`capture_commit`). The name
that it will have is told by its partition and first number alone, so whoever repeats the same rows asks for the
same name.

Which rows a batch had is told by extents: of each partition how many, and the first and the last number. Spark
repeats a batch with the rows that it had. It does not when its own note of the batch was lost, as by a power
failure, while ours was not: then a batch of that number is planned anew, and whoever left out all of its rows as
known would lose those that are new. So what is left out is compared with what was captured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import SCHEMA, CapturedFile
from busway_spark.pipeline.captured.manifests import FileSpan

#: pa.Array[Any]s whose values are in `systemProperties` of an event, by the name that they have there.
_OF_SYSTEM: Final = {
    "messageId": "message-id",
    "sessionId": "group-id",
    "subject": "subject",
    "contentType": "content-type",
    "correlationId": "correlation-id",
    "to": "to",
    "replyTo": "reply-to",
    "replyToSessionId": "reply-to-group-id",
}
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
#: JSON texts of doubles that no reader takes for one.
_DOUBLES: Final = r"^(NaN|-?Infinity|-?\d+\.0|-?\d+(\.\d+)?e\+\d+)$"
_EMPTY: Final = "{}"
_HOUR_US: Final = 3_600_000_000
_STRING: Final = pa.string()

Longs = NDArray[np.int64]


class UnfitRows(ValueError):
    """The rows are none of a format that can be captured; the text says why."""


@dataclass(frozen=True)
class CapturedRun:
    """Rows of one partition and hour, their numbers rising."""

    partition: int
    #: Hours since 1970.
    hour: int
    rows: pa.RecordBatch


def captured_runs(batch: pa.RecordBatch) -> list[CapturedRun]:
    """The rows of a batch in the order of their numbers, cut where the partition or the hour changes."""
    if batch.num_rows == 0:
        return []
    rows = captured_batch(batch)
    partitions, hours, numbers = _partitions(batch), _hours(rows), _longs(rows.column(0))
    changes = (np.diff(partitions) != 0) | (np.diff(hours) != 0)
    if (np.diff(numbers)[~changes] <= 0).any():
        order = np.lexsort((numbers, hours, partitions))
        rows, partitions, hours = rows.take(order), partitions[order], hours[order]
        changes = (np.diff(partitions) != 0) | (np.diff(hours) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(numbers)]
    return [
        CapturedRun(int(partitions[start]), int(hours[start]), rows.slice(start, end - start))
        for start, end in pairwise(bounds)
    ]


def captured_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In the schema of captured files. Raises UnfitRows."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    if "systemProperties" in columns:
        columns.update(_system_columns(columns.pop("systemProperties"), batch.num_rows))
    if "properties" in columns and pa.types.is_map(columns["properties"].type):
        columns["properties"], types = _objects(columns["properties"])
        if types is not None:
            columns.setdefault("propertyTypes", types)
    arrays = [_column(columns, field, batch.num_rows) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(columns: dict[str, pa.Array[Any]], field: pa.Field[Any], count: int) -> pa.Array[Any]:
    found = columns.get(field.name)
    if found is None:
        found = pa.nulls(count, field.type)
    if not field.nullable and found.null_count:
        raise UnfitRows(f"A row has no '{field.name}', so it cannot be captured.")
    return found if found.type == field.type else found.cast(field.type)


def _partitions(batch: pa.RecordBatch) -> Longs:
    """Of a hub, or the fragment."""
    for name in ("partition", "fragment"):
        at = batch.schema.get_field_index(name)
        if at >= 0:
            return _longs(batch.column(at).cast(pa.int64()))
    raise UnfitRows("Rows without a column 'partition' or 'fragment' cannot be captured.")


def _hours(rows: pa.RecordBatch) -> Longs:
    return _longs(rows.column(1).cast(pa.int64())) // _HOUR_US


def _longs(column: pa.Array[Any]) -> Longs:
    if column.null_count:
        raise UnfitRows("A row has no number or no partition, so it cannot be captured.")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


# -- properties as one JSON object


@dataclass(frozen=True)
class _FlatMap:
    """The names and texts of all rows of a map column, and where each row's begin."""

    bounds: Longs
    names: pa.Array[Any]
    texts: pa.Array[Any]

    @classmethod
    def of(cls, column: Any) -> _FlatMap:
        bounds = np.asarray(column.offsets.to_numpy(), np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        return cls(
            bounds - first, column.keys.slice(first, last - first), column.items.slice(first, last - first)
        )

    @property
    def rows(self) -> Longs:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


def _objects(column: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
    """The objects, and the types that their JSON does not tell."""
    flat = _FlatMap.of(column)
    if len(flat.names) == 0:
        return pa.repeat(pa.scalar(_EMPTY, _STRING), len(column)), None
    texts: Any = flat.texts.cast(_STRING).fill_null("null")
    types: pa.Array[Any] | None = None
    doubles = pc.match_substring_regex(texts, _DOUBLES)
    if pc.any(doubles).as_py():
        types = _double_types(flat, np.asarray(doubles.to_numpy(zero_copy_only=False)), len(column))
        strange = pc.is_in(texts, value_set=pa.array(_NO_NUMBERS, _STRING))
        texts = pc.if_else(strange, _join('"', texts, '"', ""), texts)
    offsets: Any = pa.array(flat.bounds, pa.int32())
    entries: Any = pa.ListArray.from_arrays(offsets, _join(_quoted(flat.names), texts, ": "))
    return _join("{", pc.binary_join(entries, ", "), "}", ""), types


def _join(*parts: Any) -> Any:
    """Row by row; the last one is what stands between the others."""
    return pc.binary_join_element_wise(*parts)


def _quoted(names: pa.Array[Any]) -> pa.Array[Any]:
    """Each different name is quoted once."""
    encoded: Any = names.cast(_STRING).dictionary_encode()
    quoted = [json.dumps(name, ensure_ascii=False) for name in encoded.dictionary.to_pylist()]
    found: pa.Array[Any] = pa.array(quoted, _STRING).take(encoded.indices)
    return found


def _double_types(flat: _FlatMap, doubles: NDArray[np.bool_], count: int) -> pa.Array[Any]:
    """For doubles that JSON has no form for, and those without a fraction."""
    told: list[dict[str, str]] = [{} for _ in range(count)]
    rows, names = flat.rows, flat.names
    for at in np.flatnonzero(doubles).tolist():
        told[int(rows[at])][str(names[at].as_py())] = "double"
    texts = [json.dumps(each, ensure_ascii=False) if each else None for each in told]
    return pa.array(texts, _STRING)


# -- the properties section of events


def _system_columns(column: pa.Array[Any], count: int) -> dict[str, pa.Array[Any]]:
    flat = _FlatMap.of(column)
    if len(flat.names) == 0:
        return {}
    encoded: Any = flat.names.cast(_STRING).dictionary_encode()
    known = {name: index for index, name in enumerate(encoded.dictionary.to_pylist())}
    indices, rows = np.asarray(encoded.indices.to_numpy()), flat.rows
    found: dict[str, pa.Array[Any]] = {}
    for name, key in _OF_SYSTEM.items():
        if key in known:
            entries = np.flatnonzero(indices == known[key])
            found[name] = _spread(flat.texts, entries, rows[entries], count)
    return found


def _spread(texts: pa.Array[Any], entries: Longs, rows: Longs, count: int) -> pa.Array[Any]:
    """The texts of these entries, each at its row."""
    places = np.zeros(count, np.int64)
    is_absent = np.ones(count, np.bool_)
    places[rows], is_absent[rows] = entries, False
    wanted: Any = pa.array(places, mask=is_absent)
    return _unquoted(texts.take(wanted))


def _unquoted(texts: pa.Array[Any]) -> pa.Array[Any]:
    """JSON texts as what they say; numbers as their digits."""
    plain = texts.cast(_STRING)
    if pc.any(pc.match_substring(plain, "\\")).as_py():
        return pa.array([None if text is None else _said(text) for text in plain.to_pylist()], _STRING)
    is_text = pc.starts_with(plain, '"')
    inner: pa.Array[Any] = pc.if_else(is_text, pc.utf8_slice_codeunits(plain, 1, -1), plain)
    return inner


def _said(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text


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
    """Writing the rows of one task of Spark into files that nobody sees yet."""

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
