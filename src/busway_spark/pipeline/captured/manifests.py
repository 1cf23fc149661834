"""What captured files hold: by their footers, and by manifests without opening them.

    ROOT/_capture/entity=orders/committed.json                 the files of the last steps, each with what it holds
    ROOT/_capture/entity=orders/manifests/1-7f2c….parquet      the same of many files, a row each

Theory of operation. A plan wants rows, numbers and times of every file, and a footer costs two requests. So whoever
puts a file in place writes down what it holds. `capture` does so in the note that it writes anyhow (`records_note`).
When that note has become long, its records go into a manifest first and out of the note then. Manifests of a level
that have become many are written anew as one of the next level, and only then removed: so there are few, and a row is
copied a few times in its life. `compact` writes all manifests of an entity anew as one, without the files that it has
replaced.

A manifest is never the only truth. A file that is in none is opened; a row whose file is gone, or has another size,
is left out by whoever lists the files; a row that is there twice says the same twice. So neither a kill between two
steps nor two jobs that fold at the same time can do harm, and a manifest that cannot be read is as good as none.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import (
    COMMITTED,
    NOT_TOLD,
    SUFFIX,
    CapturedFile,
    folder_of,
    notes_of,
    parse_path,
    read_note,
)
from busway_spark.pipeline.job import JobFailed

#: Records that the note of `capture` may hold before they go into a manifest.
NOTED_MAX: Final = 256
#: Manifests of one level before they become one of the next.
_FOLD: Final = 16
_LISTINGS_MAX: Final = 5
_FOLDER: Final = "manifests"
_NOTED: Final = "files"
_NUMBER: Final = pa.int64()
#: A path is told by hour, partition and the numbers in its name; the last of these only by files of `compact`.
_SCHEMA: Final = pa.schema(
    [
        pa.field(name, _NUMBER, nullable=False)
        for name in (
            "hour",
            "partition",
            "nameLast",
            "bytes",
            "rows",
            "firstNumber",
            "lastNumber",
            "firstTime",
            "lastTime",
        )
    ]
)
_PATH_COLUMNS: Final = ("hour", "partition", "firstNumber", "nameLast")
_SPAN_COLUMNS: Final = ("rows", "firstNumber", "lastNumber", "firstTime", "lastTime")


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


class RecordedFile(NamedTuple):
    #: Of the file: where the one that is there has another size, the record is of no use.
    bytes: int
    span: FileSpan


#: By path below the root.
Records = dict[PurePosixPath, RecordedFile]


def recorded_texts(root: CaptureRoot, entity: str) -> dict[str, RecordedFile]:
    """What manifests know of an entity's files, by paths as texts: objects are twice the work where there are a
    million. Raises JobFailed for a note that is damaged, and OSError."""
    found: dict[str, RecordedFile] = {}
    with _many_things():
        for table in _tables(root, entity):
            found.update(_records(entity, table))
    noted = noted_records(entity, read_note(root, notes_of(entity) / COMMITTED))
    found.update((str(path), each) for path, each in noted.items())
    return found


# -- in the note of capture


def noted_records(entity: str, note: Mapping[str, Any]) -> Records:
    """None in notes of earlier versions; what does not look like a record is left out."""
    noted = note.get(_NOTED)
    found: Records = {}
    for path, numbers in noted.items() if isinstance(noted, dict) else ():
        file = parse_path(PurePosixPath(path))
        if file is not None and file.entity == entity and _are_numbers(numbers):
            found[PurePosixPath(path)] = RecordedFile(numbers[0], FileSpan(*numbers[1:]))
    return found


def _are_numbers(numbers: Any) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) == 1 + len(_SPAN_COLUMNS)
        and all(isinstance(each, int) for each in numbers)
    )


def records_note(root: CaptureRoot, entity: str, noted: Records, new: Records) -> dict[str, object]:
    """What the next note is to hold: what the last one held and what is new, or what is new alone, when the rest has
    gone into a manifest."""
    kept = noted
    if len(noted) + len(new) > NOTED_MAX and noted:
        write_manifest(root, entity, noted)
        fold(root, entity)
        kept = {}
    both = {**kept, **new}
    return {_NOTED: {str(path): [each.bytes, *each.span] for path, each in both.items()}}


# -- in files of their own


def write_manifest(root: CaptureRoot, entity: str, records: Records) -> None:
    _write(root, entity, _table(records), 0)


def fold(root: CaptureRoot, entity: str) -> None:
    """Manifests of a level become one of the next, where they are many."""
    level = 0
    while True:
        paths = [path for path in _paths(root, entity) if _level(path) == level]
        if len(paths) < _FOLD:
            return
        read = [(path, table) for path in paths if (table := _read(root, path)) is not None]
        if read:
            _write(root, entity, pa.concat_tables(table for _, table in read), level + 1)
        root.delete_files(paths)
        level += 1


def rewrite(root: CaptureRoot, entity: str, gone: set[PurePosixPath], new: Records) -> None:
    """All manifests as one, without files that are gone and with those that are new."""
    paths = _paths(root, entity)
    kept = [_without(entity, table, gone) for path in paths if (table := _read(root, path)) is not None]
    table = pa.concat_tables([*kept, _table(new)])
    level, room = 0, NOTED_MAX * _FOLD
    while table.num_rows > room:
        level, room = level + 1, room * _FOLD
    if table.num_rows:
        _write(root, entity, table, level)
    root.delete_files(paths)


def _without(entity: str, table: pa.Table, gone: set[PurePosixPath]) -> pa.Table:
    if not gone:
        return table
    texts = {str(path) for path in gone}
    return table.filter(pa.array([path not in texts for path in _texts(entity, table)], pa.bool_()))


def _paths(root: CaptureRoot, entity: str) -> list[PurePosixPath]:
    folder = notes_of(entity) / _FOLDER
    return [path for path, _ in root.files(folder) if path.suffix == SUFFIX and not path.name.startswith(".")]


def _level(path: PurePosixPath) -> int:
    level = path.name.split("-", 1)[0]
    return int(level) if level.isdecimal() else -1


def _tables(root: CaptureRoot, entity: str) -> list[pa.Table]:
    """One that was folded between listing and reading is looked for under its new name."""
    tables: dict[PurePosixPath, pa.Table] = {}
    for _ in range(_LISTINGS_MAX):
        is_whole = True
        for path in _paths(root, entity):
            if path not in tables:
                table = _read(root, path)
                is_whole = is_whole and table is not None
                if table is not None:
                    tables[path] = table
        if is_whole:
            break
    return list(tables.values())


def _read(root: CaptureRoot, path: PurePosixPath) -> pa.Table | None:
    """None when it is gone. A damaged one is empty."""
    data = root.read_bytes(path)
    if data is None:
        return None
    try:
        return pq.read_table(io.BytesIO(data)).select(_SCHEMA.names).cast(_SCHEMA)
    except (pa.ArrowException, KeyError):
        return _SCHEMA.empty_table()


def _write(root: CaptureRoot, entity: str, table: pa.Table, level: int) -> None:
    data = io.BytesIO()
    pq.write_table(table, data, compression="zstd")
    root.write_bytes(notes_of(entity) / _FOLDER / f"{level}-{uuid4().hex}{SUFFIX}", data.getvalue())


def _table(records: Records) -> pa.Table:
    rows = [
        (*_named(file), recorded.bytes, *recorded.span)
        for path, recorded in records.items()
        if (file := parse_path(path)) is not None
    ]
    columns: Iterable[tuple[int, ...]] = zip(*rows, strict=True) if rows else repeat((), len(_SCHEMA))
    return pa.Table.from_arrays([pa.array(column, _NUMBER) for column in columns], schema=_SCHEMA)


def _named(file: CapturedFile) -> tuple[int, int, int]:
    return int(file.hour.timestamp()) // 3600, file.partition, file.last_number


def _records(entity: str, table: pa.Table) -> Iterator[tuple[str, RecordedFile]]:
    """A row costs microseconds: there may be a million of them."""
    spans = map(FileSpan._make, zip(*(_numbers(table, name) for name in _SPAN_COLUMNS), strict=True))
    recorded = map(RecordedFile, _numbers(table, "bytes"), spans)
    return zip(_texts(entity, table), recorded, strict=True)


def _texts(entity: str, table: pa.Table) -> list[str]:
    """The paths, as texts."""
    hours, partitions, firsts, lasts = (_numbers(table, name) for name in _PATH_COLUMNS)
    places = zip(hours, partitions, strict=True)
    starts = {place: f"{folder_of(entity, _time(place[0]), place[1])}/{place[1]}-" for place in set(places)}
    return [
        f"{starts[hour, partition]}{first:020}{SUFFIX}"
        if last == NOT_TOLD
        else f"{starts[hour, partition]}{first:020}-{last:020}{SUFFIX}"
        for hour, partition, first, last in zip(hours, partitions, firsts, lasts, strict=True)
    ]


@contextmanager
def _many_things() -> Iterator[None]:
    """Millions of things are made, none of them in a circle: looking for circles meanwhile costs a third more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _numbers(table: pa.Table, name: str) -> list[int]:
    found: list[Any] = table[name].to_pylist()
    return found


def _time(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * 3600, UTC)
