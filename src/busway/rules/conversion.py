"""SET keeps the type of a property where the new value allows it (T-51).

A user property takes a value of another type when it cannot be turned into its own without loss; a system property
has one type for ever, so there it is an action error. Texts are read and written as .NET does, whatever the culture.
"""

import math
from uuid import UUID

from busway.rules.errors import ActionError
from busway.rules.system_properties import DURATION, MOMENT, SETTABLE, TEXT
from busway.rules.time_text import instant_of, instant_text, span_of, span_text
from busway.rules.values import INTEGER_MAX, INTEGER_MIN, Instant, Span, Value


def converted(value: Value, existing: Value) -> Value:
    """`value` as the type of `existing`, or as it is if it has no such form."""
    if value is None or existing is None or type(value) is type(existing):
        return value
    as_existing: Value = None
    if isinstance(existing, str):
        as_existing = text_of(value)
    elif isinstance(existing, bool):
        as_existing = _truth_of(value)
    elif isinstance(existing, int):
        as_existing = _integer_of(value)
    elif isinstance(existing, float):
        as_existing = _double_of(value)
    elif isinstance(value, str):
        as_existing = _object_of(value, existing)
    return value if as_existing is None else as_existing


def system_value(name: str, value: Value) -> Value:
    """`value` as the system property of this name needs it. Raises ActionError if it has no such form."""
    if value is None:
        return None
    needed = SETTABLE[name]
    given: Value
    if needed == TEXT:
        given = text_of(value)
    elif needed == DURATION:
        given = _span_of(value)
    elif needed == MOMENT:
        given = instant_of(value) if isinstance(value, str) else value if isinstance(value, Instant) else None
    else:
        given = _truth_of(value)
    if given is None:
        raise ActionError(f"sys.{name} must be {needed}.")
    return given


def text_of(value: Value) -> str | None:
    """None for bytes: they have no text of their own."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, UUID)):
        return str(value)
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, Instant):
        return instant_text(value)
    return span_text(value) if isinstance(value, Span) else None


def _double_text(value: float) -> str:
    if math.isfinite(value):
        text = repr(value).upper()
        return text.removesuffix(".0")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _truth_of(value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def _integer_of(value: Value) -> int | None:
    """Only without loss: 5.0 is 5, 5.5 stays what it is."""
    if isinstance(value, float) and value.is_integer() and INTEGER_MIN <= value < INTEGER_MAX:
        return int(value)
    if isinstance(value, str) and _is_decimal(value.strip()):
        integer = int(value.strip())
        return integer if INTEGER_MIN <= integer <= INTEGER_MAX else None
    return None


def _is_decimal(text: str) -> bool:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return len(digits) <= 19 and digits.isascii() and digits.isdecimal()


def _double_of(value: Value) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and len(value) <= 64 and value.isascii() and "_" not in value:
        try:
            double = float(value)
        except ValueError:
            return None
        return double if math.isfinite(double) else None
    return None


def _span_of(value: Value) -> Span | None:
    """A time to live is never negative."""
    span = span_of(value) if isinstance(value, str) else value
    return span if isinstance(span, Span) and span.ticks >= 0 else None


def _object_of(text: str, existing: Value) -> Value:
    if isinstance(existing, Instant):
        return instant_of(text)
    if isinstance(existing, Span):
        return span_of(text)
    if isinstance(existing, UUID) and len(text) <= 38:
        try:
            return UUID(text)
        except ValueError:
            return None
    return None
