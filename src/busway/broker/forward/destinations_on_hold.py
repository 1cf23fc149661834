"""Which destinations of a forwarder cannot be had just now, and how far everything waits for them (F-12, TX-3).

A forwarder moves rows in order, but rows for different destinations owe each other nothing: while one destination
waits for the next try, rows for the others pass by. A destination is an entity, or one fragment of it.

What waits is not read again and again. The record keeps the number up to which every row waits for a destination
that is held: what arrives is looked for behind it. A new try begins at the start; as soon as it has found the same
destinations shut again it goes on behind that number too, so a long backlog for one of them costs a try one page.
"""

from __future__ import annotations

#: Path of the entity and index of the fragment; None for the index means all of it.
Destination = tuple[str, int | None]


class DestinationsOnHold:
    """Of one forwarder."""

    __slots__ = ("_held", "_held_before", "_mark_before", "_refuses_since", "start")

    def __init__(self) -> None:
        self._held: set[Destination] = set()
        #: Up to this number every row waits for one of them.
        self.start = 0
        # The same at the end of the last try; empty when this try has got as far.
        self._held_before: set[Destination] = set()
        self._mark_before = 0
        self._refuses_since: dict[Destination, float] = {}

    def holds(self, destination: Destination) -> bool:
        return destination in self._held or (destination[0], None) in self._held

    def are_any(self) -> bool:
        return bool(self._held)

    def hold(self, destination: Destination) -> None:
        """Until the next try."""
        self._held.add(destination)

    def try_again(self) -> None:
        """The time for another try has come: nobody is held."""
        self._held_before, self._held = self._held, set()
        self._mark_before, self.start = self.start, 0

    def waits_up_to(self, number: int) -> None:
        self.start = number

    def arrived(self, number: int) -> None:
        """A row has come that bears this number, perhaps a lower one than rows that were here before."""
        if number <= self.start:
            self.start = number - 1
        if number <= self._mark_before:
            self._mark_before = number - 1

    def next_after(self, number: int) -> int:
        """Where the walk goes on that has come to this number."""
        if self._held_before and self._held_before <= self._held:
            self._held_before = set()
            if self.start <= number < self._mark_before:
                self.start = number = self._mark_before
        return number

    # -- patience

    def refuses_since(self, destination: Destination, now: float) -> float:
        """When it began to refuse; that is now, if it did not before."""
        return self._refuses_since.setdefault(destination, now)

    def takes(self, destination: Destination) -> None:
        """It has taken something."""
        if self._refuses_since:
            self._refuses_since.pop(destination, None)
            self._refuses_since.pop((destination[0], None), None)
