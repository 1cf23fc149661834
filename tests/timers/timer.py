"""What a row of the table of timers says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.timers.scan import Place


@dataclass(frozen=True)
class Timer:
    #: With its class: where it is started, waited for, or looked at.
    function: str
    #: RINGS, WAITS or LOOKS; see `scan`.
    kind: str
    #: What it is for.
    purpose: str
    #: Who or what ends it before its time; empty when nobody needs to.
    stopped_by: str
    #: What happens when its time has come.
    end: str
    #: FILE::TEST, below `tests` and without `.py`.
    test: str
    #: The most that it waits for in seconds, where that is fixed.
    longest_s: float = 0.0
    #: Whether its end may be the end of a connection or link that somebody uses.
    ends_connections: bool = False
    #: Below `src`.
    file: str = ""

    @property
    def place(self) -> Place:
        return Place(self.file, self.function, self.kind)


def timers_in(file: str, *timers: Timer) -> tuple[Timer, ...]:
    return tuple(replace(timer, file=file) for timer in timers)
