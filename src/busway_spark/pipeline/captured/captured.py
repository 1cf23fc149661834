"""Captured messages and events: the columns, names and folders of their files, and the notes of jobs.

    ROOT/entity=orders/date=2026-11-15/hour=09/partition=3/3-00000000000000000042.parquet
    ROOT/entity=orders/date=2026-11-15/hour=08/partition=3/3-00000000000000000007-00000000000000000041.parquet

Hubs, queues and subscriptions are captured alike, so that every job reads every capture. A folder is named by the
hour in which its messages were enqueued (UTC), a file by its partition (of a hub) or fragment and by the first
sequence number in it; a file that `compaction` has put together also by its last one. Numbers in a file rise.
Files of a hub's partition never overlap; those of queues and subscriptions may, where messages were taken out of
their order (sessions, several stores), but no number is in two files. Whatever begins with `_` or `.` is no data:
any reader of Parquet leaves it out. A file appears whole or not at all, and never changes.

Application properties are kept twice: `properties` is one JSON object that people and other tools can read, and
`propertyTypes` names the AMQP types that JSON cannot tell apart, so that a message can be sent again as it was.

A captured table may gain columns: a later version of Busway, or somebody's own job, adds one that may be null.
Files that were there before lack it, and where it stands among the others is nobody's promise. So readers take
columns by their names. One that a file lacks is null in all of its rows; one that a reader does not know is left
out. A type may be another form of the one in `SCHEMA` (texts with long offsets, times in nanoseconds); any other
is refused.

Notes lie below the root of captured files: JSON objects, each with the version of its form. A note without a
version is older than versions and reads the same. One of a later version is not guessed at: whoever wrote it may
have meant something else by the same words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.captured.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.job import JobFailed

_TIME: Final = pa.timestamp("us", tz="UTC")

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("sequenceNumber", pa.int64(), nullable=False),
    pa.field("enqueuedTime", _TIME, nullable=False),
    pa.field("body", pa.binary()),
    pa.field("messageId", pa.string()),
    pa.field("sessionId", pa.string()),
    pa.field("partitionKey", pa.string()),
    pa.field("subject", pa.string()),
    pa.field("contentType", pa.string()),
    pa.field("correlationId", pa.string()),
    pa.field("to", pa.string()),
    pa.field("replyTo", pa.string()),
    pa.field("replyToSessionId", pa.string()),
    pa.field("expiresAt", _TIME),
    pa.field("scheduledEnqueueTime", _TIME),
    #: Of forwarded messages (M-15): the number that each had where it was first sent. Null for all others, so also
    #: for what a topic gave to its subscription.
    pa.field("enqueuedSequenceNumber", pa.int64()),
    pa.field("offset", pa.string()),
    pa.field("publisher", pa.string()),
    #: A JSON object: bytes in base64, times in ISO 8601, what is no number in JSON (NaN) as text.
    pa.field("properties", pa.string()),
    #: A JSON object of name → AMQP type for the properties whose JSON value does not say it; null when all do.
    #: JSON says: string, boolean, long (whole numbers), double (with a fraction), null. Names are those of AMQP
    #: (`busway_spark.property_types`). Of events only doubles are told: the format "eventhubs" brings JSON.
    pa.field("propertyTypes", pa.string()),
]
SCHEMA: Final = pa.schema(_FIELDS)
#: The folders' own columns, in their order.
FOLDERS: Final = ("entity", "date", "hour", "partition")
SUFFIX: Final = ".parquet"
NOT_TOLD: Final = -1
_NUMBER_WIDTH: Final = 20
_NAME: Final = re.compile(
    rf"(\d{{1,5}})-(\d{{{_NUMBER_WIDTH}}})(?:-(\d{{{_NUMBER_WIDTH}}}))?\{SUFFIX}", re.ASCII
)


class CapturedFile(NamedTuple):
    """What a file is, by what its path or a table's log says of it. Sorts as it is read."""

    entity: str
    hour: datetime
    partition: int
    first_number: int
    #: Only the name of a file that was put together tells it; -1 is not told.
    last_number: int = NOT_TOLD

    @property
    def path(self) -> PurePosixPath:
        """Below the root."""
        last = "" if self.last_number == NOT_TOLD else f"-{self.last_number:0{_NUMBER_WIDTH}}"
        name = f"{self.partition}-{self.first_number:0{_NUMBER_WIDTH}}{last}{SUFFIX}"
        return folder_of(self.entity, self.hour, self.partition) / name


def entity_folder(entity: str) -> PurePosixPath:
    return PurePosixPath(f"entity={quote(entity, safe='')}")


def folder_of(entity: str, hour: datetime, partition: int) -> PurePosixPath:
    moment = hour.astimezone(UTC)
    return PurePosixPath(
        entity_folder(entity),
        f"date={moment:%Y-%m-%d}",
        f"hour={moment:%H}",
        f"partition={partition}",
    )


