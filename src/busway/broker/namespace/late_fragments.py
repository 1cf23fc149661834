"""Fragments that turn out to exist, or to belong to nobody. The outcome of a creation or a deletion may stay unknown
until the catalogue's home is back, and a creation that failed leaves what other stores had made already. All that
lies in stores that never failed, so nobody opens them and looks: they are looked at when the home is back. What the
catalogue names is taken up, the rest is dropped."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import CommitBatch, FragmentKey, FragmentRow, StoreError

_log = logging.getLogger(__name__)

KeysIn = Callable[[StoreKeeper], set[FragmentKey]]


class LateFragments:
    """Read before memory follows the catalogue, taken up after it, without a moment between the two; all that while
    nothing is in the making."""

    def __init__(self) -> None:
        self._rows: list[tuple[StoreKeeper, list[FragmentRow]]] = []

    async def read(self, keepers: Iterable[StoreKeeper]) -> None:
        """Raises StoreError when a store that is in service cannot be read."""
        for keeper in keepers:
            if not keeper.is_open:
                continue
            try:
                self._rows.append((keeper, await keeper.store.fragments()))
            except StoreError as error:
                if keeper.is_open:  # nobody would read it again: the home comes back when it can be read
                    raise
                # it is opened anew and then read whole
                _log.warning("The fragments of store %s are read later: %s", keeper.name, error)

    def take_up(self, keys_in: KeysIn) -> None:
        for keeper, rows in self._rows:
            missing = keys_in(keeper) - keeper.counters.keys()
            keeper.counters.update({row.key: row.counters for row in rows if row.key in missing})

    def drop_rest(self, keys_in: KeysIn) -> list[StoreKeeper]:
        """The stores that have something to sweep now. Nobody waits for a commit: should it fail, the store is opened
        again and looked at then."""
        dropping: list[StoreKeeper] = []
        for keeper, rows in self._rows:
            rest = sorted({row.key for row in rows} - keys_in(keeper))
            if rest and keeper.join(partial(_drop, rest)):
                dropping.append(keeper)
                for key in rest:
                    keeper.counters.pop(key, None)
        return dropping


def _drop(keys: Sequence[FragmentKey], batch: CommitBatch) -> None:
    batch.fragments_dropped.extend(keys)
