"""Queues that nobody uses are deleted after their AutoDeleteOnIdle (E-110…E-113).

Theory of operation. A queue's last use is the latest of: its accessed time (sends, receive requests, peeks), its
last update, and the moment this server opened the namespace, because while the bus was down nobody could use it. A
scheduled message or a receiver that waits is use without an event, so it is looked for at each `look_around`; such
a use is taken to last until the next look. Hence a queue may go a little late, never early.

Each queue has one entry in a heap, at a moment before which it cannot be due. Use only moves that moment away, so
nobody tells of it: when an entry comes up its queue is looked at, and the entry is laid back to where it belongs.
So a change costs one entry, whatever else there is, and one timer stands at the first. What comes up at once, and
what a look around sees, is dealt with in slices, others having their turn between them.

`IdleEntities` answers what `AutoDelete` asks for: which entities may go because nobody uses them, and since when.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.store_keeper import StoreKeeper
from busway.clock import Clock
from busway.timers import Timer, Timers

#: How often the namespace looks around, and so how long a use that makes no event is taken to last.
LOOK_AROUND_EVERY_S: Final = 60.0
#: Queues that are looked at in one turn.
SLICE_MAX: Final = 200
#: A queue that was asked to go and is still there is looked at again.
_REPEAT_MS: Final = 1_000
#: Below this many entries a heap full of old ones is not worth rebuilding.
_REBUILD_MIN: Final = 32


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

    def mortal_keys(self) -> Iterable[str]:
        """Of all that have a finite AutoDeleteOnIdle."""

    def earliest_due_ms(self, key: str) -> int | None:
        """Before then it cannot be due, whatever its use was; None when it never is, or is not there any more."""

    def auto_delete_candidate(self, key: str) -> Candidate | None:
        """None also while its store is away: nobody knows when it was used."""


class AutoDelete:
    """Queues that nobody uses are deleted after their AutoDeleteOnIdle (E-110…E-113)."""

    def __init__(self, owner: Owner, clock: Clock, timers: Timers, delete: Callable[[str], None]) -> None:
        self._owner = owner
        self._clock = clock
        self._timers = timers
        self._delete = delete
        self._timer: Timer | None = None
        #: When the timer rings; wall time.
        self._rings_at_ms = 0
        #: (not due before, queue). Those that differ from `_due_ms` are old and passed over.
        self._heap: list[tuple[int, str]] = []
        self._due_ms: dict[str, int] = {}
        #: Queues that were in use at the last look, and until when that is taken to last.
        self._in_use_until_ms: dict[str, int] = {}
        #: The look around that is under way.
        self._looking: Iterator[str] = iter(())
        self._next_look: Timer | None = None

    def entries(self) -> int:
        """Of the heap, for whoever watches over memory."""
        return len(self._heap)

    def watch_all(self) -> None:
        """The namespace was opened."""
        for key in self._owner.mortal_keys():
            self._lay(key)
        self._arm()

    def watch(self, key: str) -> None:
        """A queue was created or updated."""
        self._lay(key)
        self._arm()

    def forget(self, key: str) -> None:
        """The queue is gone; a new one of that name starts afresh."""
        self._in_use_until_ms.pop(key, None)
        self._due_ms.pop(key, None)
        self._arm()

    def is_due(self, key: str) -> bool:
        """Still unused, looked at now."""
        candidate = self._owner.auto_delete_candidate(key)
        return candidate is not None and self._is_due_at(candidate) <= self._clock.wall_ms()

    def look_around(self) -> None:
        self._timers.cancel(self._next_look)
        self._looking = iter(list(self._owner.mortal_keys()))
        self._look_at_slice()

    def _look_at_slice(self) -> None:
        self._next_look = None
        until_ms = self._clock.wall_ms() + round(LOOK_AROUND_EVERY_S * 1000)
        looked_at = 0
        for key in islice(self._looking, SLICE_MAX):
            looked_at += 1
            candidate = self._owner.auto_delete_candidate(key)
            if candidate is not None and candidate.is_in_use:
                self._in_use_until_ms[key] = until_ms
        if looked_at == SLICE_MAX:
            self._next_look = self._timers.at(self._clock.monotonic(), self._look_at_slice)

    def _is_due_at(self, candidate: Candidate) -> int:
        used_ms = max(candidate.last_used_at_ms, self._in_use_until_ms.get(candidate.key, 0))
        if candidate.is_in_use:
            used_ms = max(used_ms, self._clock.wall_ms())
        return used_ms + candidate.idle_ms

    # -- the heap

    def _lay(self, key: str) -> None:
        due_ms = self._owner.earliest_due_ms(key)
        if due_ms is None:
            self._due_ms.pop(key, None)
        else:
            self._lay_at(key, due_ms)

    def _lay_at(self, key: str, due_ms: int) -> None:
        if self._due_ms.get(key) == due_ms:
            return
        self._due_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        if len(self._heap) > max(_REBUILD_MIN, 2 * len(self._due_ms)):
            self._heap = [(at_ms, each) for each, at_ms in self._due_ms.items()]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        """Stands at the first entry; old ones before it leave."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            self._timers.cancel(self._timer)
            self._timer = None
            return
        due_ms = self._heap[0][0]
        if self._timer is not None:
            if self._rings_at_ms == due_ms:
                return
            self._timers.cancel(self._timer)
        wait_s = max(due_ms - self._clock.wall_ms(), 0) / 1000
        self._rings_at_ms = due_ms
        self._timer = self._timers.at(self._clock.monotonic() + wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._clock.wall_ms()
        for _ in range(SLICE_MAX):
            if not self._heap or self._heap[0][0] > now_ms:
                break
            due_ms, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                self._come_up(key, now_ms)
        self._arm()

    def _come_up(self, key: str, now_ms: int) -> None:
        if self._owner.earliest_due_ms(key) is None:
            return
        candidate = self._owner.auto_delete_candidate(key)
        if candidate is None:
            self._lay_at(key, now_ms + round(LOOK_AROUND_EVERY_S * 1000))
            return
        due_ms = self._is_due_at(candidate)
        if due_ms <= now_ms:
            self._delete(key)
        self._lay_at(key, max(due_ms, now_ms + _REPEAT_MS))


class IdleEntities:
    """Which entities may go because nobody uses them, and since when: what `auto_delete` asks for
    (E-110…E-113)."""

    def __init__(self, entities: EntityTable, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._entities = entities
        self._keeper_of = keeper_of
        #: The namespace was opened then: before, nobody could use anything. 0: it is not open yet.
        self.opened_at_ms = 0

    def mortal_keys(self) -> Iterable[str]:
        return self._entities.index.mortal_keys()

    def earliest_due_ms(self, key: str) -> int | None:
        row = self._mortal_row(key)
        return None if row is None else self._unused_since_ms(row) + row.description.auto_delete_on_idle_ms

    def auto_delete_candidate(self, key: str) -> Candidate | None:
        """None without its stores: nobody knows when it was used."""
        row = self._mortal_row(key)
        if row is None or not all(self._keeper_of(name).is_open for name in row.store_names):
            return None
        counts = self._entities.counts.of(row)
        used_ms = max(counts.accessed_at_ms, self._unused_since_ms(row))
        is_awaited = counts.scheduled > 0 and not row.description.made_for_a_link
        in_use = is_awaited or self._entities.is_received_from(row)
        return Candidate(key, row.description.auto_delete_on_idle_ms, used_ms, in_use)

    def _mortal_row(self, key: str) -> EntityRow | None:
        return self._entities.rows[key] if key in self._entities.index.mortal_keys() else None

    def _unused_since_ms(self, row: EntityRow) -> int:
        """If it was not used since it was made, changed, or could be."""
        description = row.description
        return max(description.updated_at_ms, description.created_at_ms, self.opened_at_ms)
