"""What keeps a store's file in shape between commits: checkpoints, and giving free pages back.

Both run in the commit thread after a commit was reported, so they hold up the next commit a little and the event
loop not at all. Pages are given back in slices, also while there is no other work.
"""

from __future__ import annotations

import logging
from typing import Final

import apsw

from busway.clock import Clock
from busway.store.sqlite.queries import query

log = logging.getLogger(__name__)

#: How often free pages are counted, and a failed checkpoint is tried again.
_LOOK_INTERVAL_S: Final = 1.0
#: Pause between slices while there are commits; without other work they follow each other.
_SLICE_INTERVAL_S: Final = 0.1


class Upkeep:
    """Of one writing connection. `run` belongs to the commit thread."""

    def __init__(
        self, connection: apsw.Connection, clock: Clock, *, checkpoint_bytes: int, vacuum_bytes: int
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._page_bytes = int(connection.pragma("page_size") or 0)
        self._checkpoint_pages = max(1, checkpoint_bytes // self._page_bytes)
        #: With little space left the log is emptied early, so that it is written anew instead of growing.
        self._checkpoint_pages_low = max(1, self._checkpoint_pages // 16)
        self._vacuum_pages = max(1, vacuum_bytes // self._page_bytes)
        self._log_pages = 0
        self._looked_at = clock.monotonic()
        self._retry_at = 0.0
        self._slice_at = 0.0
        #: More free pages are worth giving back.
        self.has_slices = False
        connection.set_wal_hook(self._note_log_pages)

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def is_due(self, is_space_low: bool) -> bool:
        """Whether to pause between two commits for a round."""
        now = self._clock.monotonic()
        if now < self._retry_at:
            return False
        if self._is_log_long(is_space_low) or now - self._looked_at >= _LOOK_INTERVAL_S:
            return True
        return self.has_slices and now >= self._slice_at

    def _is_log_long(self, is_space_low: bool) -> bool:
        return self._log_pages > (self._checkpoint_pages_low if is_space_low else self._checkpoint_pages)

    def run(self, is_space_low: bool) -> bool:
        """One round; True when it made a checkpoint. An error is logged and the round tried again later."""
        try:
            return self._run(is_space_low)
        except apsw.Error as error:
            self._retry_at = self._clock.monotonic() + _LOOK_INTERVAL_S
            self.has_slices = False
            log.warning("Upkeep of a store failed and will be tried again: %s.", error)
            return False

    def _run(self, is_space_low: bool) -> bool:
        self._looked_at = self._clock.monotonic()
        had_slices = self.has_slices
        self._give_pages_back(is_space_low)
        if self._is_log_long(is_space_low) or (had_slices and not self.has_slices):
            self._connection.execute(query("pragma_checkpoint")).fetchall()
            self._log_pages = 0
            return True
        return False

    def _give_pages_back(self, is_space_low: bool) -> None:
        free = self._number("pragma_free_pages")
        # Half the file must be free before anything moves, so that a queue that breathes does not churn; but
        # with little space left on the disk every page counts.
        if not self.has_slices and free >= self._vacuum_pages:
            self.has_slices = is_space_low or free * 2 >= self._number("pragma_pages")
        if self.has_slices:
            self._connection.execute(query("pragma_vacuum_slice")).fetchall()
            self.has_slices = self._number("pragma_free_pages") > 0
            self._slice_at = self._clock.monotonic() + _SLICE_INTERVAL_S

    def _number(self, name: str) -> int:
        row = self._connection.execute(query(name)).fetchone()
        return 0 if row is None else int(row[0])
