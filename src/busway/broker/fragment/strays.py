"""Messages that were deleted for a receive-and-delete receiver and never reached it: they are put back (R-1).

Theory of operation. The deletion comes first, so between it and the delivery a message exists in memory only. When
the receiver is gone by then the message goes back under its number. The fragment that deleted it may be gone too: its
entity was updated, or its store failed. Then the message strays until the fragment is loaded again, and that one puts
it back. Strays are bounded by the credit of those who received.
"""

from __future__ import annotations

from collections.abc import Callable

from busway.message.message import Message
from busway.store.contract import FragmentKey

#: A fragment by the name of its store and its key.
Place = tuple[str, FragmentKey]


class Strays:
    """Of one process. `on_arrival` is told of a fragment that has some."""

    __slots__ = ("_by_place", "on_arrival")

    def __init__(self) -> None:
        self._by_place: dict[Place, list[Message]] = {}
        self.on_arrival: Callable[[Place], None] | None = None

    def add(self, place: Place, messages: list[Message]) -> None:
        self._by_place.setdefault(place, []).extend(messages)
        if self.on_arrival is not None:
            self.on_arrival(place)

    def places(self) -> list[Place]:
        return list(self._by_place)

    def take(self, place: Place) -> list[Message]:
        return self._by_place.pop(place, [])
