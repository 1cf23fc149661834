"""Which runs of rows were touched lately, so that their next pages can be read without asking a thread first.

When a page follows another, the reader thread that touches its rows goes on and touches those of the next few
pages, and how far it came is noted here for a moment: the system keeps in memory what was read this recently. A
consumer that works through a backlog then needs a thread only for every eighth page or so.
"""

from __future__ import annotations

from typing import Final

from busway.clock import Clock
from busway.store.contract import FragmentKey

#: How long a touched page surely stays in memory.
_LASTS_S: Final = 2.0
#: Runs that are noted at the same time.
_RUNS_MAX: Final = 256


class Warmth:
    """Touched runs, one for each place of a fragment. Belongs to the loop."""

    __slots__ = ("_clock", "_runs")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: (fragment, place) → (where the last page ended, up to where rows were touched, when).
        self._runs: dict[tuple[FragmentKey, int], tuple[int, int, float]] = {}

    def note(self, fragment: FragmentKey, place: int, page_end: int, last: int) -> None:
        """A page ended at this number; the rows behind it were touched, too, up to `last`."""
        if len(self._runs) >= _RUNS_MAX:
            self._runs.clear()
        self._runs[fragment, place] = (page_end, last, self._clock.monotonic())

    def is_followed(self, fragment: FragmentKey, place: int, after: int) -> bool:
        """A page behind `after` goes on where another ended."""
        run = self._run(fragment, place)
        return run is not None and run[0] <= after <= run[1]

    def last(self, fragment: FragmentKey, place: int, after: int) -> int | None:
        """Up to which number the rows behind `after` can be read at once; None when a thread must touch them."""
        run = self._run(fragment, place)
        return run[1] if run is not None and run[0] <= after < run[1] else None

    def _run(self, fragment: FragmentKey, place: int) -> tuple[int, int, float] | None:
        run = self._runs.get((fragment, place))
        if run is None or self._clock.monotonic() - run[2] > _LASTS_S:
            return None
        return run

    def forget(self) -> None:
        self._runs.clear()
