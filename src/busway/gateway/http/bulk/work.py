"""Lines in which bulk requests wait, and bulk work in threads: as much at once as there are cores beside the loop's.

Theory of operation. In a line callers are served in turn: one with sixty requests gets no more than one with a single
request.

Threads that move megabytes take cores, not only time: where more of them run than there are
cores, the loop, every commit and all other programs wait behind them for milliseconds. So CORES pieces are at work at
once, over all stores, entities and sockets; and WORKING_MAX at one of them.

What waits for a disk takes no core. A piece that lasts longer than SLOW_S counts no longer, and neither does what
follows it at the same store or entity until one is quick again or nobody is left there: so one that is slow holds up
nobody else.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from typing import Final

WORKING_MAX: Final = 4
SLOW_S: Final = 0.05


class Waiter:
    """One place in one line."""

    __slots__ = ("caller", "come", "size", "what")

    def __init__(self, caller: str, size: int = 0, what: str = "") -> None:
        self.caller = caller
        self.size = size
        self.what = what
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give(self) -> bool:
        """False when it has gone, and was not yet there to say so."""
        if self.come.done():
            return False
        self.come.set_result(None)
        return True


class FairLine:
    """Callers in turn; of one caller whoever came first."""

    __slots__ = ("_by_caller",)

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, deque[Waiter]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_caller.values()))

    def __bool__(self) -> bool:
        return bool(self._by_caller)

    def add(self, waiter: Waiter) -> None:
        self._by_caller.setdefault(waiter.caller, deque()).append(waiter)

    def first(self) -> Waiter:
        return next(iter(self._by_caller.values()))[0]

    def heads(self) -> list[Waiter]:
        """The first of each caller, whose turn it is first."""
        return [own[0] for own in self._by_caller.values()]

    def served(self, waiter: Waiter) -> None:
        """It leaves, and its caller has had its turn."""
        self.left(waiter)
        if waiter.caller in self._by_caller:
            self._by_caller.move_to_end(waiter.caller)

    def left(self, waiter: Waiter) -> None:
        own = self._by_caller.get(waiter.caller)
        if own is None or waiter not in own:
            return
        own.remove(waiter)
        if not own:
            del self._by_caller[waiter.caller]


def _spare_cores() -> int:
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(1, mine - 1), WORKING_MAX)


#: Pieces of work that run at once.
CORES: Final = _spare_cores()


class _WorkPlace:
    """A store, an entity or the sockets."""

    __slots__ = ("is_slow", "line", "running")

    def __init__(self) -> None:
        self.line = FairLine()
        #: With the time at which they began.
        self.running: dict[Waiter, float] = {}
        self.is_slow = False


class WorkLines:
    """Of one server."""

    def __init__(self, cores: int = CORES) -> None:
        self._cores = cores
        #: Where somebody works or waits, in the order in which their turn comes.
        self._places: dict[str, _WorkPlace] = {}
        #: Those that take a core.
        self._counted: set[Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    def line_up(self, waiter: Waiter) -> None:
        self._places.setdefault(waiter.what, _WorkPlace()).line.add(waiter)
        self._go_on()

    def worked(self, waiter: Waiter) -> None:
        place = self._places[waiter.what]
        place.is_slow = asyncio.get_running_loop().time() - place.running.pop(waiter) > SLOW_S
        self._counted.discard(waiter)
        self._tidy(waiter.what, place)
        self._go_on()

    def forget(self, waiter: Waiter) -> None:
        """It waits no longer."""
        place = self._places.get(waiter.what)
        if place is not None:
            place.line.left(waiter)
            self._tidy(waiter.what, place)

    def _tidy(self, what: str, place: _WorkPlace) -> None:
        if not (place.line or place.running):
            del self._places[what]

    def _go_on(self) -> None:
        while any(self._starts(what) for what in list(self._places)):
            pass
        if self._timer is None and self._counted and any(place.line for place in self._places.values()):
            self._timer = asyncio.get_running_loop().call_later(SLOW_S, self._look)

    def _starts(self, what: str) -> bool:
        """Whether a piece was started there, or somebody who had gone was left out."""
        place = self._places[what]
        if not place.line or not self._has_room(place):
            return False
        self._places[what] = self._places.pop(what)  # its turn comes again behind all others
        waiter = place.line.first()
        place.line.served(waiter)
        if waiter.give():
            place.running[waiter] = asyncio.get_running_loop().time()
            if not place.is_slow:
                self._counted.add(waiter)
        else:
            self._tidy(what, place)
        return True

    def _has_room(self, place: _WorkPlace) -> bool:
        return len(place.running) < WORKING_MAX and (place.is_slow or len(self._counted) < self._cores)

    def _look(self) -> None:
        """Somebody waits: what has been at work for long waits for a disk itself."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiter in list(self._counted):
            place = self._places[waiter.what]
            if now - place.running[waiter] > SLOW_S:
                place.is_slow = True
                self._counted.discard(waiter)
        self._go_on()
