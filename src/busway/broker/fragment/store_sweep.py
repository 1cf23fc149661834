"""Rows of one store whose time comes: what walks over them when it has come.

A sweep sleeps until the earliest time that it knows of. Whoever joins a row with an earlier one tells it. Each walk
sets the alarm anew; whatever ends a walk before its end, there is a next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Final

from mypy_extensions import mypyc_attr

from busway.broker.fragment.wall_alarm import WallAlarm, WallTimers
from busway.clock import Clock
from busway.store.contract import Store, StoreError, StoreState

_log = logging.getLogger(__name__)
_RETRY_MS: Final = 1_000


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreSweep:
    """What is swept (`what`, for the log), and how soon it looks again after a ring in the middle of a walk."""

    def __init__(
        self,
        what: str,
        store: Store,
        wall_timers: WallTimers,
        clock: Clock,
        spawn: Callable[[Coroutine[None, None, None]], object],
        again_ms: int = _RETRY_MS,
    ) -> None:
        self._what = what
        self._store = store
        self._clock = clock
        self._spawn = spawn
        self._again_ms = again_ms
        self._alarm = WallAlarm(wall_timers, self._ring)
        self._is_walking = False
        self._is_stopped = False

    def start(self) -> None:
        """The store has been opened, or opened again."""
        self._alarm.no_later_than(0)

    def stop(self) -> None:
        """The store is out of service; another one is made when it is back."""
        self._is_stopped = True
        self._alarm.stop()

    def joined(self, at_ms: int) -> None:
        """A row has joined whose time this is."""
        self._alarm.no_later_than(at_ms)

    def look_at(self, at_ms: int | None) -> None:
        if at_ms is not None and not self._is_stopped:
            self._alarm.no_later_than(at_ms)

    def look_in(self, delay_ms: int) -> None:
        self.look_at(self._clock.wall_ms() + delay_ms)

    def _ring(self) -> None:
        if self._is_walking:  # it may have passed the rows this is about
            self.look_in(self._again_ms)
        elif self._store.state is StoreState.OPEN:
            self._is_walking = True
            self._spawn(self._run())

    async def _run(self) -> None:
        is_over = False
        try:
            await self.walk()
            is_over = True
        except StoreError as error:
            _log.warning("Cannot %s of store %s: %s", self._what, self._store.name, error)
        finally:
            self._is_walking = False
            if not is_over:
                self.look_in(_RETRY_MS)

    async def walk(self) -> None:
        """Once over everything whose time has come; then the alarm is set for what has not, and for what is left."""
        raise NotImplementedError
