"""Watching free space, so that a full disk is no outage.

Below the low-water mark new messages are refused before they join a batch, while everything that makes room
(settlement, deletes, checkpoints) goes on. Should the disk fill up all the same, a reserve file of real blocks is
given back to the file system and pays for that. When space returns, the reserve is made again; nobody has to do
anything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

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
