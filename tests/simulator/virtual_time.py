"""An event loop on which waiting costs nothing, and the clock that goes with it.

Theory of operation. The loop is asyncio's own, with another way to wait: instead of asking the system for events it
moves its time to the next timer. There are no sockets, no threads and no other source of events, so what happens, and
in which order, follows from the program alone. When there is neither anything ready nor any timer, nothing will ever
happen again: that is an error, as is a loop that goes round without time passing, and one that finds no end.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from busway.clock import Clock

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

#: Turns of the loop at one instant of its time. More is a livelock.
_TURNS_PER_INSTANT_MAX: Final = 100_000
NEVER_S: Final = float("inf")
#: Finished tasks are forgotten when so many are known.
_TASKS_KNOWN_MAX: Final = 2_000


class NothingWillHappen(Exception):
    """Somebody waits, and there is no timer that could end it."""


class TimeStandsStill(Exception):
    """Work goes on and on at one instant."""


class NoEnd(Exception):
    """More time has passed than any run needs."""


class _Jump:
    """What the loop takes for a selector."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[object]:
        if timeout_s is None:
            raise NothingWillHappen("Somebody waits for something that will never happen.")
        self._loop.pass_time(timeout_s)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the head of this file."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump(self)
        self._clock_resolution = 1e-7
        self._now_s = 1_000.0
        self._turns = 0
        #: Then it is enough.
        self.ends_at_s = NEVER_S
        #: In order of creation, unlike asyncio's own set of them.
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        if seconds > 0:
            self._now_s += seconds
            self._turns = 0
            if self._now_s > self.ends_at_s:
                raise NoEnd(f"It is {self._now_s:.0f} s, and there is no end.")
            return
        self._turns += 1
        if self._turns > _TURNS_PER_INSTANT_MAX:
            raise TimeStandsStill(f"{self._turns} turns of the loop at {self._now_s:.3f} s.")

    def live_tasks(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended, the oldest first."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return list(self._tasks)

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
        self._tasks.append(task)
        if len(self._tasks) > _TASKS_KNOWN_MAX:
            self.live_tasks()
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        del executor, args
        raise RuntimeError(f"There are no threads here: {func!r} cannot run in one.")

    # What asyncio asks of a loop that could be woken from outside.

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """It never sleeps."""


class VirtualClock(Clock):
    """The loop's time; somebody may set the wall clock."""

    def __init__(self, loop: VirtualLoop, wall_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._offset_ms = wall_ms - round(loop.time() * 1000)
        #: The latest wall time that anybody can have read.
        self._high_ms = wall_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        now_ms = int(self._loop.time() * 1000) + self._offset_ms
        self._high_ms = max(self._high_ms, now_ms)
        return now_ms

    def high_ms(self) -> int:
        self.wall_ms()
        return self._high_ms

    def step(self, seconds: float) -> None:
        self.wall_ms()
        self._offset_ms += round(seconds * 1000)
