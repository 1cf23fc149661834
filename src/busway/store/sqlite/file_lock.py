"""Which server a store's file belongs to: a lock on a file of its own beside it.

Theory of operation. The database file itself is never opened for this: POSIX drops all locks that a process has on a
file, SQLite's own among them, when it closes any descriptor of it. The lock lies beside the file that a path leads to
in the end, so symbolic links, relative paths and mounts end at the same lock. A second hard link would have a lock of
its own, and a log of its own (SQLite names it after the path it was given), so a file with two names is refused by
either. The system lets go when the process ends, however it ends; the lock's file stays, because removing it would
let two processes lock two different files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

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
