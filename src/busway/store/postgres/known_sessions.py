"""Which sessions have active rows, as far as a store knows it without looking.

Theory of operation. Whoever looks for a session's row meets it first, and what an old snapshot keeps of it lies
behind. But a session that has no row is found missing only when all of that was passed. So the store remembers which
sessions it has seen begin, and which had no row left (`sessions_go_on` returns them); of all others it knows nothing,
and the database looks. Sessions that begin anew and end with every message are the usual case where it counts.

Belongs to the loop. What is told of a commit comes before the next one is made, so nothing is known too late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from busway.store.contract import COUNTER_BITS

#: Some fifteen megabytes. Beyond, everything is forgotten and learnt again.
SESSIONS_MAX: Final = 100_000

#: Fragment and session id.
Session = tuple[int, bytes]


class KnownSessions:
    __slots__ = ("_has_rows",)

    def __init__(self) -> None:
        self._has_rows: dict[Session, bool] = {}

    def begun(
        self, entries: Iterable[tuple[int, bytes]], returning: set[int]
    ) -> list[tuple[int, bytes, int]]:
        """Rows for `sessions_begin`: entries that may be the first of their session, and whether it surely has no
        other. `returning`: keys that are not above all there ever were."""
        known, found = self._has_rows, []
        if len(known) > SESSIONS_MAX:
            known.clear()
        for key, session_id in entries:
            session = key >> COUNTER_BITS, session_id
            has_rows = known.get(session)
            if not has_rows or key in returning:
                found.append((key, session_id, int(has_rows is False)))
            known[session] = True
        return found

    def ended(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            self._has_rows[session] = False

    def forget(self) -> None:
        self._has_rows.clear()
