"""How two values compare, in SQL: true, false, or null for unknown (T-29, T-30, T-35): as `rules.comparison`."""

from __future__ import annotations

from typing import Final

from busway_spark.rules.forms import (
    BYTES,
    DOUBLE,
    GUID,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    TRUTH,
    UNKNOWN,
    Sight,
    View,
)

_EQUAL_KINDS: Final = (TEXT, TRUTH, INTEGER, MOMENT, SPAN, GUID, BYTES)
_ORDERED_KINDS: Final = (TEXT, INTEGER, MOMENT, SPAN)


def equal(left: View, right: View) -> str:
    return _compared("=", left, right, _EQUAL_KINDS)


def ordered(operator: str, left: View, right: View) -> str:
    """`operator` is `<`, `<=`, `>` or `>=`."""
    return _compared(operator, left, right, _ORDERED_KINDS)


def _compared(operator: str, left: View, right: View, kinds: tuple[str, ...]) -> str:
    """At most one of the cases is not null: both sides have one kind each."""
    cases = [
        f"({left[kind].sql} {operator} {right[kind].sql})" for kind in kinds if kind in left and kind in right
    ]
    for one, other in ((DOUBLE, DOUBLE), (DOUBLE, INTEGER), (INTEGER, DOUBLE)):
        if one in left and other in right:
            cases.append(_doubles(operator, _as_double(left[one], one), _as_double(right[other], other)))
    if not cases:
        return UNKNOWN
    return cases[0] if len(cases) == 1 else f"coalesce({', '.join(cases)})"


def _as_double(sight: Sight, kind: str) -> Sight:
    return sight if kind == DOUBLE else Sight(f"CAST({sight.sql} AS DOUBLE)", sight.is_constant)


def _doubles(operator: str, left: Sight, right: Sight) -> str:
    """Spark says that a NaN equals a NaN and is above all others; beside a NaN nothing is true (T-29)."""
    is_nan = f"isnan({left.sql}) OR isnan({right.sql})"
    is_null = f"{left.sql} IS NULL OR {right.sql} IS NULL"
    compared = f"{left.sql} {operator} {right.sql}"
    return f"CASE WHEN {is_null} THEN NULL WHEN {is_nan} THEN false ELSE {compared} END"
