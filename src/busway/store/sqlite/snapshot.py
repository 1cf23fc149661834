"""What a store's file holds at one moment, to be copied while the store goes on.

A snapshot is a read transaction on a connection of its own: `begin` takes it, and from then on all pages are those of
that commit, whatever is committed meanwhile. SQLite's own backup copies them, log and file together, into one file
without a log. While it lasts the log cannot start over, so the store is told to make no checkpoints that would be in
vain; at the end the log is brought into the file here, in the thread of the backup, and not between two commits.

Methods block: call them off the loop, one at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from busway.store.contract import StoreError
from busway.store.sqlite.companion_files import HighWater
from busway.store.sqlite.database_file import FileUpkeep, open_for_reading
from busway.store.statements import statements_of

query = statements_of(__package__).query

#: Pages that are copied before others may have the disk; a page has 16 KiB.
PAGES_PER_SLICE: Final = 64
#: So many bytes of a copy wait for the disk at most.
SYNC_BYTES: Final = 16 << 20


class StoreSnapshot:
    """Of one store, made by it. `upkeep`: of the store's writer."""

    def __init__(self, name: str, path: Path, vfs: str | None, upkeep: FileUpkeep) -> None:
        self.name = name
        self.path = path
        self._vfs = vfs
        self._upkeep = upkeep
        self._connection: apsw.Connection | None = None
        #: The commit that it is of.
        self.commit_number = 0
        #: Of the whole copy; known from `begin` on.
        self.size_bytes = 0
        self._log_bytes_before = 0

    def open(self) -> None:
        """Whatever takes long before the moment. Raises StoreError."""
        try:
            self._connection = open_for_reading(self.path, self._vfs)
        except (apsw.Error, OSError) as error:
            raise StoreError(f"The store's file {self.path} cannot be read: {error}.") from error

    def begin(self) -> None:
        """This is the moment. Raises StoreError."""
        assert self._connection is not None, "it is open"
        self._upkeep.is_log_kept = True
        try:
            self._connection.execute(query("begin_read"))
            self.commit_number = self._number("read_commit_number")
            self.size_bytes = self._number("pragma_pages") * self._page_bytes()
        except (apsw.Error, ValueError) as error:
            raise StoreError(f"The store's file {self.path} cannot be read: {error}.") from error
        self._log_bytes_before = self._log_bytes()

    def _number(self, name: str) -> int:
        assert self._connection is not None, "it is open"
        rows: Any = self._connection.execute(query(name)).fetchall()
        return int(rows[0][0])

    def _page_bytes(self) -> int:
        assert self._connection is not None, "it is open"
        return int(self._connection.pragma("page_size") or 0)

    def log_growth_bytes(self) -> int:
        """By how much the store's log has grown because of it, at most."""
        return max(0, self._log_bytes() - self._log_bytes_before)

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except OSError:
            return 0

    def copy_to(self, target: Path) -> Iterator[int]:
        """A store's file with its high-water mark, to be synced at the end. Tells how many bytes are copied, slice by
        slice; whoever stops asking ends it. Raises OSError, StoreError."""
        assert self._connection is not None, "it has begun"
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        copy = apsw.Connection(str(target))
        try:
            copy.execute(query("pragmas_of_a_copy")).fetchall()
            yield from self._copied(copy, descriptor)
        except apsw.FullError as error:
            raise StoreError(f"The disk of {target} is full.") from error
        except apsw.Error as error:
            raise StoreError(f"The store {self.name} cannot be copied: {error}.") from error
        finally:
            with contextlib.suppress(apsw.Error):
                copy.close(True)
            os.close(descriptor)
        HighWater(target.with_suffix(".high-water")).write(self.commit_number)

    def _copied(self, copy: apsw.Connection, descriptor: int) -> Iterator[int]:
        assert self._connection is not None, "it has begun"
        page_bytes = self._page_bytes()
        unsynced_bytes = 0
        with copy.backup("main", self._connection, "main") as backup:
            while not backup.done:
                before = backup.page_count - backup.remaining
                backup.step(PAGES_PER_SLICE)
                copied_bytes = (backup.page_count - backup.remaining - before) * page_bytes
                unsynced_bytes += copied_bytes
                if unsynced_bytes >= SYNC_BYTES:
                    os.fdatasync(descriptor)
                    unsynced_bytes = 0
                yield copied_bytes

    def close(self) -> None:
        """Lets it go. What the log has gathered is brought into the file; a failure of that is met by the store's
        next round. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(apsw.Error):
            connection.close(True)
        try:
            self._empty_log()
        finally:
            self._upkeep.is_log_kept = False

    def _empty_log(self) -> None:
        with contextlib.suppress(apsw.Error):
            writer = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self._vfs)
            try:
                writer.execute(query("pragmas_of_the_emptier")).fetchall()
                writer.execute(query("pragma_checkpoint")).fetchall()
            finally:
                writer.close(True)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
