"""`+ - * / %` and signs on values (T-29). None stands for unknown and for values that do not go together (T-30).

As in C#: integers divide toward zero and a remainder has the sign of the dividend; a double beside an integer makes
a double; division of doubles by zero is infinite or not a number. Unlike C#, an integer never wraps around: a result
beyond 64 bits is a filter error, like an integer division by zero.
"""

import math
from typing import Final

from busway.rules.errors import FilterError
from busway.rules.values import INSTANT_TICKS_MAX, INTEGER_MAX, INTEGER_MIN, Instant, Span, Value

#: Of a text put together with `+`.
TEXT_CHARACTERS_MAX: Final = 65_536


def calculated(operator: str, left: Value, right: Value) -> Value:
    """Raises FilterError, nothing else."""
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            return _integer(operator, left, right)
        return _double(operator, float(left), float(right))
    if isinstance(left, str) and isinstance(right, str):
        return _joined(left, right) if operator == "+" else None
    if isinstance(left, (Instant, Span)) and isinstance(right, (Instant, Span)):
        return _time(operator, left, right)
    return None


def negated(value: Value) -> Value:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _fitting(-value)
    if isinstance(value, float):
        return -value
    return Span(_fitting(-value.ticks)) if isinstance(value, Span) else None


def unchanged(value: Value) -> Value:
    """A plus sign: nothing for what it can stand before, unknown for others."""
    if isinstance(value, (int, float, Span)) and not isinstance(value, bool):
        return value
    return None


def _fitting(value: int) -> int:
    if value < INTEGER_MIN or value > INTEGER_MAX:
        raise FilterError("The result of an arithmetic operation does not fit in 64 bits.")
    return value


def _integer(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return _fitting(left + right)
    if operator == "-":
        return _fitting(left - right)
    if operator == "*":
        return _fitting(left * right)
    if right == 0:
        raise FilterError("An integer was divided by zero.")
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return _fitting(quotient if operator == "/" else left - quotient * right)


def _double(operator: str, left: float, right: float) -> float:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left / right if right != 0 else _by_zero(left, right)
    if right == 0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _by_zero(left: float, right: float) -> float:
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > TEXT_CHARACTERS_MAX:
        raise FilterError(f"A text put together has more than {TEXT_CHARACTERS_MAX} characters.")
    return left + right


def _time(operator: str, left: Instant | Span, right: Instant | Span) -> Value:
    if operator not in ("+", "-"):
        return None
    ticks = left.ticks + right.ticks if operator == "+" else left.ticks - right.ticks
    if isinstance(left, Instant) and isinstance(right, Instant):
        return Span(ticks) if operator == "-" else None
    if isinstance(left, Span) and isinstance(right, Span):
        return Span(_fitting(ticks))
    if isinstance(left, Span) and operator == "-":
        return None
    if not 0 <= ticks <= INSTANT_TICKS_MAX:
        raise FilterError("The result is a date before the year 1 or after the year 9999.")
    return Instant(ticks)
