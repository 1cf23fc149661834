"""How many bytes the namespace may still take (L-4).

Adding up every entity for every send would be dear, and following every deletion would burden the hot path. So
the sum is taken now and then: what is free after it is given out, and only when that is used up it is taken
again, which finds what was deleted meanwhile. What grows without asking (a dead letter's reason) is found at
the next sum.
"""

from __future__ import annotations

from collections.abc import Callable


class NamespaceSize:
    """Shared by all fragments of a process. `used`: the bytes of all entities, exactly."""

    __slots__ = ("_free_bytes", "_used", "bytes_max")

    def __init__(self, bytes_max: int, used: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._used = used
        #: Free at the last sum, less what was taken since.
        self._free_bytes = 0

    def take(self, wanted_bytes: int) -> bool:
        """False when the namespace is full."""
        if wanted_bytes > self._free_bytes:
            self.recount()
            if wanted_bytes > self._free_bytes:
                return False
        self._free_bytes -= wanted_bytes
        return True

    def recount(self) -> None:
        self._free_bytes = self.bytes_max - self._used()
