"""When a stream of a capture that follows is started again after it has failed.

Each entity is retried by itself, with pauses that double up to PAUSE_MAX_S, while the others go on; a batch that it
captures, or STEADY_S without a failure, begins the pauses anew. The formats are patient themselves, so what gets here
has lasted, or is no outage: data that is lost, a full disk, an entity that was deleted. Somebody may mend that
meanwhile. Only when all entities have failed, each FAILURES_MAX times in a row, nothing is left to follow, and the
job ends with the sentence.
"""

from __future__ import annotations

import time
from typing import Final

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STEADY_S: Final = 600.0
FAILURES_MAX: Final = 10


class Retry:
    """Of one entity."""

    def __init__(self) -> None:
        self._failures = 0
        self._due_s = 0.0
        self._since_s = time.monotonic()
        #: It has failed and was not started again yet.
        self.is_waiting = False

    def failed(self) -> float:
        """It has: after how many seconds it is started again."""
        if time.monotonic() - self._since_s > STEADY_S:
            self._failures = 0
        pause_s: float = min(PAUSE_FIRST_S * 2**self._failures, PAUSE_MAX_S)
        self._failures += 1
        self._due_s = time.monotonic() + pause_s
        self.is_waiting = True
        return pause_s

    def is_due(self) -> bool:
        return self.is_waiting and time.monotonic() >= self._due_s

    def started(self) -> None:
        self.is_waiting = False
        self._since_s = time.monotonic()

    def went_on(self) -> None:
        """It has captured something."""
        self._failures = 0

    @property
    def is_hopeless(self) -> bool:
        return self.is_waiting and self._failures >= FAILURES_MAX
