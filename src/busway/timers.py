"""Deadlines as data.

A heap of (monotonic deadline, callback). Nothing here waits: whoever drives it asks `next_deadline()`, sleeps in
its own way and calls `run(now)`; `on_earlier` tells a sleeper that it would now wake too late. A cancelled timer
stays in the heap until its time comes or until cancelled ones outnumber the live ones, so cancelling costs
nothing; but it lets go of its callback at once, and with it of everything that this holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from busway.event_loop import LOOP, name_of

#: Below this many entries a heap full of cancelled timers is not worth rebuilding.
_REBUILD_MIN: Final = 256


class Timer:
    """One armed deadline. It runs once, or never when cancelled."""

    __slots__ = ("callback", "deadline", "is_cancelled", "order")

    def __init__(self, deadline: float, order: int, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        #: Timers of one instant run in the order they were armed.
        self.order = order
        self.callback = callback
        self.is_cancelled = False


class Timers:
    """All deadlines of one process."""

    __slots__ = ("_cancelled", "_heap", "_order", "on_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = 0
        self._cancelled = 0
        #: Called when a timer is armed before all others.
        self.on_earlier: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        self._order += 1
        timer = Timer(deadline, self._order, callback)
        heapq.heappush(self._heap, (deadline, self._order, timer))
        if self.on_earlier is not None and self._heap[0][2] is timer:
            self.on_earlier()
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Idempotent; a timer that has run may be cancelled too. None is no timer."""
        if timer is None or timer.is_cancelled:
            return
        timer.is_cancelled = True
        timer.callback = _nothing
        self._cancelled += 1
        if self._cancelled > _REBUILD_MIN and self._cancelled * 2 > len(self._heap):
            self._rebuild()

    def next_deadline(self) -> float | None:
        self._drop_cancelled_head()
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> int:
        """Runs what is due. A timer armed meanwhile, even for the past, waits for the next run, so that one
        that re-arms itself at once cannot hold the loop. Returns how many ran."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.is_cancelled:
                self._cancelled -= 1
            else:
                due.append(timer)
        ran = 0
        for index, timer in enumerate(due):
            if timer.is_cancelled:  # by one that ran just before it; it had already left the heap
                self._cancelled -= 1
                continue
            timer.is_cancelled = True  # has run: cancelling it now must not count
            callback, timer.callback = timer.callback, _nothing
            began_s = LOOP.now()
            try:
                callback()
            except BaseException:
                self._put_back(due[index + 1 :])
                raise
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, f"a timer of the broker: {name_of(callback)}")
            ran += 1
        return ran

    def _put_back(self, due: list[Timer]) -> None:
        """One has failed: the others run at the next run."""
        for timer in due:
            heapq.heappush(self._heap, (timer.deadline, timer.order, timer))

    def _drop_cancelled_head(self) -> None:
        while self._heap and self._heap[0][2].is_cancelled:
            heapq.heappop(self._heap)
            self._cancelled -= 1

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
        heapq.heapify(self._heap)
        self._cancelled = 0


def _nothing() -> None:
    """What a timer does that was cancelled, or has run."""
