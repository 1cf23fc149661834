"""Our code on the event loop: how long its visits take, work that nobody waits for, and the broker's deadlines.

**Entries.** Where the loop enters our code, the length of a visit is noted with its name. Whoever is called by the
loop looks at the clock before and after, and speaks up only when its visit was longer than `longest_s`, the
longest since the stall meter looked last and never less than ENTRY_S: so an ordinary visit costs two looks at a
clock and a comparison, and what ran is put into words for the few that were long. Words, no objects: nothing is
kept alive by having been slow. While no meter is on (`StallMeter`) nobody is ever long enough. A visit may lie
inside another: a timer in a tick, a collection anywhere. The inner one's name stays as long as it makes up half of
the outer one. A coroutine is entered once for each of its steps: see `Steps`.

**Background work** is kept alive while it runs, its failures are logged, and all of it is ended at close.

**The ticker** drives a namespace's deadlines: one timer, armed for the earliest of them. A deadline that becomes
the earliest while the loop sleeps is told by the namespace and moves the timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from busway.clock import Clock

#: Shorter visits are nobody's concern.
ENTRY_S: Final = 0.01
_NEVER_S: Final = float("inf")
#: Of a name that a peer may have chosen.
_NAME_CHARACTERS_MAX: Final = 120

Result = TypeVar("Result")


class LoopEntries:
    """The longest visit since the last look."""

    __slots__ = ("began_s", "longest_s", "now", "what")

    def __init__(self) -> None:
        self.now: Callable[[], float] = perf_counter
        #: When the visit began whose length is `longest_s`; meaningless while `what` is "".
        self.began_s = 0.0
        self.longest_s = _NEVER_S
        self.what = ""

    def begin(self) -> None:
        """From now on long visits are noted."""
        self.longest_s = ENTRY_S
        self.what = ""

    def stop(self) -> None:
        self.longest_s = _NEVER_S
        self.what = ""

    def note(self, began_s: float, what: str) -> None:
        """A visit that began then ends now, and is longer than all others."""
        lasted_s = self.now() - began_s
        lies_outside = not self.what or self.began_s < began_s
        if lies_outside or lasted_s > 2 * self.longest_s:
            self.what = what
        self.began_s = began_s
        self.longest_s = lasted_s


#: Of the process: it has one event loop.
LOOP: Final = LoopEntries()


def soon(visit: Callable[[], None]) -> None:
    """With the loop's next turn."""
    asyncio.get_running_loop().call_soon(visit)


def shown(name: object) -> str:
    """A name as a log may hold it: short, in quotes, without control characters."""
    text = str(name)
    if len(text) > _NAME_CHARACTERS_MAX:
        text = text[:_NAME_CHARACTERS_MAX] + "…"
    return ascii(text) if not text.isprintable() else f"'{text}'"


def name_of(work: object) -> str:
    """Of a coroutine or a function."""
    return str(getattr(work, "__qualname__", type(work).__name__))


class Steps(Coroutine[Any, Any, Result]):
    """A coroutine whose every step is a visit of the loop. To be awaited, or made a task, in place of it."""

    __slots__ = ("_what", "_work")

    def __init__(self, work: Coroutine[Any, Any, Result], what: Callable[[], str]) -> None:
        self._work = work
        self._what = what

    def send(self, value: Any) -> Any:
        began_s = LOOP.now()
        try:
            return self._work.send(value)
        finally:
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, self._what())

    def throw(self, *error: Any) -> Any:
        began_s = LOOP.now()
        try:
            return self._work.throw(*error)
        finally:
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, self._what())

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.send(None)


_log = logging.getLogger("busway.broker")


class BackgroundWork:
    """Work that nobody waits for: kept alive while it runs, its failures logged, all of it ended at close."""

    def __init__(self) -> None:
        #: The loop holds tasks weakly: without this one could vanish half way.
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], ended: Callable[[], None] | None = None) -> None:
        """Starts it. What it raises is logged: our errors carry no secrets. `ended` is called however it ends."""
        task = self.start(work)
        task.add_done_callback(_log_failure)
        if ended is not None:
            task.add_done_callback(lambda _: ended())

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Starts it for somebody who looks at the result."""
        named = Steps(work, lambda: f"background work: {name_of(work)}")
        task = asyncio.get_running_loop().create_task(named)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for the result; when the caller is cancelled meanwhile the work still goes on to its end."""
        return await asyncio.shield(self.start(work))

    async def idle(self) -> None:
        """Returns when nothing is under way, not even what the rest of it started."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels what is left and waits until it is gone."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("Background work failed.", exc_info=task.exception())


class ClientWork:
    """What is done for one client besides, each step a visit of the loop. It ends with the client."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        named = Steps(work, lambda: f"{name_of(work)}, for {self._client}")
        task = asyncio.get_running_loop().create_task(named)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logging.getLogger("busway.gateway.amqp").error(
                "background work failed: peer=%s", self._client, exc_info=task.exception()
            )


#: A machine may sleep or its clocks may run apart: look at least this often.
PAUSE_MAX_S: Final = 1.0
#: Loops round to milliseconds: one that wakes a little early must not spin, and work that arms itself for now
#: must not hold the loop.
PAUSE_MIN_S: Final = 0.001


class Clockwork(Protocol):
    """What has deadlines: the namespace."""

    def next_deadline(self) -> float | None: ...
    def watch_deadlines(self, earlier: Callable[[], None]) -> None: ...
    def tick(self) -> None: ...


class Ticker:
    """Drives a namespace's deadlines from the event loop: one timer, armed for the earliest deadline."""

    def __init__(self, clockwork: Clockwork, clock: Clock) -> None:
        self._clockwork = clockwork
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._clockwork.watch_deadlines(self._arm)
        self._arm()

    def stop(self) -> None:
        self._loop = None
        self._disarm()

    def _arm(self) -> None:
        self._disarm()
        if self._loop is None:
            return
        deadline = self._clockwork.next_deadline()
        pause_s = PAUSE_MAX_S if deadline is None else deadline - self._clock.monotonic()
        self._handle = self._loop.call_later(min(max(pause_s, PAUSE_MIN_S), PAUSE_MAX_S), self._rang)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        began_s = LOOP.now()
        try:
            self._clockwork.tick()
        finally:
            self._arm()
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, "timers of the broker")
