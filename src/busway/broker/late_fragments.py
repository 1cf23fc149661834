"""Fragments that turn out to exist. The outcome of a creation may stay unknown until the catalogue's home is back;
its fragments lie in stores that never failed, and whose counters were read before they were made. They are looked
for when the catalogue was read anew, and only what it names is taken up: the rest belongs to nobody."""

import logging
from collections.abc import Callable, Iterable

from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import FragmentKey, FragmentRow, StoreError

_log = logging.getLogger(__name__)


class LateFragments:
    """Read before memory follows the catalogue, taken up after it, without a moment between the two."""

    def __init__(self) -> None:
        self._rows: list[tuple[StoreKeeper, list[FragmentRow]]] = []

    async def read(self, keepers: Iterable[StoreKeeper]) -> None:
        for keeper in keepers:
            if not keeper.is_open:
                continue
            try:
                self._rows.append((keeper, await keeper.store.fragments()))
            except StoreError as error:  # it is opened anew and then read whole
                _log.warning("The fragments of store %s are read later: %s", keeper.name, error)

    def take_up(self, keys_in: Callable[[StoreKeeper], set[FragmentKey]]) -> None:
        for keeper, rows in self._rows:
            missing = keys_in(keeper) - keeper.counters.keys()
            keeper.counters.update({row.key: row.counters for row in rows if row.key in missing})
