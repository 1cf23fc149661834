"""What is measured of a server beside its namespace, and what its process uses of the machine."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class MeasuredJournal(Protocol):
    """The operation journal: rows in finished files, rows that were left out."""

    @property
    def rows(self) -> int: ...
    @property
    def rows_left_out(self) -> int: ...


class MeasuredTurns(Protocol):
    """The turns of the event loop: a `StallMeter`."""

    @property
    def long_turns(self) -> list[int]: ...
    def longest_s(self) -> tuple[float, float]: ...


class MeasuredConnections(Protocol):
    """What all connections make the server hold."""

    @property
    def held_bytes(self) -> int: ...


class MeasuredStaging(Protocol):
    """Writes in two phases: `Stagings`."""

    def figures(self) -> list[float]:
        """In the order of STAGING_METRICS."""


@dataclass(frozen=True)
class MeasuredProcess:
    """What a server has beside its namespace; nothing of it need be there."""

    journal: MeasuredJournal | None = None
    turns: MeasuredTurns | None = None
    connections: MeasuredConnections | None = None
    staging: MeasuredStaging | None = None


def cpu_seconds() -> float:
    """User and system time of all threads since the start."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Where the system does not tell the present size, the largest so far."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
