"""Work that nobody waits for: kept alive while it runs, its failures logged, all of it ended at close."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from busway.loop_entries import Steps, name_of

_log = logging.getLogger("busway.broker")

Result = TypeVar("Result")


class BackgroundWork:
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
