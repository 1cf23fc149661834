"""What follows when a store has lost commits that it had reported: it was damaged, or put back from an older copy.

Clients remember sequence numbers, other stores remember which rows of it have arrived there. So no fragment gives out
a number once more that it may have given out in what is lost: they all leap by NUMBERS_LEAP. Logs of event hubs
leap by themselves (`busway.streams.hub_table`), the catalogue's version does where the catalogue is read. Fragments
that the catalogue knows and the store has lost are made anew, empty: the entity was acknowledged, too.

All that joins one batch, and the store is told so: until it is durable the next opening does it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from busway.broker.fragment.numbering import RESERVE_FROM
from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import Counters, FragmentKey, FragmentRow, first_number_base

_log = logging.getLogger("busway.stores")

#: More messages than any fragment takes in a day, and a thousandth of the numbers that it has.
NUMBERS_LEAP: Final = 1 << 30


def make_anew(keeper: StoreKeeper, fragments: Iterable[tuple[FragmentKey, str, int]]) -> None:
    """`fragments`: key, owner for people, index. Raises StoreUnavailable."""
    rows = []
    for key, owner, index in fragments:
        counters = Counters()
        counters.last_counter = first_number_base(index)
        keeper.counters[key] = counters
        rows.append(FragmentRow(key, owner, index, counters.copy()))
    if rows:
        keeper.store.batch().fragments_created.extend(rows)
        _log.error(
            "The store %s has lost %d fragments that the catalogue knows. They are there again, without messages:"
            " %s.",
            keeper.name,
            len(rows),
            ", ".join(row.owner for row in rows[:5]) + (", …" if len(rows) > 5 else ""),
        )


def leap(keeper: StoreKeeper, fragments: Iterable[tuple[FragmentKey, int]]) -> None:
    """`fragments` that hold messages, with their indexes. Raises StoreUnavailable."""
    counters_of = keeper.store.batch().counters
    for key, index in fragments:
        counters = keeper.counters[key]
        last = first_number_base(index) + RESERVE_FROM - 1
        if counters.last_counter < last:
            counters.last_counter = min(counters.last_counter + NUMBERS_LEAP, last)
            counters_of[key] = counters
