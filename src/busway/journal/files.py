"""The journal's files: their columns, where they lie, how they appear whole, which are old.

    DIR/date=2026-11-15/hour=09/NAME.parquet

Columns and operations are a contract, as reports read old files too. One row for each operation on a message. An
operation that leads to another has a row for each: the abandonment that was one too many is an `abandon` and a
`deadLetter`, a copy for a subscription is a `send` there besides that of its topic, a forwarded message is a
`forward` here and a `send` there. Folders are named by the hour of `time` (UTC); a file appears whole or not at
all, and what begins with `_` or `.` is not finished.

A file is written under its name with `_` before it, which readers pass over, then made durable, then renamed. It
is locked while it is written, so whoever starts later can tell what a killed writer left behind from what another
writer of the same folder is at. Names hold a random part of the writer's own: two never write the same.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from busway.clock import Entropy

TIMESTAMP: Final = "timestamp[us, UTC]"
TEXT: Final = "string"
WORD: Final = "dictionary<string>"
LONG: Final = "int64"
INTEGER: Final = "int32"

#: Name → type, in their order. Null means: not known, or not of this operation.
COLUMNS: Final[dict[str, str]] = {
    "time": TIMESTAMP,  # when it was durable
    "operation": WORD,
    "entity": WORD,  # "orders", "news/Subscriptions/all", "orders/$DeadLetterQueue", a hub's name
    "fragment": INTEGER,  # of a partitioned entity, or a hub's partition; 0 else
    "sequenceNumber": LONG,
    "sessionId": TEXT,
    "partitionKey": TEXT,
    "sizeBytes": LONG,
    "deliveryCount": INTEGER,  # failed deliveries so far, the one that ends here included
    "enqueuedTime": TIMESTAMP,  # of the message: `time` − `enqueuedTime` of a `complete` is its latency
    "reason": TEXT,  # why it was dead-lettered
}

SEND: Final = "send"
DUPLICATE: Final = "duplicate"  # sent again and dropped: duplicate detection
SCHEDULE: Final = "schedule"
CANCEL: Final = "cancel"
ACTIVATE: Final = "activate"  # its scheduled time came
RECEIVE: Final = "receive"  # locked, or taken with receive-and-delete
COMPLETE: Final = "complete"  # also by receive-and-delete
ABANDON: Final = "abandon"
DEFER: Final = "defer"
DEAD_LETTER: Final = "deadLetter"
EXPIRE: Final = "expire"  # and was dropped; one that goes to the dead-letter queue is a `deadLetter`
LOCK_LOST: Final = "lockLost"
FORWARD: Final = "forward"
SESSION_ACCEPT: Final = "sessionAccept"
SESSION_END: Final = "sessionEnd"  # closed or lost
PUBLISH: Final = "publish"  # into a hub
DELETE: Final = "delete"  # by a batch delete: nobody received it

OPERATIONS: Final = (
    SEND, DUPLICATE, SCHEDULE, CANCEL, ACTIVATE, RECEIVE, COMPLETE, ABANDON, DEFER, DEAD_LETTER, EXPIRE,
    LOCK_LOST, FORWARD, SESSION_ACCEPT, SESSION_END, PUBLISH, DELETE,
)  # fmt: skip


_HOUR_S: Final = 3_600
_UNFINISHED: Final = "_"
_NAME: Final = re.compile(r"_?\d{6}-[0-9a-f]{16}-\d+\.parquet")
_HOURS: Final = "date=[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/hour=[0-9][0-9]"


class OpenFile:
    """One that is being written; `finish` or `abandon` is its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hidden = path.with_name(_UNFINISHED + path.name)
        self.stream: BinaryIO = _locked(self._hidden)

    def finish(self) -> Path:
        """It is whole: from now on readers see it."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self._hidden.rename(self._path)
        _sync_folder(self._path.parent)
        self.stream.close()
        return self._path

    def abandon(self) -> None:
        """Nothing of it stays. Raises nothing."""
        try:
            self._hidden.unlink(missing_ok=True)
            self.stream.close()
        except OSError:
            pass


class Folder:
    """Where the files of one journal lie: `DIR/date=2026-11-15/hour=09/`."""

    def __init__(self, root: Path, entropy: Entropy) -> None:
        self.root = root
        self._own = entropy.bytes(8).hex()
        self._count = 0

    def new_file(self, hour: int, first_ms: int) -> OpenFile:
        """Raises OSError."""
        begun = datetime.fromtimestamp(hour * _HOUR_S, UTC)
        first = datetime.fromtimestamp(first_ms / 1000, UTC)
        folder = self.root / f"date={begun:%Y-%m-%d}" / f"hour={begun:%H}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(folder.parent)
            _sync_folder(self.root)
        self._count += 1
        return OpenFile(folder / f"{first:%H%M%S}-{self._own}-{self._count}.parquet")

    def remove_leftovers(self) -> int:
        """What killed writers left behind. Returns how many."""
        return sum(_removed(path) for path in self._files() if path.name.startswith(_UNFINISHED))

    def remove_before(self, hour: int) -> int:
        """Files of hours before this one, and folders that are empty then. Returns how many files."""
        end = datetime.fromtimestamp(hour * _HOUR_S, UTC)
        removed = 0
        for folder in list(self.root.glob(_HOURS)):
            if _hour_of(folder) >= end:
                continue
            removed += sum(_removed(path) for path in _own_files(folder))
            for emptied in (folder, folder.parent):
                try:
                    emptied.rmdir()
                except OSError:  # it holds something else
                    break
        return removed

    def _files(self) -> Iterator[Path]:
        for folder in self.root.glob(_HOURS):
            yield from _own_files(folder)


def hours_before(hour: int, days: int) -> int:
    return hour - int(timedelta(days=days).total_seconds()) // _HOUR_S


def _own_files(folder: Path) -> list[Path]:
    """Whatever else lies there is not ours to remove."""
    return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]


def _hour_of(folder: Path) -> datetime:
    text = f"{folder.parent.name.removeprefix('date=')} {folder.name.removeprefix('hour=')}"
    try:
        return datetime.strptime(text, "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:  # no day of the calendar
        return datetime.max.replace(tzinfo=UTC)


def _locked(path: Path) -> BinaryIO:
    """A new file that nobody takes for a leftover."""
    while True:
        stream = path.open("xb")
        fcntl.flock(stream, fcntl.LOCK_EX)
        if os.fstat(stream.fileno()).st_nlink > 0:
            return stream
        stream.close()  # somebody who removed leftovers was faster than our lock


def _removed(path: Path) -> bool:
    """False when it is being written just now, or is gone."""
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """A new name is durable with its folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
