"""Durations between the text that clients write and whole milliseconds.

Clients write ISO 8601 (`PT30S`), .NET style for the longest one. Python's SDK reads that longest one as a
float and sends it back a little shorter (`…5.477539S`); both mean "forever". Fractions below a
millisecond are cut, never rounded up, so a value sent back is never longer than what was set.
"""

import re
from functools import lru_cache
from typing import Final

from busway.model.errors import BadArgument
from busway.rules.time_text import format_span

#: .NET's TimeSpan maximum in whole milliseconds, and as every client writes it.
FOREVER_MS: Final = 922_337_203_685_477
FOREVER_TEXT: Final = "P10675199DT2H48M5.4775807S"

_TICKS_PER_MS: Final = 10_000
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

#: Longer texts are refused before any parsing.
_TEXT_CHARACTERS_MAX: Final = 64

_ISO: Final = re.compile(
    r"P(?:([0-9]{1,12})Y)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})W)?(?:([0-9]{1,12})D)?"
    r"(?:T(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,15})(?:\.([0-9]{1,12}))?S)?)?"
)
#: Years and months as .NET counts them.
_ISO_UNITS_MS: Final = (365 * _DAY_MS, 30 * _DAY_MS, 7 * _DAY_MS, _DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS)

_CLOCK: Final = re.compile(
    r"(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,7}))?)?"
)


def parse_duration(text: str, what: str = "The duration") -> int:
    """Milliseconds of an ISO 8601 duration; `what` names the property in the error."""
    duration_ms = _iso_ms(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if duration_ms is None:
        raise _not_a_duration(text, what)
    return duration_ms


@lru_cache(maxsize=256)  # a catalogue of ten thousand queues holds the same few texts over and over
def _iso_ms(text: str) -> int | None:
    found = _ISO.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        return None
    total_ms = _fraction_ms(found.group(8))
    for digits, unit_ms in zip(found.groups()[:7], _ISO_UNITS_MS, strict=True):
        if digits is not None:
            total_ms += int(digits) * unit_ms
    return min(total_ms, FOREVER_MS)


def parse_duration_or_clock(text: str, what: str = "The duration") -> int:
    """As `parse_duration`, and .NET's own `[d.]hh:mm[:ss]` besides, which people write into files."""
    found = _CLOCK.fullmatch(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None:
        return parse_duration(text, what)
    days, hours, minutes, seconds = (int(digits or 0) for digits in found.groups()[:4])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise _not_a_duration(text, what)
    whole_ms = days * _DAY_MS + hours * _HOUR_MS + minutes * _MINUTE_MS + seconds * _SECOND_MS
    return min(whole_ms + _fraction_ms(found.group(5)), FOREVER_MS)


def format_duration(duration_ms: int) -> str:
    """As .NET's XmlConvert writes it: days at most, no leading zeros, `PT0S` for nothing."""
    if duration_ms >= FOREVER_MS:
        return FOREVER_TEXT
    return format_span(duration_ms * _TICKS_PER_MS)


def _fraction_ms(digits: str | None) -> int:
    return 0 if digits is None else int(digits[:3].ljust(3, "0"))


def _not_a_duration(text: str, what: str) -> BadArgument:
    return BadArgument(
        f"{what}: {text[:_TEXT_CHARACTERS_MAX]!r} is not an ISO 8601 duration such as PT30S, PT5M or P1DT12H."
    )
