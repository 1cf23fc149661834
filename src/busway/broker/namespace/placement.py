"""Which store a new entity's fragments go to. Decided once, recorded in the catalogue; nothing moves by itself."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from busway.model.errors import ServerBusy


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


def spread_over(stores: Sequence[SomePlace], count: int) -> list[SomePlace]:
    """P-1: a store for each fragment of a partitioned entity, evenly over all there are, in their order, beginning
    with the one that a plain entity would go to. All of those must be in service (P-60)."""
    start = list(stores).index(choose_store(stores))
    chosen = [stores[(start + index) % len(stores)] for index in range(count)]
    away = next((store.name for store in chosen if not store.is_open), None)
    if away is not None:
        raise ServerBusy(
            f"The store {away} is not available at the moment, and a partitioned entity needs all of its stores:"
            " nothing was created. Please try again later."
        )
    return chosen
