"""How a request is judged: the longest turn of the loop in CPU time, the bytes that the process holds for it, and the
steps that it takes, which are the same each time."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from types import CodeType, FrameType
from typing import Protocol

from tests.cost.world import World


class Instrument(Protocol):
    def begin(self, world: World) -> None: ...

    def end(self, world: World) -> None: ...

    @property
    def times(self) -> int:
        """How often a request is repeated that can be repeated without waiting for its answer."""

    @property
    def reads(self) -> bool:
        """Whether the client takes what it is sent."""


class Turns:
    """The longest turn."""

    times = 1
    reads = True

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.what_ran = ""

    def begin(self, world: World) -> None:
        gc.collect(0)
        world.call(world.meter.reset)

    def end(self, world: World) -> None:
        self.longest_s = world.meter.longest_s
        self.what_ran = world.meter.what_ran


class Bytes:
    """What Python's allocator was asked for: at most, and what is left when everything has calmed down."""

    def __init__(self, times: int, *, reads: bool) -> None:
        self.times = times
        self.reads = reads
        self.most = 0
        self.left = 0

    def begin(self, world: World) -> None:
        world.settle()
        gc.collect()
        tracemalloc.start()

    def end(self, _world: World) -> None:
        _, self.most = tracemalloc.get_traced_memory()
        gc.collect()
        self.left, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()


class Steps:
    """Calls of Python functions on the loop, and instructions of SQLite's machine anywhere."""

    times = 1
    reads = True

    def __init__(self) -> None:
        self.calls = 0
        self.sql = 0
        self._seen: set[CodeType] = set()

    def begin(self, world: World) -> None:
        self._sql_before = world.sql_steps
        world.call(sys.setprofile, self._called)

    def end(self, world: World) -> None:
        world.call(sys.setprofile, None)
        self.sql = world.sql_steps - self._sql_before

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.calls += 1
            self._seen.add(frame.f_code)
        elif event == "c_call":
            self.calls += 1

    def entered(self, code: CodeType) -> bool:
        return code in self._seen
