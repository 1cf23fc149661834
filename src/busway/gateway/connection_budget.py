"""How much memory all connections of a server may make it hold, and who gives way when it is more (a setting).

Theory of operation. A connection that holds little is nobody's concern. One that holds SMALL_BYTES or more has its
number booked here, after each of its turns and once a second, so the sum is a sum of integers and costs nothing where
nothing is large. While the sum is above the budget:

  at once         connections above their share (an equal part of the budget, never less than SHARE_BYTES_MIN) are
                  braked: nothing is read from them, nothing more is written to them; bodies of HTTP requests above
                  SMALL_BYTES are refused (503)
  after a while   what is left is not on its way to a store or to a client: the connection that holds the most of that
                  is closed, with the reason; then the next, until the rest fits

What waits for a commit is never a reason to close: it goes by itself, and closing would not free it. Nothing that was
acknowledged is concerned, since an acknowledgement comes with the commit.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

_log = logging.getLogger("busway.gateway")

BYTES_MAX_DEFAULT: Final = 1024 * 1024 * 1024
SMALL_BYTES: Final = 64 * 1024
SHARE_BYTES_MIN: Final = 256 * 1024
#: Looks, a second apart, before somebody is closed.
_PATIENCE_LOOKS: Final = 2


class Holder(Protocol):
    """A connection."""

    peer: str
    #: What is booked for it.
    booked_bytes: int

    def book(self) -> None:
        """Counts anew what it holds, and books it."""

    def idle_bytes(self) -> int:
        """What it holds that does not go by itself, and goes with it."""

    def close_for_memory(self, all_bytes: int, bytes_max: int) -> None:
        """It holds the most while all hold too much."""

    def eased(self) -> None:
        """There is room again: whatever was braked goes on."""


class ConnectionBudget:
    """Of one server."""

    __slots__ = ("_braked", "_holders", "_looks", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int = BYTES_MAX_DEFAULT) -> None:
        self.bytes_max = bytes_max
        #: Of all that hold much.
        self.held_bytes = 0
        self._holders: set[Holder] = set()
        self._braked: set[Holder] = set()
        #: How often in a row it was too much.
        self._looks = 0

    @property
    def is_over(self) -> bool:
        return self.held_bytes > self.bytes_max

    def book(self, holder: Holder, held_bytes: int) -> None:
        """What a connection holds now; little counts as nothing."""
        if held_bytes < SMALL_BYTES:
            held_bytes = 0
            self._holders.discard(holder)
        else:
            self._holders.add(holder)
        self.add(held_bytes - holder.booked_bytes)
        holder.booked_bytes = held_bytes

    def add(self, held_bytes: int) -> None:
        """So much more, or less."""
        self.held_bytes += held_bytes
        if self._braked and not self.is_over:
            braked, self._braked = self._braked, set()
            for holder in braked:
                holder.eased()

    def forget(self, holder: Holder) -> None:
        """The connection is over."""
        self._braked.discard(holder)
        self.book(holder, 0)

    def brakes(self, holder: Holder) -> bool:
        """Whether a connection has to wait. It is told when that is over."""
        if self.held_bytes <= self.bytes_max:
            return False
        if holder.booked_bytes <= self._share():
            return False
        self._braked.add(holder)
        return True

    def _share(self) -> int:
        return max(SHARE_BYTES_MIN, self.bytes_max // max(1, len(self._holders)))

    def look(self) -> None:
        """Once a second: what was written may have gone out since, and somebody may have to go."""
        for holder in list(self._holders):
            holder.book()
        if not self.is_over:
            self._looks = 0
            return
        self._looks += 1
        if self._looks < _PATIENCE_LOOKS:
            return
        too_much = self.held_bytes - self.bytes_max
        sizes = sorted(((holder.idle_bytes(), id(holder), holder) for holder in self._holders), reverse=True)
        for idle_bytes, _, holder in sizes:
            if too_much <= 0 or idle_bytes < SMALL_BYTES:
                break
            too_much -= idle_bytes
            _log.warning(
                "closed for want of memory: peer=%s held %d bytes, all connections %d of %d",
                holder.peer,
                idle_bytes,
                self.held_bytes,
                self.bytes_max,
            )
            holder.close_for_memory(self.held_bytes, self.bytes_max)
