"""Captured messages and events: the columns, names and folders of their files.

    ROOT/entity=orders/date=2026-11-15/hour=09/partition=3/3-00000000000000000042.parquet

Hubs, queues and subscriptions are captured alike, so that every job reads every capture. A folder is named by the
hour in which its messages were enqueued (UTC), a file by its partition (of a hub) or fragment and by the first
sequence number in it; numbers in a file rise, and no two files of a partition overlap. Whatever begins with `_`
or `.` is no data: any reader of Parquet leaves it out. A file appears whole or not at all.

Application properties are kept twice: `properties` is one JSON object that people and other tools can read, and
`propertyTypes` names the AMQP types that JSON cannot tell apart, so that a message can be sent again as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final
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
    #: Of the topic, in captures through a subscription; rules begin and end by it.
    pa.field("enqueuedSequenceNumber", pa.int64()),
    pa.field("offset", pa.string()),
    pa.field("publisher", pa.string()),
    #: A JSON object: bytes in base64, times in ISO 8601, what is no number in JSON (NaN) as text.
    pa.field("properties", pa.string()),
    #: A JSON object of name → AMQP type for the properties whose JSON value does not say it; null when all do.
    #: JSON says: string, boolean, long (whole numbers), double (others), null.
    pa.field("propertyTypes", pa.string()),
]
SCHEMA: Final = pa.schema(_FIELDS)
#: The folders' own columns, in their order.
FOLDERS: Final = ("entity", "date", "hour", "partition")
SUFFIX: Final = ".parquet"
_NUMBER_WIDTH: Final = 20


@dataclass(frozen=True, order=True)
class CapturedFile:
    """A file by what its path says."""

    entity: str
    hour: datetime
    partition: int
    first_number: int

    @property
    def path(self) -> PurePosixPath:
        """Below the root."""
        name = f"{self.partition}-{self.first_number:0{_NUMBER_WIDTH}}{SUFFIX}"
        return folder_of(self.entity, self.hour, self.partition) / name


def folder_of(entity: str, hour: datetime, partition: int) -> PurePosixPath:
    moment = hour.astimezone(UTC)
    return PurePosixPath(
        f"entity={quote(entity, safe='')}",
        f"date={moment:%Y-%m-%d}",
        f"hour={moment:%H}",
        f"partition={partition}",
    )


def parse_path(path: PurePosixPath) -> CapturedFile | None:
    """What a path below the root says; None for what is no captured file."""
    parts = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    partition, _, number = path.name.removesuffix(SUFFIX).partition("-")
    if tuple(parts) != FOLDERS or not path.name.endswith(SUFFIX) or parts["partition"] != partition:
        return None
    try:
        hour = datetime.strptime(f"{parts['date']} {parts['hour']}", "%Y-%m-%d %H").replace(tzinfo=UTC)
        return CapturedFile(unquote(parts["entity"]), hour, int(partition), int(number))
    except ValueError:
        return None
