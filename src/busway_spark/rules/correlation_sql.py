"""A correlation filter in SQL (T-40…T-43): what `busway.rules.correlation` looks up, compared. An integer never
equals a double here, and a GUID or bytes equal nothing."""

from __future__ import annotations

from busway.rules.correlation import CorrelationKey
from busway_spark.rules import sql_text
from busway_spark.rules.captured_columns import CapturedColumns
from busway_spark.rules.forms import (
    DOUBLE,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    TRUTH,
    Found,
    view_of,
)
from busway_spark.rules.unsupported import Unsupported


def correlation(key: CorrelationKey, columns: CapturedColumns) -> tuple[str, list[str]]:
    """(whether the message is selected, when the evaluator must be asked)."""
    if not key.is_satisfiable:
        return "false", []
    parts: list[str] = []
    asks: list[str] = []
    for (is_system, name), wanted in zip(key.shape, key.keys, strict=True):
        form = columns.system(name) if is_system else columns.user(name)
        if isinstance(form, Found):
            asks.append(form.field("a"))
        kind, sql = _wanted(wanted)
        view = view_of(form)
        parts.append(f"coalesce({view[kind].sql} = {sql}, false)" if kind in view else "false")
    return "(" + " AND ".join(parts) + ")", asks


def _wanted(key: object) -> tuple[str, str]:
    """Kind and constant of a look-up key. Doubles are no NaN: that would not be satisfiable."""
    if isinstance(key, str):
        return TEXT, sql_text.text(key)
    if isinstance(key, int):
        return INTEGER, sql_text.integer(key)
    if isinstance(key, tuple) and len(key) == 2:
        word, value = key
        if word == "boolean" and isinstance(value, bool):
            return TRUTH, sql_text.boolean(value)
        if word == "double" and isinstance(value, float):
            return DOUBLE, sql_text.double(value)
        if word in ("dateTime", "duration") and isinstance(value, int):
            return (MOMENT if word == "dateTime" else SPAN), sql_text.integer(value)
    raise Unsupported("a value of this type in a correlation filter")
