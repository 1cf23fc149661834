"""Time as .NET has it: ticks of 100 ns since the year 1, until the year 9999 ends. Clients write no other times."""

from typing import Final

#: 1970-01-01 in ticks, and ticks in a millisecond.
EPOCH_TICKS: Final = 621_355_968_000_000_000
TICKS_PER_MS: Final = 10_000
#: In milliseconds since 1970: the beginning of the year 1, and the last instant of the year 9999.
FIRST_INSTANT_MS: Final = -62_135_596_800_000
LAST_INSTANT_MS: Final = 253_402_300_799_999


def ticks_of(at_ms: int) -> int:
    """`at_ms`: since 1970. The service writes ETags and session locks so."""
    return EPOCH_TICKS + at_ms * TICKS_PER_MS
