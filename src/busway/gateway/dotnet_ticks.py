"""Time as .NET counts it: 100 ns since the year 1. The service writes ETags and session locks so."""

from typing import Final

_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000
_TICKS_PER_MS: Final = 10_000


def ticks_of(at_ms: int) -> int:
    """`at_ms`: since 1970."""
    return _TICKS_AT_EPOCH + at_ms * _TICKS_PER_MS
