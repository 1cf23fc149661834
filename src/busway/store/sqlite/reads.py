"""Reads of messages that pass by the thread where they can.

When a page follows another, the reader thread that touches its rows goes on and touches those of the next few
pages, and how far it came is noted for a moment (`TouchedRuns`): the system keeps in memory what was read this
recently. A consumer that works through a backlog then needs a thread only for every eighth page or so.
"""

from __future__ import annotations

from typing import Final

from busway.clock import Clock
from busway.store.contract import FragmentKey
from busway.store.reads import CorrectedReads
from busway.store.rows import RawPage
from busway.store.spans import ReadSpan, Spans
from busway.store.sqlite.reader import Reader
from busway.store.sqlite.reader_pool import ReaderPool, run_here, run_warm

#: How many pages a thread touches behind one that follows another.
_PAGES_AHEAD: Final = 8
#: How long a touched page surely stays in memory.
_LASTS_S: Final = 2.0
#: Runs that are noted at the same time.
_RUNS_MAX: Final = 256


class TouchedRuns:
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


class SqliteReads(CorrectedReads[Reader]):
    """The reading half of `contract.Store`."""

    def __init__(self, spans: Spans[Reader], readers: ReaderPool, clock: Clock) -> None:
        super().__init__(spans)
        self._readers = readers
        self._touched_runs = TouchedRuns(clock)

    def begin(self, dropped: set[int], sharing: set[int], number_bases: dict[int, int]) -> None:
        super().begin(dropped, sharing, number_bases)
        self._touched_runs.forget()

    async def _raw_messages(
        self,
        span: ReadSpan[Reader],
        fragment: FragmentKey,
        place: int,
        after: int,
        limit: int,
        bytes_max: int,
    ) -> RawPage:
        """At once where a thread has touched the rows lately, else after a thread has."""
        warmth = self._touched_runs
        touched = warmth.last(fragment, place, after)
        if touched is not None:
            last: int = touched
            found = await run_here(
                span,
                self._readers,
                lambda reader: reader.messages(fragment, place, after, limit, bytes_max, last),
            )
            if found is not None:
                return found
        rows_ahead = limit * _PAGES_AHEAD if warmth.is_followed(fragment, place, after) else 0
        with_payloads = fragment in self._sharing
        warmed, page = await run_warm(
            span,
            self._readers,
            lambda reader: reader.warm_messages(
                fragment, place, after, limit, bytes_max, rows_ahead, with_payloads
            ),
            lambda reader, bounds: reader.messages(fragment, place, after, limit, bytes_max, bounds[0]),
        )
        page_end = max(page.last_number, after)
        warmth.note(fragment, place, page_end, max(page_end, warmed[1]))
        return page

    async def _raw_session(
        self,
        span: ReadSpan[Reader],
        fragment: FragmentKey,
        session_id: str,
        after: int,
        limit: int,
        bytes_max: int,
    ) -> RawPage:
        _, page = await run_warm(
            span,
            self._readers,
            lambda reader: reader.warm_session_messages(fragment, session_id, after, limit),
            lambda reader, _: reader.session_messages(fragment, session_id, after, limit, bytes_max),
        )
        return page
