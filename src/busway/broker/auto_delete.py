"""Queues that nobody uses are deleted after their AutoDeleteOnIdle (E-110…E-113).

Theory of operation. A queue's last use is the latest of: its accessed time (sends, receive requests, peeks), its
last update, and the moment this server opened the namespace, because while the bus was down nobody could use
it. A scheduled message or a receiver that waits is use without an event, so it is looked for at each
`look_around`; such a use is taken to last until the next look. Hence a queue may go a little late, never early.

One timer stands at the earliest moment at which a queue could be due. Use only moves that moment away, so when
the timer rings the deadlines are simply looked at again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from busway.broker.timers import Timer, Timers
from busway.clock import Clock

#: How often the namespace looks around, and so how long a use that makes no event is taken to last.
LOOK_AROUND_EVERY_S: Final = 60.0
_REPEAT_S_MIN: Final = 1.0


@dataclass(frozen=True)
class Candidate:
    """A queue with a finite AutoDeleteOnIdle."""

    key: str
    idle_ms: int
    last_used_at_ms: int
    #: A scheduled message is there, or a receiver waits (E-111, E-113).
    is_in_use: bool


class Owner(Protocol):
    """The namespace."""

    def auto_delete_candidates(self) -> Iterable[Candidate]: ...


class AutoDelete:
    def __init__(self, owner: Owner, clock: Clock, timers: Timers, delete: Callable[[str], None]) -> None:
        self._owner = owner
        self._clock = clock
        self._timers = timers
        self._delete = delete
        self._timer: Timer | None = None
        #: Queues that were in use at the last look, and until when that is taken to last.
        self._in_use_until_ms: dict[str, int] = {}

    def look_around(self) -> None:
        until_ms = self._clock.wall_ms() + round(LOOK_AROUND_EVERY_S * 1000)
        for candidate in self._owner.auto_delete_candidates():
            if candidate.is_in_use:
                self._in_use_until_ms[candidate.key] = until_ms

    def forget(self, key: str) -> None:
        """The queue is gone; a new one of that name starts afresh."""
        self._in_use_until_ms.pop(key, None)

    def is_due(self, key: str) -> bool:
        """Still unused, looked at now."""
        now_ms = self._clock.wall_ms()
        found = (candidate for candidate in self._owner.auto_delete_candidates() if candidate.key == key)
        return any(self._due_ms(candidate) <= now_ms for candidate in found)

    def arm(self) -> None:
        """A queue was created, updated or has come into sight: stand at the earliest deadline."""
        self._timers.cancel(self._timer)
        self._timer = None
        now_ms = self._clock.wall_ms()
        due_ms = min(map(self._due_ms, self._owner.auto_delete_candidates()), default=None)
        if due_ms is not None:
            wait_s = max((due_ms - now_ms) / 1000, _REPEAT_S_MIN)
            self._timer = self._timers.at(self._clock.monotonic() + wait_s, self._ring)

    def _due_ms(self, candidate: Candidate) -> int:
        used_ms = max(candidate.last_used_at_ms, self._in_use_until_ms.get(candidate.key, 0))
        if candidate.is_in_use:
            used_ms = max(used_ms, self._clock.wall_ms())
        return used_ms + candidate.idle_ms

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._clock.wall_ms()
        for candidate in list(self._owner.auto_delete_candidates()):
            if self._due_ms(candidate) <= now_ms:
                self._delete(candidate.key)
        self.arm()