def parse_path(path: PurePosixPath) -> CapturedFile | None:
    """What a path below the root says; None for what is no captured file."""
    return parse_text(str(path))


def parse_text(path: str) -> CapturedFile | None:
    """The same of a path as text."""
    folder, _, file_name = path.rpartition("/")
    name = _NAME.fullmatch(file_name)
    told = None if name is None else _parse_folder(folder)
    if name is None or told is None or told[2] != name[1]:
        return None
    last = NOT_TOLD if name[3] is None else int(name[3])
    return CapturedFile(told[0], told[1], int(name[1]), int(name[2]), last)


@lru_cache(maxsize=1024)
def _parse_folder(folder: str) -> tuple[str, datetime, str] | None:
    """Entity, hour and partition. Files come folder by folder, many of each."""
    parts = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    if tuple(parts) != FOLDERS:
        return None
    try:
        hour = datetime.strptime(f"{parts['date']} {parts['hour']}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return unquote(parts["entity"]), hour, parts["partition"]


def check_columns(found: pa.Schema, where: str, wanted: pa.Schema = SCHEMA) -> list[str]:
    """Those of the wanted that are there. Raises JobFailed for a column of another type, and for one that no row can
    do without."""
    there: list[str] = []
    for field in wanted:
        at = found.get_field_index(field.name)
        if at < 0 and not field.nullable:
            raise JobFailed(f"{where} is no file of captured messages: it has no column '{field.name}'.")
        if at < 0:
            continue
        kind = found.field(at).type
        if not _is_kin(kind, field.type):
            raise JobFailed(
                f"{where} cannot be read: its column '{field.name}' is {kind}, and captured messages have"
                f" {field.type} there."
            )
        there.append(field.name)
    return there


def with_others(found: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Our columns, and behind them those of others, for whoever puts files together and must keep them. `found`: of
    each file where it lies and what it has. Raises JobFailed where a column has two types."""
    others: dict[str, pa.Field[Any]] = {}
    for where, schema in found:
        check_columns(schema, where)
        for field in schema:
            if SCHEMA.get_field_index(field.name) >= 0:
                continue
            known = others.setdefault(field.name, field.with_nullable(True))
            if not known.type.equals(field.type):
                raise JobFailed(
                    f"{where} cannot be put together with others: its column '{field.name}' is {field.type}, and"
                    f" {known.type} elsewhere."
                )
    return pa.schema([*SCHEMA, *others.values()])


def fitted(batch: pa.RecordBatch, wanted: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """With exactly the wanted columns, in their order. The batch is one that was checked."""
    if batch.schema.equals(wanted):
        return batch
    columns = [_column(batch, field) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def fitted_batches(file: pq.ParquetFile, where: str, rows: int, **which: Any) -> Iterator[pa.RecordBatch]:
    """Of an open file, in the columns of SCHEMA. `which`: as `iter_batches` takes it. Raises JobFailed."""
    there = check_columns(file.schema_arrow, where)
    for batch in file.iter_batches(rows, columns=there, **which):
        yield fitted(batch)


def _column(batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    at = batch.schema.get_field_index(field.name)
    found: Any = pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at)
    column: pa.Array[Any] = found if found.type.equals(field.type) else found.cast(field.type, safe=False)
    return column


def _is_kin(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found.equals(wanted) or pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        found = found.value_type
    return any(all(map(is_one, (found, wanted))) for is_one in (_is_text, _is_bytes, _is_time, _is_whole))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind)


def _is_whole(kind: pa.DataType) -> bool:
    """That fits into 64 bits with a sign."""
    return pa.types.is_signed_integer(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64)


#: The last batch of an entity that is captured.
COMMITTED: Final = "committed.json"
#: In it, where there are objects: what is being put in place.
MOVING_KEY: Final = "moving"
_VERSION: Final = 1
_VERSION_NAME: Final = "version"


def notes_of(entity: str) -> PurePosixPath:
    """The folder of an entity's notes."""
    return NOTES / entity_folder(entity)


def note_text(facts: Mapping[str, object], version: int = _VERSION) -> str:
    return json.dumps({_VERSION_NAME: version, **facts})


def read_note(root: CaptureRoot, path: PurePosixPath) -> dict[str, Any]:
    """Empty where there is none. Raises JobFailed when it is damaged, or of a later version."""
    data = root.read_bytes(path)
    return {} if data is None else parsed_note(root, path, data)


def parsed_note(
    root: CaptureRoot, path: PurePosixPath, data: bytes, versions: Collection[int] = (_VERSION,)
) -> dict[str, Any]:
    """`versions`: those that the caller knows. Raises JobFailed."""
    try:
        note = json.loads(data)
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise JobFailed(f"{root.full(path)} is damaged: it is no JSON object.")
    if note.pop(_VERSION_NAME, _VERSION) not in versions:
        raise JobFailed(
            f"{root.full(path)} was written by a later version of Busway: go on with that version."
        )
    return note
