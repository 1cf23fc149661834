"""A file system for SQLite that fails on purpose: an error at the Nth write, a full disk, a crash, a power cut.

Every write, sync and truncation counts as one step. What was written since a file's last sync is remembered, so
that a power cut can take it back.
"""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import apsw

_names = itertools.count(1)


class FaultyDisk(apsw.VFS):
    """Register by making one; pass `name` as a store's vfs. Use as a context manager."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        self._lock = threading.Lock()
        self._unsynced: dict[str, list[tuple[int, bytes, int]]] = {}
        self.steps = 0
        self.faults = 0
        self._fails_at: int | None = None
        self._dies_at: int | None = None
        self._is_full = False
        super().__init__(self.name, "")

    def __enter__(self) -> FaultyDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self.unregister()

    # -- what goes wrong
    def fail_at(self, step: int) -> None:
        """One step fails with an I/O error, later ones work."""
        self._fails_at = step

    def die_at(self, step: int) -> None:
        """From this step on nothing is written any more: the process is as good as dead."""
        self._dies_at = step

    def fill_up(self) -> None:
        """Nothing can be written until `heal`."""
        self._is_full = True

    def heal(self) -> None:
        self._fails_at = self._dies_at = None
        self._is_full = False

    def cut_power(self) -> None:
        """Takes back what was not synced, as if the machine had lost its power."""
        for path, log in self._unsynced.items():
            if os.path.exists(path):
                with open(path, "r+b") as file:
                    for offset, before, size in reversed(log):
                        file.seek(offset)
                        file.write(before)
                        file.truncate(size)
        self._unsynced.clear()

    # -- the file system
    def xOpen(self, name: Any, flags: list[int]) -> _FaultyFile:
        return _FaultyFile(self, name, flags)

    def step(self) -> None:
        with self._lock:
            self.steps += 1
            if self._is_full:
                self.faults += 1
                raise apsw.FullError("the disk is full")
            if self.steps == self._fails_at or (self._dies_at is not None and self.steps >= self._dies_at):
                self.faults += 1
                raise apsw.IOError("the disk failed")

    def remember(self, path: str, offset: int, length: int) -> None:
        if not path:
            return
        with open(path, "rb") as file:
            file.seek(offset)
            before = file.read(length)
        self._unsynced.setdefault(path, []).append((offset, before, os.path.getsize(path)))

    def forget(self, path: str) -> None:
        self._unsynced.pop(path, None)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        #: Empty for SQLite's own scratch files, which no power cut brings back.
        self._path = "" if name is None else name if isinstance(name, str) else name.filename()
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.step()
        self._disk.remember(self._path, offset, len(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.step()
        size = os.path.getsize(self._path) if self._path else 0
        self._disk.remember(self._path, newsize, max(0, size - newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.step()
        super().xSync(flags)
        self._disk.forget(self._path)


def reboot(path: Path) -> None:
    """The next process finds no shared memory of the last one."""
    Path(f"{path}-shm").unlink(missing_ok=True)
