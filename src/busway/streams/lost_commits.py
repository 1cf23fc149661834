"""What a log does when its store has lost commits that it had reported (F4).

Readers may have seen events of those commits and keep checkpoints behind them. A log that gave their numbers out once
more would show them other events under numbers that they have read, and so leave those out for them. So its next
number steps ahead of everything that can have been lost, and the gap is told in the server's log. Readers step over
it as over one that compaction has left.

How much was lost is not known exactly: the count of commits beside the store is up to a second behind.
"""

from __future__ import annotations

import logging
from typing import Final

from busway.store.contract import Counters

_log = logging.getLogger(__name__)

#: No commit holds as many events: its batch is bounded in bytes, and the smallest record has about a hundred.
_EVENTS_PER_COMMIT: Final = 1 << 20
#: For what was committed since the count was written last.
_UNCOUNTED_COMMITS: Final = 16
#: More than this is a file from long ago; numbers must stay below 2**53, which is what JavaScript can count.
_COMMITS_MAX: Final = 1 << 24


def step_ahead(name: str, counters: Counters, lost_commits: int) -> None:
    """Puts a log's next number behind all that were lost. `name`: of the partition, for people."""
    lost_from = counters.last_counter
    is_empty = counters.deferred >= lost_from
    counters.last_counter += (min(lost_commits, _COMMITS_MAX) + _UNCOUNTED_COMMITS) * _EVENTS_PER_COMMIT
    if is_empty:
        counters.deferred = counters.last_counter
    _log.warning(
        "The store of %s has lost commits: events with numbers from %d on may be lost. The numbers %d to %d are not"
        " given out again; the next event gets %d.",
        name,
        lost_from,
        lost_from,
        counters.last_counter - 1,
        counters.last_counter,
    )
