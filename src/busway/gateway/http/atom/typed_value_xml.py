"""Values of rule parameters and correlation properties between XML text and `TypedValue`, exact to 100 ns (E-74).

Types are known by their local name: a prefix inside an attribute's value is not resolved by the parser, and clients
choose their own (`d6p1:int`, `l28:double`).
"""

import math
import re
from datetime import date
from typing import Final

from busway.atom_names import SCHEMA, SERIALIZATION
from busway.gateway.http.atom.atom import xml_escaped
from busway.gateway.http.xml_input import flag_of, integer_of
from busway.model.errors import BadArgument
from busway.rules.rule import VALUE_TYPES, TypedValue

_TICKS_PER_SECOND: Final = 10_000_000
_MINUTE: Final = 60 * _TICKS_PER_SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: 9999-12-31T23:59:59.9999999.
_INSTANT_MAX: Final = 3_652_059 * _DAY - 1
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_TEXT_CHARACTERS_MAX: Final = 64

_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
)
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DURATION: Final = re.compile(
    r"(-?)P(?:([0-9]{1,8})Y)?(?:([0-9]{1,8})M)?(?:([0-9]{1,8})W)?(?:([0-9]{1,8})D)?"
    r"(?:T(?:([0-9]{1,10})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,12}))?S)?)?"
)
#: Years and months as .NET counts them.
_UNITS: Final = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY, _HOUR, _MINUTE, _TICKS_PER_SECOND)


# -- reading --


def parse_typed_value(key: str, type_name: str, text: str) -> TypedValue:
    """`type_name` without its prefix. Raises BadArgument."""
    name = f"The value of {key[:80]!r}"
    if type_name == "string":
        return TypedValue("string", text)
    text = text.strip()
    if type_name in ("int", "long"):
        return TypedValue(type_name, _bounded(name, text, _INT32 if type_name == "int" else _INT64))
    if type_name == "boolean":
        return TypedValue("boolean", flag_of(name, text))
    if type_name == "double":
        return TypedValue("double", _double(name, text))
    if type_name == "dateTime":
        ticks, has_zone = _instant(name, text)
        return TypedValue("dateTime", ticks, has_zone)
    if type_name == "duration":
        return TypedValue("duration", _duration(name, text))
    raise BadArgument(f"{name} has the type {type_name[:80]!r}; known are {', '.join(VALUE_TYPES)}.")


def _bounded(name: str, text: str, beyond: int) -> int:
    value = integer_of(name, text)
    if not -beyond <= value < beyond:
        raise BadArgument(f"{name}: {value} is out of range.")
    return value


def _double(name: str, text: str) -> float:
    value = float(text) if _DOUBLE.fullmatch(text) is not None else math.nan
    if not math.isfinite(value):
        raise BadArgument(f"{name}: {text[:80]!r} is not a finite number.")
    return value


def _instant(name: str, text: str) -> tuple[int, bool]:
    """Ticks since the year 1 in UTC, and whether a zone was written."""
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(digits) for digits in found.groups()[:6])
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError
        clock = hour * _HOUR + minute * _MINUTE + second * _TICKS_PER_SECOND + _fraction(found.group(7))
        zone = found.group(8)
        ticks = (date(year, month, day).toordinal() - 1) * _DAY + clock - _offset(zone)
        if not 0 <= ticks <= _INSTANT_MAX:
            raise ValueError
    except ValueError:
        raise BadArgument(f"{name}: {text[:80]!r} is not a time such as 2030-01-31T12:00:00Z.") from None
    return ticks, zone is not None


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 14 or minutes > 59:
        raise ValueError
    ticks = hours * _HOUR + minutes * _MINUTE
    return -ticks if zone[0] == "-" else ticks


def _duration(name: str, text: str) -> int:
    found = _DURATION.fullmatch(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None or text.endswith(("P", "T")):
        raise BadArgument(f"{name}: {text[:80]!r} is not a duration such as PT30S or P1DT12H.")
    ticks = _fraction(found.group(9))
    for digits, unit in zip(found.groups()[1:8], _UNITS, strict=True):
        ticks += 0 if digits is None else int(digits) * unit
    if ticks >= _INT64:
        raise BadArgument(f"{name}: {text[:80]!r} is too long.")
    return -ticks if found.group(1) else ticks


def _fraction(digits: str | None) -> int:
    """What is below 100 ns is cut."""
    return 0 if digits is None else int(digits[:7].ljust(7, "0"))


# -- writing --


def value_element(typed: TypedValue) -> str:
    """JS cuts five characters off the type, so its prefix must have four; a duration has another namespace."""
    namespace = SERIALIZATION if typed.type_name == "duration" else SCHEMA
    return (
        f'<Value i:type="d6p1:{typed.type_name}" xmlns:d6p1="{namespace}">'
        f"{xml_escaped(value_text(typed))}</Value>"
    )


def value_text(typed: TypedValue) -> str:
    value = typed.value
    if typed.type_name == "boolean":
        return "true" if value else "false"
    if typed.type_name == "double":
        return _double_text(float(value))
    if typed.type_name == "dateTime":
        return _instant_text(int(value)) + ("Z" if typed.has_zone else "")
    if typed.type_name == "duration":
        return _duration_text(int(value))
    return str(value)


def _double_text(value: float) -> str:
    """As .NET writes it: `5`, `0.1`, `1E+16`."""
    return repr(value).removesuffix(".0").replace("e", "E")


def _instant_text(ticks: int) -> str:
    days, rest = divmod(ticks, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    return f"{date.fromordinal(days + 1).isoformat()}T{hours:02d}:{minutes:02d}:{_seconds(rest, 2)}"


def _duration_text(ticks: int) -> str:
    days, rest = divmod(abs(ticks), _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    clock += f"{_seconds(rest, 1)}S" if rest else ""
    if days == 0 and clock == "":
        return "PT0S"
    return ("-" if ticks < 0 else "") + "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def _seconds(ticks: int, width: int) -> str:
    seconds, fraction = divmod(ticks, _TICKS_PER_SECOND)
    decimals = f"{fraction:07d}".rstrip("0")
    return f"{seconds:0{width}d}" + (f".{decimals}" if decimals else "")
