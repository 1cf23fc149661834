"""Which processors the servers of a pair and their load generators run on.

Both servers share one processor and work at the same time, so the scheduler hands it from one to the other every few
milliseconds. Whatever slows the machine down meanwhile (another program in the caches, a host that lends the
processor to somebody else) slows both down alike and leaves their ratio alone. On a busy machine with two
processors, the ratios of two equal servers were scattered by 11 % one after the other, 6.6 % in turns of a tenth of
a second, 5 % at the same time anywhere, and 1.1 % at the same time on one processor.

The generators have the other processors. Which one is the servers' changes every second pair: processors are not
equal either.

The price: what a server gains or loses by running on several processors at once is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Processors:
    """A context manager: afterwards this process runs where it ran before."""

    def __init__(self) -> None:
        self._usable = sorted(os.sched_getaffinity(0))

    def __enter__(self) -> Processors:
        return self

    def __exit__(self, *_: object) -> None:
        os.sched_setaffinity(0, self._usable)

    def share(self, pair: int, servers: Iterable[int]) -> None:
        """From now on these processes run on one processor, and ours and what it starts on all others."""
        one, others = divided(self._usable, pair)
        for pid in servers:
            _pin(pid, one)
        os.sched_setaffinity(0, others)


def divided(usable: list[int], pair: int) -> tuple[set[int], set[int]]:
    """(the servers' processor, the generators'). A single one has to do for all."""
    one = usable[pair // 2 % len(usable)]
    return {one}, set(usable) - {one} or {one}


def _pin(pid: int, processors: set[int]) -> None:
    """Every thread; those that come later are where the one is that starts them."""
    for entry in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(entry.name), processors)
