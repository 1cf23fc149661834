"""The Delta table at a place of captured files: opened, its columns kept up, its files as its log names them.

Theory of operation. The log alone says which files are the table's. Their names are whoever's that wrote them: our
own capture's, or those of the table's optimize, which puts files together in any order and leaves the old ones where
they lie until a vacuum removes them. So folders and names say nothing; entity, hour and partition come out of the
log, as do sizes and, where whoever wrote a file has noted them, the first and last number and time of its rows.

What we do not write and what would be read wrong is refused: rows that are taken out of a file by a list beside it
(deletion vectors), columns that have other names in files (column mapping), files outside the table's folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS, SCHEMA, check_columns
from busway_spark.pipeline.captured.object_store import plain_words
from busway_spark.pipeline.job import JobFailed

LOG: Final = PurePosixPath("_delta_log")
_FOLDER_TYPES: Final = (pa.string(), pa.string(), pa.string(), pa.int32())
TABLE_SCHEMA: Final = pa.schema(
    [
        *(pa.field(each.name, each.type) for each in SCHEMA),
        *(pa.field(name, kind) for name, kind in zip(FOLDERS, _FOLDER_TYPES, strict=True)),
    ]
)
#: A captured file's name, query, batch, and what no other try has (`delta.DeltaLedger.data_path`).
_OURS: Final = re.compile(r"\d{1,5}-\d{20}-.+-\d+-[0-9a-f]{8}\.parquet", re.ASCII)
_MAPPING: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
_TOLD: Final = (
    "path",
    "size_bytes",
    "num_records",
    "min.sequenceNumber",
    "max.sequenceNumber",
    "min.enqueuedTime",
    "max.enqueuedTime",
    *(f"partition.{name}" for name in FOLDERS),
)
_WORDS_MAX: Final = 600


class TableFile(NamedTuple):
    """Numbers and times are None where the log does not tell them."""

    path: PurePosixPath
    bytes: int
    rows: int | None
    first_number: int | None
    last_number: int | None
    first_time: datetime | None
    last_time: datetime | None
    entity: str
    hour: datetime
    partition: int

    @property
    def is_rising(self) -> bool:
        """Our own capture wrote it, so its numbers rise. Of others nobody knows."""
        return _OURS.fullmatch(self.path.name) is not None


def require_delta() -> Any:
    try:
        return import_module("deltalake")
    except ImportError as error:
        raise JobFailed("Delta tables need the package deltalake: pip install deltalake.") from error


def delta_error() -> type[Exception]:
    require_delta()
    found: type[Exception] = import_module("deltalake.exceptions").DeltaError
    return found


def has_table(root: CaptureRoot) -> bool:
    return root.exists(LOG)


def open_table(root: CaptureRoot) -> Any | None:
    delta = require_delta()
    try:
        return delta.DeltaTable(root.location, storage_options=_store_options(root))
    except import_module("deltalake.exceptions").TableNotFoundError:
        return None


def made_table(root: CaptureRoot) -> Any:
    """Or the one that is there."""
    delta = require_delta()
    schema = delta.Schema.from_arrow(TABLE_SCHEMA)
    table = delta.DeltaTable.create(
        root.location,
        schema=schema,
        mode="ignore",
        partition_by=list(FOLDERS),
        storage_options=_store_options(root),
    )
    sync_version(root, table)
    return table


def _store_options(root: CaptureRoot) -> dict[str, str] | None:
    """The package finds keys by itself, where we find them. A version is put under its name only if there is none,
    so that of two that write at once one alone wins."""
    if root.objects is None:
        return None
    return {"conditional_put": "etag", **root.objects.client_options()}


def sync_version(root: CaptureRoot, table: Any) -> None:
    """What was written last is on the disk."""
    for path in (LOG / f"{table.version():020}.json", LOG):
        root.sync_file(path)


# -- columns


def columns_of(table: Any) -> pa.Schema:
    found: pa.Schema = pa.schema(table.schema())
    return found


def keep_columns_up(root: CaptureRoot, table: Any) -> None:
    """The table gains those of ours that it lacks. Raises JobFailed where one of them has another type."""
    there = columns_of(table)
    _check_table_columns(root, there)
    lacking = [field for field in TABLE_SCHEMA if there.get_field_index(field.name) < 0]
    if lacking:
        fields = require_delta().Schema.from_arrow(pa.schema(lacking)).fields
        table.alter.add_columns(fields)
        sync_version(root, table)


def _check_table_columns(root: CaptureRoot, there: pa.Schema) -> None:
    check_columns(there, f"The Delta table at {root.location}", TABLE_SCHEMA)


# -- files


def table_files(root: CaptureRoot, entity: str | None = None) -> list[TableFile]:
    """Nothing where there is no table. Raises JobFailed for one that cannot be read."""
    if not has_table(root):
        return []
    with _telling(root):
        table = open_table(root)
        if table is None:
            return []
        _check_readable(root, table)
        added = pa.table(table.get_add_actions(flatten=True))
    if entity is not None:
        added = added.filter(pc.equal(added.column("partition.entity"), pa.scalar(entity)))
    columns = [
        added.column(name).to_pylist() if name in added.column_names else [None] * added.num_rows
        for name in _TOLD
    ]
    return [_table_file(root, row) for row in zip(*columns, strict=True)]


def _table_file(root: CaptureRoot, row: tuple[Any, ...]) -> TableFile:
    name, size, rows, first, last, first_time, last_time, entity, date, hour, partition = row
    path = PurePosixPath(unquote(name))
    if path.is_absolute() or "://" in name or ".." in path.parts:
        raise JobFailed(
            f"The Delta table at {root.location} names files outside its own folder ({name[:200]}): it is a clone of"
            " another table, which is not read here. Read that one."
        )
    try:
        begins = datetime.strptime(f"{date} {hour}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError as error:
        raise JobFailed(
            f"The Delta table at {root.location} has a date or hour that is none: {error}."
        ) from error
    return TableFile(
        path, int(size), rows, first, last, first_time, last_time, str(entity), begins, int(partition)
    )


def _check_readable(root: CaptureRoot, table: Any) -> None:
    there = columns_of(table)
    lacking = [name for name in FOLDERS if there.get_field_index(name) < 0]
    if lacking or tuple(table.metadata().partition_columns) != FOLDERS:
        raise JobFailed(
            f"The Delta table at {root.location} is none of captured messages: it is not partitioned by"
            f" {', '.join(FOLDERS)}."
        )
    _check_table_columns(root, there)
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        raise JobFailed(
            f"The Delta table at {root.location} maps its columns to other names in files ({_MAPPING}), which is not"
            " read here: copy it into a table without."
        )
    if _VECTORS in (table.protocol().reader_features or ()) and _has_vectors(table):
        raise JobFailed(
            f"The Delta table at {root.location} has deleted rows that still lie in its files (deletion vectors),"
            " which are not read here: purge them first (REORG TABLE … APPLY (PURGE))."
        )


def _has_vectors(table: Any) -> bool:
    try:
        return bool(pa.table(table.deletion_vectors()).num_rows)
    except delta_error():
        return True  # one is there and is damaged, or of a kind that the package does not know


@contextmanager
def _telling(root: CaptureRoot) -> Iterator[None]:
    try:
        yield
    except delta_error() as error:
        text = plain_words(error)[:_WORDS_MAX]
        raise JobFailed(f"The Delta table at {root.location} cannot be read: {text}") from error
