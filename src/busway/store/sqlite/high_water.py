"""A second, tiny file that remembers how many commits a store has seen.

SQLite cannot tell a damaged log from a log that just ends there: one flipped bit in it and every later commit is
gone without an error. So the number of the last commit is written here too, synced, at each checkpoint and at least
every second while there are commits. A store whose own count is lower at start has lost its tail.

Two lines are written in turn, each with its own check, so a crash while writing leaves the other one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from zlib import crc32

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
