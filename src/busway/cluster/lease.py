"""How long an owner may be sure of its stores, and when another node may take them. No two clocks are compared.

Theory of operation. A node *beats*: every quarter of a lease it raises a number in its row of the database. Whoever
owns stores believes so until `OwnLease.until`: nine tenths of a lease after the moment at which it *sent* the last
beat that succeeded. Whoever wants them *watches* that number. When it has stood still for a whole lease since the
*answer* that first showed it arrived, he tries to take the stores, on condition that the number is still that one.

    owner       sends a beat ── stored ·················· until │ hands out nothing more
    candidate                          ── answer ────── a whole lease ──────│ tries to take

The answer came after that beat was sent, whatever was delayed, and a beat that came meanwhile lets the condition
fail. So he succeeds only when the owner's time is over, by the owner's own clock; a tenth of a lease is left for
clocks that run at different rates. What time it is on either machine does not matter.

The condition makes it safe, and the rest makes it calm. A database that stands still delays beats as it delays
looks at them, so a slow answer, or a long silence before one, begins the count again: the owner gets its chance
first. That ends with the tenth lease, or a dead node's stores would never be taken where every answer is slow. And
what was seen on one connection is not compared with what is seen on the next: a database that was restarted may have
lost the last beats, which are not waited for.

How long a lease is stands beside the beat, so that nodes may differ.

Times are seconds of a clock that goes on while the machine sleeps (`boot_time`).
"""

from __future__ import annotations

import time
from typing import Final

from busway.broker.fragment.runtime import StoreLease

LEASE_S_DEFAULT: Final = 2.0
LEASE_S_MIN: Final = 1.0
LEASE_S_MAX: Final = 60.0
#: Of a lease, for clocks that run at different rates.
MARGIN: Final = 0.1
#: An owner beats, a candidate looks, so many times in a lease.
BEATS: Final = 4
LOOKS: Final = 8
#: A look that took a larger part of a lease than this begins the count again, and so does a long pause between looks.
_SLOW: Final = 1 / 4
_PAUSE: Final = 1 / 2
#: After so many leases without a beat it is tried at any rate, when the same was seen so often.
LEASES_MAX: Final = 10
_SIGHTS_MIN: Final = 4

_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Long over.
NEVER: Final = float("-inf")


def boot_time() -> float:
    """Never set, and counts the time in which the machine slept, where the system can tell."""
    return time.clock_gettime(_BOOT_CLOCK)


class OwnLease(StoreLease):
    """What a node may believe of the stores it has, from winning them to losing them: then there is another one, and
    who holds the old one hands out nothing any more. Written by one thread, read by all."""

    is_bounded = True

    def __init__(self, lease_s: float) -> None:
        self._length_s = lease_s * (1 - MARGIN)
        #: Stores are certainly ours before this moment.
        self.until = NEVER
        #: How often it was over before it was renewed.
        self.lapses = 0

    def renewed(self, sent_s: float) -> None:
        """A beat that was sent at that moment has succeeded, and the stores were still ours."""
        if self.until != NEVER and self.is_over():
            self.lapses += 1
        self.until = max(self.until, sent_s + self._length_s)

    def is_over(self) -> bool:
        return boot_time() >= self.until

    def end(self) -> None:
        """They are somebody else's, or given up."""
        self.until = NEVER


class LeaseWatch:
    """What a candidate has seen of another node's beats, on one connection."""

    __slots__ = ("_answered_s", "_beat", "_first_s", "_lease_s", "_sights", "_since_s", "has_moved")

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._beat: int | None = None
        #: When the first and the last answer arrived that showed this beat, and since when it counts.
        self._first_s = 0.0
        self._answered_s = 0.0
        self._since_s = 0.0
        self._sights = 0
        #: A second beat was seen: the node lived when we looked.
        self.has_moved = False

    @property
    def beat(self) -> int | None:
        """The one that was seen last: the condition on which stores may be taken."""
        return self._beat

    def seen(self, beat: int, asked_s: float, answered_s: float) -> None:
        """An answer shows this beat."""
        if beat != self._beat:
            self.has_moved = self._beat is not None
            self._beat = beat
            self._first_s = self._since_s = answered_s
            self._sights = 0
        elif self._was_slow(asked_s, answered_s):
            self._since_s = answered_s
        self._sights += 1
        self._answered_s = answered_s

    def _was_slow(self, asked_s: float, answered_s: float) -> bool:
        is_slow = answered_s - asked_s > self._lease_s * _SLOW
        return is_slow or answered_s - self._answered_s > self._lease_s * _PAUSE

    def may_take(self, now_s: float) -> bool:
        """The node has been silent for a lease; whoever takes its stores must do so on condition of `beat`."""
        if self._beat is None:
            return False
        if now_s - self._since_s >= self._lease_s:
            return True
        return self._sights >= _SIGHTS_MIN and now_s - self._first_s >= self._lease_s * LEASES_MAX
