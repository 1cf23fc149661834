"""How two values compare: true, false, or None for unknown (T-29, T-30, T-35).

Numbers compare as in C#: an integer beside a double becomes a double. Values of different kinds, booleans,
GUIDs and bytes by order, and null with anything do not compare: unknown, never an error.
"""

from uuid import UUID

from busway.rules.values import Instant, Span, Value


def equal(left: Value, right: Value) -> bool | None:
    if isinstance(left, str):
        return left == right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, int):
        if isinstance(right, int):
            return left == right
        return float(left) == right if isinstance(right, float) else None
    if isinstance(left, float):
        return left == float(right) if isinstance(right, (int, float)) else None
    return _equal_objects(left, right)


def _equal_objects(left: Value, right: Value) -> bool | None:
    if isinstance(left, Instant):
        return left.ticks == right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks == right.ticks if isinstance(right, Span) else None
    if isinstance(left, UUID):
        return left == right if isinstance(right, UUID) else None
    if isinstance(left, bytes):
        return left == right if isinstance(right, bytes) else None
    return None


def less(left: Value, right: Value) -> bool | None:
    if isinstance(left, str):
        return left < right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return (
            left < right if isinstance(left, int) and isinstance(right, int) else float(left) < float(right)
        )
    if isinstance(left, Instant):
        return left.ticks < right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks < right.ticks if isinstance(right, Span) else None
    return None


def less_or_equal(left: Value, right: Value) -> bool | None:
    """Not `not greater`: beside a NaN both are false."""
    if isinstance(left, str):
        return left <= right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return (
            left <= right if isinstance(left, int) and isinstance(right, int) else float(left) <= float(right)
        )
    if isinstance(left, Instant):
        return left.ticks <= right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks <= right.ticks if isinstance(right, Span) else None
    return None
