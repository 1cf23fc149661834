"""Captured messages and events: the columns, names and folders of their files.

    ROOT/entity=orders/date=2026-11-15/hour=09/partition=3/3-00000000000000000042.parquet
    ROOT/entity=orders/date=2026-11-15/hour=08/partition=3/3-00000000000000000007-00000000000000000041.parquet

Hubs, queues and subscriptions are captured alike, so that every job reads every capture. A folder is named by the
hour in which its messages were enqueued (UTC), a file by its partition (of a hub) or fragment and by the first
sequence number in it; a file that `compact` has put together also by its last one. Numbers in a file rise. Files of
a hub's partition never overlap; those of queues and subscriptions may, where messages were taken out of their order
(sessions, several stores), but no number is in two files. Whatever begins with `_` or `.` is no data: any reader of
Parquet leaves it out. A file appears whole or not at all, and never changes.

Application properties are kept twice: `properties` is one JSON object that people and other tools can read, and
`propertyTypes` names the AMQP types that JSON cannot tell apart, so that a message can be sent again as it was.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

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
