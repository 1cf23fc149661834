"""`+ - * / %` and signs in SQL (T-29). As `busway.rules.arithmetic`.

What that one refuses (a result beyond 64 bits, a division of integers by zero) and what Spark would refuse (a
division of doubles by zero) is a null here with the mark to ask the evaluator.
"""

from __future__ import annotations

from typing import Final

from busway.rules.arithmetic import TEXT_CHARACTERS_MAX
from busway.rules.values import INSTANT_TICKS_MAX, INTEGER_MIN
from busway_spark.rules.forms import (
    DOUBLE,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    Form,
    Found,
    Nothing,
    checked,
    kinds_of,
    struct,
    struct_of,
)

_INTEGER_SQL: Final = {
    "+": "try_add({l}, {r})",
    "-": "try_subtract({l}, {r})",
    "*": "try_multiply({l}, {r})",
    "/": "({l} div nullif(CASE WHEN {l} = {least} AND {r} = -1L THEN 0L ELSE {r} END, 0L))",
    "%": "try_mod({l}, {r})",
}
_DOUBLE_SQL: Final = {
    "+": "({l} + {r})",
    "-": "({l} - {r})",
    "*": "({l} * {r})",
    "/": "({l} / nullif({r}, 0D))",
    "%": "({l} % nullif({r}, 0D))",
}
_LEAST: Final = f"CAST('{INTEGER_MIN}' AS BIGINT)"


def calculated(operator: str, left: Form, right: Form, name: str) -> Form:
    """`name` is for the lambda, not used elsewhere. Only the kinds that both sides may have together are written."""
    ours, theirs = set(kinds_of(left)), set(kinds_of(right))
    step = _Step(operator, f"{name}.l", f"{name}.r", ours, theirs)
    step.numbers()
    if operator == "+":
        step.texts()
    if operator in ("+", "-"):
        step.times()
    if not step.values:
        return Nothing()
    is_null = " AND ".join(f"{sql} IS NULL" for sql in step.values.values())
    asks = [f"{side}.a" for side, form in ((step.left, left), (step.right, right)) if isinstance(form, Found)]
    body = struct(step.values, " OR ".join([*asks, f"(({' OR '.join(step.applies)}) AND {is_null})"]))
    sides = f"named_struct('l', {struct_of(left, step.read)}, 'r', {struct_of(right, step.read)})"
    sql = f"element_at(transform(array({sides}), {name} -> {body}), 1)"
    return Found(checked(sql), kinds=tuple(step.values))


class _Step:
    """One operator between two structs."""

    def __init__(self, operator: str, left: str, right: str, ours: set[str], theirs: set[str]) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self._ours = ours
        self._theirs = theirs
        #: By kind of the result its expression; when there must be one; and which fields of the sides are read.
        self.values: dict[str, str] = {}
        self.applies: list[str] = []
        self.read: dict[str, None] = {}

    def _both(self, ours: str, theirs: str) -> bool:
        """Whether the sides may be of these kinds; if so, together they have a result."""
        if ours not in self._ours or theirs not in self._theirs:
            return False
        self.applies.append(f"({self.left}.{ours} IS NOT NULL AND {self.right}.{theirs} IS NOT NULL)")
        self.read.update({ours: None, theirs: None})
        return True

    def numbers(self) -> None:
        integers = self._both(INTEGER, INTEGER)
        doubles = [
            _DOUBLE_SQL[self.operator].format(l=_as_double(self.left, ours), r=_as_double(self.right, theirs))
            for ours, theirs in ((DOUBLE, DOUBLE), (DOUBLE, INTEGER), (INTEGER, DOUBLE))
            if self._both(ours, theirs)
        ]
        if integers:
            sides = {"l": f"{self.left}.i", "r": f"{self.right}.i", "least": _LEAST}
            self.values[INTEGER] = _INTEGER_SQL[self.operator].format(**sides)
        if doubles:
            self.values[DOUBLE] = _first(doubles)

    def texts(self) -> None:
        if self._both(TEXT, TEXT):
            left, right = f"{self.left}.t", f"{self.right}.t"
            is_short = f"length({left}) + length({right}) <= {TEXT_CHARACTERS_MAX}"
            self.values[TEXT] = f"IF({is_short}, concat({left}, {right}), NULL)"

    def times(self) -> None:
        function = "try_add" if self.operator == "+" else "try_subtract"
        moments = [(MOMENT, SPAN), (SPAN, MOMENT)] if self.operator == "+" else [(MOMENT, SPAN)]
        spans = [(SPAN, SPAN)] if self.operator == "+" else [(SPAN, SPAN), (MOMENT, MOMENT)]
        found = [
            f"{function}({self.left}.{one}, {self.right}.{two})"
            for one, two in moments
            if self._both(one, two)
        ]
        if found:
            moment = _first(found)
            self.values[MOMENT] = f"IF({moment} BETWEEN 0L AND {INSTANT_TICKS_MAX}L, {moment}, NULL)"
        found = [
            f"{function}({self.left}.{one}, {self.right}.{two})" for one, two in spans if self._both(one, two)
        ]
        if found:
            self.values[SPAN] = _first(found)


def _as_double(side: str, kind: str) -> str:
    return f"{side}.d" if kind == DOUBLE else f"CAST({side}.i AS DOUBLE)"


def _first(expressions: list[str]) -> str:
    return expressions[0] if len(expressions) == 1 else f"coalesce({', '.join(expressions)})"


def signed(operator: str, operand: Form, name: str) -> Form:
    """A minus, or a plus: nothing for what it can stand before, unknown for others."""
    kinds = [kind for kind in (INTEGER, DOUBLE, SPAN) if kind in kinds_of(operand)]
    if not kinds:
        return Nothing()
    values: dict[str, str] = {kind: f"{name}.{kind}" for kind in kinds}
    asks = f"{name}.a"
    if operator == "-":
        for kind in kinds:
            values[kind] = f"(- {name}.d)" if kind == DOUBLE else f"try_subtract(0L, {name}.{kind})"
            if kind != DOUBLE:
                asks += f" OR ({name}.{kind} IS NOT NULL AND {values[kind]} IS NULL)"
    body = struct(values, asks)
    sql = f"element_at(transform(array({struct_of(operand, kinds)}), {name} -> {body}), 1)"
    return Found(checked(sql), kinds=tuple(kinds))
