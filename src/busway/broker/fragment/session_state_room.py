"""How many more sessions of an entity may get a state (L-14).

Nobody counts states. The store can tell whether there are more than n of them, so room is granted in shares: if
fewer than the limit less a share exist, the whole share may be added before the next look. Shares shrink as the
limit comes near; at the limit every new state looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import QuotaExceeded

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment


class SessionStateRoom:
    """Of one fragment."""

    __slots__ = ("_fragment", "_granted")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._granted = 0

    async def take(self) -> None:
        """One session more gets a state. Raises QuotaExceeded."""
        limit = self._fragment.runtime.limits.session_states_max
        share = max(limit // 2, 1)
        while self._granted < 1:
            if share < 1:
                raise QuotaExceeded(
                    f"'{self._fragment.settings.path}' keeps the states of {limit} sessions, which is the limit."
                    " Clear states that are no longer needed."
                )
            if not await self._has_more_than(limit - share) and self._granted < 1:
                self._granted = share
            share //= 2
        self._granted -= 1

    async def _has_more_than(self, count: int) -> bool:
        """More states than this many."""
        store, key = self._fragment.store, self._fragment.key
        return bool(await store.sessions(key, 0, count, 1))
