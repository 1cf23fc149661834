"""The thread in which commits run: one job after the other, handed over with as little ado as possible.

A pool's future per job costs about 25 µs that every single send would wait for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class CommitThread:
    """Runs jobs in the order of `submit`. Jobs tell their outcome themselves and must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Returns when everything submitted is done. Blocks: call it off the loop."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()
