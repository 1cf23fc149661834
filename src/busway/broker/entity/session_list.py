"""The sessions of a partitioned entity in order: a merge of what its fragments list, page by page (X-17).

Each fragment lists its own in order and goes on behind the last one that it gave, so a request costs what it skips
and what it asks for, however the sessions are spread, and holds a page of each fragment at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.read_requests import read

#: Sessions that are listed at once by one fragment.
_PAGE_MAX: Final = 1_000


class _Walk:
    """The way through one fragment's sessions."""

    __slots__ = ("_fragment", "_from_id", "_page", "_state_set_after_ms")

    def __init__(self, fragment: Fragment, state_set_after_ms: int | None) -> None:
        self._fragment = fragment
        self._state_set_after_ms = state_set_after_ms
        self._from_id = ""
        #: The last one is the next.
        self._page: list[str] = []

    async def next_id(self, count_max: int) -> str | None:
        """None at the end. `count_max`: no more than these will be asked for. Raises ServerBusy."""
        if not self._page:
            fragment = self._fragment
            limit = min(count_max, _PAGE_MAX)
            ids = fragment.sessions.ids(self._state_set_after_ms, 0, limit, self._from_id)
            self._page = (await read(fragment.settings.path, ids))[::-1]
            if not self._page:
                return None
            self._from_id = self._page[0] + "\0"  # the first text behind it
        return self._page.pop()


async def listed_sessions(
    fragments: Sequence[Fragment], state_set_after_ms: int | None, skip: int, top: int
) -> list[str]:
    """Raises ServerBusy."""
    left = skip + top
    walks = [_Walk(fragment, state_set_after_ms) for fragment in fragments]
    heads: list[tuple[str, int]] = []
    for place, walk in enumerate(walks):
        name = await walk.next_id(left)
        if name is not None:
            heads.append((name, place))
    heapq.heapify(heads)
    found: list[str] = []
    while heads and left > 0:
        name, place = heads[0]
        left -= 1
        if left < top:
            found.append(name)
        following = await walks[place].next_id(left)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following, place))
    return found
