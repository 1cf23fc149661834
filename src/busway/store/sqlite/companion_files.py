"""The small files beside a store's file: its lock, its high-water mark, its reserve of space.

The lock says which server a store's file belongs to. The database file itself is never opened for this: POSIX
drops all locks that a process has on a file, SQLite's own among them, when it closes any descriptor of it. The
lock lies beside the file that a path leads to in the end, so symbolic links, relative paths and mounts end at the
same lock. A second hard link would have a lock of its own, and a log of its own (SQLite names it after the path it
was given), so a file with two names is refused by either. The system lets go when the process ends, however it
ends; the lock's file stays, because removing it would let two processes lock two different files.

The high-water mark remembers how many commits a store has seen. SQLite cannot tell a damaged log from a log that
just ends there: one flipped bit in it and every later commit is gone without an error. So the number of the last
commit is written here too, synced, at each checkpoint and at least every second while there are commits. A store
whose own count is lower at start has lost its tail. Two lines are written in turn, each with its own check, so a
crash while writing leaves the other one.

The reserve is for a full disk, so that it is no outage. Free space is watched. Below the low-water mark new
messages are refused before they join a batch, while everything that makes room (settlement, deletes, checkpoints)
goes on. Should the disk fill up all the same, a reserve file of real blocks is given back to the file system and
pays for that. When space returns, the reserve is made again; nobody has to do anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zlib import crc32

from busway.store.contract import StoreError, StoreInUse

#: A link that somebody laid is not followed.
_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock:
    """Of one store. Methods may block for a moment: call them off the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __del__(self) -> None:
        self.release()

    def acquire(self) -> None:
        """Idempotent. Raises StoreInUse, StoreError."""
        if self._descriptor is not None:
            return
        try:
            file = self._path.resolve()
            descriptor = os.open(file.with_name(f"{file.name}.lock"), _FLAGS, 0o600)
        except (OSError, RuntimeError) as error:  # the latter for links in a circle
            reason = error.strerror if isinstance(error, OSError) else "its links lead nowhere"
            raise StoreError(
                f"The lock of the store's file {self._path} cannot be taken: {reason}."
            ) from error
        try:
            self._lock(descriptor)
            _check_names(file)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUse(self._refusal(descriptor)) from error
        except OSError as error:
            raise StoreError(
                f"The lock of the store's file {self._path} cannot be taken: {error.strerror}."
            ) from error
        with contextlib.suppress(OSError):  # A full disk: it is only for the sentence that others get.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def _refusal(self, descriptor: int) -> str:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        if holder == str(os.getpid()):
            return f"The store's file {self._path} is given twice: each store needs a file of its own."
        return (
            f"The store's file {self._path} is in use by {f'process {holder}' if holder else 'another process'}:"
            " stop that server, or give this one another store."
        )


def _check_names(file: Path) -> None:
    """Raises StoreInUse for a file that is there under two names."""
    try:
        names = file.stat().st_nlink
    except OSError:  # not there yet, or whoever opens it tells why not
        return
    if names > 1:
        raise StoreInUse(
            f"The store's file {file} has {names} names (hard links), and another server may use it by another one:"
            " remove the others, or give this server a copy."
        )


_LINE_BYTES: Final = 30


class HighWater:
    """The file `NAME.high-water` beside a store. Methods may block: call them off the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writes = 0

    def read(self) -> int:
        """The highest commit number that proves itself; 0 when there is none."""
        try:
            data = self._path.read_bytes()[: 2 * _LINE_BYTES]
        except FileNotFoundError:
            return 0
        return max(_parse(data[:_LINE_BYTES]), _parse(data[_LINE_BYTES:]))

    def write(self, commit_number: int) -> None:
        """Durable when it returns. Raises OSError."""
        is_new = not self._path.exists()
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, _line(commit_number), self._writes % 2 * _LINE_BYTES)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._writes += 1
        if is_new:
            sync_directory(self._path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names of new files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(commit_number: int) -> bytes:
    digits = b"%020d" % commit_number
    return b"%s %08x\n" % (digits, crc32(digits))


def _parse(line: bytes) -> int:
    digits = line[:20]
    if len(line) != _LINE_BYTES or not digits.isdigit() or line != _line(int(digits)):
        return 0
    return int(digits)


log = logging.getLogger(__name__)


def free_bytes_of(directory: Path) -> Callable[[], int]:
    """A function that tells the space the process may still use."""

    def free_bytes() -> int:
        stats = os.statvfs(directory)
        return stats.f_bavail * stats.f_frsize

    return free_bytes


class SpaceGuard:
    """Free space of one store. `sample` may block: call it off the loop, from one thread at a time."""

    def __init__(
        self, reserve_path: Path, *, low_bytes: int, reserve_bytes: int, free_bytes: Callable[[], int]
    ) -> None:
        self._reserve_path = reserve_path
        self._low_bytes = low_bytes
        self._reserve_bytes = reserve_bytes
        self._free_bytes = free_bytes
        #: What is left by the last sample, less what was written since.
        self._left_bytes = low_bytes
        self.is_low = False

    def spend(self, written_bytes: int) -> None:
        """Something was written since the last sample: once into the log, once more at the checkpoint."""
        self._left_bytes -= 2 * written_bytes
        if self._left_bytes < self._low_bytes:
            self.is_low = True

    def sample(self) -> None:
        """Looks again, and gives the reserve back or makes it anew."""
        left = self._free_bytes()
        if left < self._reserve_bytes and self._reserve_path.exists():
            self.release_reserve()
            left = self._free_bytes()
        elif left >= self._low_bytes + 2 * self._reserve_bytes and not self._has_reserve():
            self._make_reserve()
        is_low = left < self._low_bytes
        if is_low != self.is_low:
            log.warning(
                "Free space beside %s: %d bytes; new messages are %s.",
                self._reserve_path.stem,
                left,
                "refused until there are more" if is_low else "accepted again",
            )
        self._left_bytes = left
        self.is_low = is_low

    def release_reserve(self) -> None:
        """The disk is full: the reserve's blocks go to those who make room."""
        if self._reserve_path.exists():
            log.warning("The disk is nearly full: giving the reserve file %s back.", self._reserve_path.name)
            self._reserve_path.unlink(missing_ok=True)

    def _has_reserve(self) -> bool:
        try:
            return self._reserve_path.stat().st_size >= self._reserve_bytes
        except FileNotFoundError:
            return False

    def _make_reserve(self) -> None:
        if self._reserve_bytes == 0:
            return
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._reserve_path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._reserve_bytes)
        except OSError as error:
            self._reserve_path.unlink(missing_ok=True)
            log.warning("The reserve file %s cannot be made: %s.", self._reserve_path.name, error.strerror)
        finally:
            os.close(descriptor)
