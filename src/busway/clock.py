"""Time and chance, as arguments.

Nothing below the gateway reads a clock or draws a random number by itself: it is handed a `Clock` and an
`Entropy`. So a whole namespace runs in one thread under a manual clock, and a failing run can be repeated.

Two kinds of time, never mixed: `wall_ms` (milliseconds since 1970, what clients see: enqueued times, TTL,
schedules) and `monotonic` (seconds, never steps back: locks, idle links, deadlines).
"""

import os
import time


class Clock:
    """The machine's clock. Tests use `tests.harness.manual_clock.ManualClock`."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Entropy:
    """The machine's randomness. Tests use a seeded one."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)
