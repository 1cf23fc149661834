"""What is measured of a server beside its namespace: what its process uses, and how long its loop lets all wait.

Theory of operation of the stall meter: turns as figures, and in the log with what ran. While the loop works
nothing else is served, so what counts is the length of its turns. A pulse, a timer every PULSE_S, is late by what
a turn was too long; together with the visits that `event_loop` notes, which are exact, that gives the turn and
what ran in it: usually one visit, sometimes very many short ones. Both together cost next to nothing, whatever
passes through the server. While nothing happens the pulse slows down.

Two clocks tell whose fault it was. A turn of our own making costs as much time of the processor as it takes; where
it costs much less the machine was busy with something else, or another thread had the interpreter. A collection of
garbage counts as a visit of its own, in whichever thread it runs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Final, Protocol

from busway.event_loop import LOOP

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


class MeasuredLeases(Protocol):
    """What a server owns of stores that it shares with others: `ClusterNode`."""

    def owned_stores(self) -> int: ...
    def lease_left_s(self) -> float: ...
    def moves(self) -> dict[str, int]:
        """How many stores came and went, by reason."""

    def nodes(self) -> list[dict[str, object]]: ...


class LookedAt(Protocol):
    """What a database said when it was looked at."""

    @property
    def dead_rows(self) -> dict[str, int]: ...
    @property
    def skew_s(self) -> float: ...
    @property
    def oldest_s(self) -> float: ...


class MeasuredDatabase(Protocol):
    """A PostgreSQL database with stores: its `DatabaseFigures`."""

    @property
    def name(self) -> str: ...
    @property
    def resends(self) -> int: ...
    @property
    def commit_steps(self) -> list[int]:
        """By `LATENCY_STEPS_S`."""

    @property
    def commit_s(self) -> float: ...
    @property
    def looked(self) -> LookedAt | None: ...


@dataclass(frozen=True)
class MeasuredProcess:
    """What a server has beside its namespace; nothing of it need be there."""

    journal: MeasuredJournal | None = None
    turns: MeasuredTurns | None = None
    connections: MeasuredConnections | None = None
    staging: MeasuredStaging | None = None
    leases: MeasuredLeases | None = None
    databases: Sequence[MeasuredDatabase] = ()


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


_log = logging.getLogger("busway.loop")

PULSE_S: Final = 0.02
IDLE_PULSE_S: Final = 0.2
#: Less processor time between two pulses means that nothing happens.
_IDLE_CPU_S: Final = 0.0005
#: Turns from here on are told in the log.
STALL_S: Final = 0.1
#: Turns above these are counted.
LONG_TURNS_S: Final = (0.02, 0.1, 0.5)
#: One line so often, which tells of the others.
LOG_EVERY_S: Final = 10.0
#: The longest turn is that of the present window or of the one before.
WINDOW_S: Final = 60.0

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class StallMeter:
    """For the loop of this thread, from `start` to `stop`."""

    def __init__(self, call_later: CallLater | None = None, cpu_s: Callable[[], float] = thread_time) -> None:
        """Tests bring their own timer and processor."""
        self._call_later = call_later
        self._cpu_s = cpu_s
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._cpu_before_s = 0.0
        self._is_idle = False
        self._collection_began_s = 0.0
        # Figures.
        #: How many turns were longer than each of LONG_TURNS_S.
        self.long_turns = [0] * len(LONG_TURNS_S)
        self._window_ends_s = 0.0
        #: Longest turn by wall and by CPU time, of this window and of the last one.
        self._longest = [0.0, 0.0]
        self._longest_before = [0.0, 0.0]
        # The log.
        self._log_from_s = 0.0
        self._untold = 0
        self._untold_longest_s = 0.0

    def start(self) -> None:
        if self._call_later is None:
            self._call_later = asyncio.get_running_loop().call_later
        LOOP.begin()
        self._cpu_before_s = self._cpu_s()
        self._window_ends_s = self._log_from_s = 0.0
        gc.callbacks.append(self._collecting)
        self._arm(LOOP.now())

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)
        LOOP.stop()

    def longest_s(self) -> tuple[float, float]:
        """The longest turn of the last minute or two, in wall time, and in CPU time."""
        self._turn_window(LOOP.now())
        wall, cpu = map(max, self._longest, self._longest_before)
        return wall, cpu

    # -- the pulse

    def _arm(self, now: float) -> None:
        assert self._call_later is not None
        pause_s = IDLE_PULSE_S if self._is_idle else PULSE_S
        self._due_s = now + pause_s
        self._handle = self._call_later(pause_s, self._beat)

    def _beat(self) -> None:
        now = LOOP.now()
        cpu = self._cpu_s()
        cpu_s, self._cpu_before_s = cpu - self._cpu_before_s, cpu
        visit_s = LOOP.longest_s if LOOP.what else 0.0
        # The pulse was due in the midst of a turn: that of the longest visit, or of short ones from about then on.
        is_in_visit = visit_s > 0.0 and LOOP.began_s < self._due_s < LOOP.began_s + visit_s
        turn_s = max(now - (LOOP.began_s if is_in_visit else self._due_s), visit_s)
        if turn_s > LONG_TURNS_S[0]:
            self._note_turn(now, turn_s, min(cpu_s, turn_s), visit_s)
        LOOP.begin()
        self._is_idle = cpu_s < _IDLE_CPU_S
        self._arm(now)

    def _note_turn(self, now: float, turn_s: float, cpu_s: float, visit_s: float) -> None:
        self._turn_window(now)
        self._longest = [max(self._longest[0], turn_s), max(self._longest[1], cpu_s)]
        for place, least_s in enumerate(LONG_TURNS_S):
            if turn_s > least_s:
                self.long_turns[place] += 1
        if turn_s >= STALL_S:
            self._tell(now, turn_s, cpu_s, visit_s)

    def _turn_window(self, now: float) -> None:
        if now < self._window_ends_s:
            return
        is_next = now < self._window_ends_s + WINDOW_S
        self._longest_before = self._longest if is_next else [0.0, 0.0]
        self._longest = [0.0, 0.0]
        self._window_ends_s = now + WINDOW_S

    # -- the log

    def _tell(self, now: float, turn_s: float, cpu_s: float, visit_s: float) -> None:
        if now < self._log_from_s:
            self._untold += 1
            self._untold_longest_s = max(self._untold_longest_s, turn_s)
            return
        self._log_from_s = now + LOG_EVERY_S
        what = LOOP.what or "many short steps"
        others = ""
        if self._untold:
            others = (
                f"; {self._untold} others since the last such line,"
                f" the longest of {_milliseconds(self._untold_longest_s)}"
            )
        self._untold, self._untold_longest_s = 0, 0.0
        whose = "" if cpu_s * 2 >= turn_s else ", the machine or another thread was busy"
        _log.log(
            logging.INFO if whose else logging.WARNING,
            "the event loop served nobody for %s (%s of CPU%s): %s%s%s",
            _milliseconds(turn_s),
            _milliseconds(cpu_s),
            whose,
            f"{_milliseconds(visit_s)} of it in " if visit_s else "",
            what,
            others,
            extra={
                "fields": {
                    "TurnMs": round(turn_s * 1000),
                    "CpuMs": round(cpu_s * 1000),
                    "LongestMs": round(visit_s * 1000),
                    "What": what,
                }
            },
        )

    # -- garbage

    def _collecting(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = LOOP.now()
        elif LOOP.now() - self._collection_began_s > LOOP.longest_s:
            LOOP.note(self._collection_began_s, f"a collection of garbage, generation {facts['generation']}")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
