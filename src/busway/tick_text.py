"""Times of rules as ISO 8601 text: ticks of 100 ns, kept to the last digit.

A rule's dateTime and duration values are whole ticks (`rules.rule.TypedValue`). XML and JSON write them with as many
decimals as they need; what is written reads back as the same ticks, the shortest and the longest one included. A
moment that was written without a zone means UTC, and is written without one again.
"""

import re
from typing import Final

from busway.rules.rule import TypedValue
from busway.rules.time_text import instant_text
from busway.rules.values import Instant

_TICKS_PER_SECOND: Final = 10_000_000
TICKS_MAX: Final = (1 << 63) - 1
_TEXT_CHARACTERS_MAX: Final = 64

_DURATION: Final = re.compile(
    r"(-)?P(?:([0-9]{1,12})D)?(?:T(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,14})(?:\.([0-9]{1,7})0*)?S)?)?"
)
_UNITS_S: Final = (86_400, 3_600, 60, 1)


def has_zone(text: str) -> bool:
    """Of the text of a moment: its date has two dashes of its own."""
    return text.upper().endswith("Z") or "+" in text or text.count("-") > 2


def moment_text(typed: TypedValue) -> str:
    text = instant_text(Instant(int(typed.value)))
    return text if typed.has_zone else text.removesuffix("Z")


def parse_span(text: str) -> int:
    """Ticks of an ISO 8601 duration of days and less, perhaps negative. Raises ValueError."""
    found = _DURATION.fullmatch(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None or text.endswith(("P", "T")):
        raise ValueError("not a duration such as PT30S")
    sign, *counts, decimals = found.groups()
    seconds = sum(int(count or 0) * unit_s for count, unit_s in zip(counts, _UNITS_S, strict=True))
    ticks = seconds * _TICKS_PER_SECOND + _fraction(decimals)
    if ticks > TICKS_MAX + (sign is not None):
        raise ValueError("a duration that is too long")
    return ticks if sign is None else -ticks


def format_span(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), _TICKS_PER_SECOND)
    sign = "-" if ticks < 0 else ""
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    clock = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if seconds or fraction or not (days or clock):
        clock += f"{seconds}{_decimals(fraction)}S"
    return f"{sign}P{f'{days}D' if days else ''}{f'T{clock}' if clock else ''}"


def _fraction(decimals: str | None) -> int:
    return 0 if decimals is None else int(decimals.ljust(7, "0"))


def _decimals(fraction: int) -> str:
    return f".{fraction:07d}".rstrip("0") if fraction else ""
