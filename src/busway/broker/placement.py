"""Which store a new entity's fragments go to. Decided once, recorded in the catalogue; nothing moves by itself."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from busway.broker.errors import ServerBusy


class Place(Protocol):
    """A store as placement sees it."""

    @property
    def name(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def fragment_count(self) -> int: ...


SomePlace = TypeVar("SomePlace", bound=Place)


def choose_store(stores: Iterable[SomePlace]) -> SomePlace:
    """Of the stores in service the one with the fewest live fragments, then the first by name."""
    ready = [store for store in stores if store.is_open]
    if not ready:
        raise ServerBusy("No store is available at the moment. Please try again later.")
    return min(ready, key=lambda store: (store.fragment_count, store.name))
