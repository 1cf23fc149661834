"""How long the turns of an event loop are, in CPU time of its thread, and what ran in the longest.

A turn is what a loop does between two looks at its sockets: nobody else is served meanwhile. CPU time, because wall
time tells of the machine's other work too. The ends of a turn are seen by the selector; what ran is known by the
handles, which are wrapped for as long as the meter is on.
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio.events import Handle
from threading import get_ident
from time import thread_time


class TurnMeter:
    """For one loop, made on its thread: `asyncio.SelectorEventLoop(meter.selector)`."""

    def __init__(self) -> None:
        self.selector = _MeteredSelector(self)
        self._thread = 0
        self._began_s = 0.0
        self._step_s = 0.0
        self._step = ""
        #: The loop looks at its sockets, or waits for them.
        self.is_waiting = False
        self.reset()

    def reset(self) -> None:
        """From the next turn on."""
        self.longest_s = 0.0
        self.total_s = 0.0
        self.turns = 0
        #: The longest callback of the longest turn.
        self.what_ran = ""
        self._is_fresh = True

    # -- from the loop

    def turn_began(self) -> None:
        self.is_waiting = False
        self._thread = get_ident()
        self._step_s, self._step = 0.0, ""
        self._is_fresh = False
        self._began_s = thread_time()

    def turn_ended(self) -> None:
        self.is_waiting = True
        if self._is_fresh:
            return
        spent = thread_time() - self._began_s
        self.turns += 1
        self.total_s += spent
        if spent > self.longest_s:
            self.longest_s = spent
            self.what_ran = f"{self._step} ({self._step_s * 1000:.0f} ms of {spent * 1000:.0f})"

    # -- what ran

    def __enter__(self) -> TurnMeter:
        self._run = Handle._run

        def timed(handle: Handle) -> None:
            if get_ident() != self._thread:
                self._run(handle)
                return
            callback = handle._callback  # type: ignore[attr-defined]
            began = thread_time()
            self._run(handle)
            spent = thread_time() - began
            if spent > self._step_s:
                self._step_s, self._step = spent, _described(callback)

        Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[method-assign]


class _MeteredSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    def __init__(self, meter: TurnMeter) -> None:
        super().__init__()
        self._meter = meter

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._meter.turn_ended()
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        self._meter.turn_began()
        return found


def _described(callback: object) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        work = owner.get_coro()
        work = getattr(work, "_work", work)  # the server's own meter has it in an envelope
        return f"a step of {getattr(work, '__qualname__', owner)}"
    return str(getattr(callback, "__qualname__", callback))
