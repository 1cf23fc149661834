"""A clock that moves only when a test says so, and a seeded source of bytes."""

import random

from busway.clock import Clock, Entropy


class ManualClock(Clock):
    """Starts at a fixed instant; `advance` moves wall and monotonic time together."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._monotonic = monotonic

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._wall_ms += round(seconds * 1000)
        self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody set the machine's clock: only the wall time jumps."""
        self._wall_ms += round(seconds * 1000)


class SeededEntropy(Entropy):
    """Repeatable bytes."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
