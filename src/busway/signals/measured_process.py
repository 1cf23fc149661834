"""What is measured of a server beside its namespace."""

from dataclasses import dataclass
from typing import Protocol


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
