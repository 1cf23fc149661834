"""Stores of one process that commit in step.

Theory of operation. A commit costs a thread's waking, a sync and a turn of the loop, however little it writes. Where
several stores share the work, as they do for a partitioned entity, each would commit as soon as it has anything:
many small commits in place of a few large ones. So a store that has something to write while others are committing
waits for them, and all that have waited start together; meanwhile their batches grow, just as a single store's batch
grows during its own commit. A store whose commit takes long is not waited for: after `_PATIENCE_S` others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from busway.clock import Clock

#: A commit that is under way for longer holds nobody up.
_PATIENCE_S: Final = 0.004


class CommitStep:
    """Shared by the stores. Belongs to the loop."""

    __slots__ = ("_clock", "_is_due", "_running", "_timer", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Who commits, and since when.
        self._running: dict[str, float] = {}
        self._waiting: list[Callable[[], None]] = []
        #: The waiting ones start with the loop's next turn.
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def join(self, start: Callable[[], None]) -> None:
        """Calls `start` when it is time, with the loop's next turn at the earliest."""
        self._waiting.append(start)
        self._look()

    def began(self, name: str) -> None:
        self._running[name] = self._clock.monotonic()

    def ended(self, name: str) -> None:
        """Also for one that never began."""
        self._running.pop(name, None)
        if self._waiting:
            self._look()

    def _look(self) -> None:
        if self._is_due:
            return
        loop = asyncio.get_running_loop()
        if not self._is_waited_for():
            self._is_due = True
            loop.call_soon(self._go)
        elif self._timer is None:
            self._timer = loop.call_later(_PATIENCE_S, self._go)

    def _is_waited_for(self) -> bool:
        """Somebody began to commit just now."""
        if not self._running:
            return False
        lately = self._clock.monotonic() - _PATIENCE_S
        return any([since > lately for since in self._running.values()])

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = False
        waiting, self._waiting = self._waiting, []
        for start in waiting:
            start()
