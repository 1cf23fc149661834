"""Moments and durations of rules between ticks and text: ISO 8601, and .NET's own form of a TimeSpan.

The language needs it where an action sets a time from a text or a text from a time (T-51). Years and months of an
ISO duration are refused: how long they are depends on where they begin.

XML and JSON need it for a rule's dateTime and duration values, which are whole ticks of 100 ns
(`rule.TypedValue`), kept to the last digit: they are written with as many decimals as they need, and what is
written reads back as the same ticks, the shortest and the longest one included. A moment that was written without
a zone means UTC, and is written without one again.
"""

import re
from datetime import date
from typing import Final

from busway.rules.rule import TypedValue
from busway.rules.subject import INSTANT_TICKS_MAX, INTEGER_MAX, Instant, Span

_SECOND: Final = 10_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,7}))?)?)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))?"
)
_ISO_SPAN: Final = re.compile(
    r"(-)?P(?:([0-9]{1,8})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,11})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,7}))?S)?)?"
)
_NET_SPAN: Final = re.compile(
    r"(-)?(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,7}))?)?"
)


def instant_text(instant: Instant) -> str:
    days, rest = divmod(instant.ticks, _DAY)
    return f"{date.fromordinal(days + 1).isoformat()}T{_clock_text(rest)}Z"


def instant_of(text: str) -> Instant | None:
    """None if the text is no moment. Without an offset it is UTC."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = found.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - 1
    except ValueError:
        return None
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        return None
    offset = int(offset_hour or 0) * _HOUR + int(offset_minute or 0) * _MINUTE
    ticks = days * _DAY + _clock_ticks(hour, minute, second, fraction) + (offset if sign == "-" else -offset)
    return Instant(ticks) if 0 <= ticks <= INSTANT_TICKS_MAX else None


def span_text(span: Span) -> str:
    """`[-][d.]hh:mm:ss[.fffffff]`"""
    days, rest = divmod(abs(span.ticks), _DAY)
    return f"{'-' if span.ticks < 0 else ''}{f'{days}.' if days else ''}{_clock_text(rest)}"


def span_of(text: str) -> Span | None:
    """None if the text is no duration."""
    found = _NET_SPAN.fullmatch(text)
    if found is not None and int(found[3]) > 23:
        return None
    if found is None:
        found = _ISO_SPAN.fullmatch(text)
        if found is None or text[-1] in "PT":
            return None
    sign, days, hour, minute, second, fraction = found.groups()
    ticks = int(days or 0) * _DAY + _clock_ticks(hour, minute, second, fraction)
    if ticks > INTEGER_MAX:
        return None
    return Span(-ticks if sign else ticks)


def _clock_text(ticks: int) -> str:
    seconds, fraction = divmod(ticks, _SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:07}" if fraction else text


def _clock_ticks(hour: str | None, minute: str | None, second: str | None, fraction: str | None) -> int:
    whole = int(hour or 0) * _HOUR + int(minute or 0) * _MINUTE + int(second or 0) * _SECOND
    return whole + (int(fraction.ljust(7, "0")) if fraction else 0)


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
