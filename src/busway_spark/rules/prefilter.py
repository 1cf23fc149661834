"""Which rows rules cannot select, seen at their text: before any JSON is read.

A SQL filter with a part `property = 'red'` or `property IN (…)` that nothing before it can keep from being evaluated
(an *anchor*, as the broker looks rules up by), and a correlation filter, select only messages whose properties hold
that text. JSON writes letters, digits and a few signs as they are, so the text must stand in it; a number must stand
in it with its digits. This is far cheaper than reading the JSON, and most rows of a selective rule end here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from busway.rules.anchors import AnchorKey, anchor_of
from busway.rules.correlation import correlation_key
from busway.rules.evaluate import Compilation
from busway.rules.expression import conjuncts_of
from busway.rules.filters import FixedFilter, compiled_filter
from busway.rules.parse import parse_filter
from busway.rules.rule import CorrelationFilter, Rule
from busway_spark.rules import sql_text
from busway_spark.rules.captured_columns import CapturedColumns
from busway_spark.rules.forms import TEXT, Known

#: No writer of JSON has reason to write these in another way.
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:-]+", re.ASCII)
#: A double as large as this has an exponent.
_DIGITS_BELOW: Final = 10**15


def prefilter(rules: Sequence[Rule], columns: CapturedColumns) -> str | None:
    """True for every row that one of the rules may select or fail on; None when nothing is known of one of them."""
    parts: list[str] = []
    for rule in rules:
        part = _part(rule, columns)
        if part is None:
            return None
        parts.append(part)
    return sql_text.any_of(parts)


def _part(rule: Rule, columns: CapturedColumns) -> str | None:
    if isinstance(rule.filter, CorrelationFilter):
        return _correlation(rule.filter, columns)
    fixed = compiled_filter(rule.filter, _no_id)
    if isinstance(fixed, FixedFilter):
        return None if fixed.is_true else "false"
    compilation = Compilation(rule.filter.expression, rule.filter.parameters, _no_id)
    anchor = anchor_of(conjuncts_of(parse_filter(rule.filter.expression)), compilation)
    return None if anchor is None else _holds(anchor.is_system, anchor.name, anchor.keys, columns)


def _correlation(filter_: CorrelationFilter, columns: CapturedColumns) -> str | None:
    key = correlation_key(filter_)
    parts: list[str] = []
    for (is_system, name), wanted in zip(key.shape, key.keys, strict=True):
        keys = [wanted] if isinstance(wanted, str | int) else []
        part = _holds(is_system, name, keys, columns) if keys else None
        if part is not None:
            parts.append(part)
    return "(" + " AND ".join(parts) + ")" if parts else None


def _holds(is_system: bool, name: str, keys: Sequence[AnchorKey], columns: CapturedColumns) -> str | None:
    if is_system:
        form = columns.system(name)
        if not isinstance(form, Known) or form.kind != TEXT:
            return None
        texts = [sql_text.text(key) for key in keys if isinstance(key, str)]
        return f"coalesce({form.sql} IN ({', '.join(texts)}), false)" if texts else "false"
    words = [_word(key) for key in keys]
    if any(word is None for word in words):
        return None
    return sql_text.any_of(
        [f"contains(`properties`, {sql_text.text(word)})" for word in words if word is not None]
    )


def _word(key: AnchorKey) -> str | None:
    """What stands in the JSON of every message that has this value."""
    if isinstance(key, str):
        return key if _PLAIN.fullmatch(key) is not None else None
    return str(abs(key)) if abs(key) < _DIGITS_BELOW else None


def _no_id() -> UUID:
    return UUID(int=0)
