"""Where an order of times begins: before it there may be dead rows only.

Theory of operation. Rows that are due, or expire, are looked for from the earliest on, and those that were lie before
them, dead: as many as have come since the last vacuum, or since somebody took an old snapshot. A read that began at
the head moves it up to the first row that it found; a row that comes before it takes it down. What came while the
read was under way, perhaps unseen by it, is remembered by its commit. Nothing of this is stored: the first read after
an opening walks, and finds the head anew.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: A time and a row's key.
Moment = tuple[int, int]

BEGINNING: Final[Moment] = (-(1 << 62), 0)
#: Commits that one read may last without its find being lost.
_COMMITS_MAX: Final = 256


class TimeHead:
    """No row of this order is earlier. Belongs to the loop."""

    __slots__ = ("_joined", "at")

    def __init__(self) -> None:
        self.at = BEGINNING
        #: (commit, the earliest row that came with it).
        self._joined: deque[tuple[int, Moment]] = deque(maxlen=_COMMITS_MAX)

    def joined(self, commit_number: int, earliest: Moment) -> None:
        """A commit will bring rows."""
        self.at = min(self.at, earliest)
        self._joined.append((commit_number, earliest))

    def seen(self, first: Moment, stored_number: int) -> None:
        """A read from the head on, begun when that commit was the last stored one, found this first."""
        joined = self._joined
        if len(joined) == _COMMITS_MAX and joined[0][0] > stored_number:
            return
        earliest = min([first, *(moment for number, moment in joined if number > stored_number)])
        self.at = max(self.at, earliest)
