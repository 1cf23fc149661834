"""Whether a database is older than what was acknowledged: a dump or a disk that was put back, a fail-over to a
standby that did not have everything.

What a store's row says is held against what this server remembers (`high_water`):

  commit number   lower than one that was reported: so many commits are lost
  epoch           lower than one that we had: the row is older than our opening
  opening         another one in our own epoch: the history forked before it
  lineage         cluster, timeline or database have changed, and we do not know exactly how far the store was

Where commits are lost, or may be, every counter leaps by what stands here, so that no number that somebody may have
seen is given out again. Those of the row leap as it is taken; those of fragments and of the catalogue are the
owner's. What leaves no trace, such as a disk that is put back under a server without its data directory, is not
noticed.
"""

from __future__ import annotations

from typing import Final

from busway.store.postgres.high_water import StoreMark

#: Epoch and commit number.
COMMITS_LEAP: Final = 1 << 20
#: Keys of fragments, in a database, beside the blocks that its stores give up.
KEYS_LEAP: Final = 1 << 16


class FoundRow:
    """What a store's row says before somebody takes it."""

    __slots__ = ("epoch", "lineage", "number", "opening")

    def __init__(self, epoch: int, opening: bytes, lineage: str, number: int) -> None:
        self.epoch = epoch
        self.opening = opening
        #: At the time when it was taken last; empty before the first.
        self.lineage = lineage
        self.number = number


def lost_commits(row: FoundRow, mark: StoreMark, lineage: str, holder: bytes | None) -> int:
    """How many commits are missing, at least; 1 also where it cannot be excluded. `lineage`: the present one;
    `holder`: ours, which stands in place of our opening when we have just taken the store's lease."""
    missing = max(mark.number - row.number, mark.lost, 0)
    if missing or is_older(row.epoch, row.opening, mark):
        return max(missing, 1)
    is_ours = row.opening in mark.openings or (row.opening == holder and row.epoch == mark.epoch + 1)
    is_known = mark.is_exact and is_ours
    return 1 if row.lineage not in ("", lineage) and not is_known else 0


def is_older(epoch: int, opening: bytes, mark: StoreMark) -> bool:
    """The row was written before we had the store last, or in another history."""
    return epoch < mark.epoch or (epoch == mark.epoch > 0 and opening not in mark.openings)
