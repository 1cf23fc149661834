"""What is measured of a database, and what is looked at now and then: its clock, its dead rows, and who keeps them.

Theory of operation. The commit thread counts its commits as it goes. Every LOOK_S seconds a reader thread asks the
server two questions, which cost it a millisecond; nobody waits for the answers. Rows that die faster than vacuum
takes them away cost no read anything (`counters.head`), but room, and in the end the server's patience; so when
there are many, the log says what keeps them: an old snapshot, a standby's, a slot, a prepared transaction, or
autovacuum that is off. A clock that is wrong breaks nothing either: times come from Busway's alone. It is told
because people compare logs, and because one of two clocks is wrong.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import Any, Final, NamedTuple

import psycopg

from busway.clock import Clock
from busway.store.statements import statements_of

_log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
#: The first look comes soon after the start.
LOOK_FIRST_S: Final = 5.0
COMMIT_STEPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
SKEW_MAX_S: Final = 0.5
#: Of one table; autovacuum comes at 50,000.
DEAD_ROWS_MAX: Final = 500_000

query = statements_of(__package__).query
_READ_DEAD_ROWS: Final = query("read_dead_rows")
_READ_CLOCK: Final = query("read_clock")
_READ_HOLDERS: Final = query("read_holders")


class Looked(NamedTuple):
    """Answers of the server."""

    dead_rows: dict[str, int]
    #: How far its clock is ahead of ours; what the way there and back leaves open on either side.
    skew_s: float
    unsure_s: float
    #: What keeps dead rows, for people, the oldest first; and the age of that.
    holders: list[str]
    oldest_s: float


def look(cursor: psycopg.RawCursor[Any], clock: Clock) -> Looked:
    """In a reader thread."""
    asked_s = clock.monotonic()
    asked_ms = clock.wall_ms()
    (server_s,) = _one(cursor, _READ_CLOCK)
    unsure_s = (clock.monotonic() - asked_s) / 2
    dead = {str(table): int(count) for table, count in cursor.execute(_READ_DEAD_ROWS).fetchall()}
    holders = cursor.execute(_READ_HOLDERS).fetchall()
    return Looked(
        dead,
        float(server_s) - asked_ms / 1000 - unsure_s,
        unsure_s,
        [str(text) for text, _ in holders],
        max((float(age_s) for _, age_s in holders if age_s is not None), default=0.0),
    )


def _one(cursor: psycopg.RawCursor[Any], statement: str) -> Any:
    return cursor.execute(statement).fetchone()


class DatabaseFigures:
    """Of one database. Counted in the commit thread, read on the loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Batches that were sent again.
        self.resends = 0
        #: By COMMIT_STEPS_S, then those that took longer; and their sum.
        self.commit_steps = [0] * (len(COMMIT_STEPS_S) + 1)
        self.commit_s = 0.0
        self.looked: Looked | None = None
        self._is_skewed = False
        self._is_told = False

    def committed(self, took_s: float) -> None:
        self.commit_steps[bisect_left(COMMIT_STEPS_S, took_s)] += 1
        self.commit_s += took_s

    def note(self, looked: Looked) -> None:
        """On the loop. Each cause is told once, until it is over."""
        self.looked = looked
        self._tell_skew(looked)
        table, count = max(looked.dead_rows.items(), key=lambda each: each[1], default=("", 0))
        if count <= DEAD_ROWS_MAX:
            self._is_told = False
        elif not self._is_told:
            self._is_told = True
            _log.warning(
                "The database of the stores %s-… has %d dead rows in busway.%s that vacuum does not remove. %s",
                self.name,
                count,
                table,
                f"They are kept by {'; '.join(looked.holders)}."
                if looked.holders
                else "Nothing keeps them that this user may see (GRANT pg_read_all_stats shows more).",
            )

    def _tell_skew(self, looked: Looked) -> None:
        is_skewed = abs(looked.skew_s) - looked.unsure_s > SKEW_MAX_S
        if is_skewed and not self._is_skewed:
            _log.warning(
                "The clock of the database of the stores %s-… is %.1f s %s this machine's. Times of messages come"
                " from this machine alone; one of the two clocks is wrong.",
                self.name,
                abs(looked.skew_s),
                "ahead of" if looked.skew_s > 0 else "behind",
            )
        self._is_skewed = is_skewed
