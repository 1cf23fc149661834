"""Operators of rules in SQL: how two values compare, `+ - * / %` and signs, and LIKE with a constant pattern.

Comparisons are true, false, or null for unknown (T-29, T-30, T-35), as in `busway.rules.operators`.

Arithmetic is as in `busway.rules.operators` (T-29): what that one refuses (a result beyond 64 bits, a division of
integers by zero) and what Spark would refuse (a division of doubles by zero) is a null here with the mark to ask the
evaluator.

LIKE is as in `rules.operators` (T-27). Patterns without `_` and with `%` at their ends only are Spark's own
look for a part of a text. The others become a regular expression of Java in which each segment takes its first place
for
good (an atomic group), as the broker's does: so no pattern makes it try again and again. `Walks` is what the LIKEs of
a rule may cost the broker. It stops short of some of them where others decide, so that a message is beyond the rule's
budget only if all of them together are; then the evaluator says whether it is.
"""

from __future__ import annotations

from typing import Final

from busway.rules.operators import CHARACTERS_MAX, QUARTERS, TEXT_CHARACTERS_MAX, LikePattern
from busway.rules.subject import INSTANT_TICKS_MAX, INTEGER_MIN
from busway_spark.rules import sql_values
from busway_spark.rules.sql_values import (
    BYTES,
    DOUBLE,
    GUID,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    TRUTH,
    UNKNOWN,
    AnyKind,
    Form,
    Nothing,
    Sight,
    Unsupported,
    View,
    checked,
    kinds_of,
    struct,
    struct_of,
)

_EQUAL_KINDS: Final = (TEXT, TRUTH, INTEGER, MOMENT, SPAN, GUID, BYTES)
_ORDERED_KINDS: Final = (TEXT, INTEGER, MOMENT, SPAN)
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
#: Stands for `_` in a segment.
_ANY: Final = ""


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
            cases.append(
                _doubles(operator, _sight_as_double(left[one], one), _sight_as_double(right[other], other))
            )
    if not cases:
        return UNKNOWN
    return cases[0] if len(cases) == 1 else f"coalesce({', '.join(cases)})"


def _sight_as_double(sight: Sight, kind: str) -> Sight:
    return sight if kind == DOUBLE else Sight(f"CAST({sight.sql} AS DOUBLE)", sight.is_constant)


def _doubles(operator: str, left: Sight, right: Sight) -> str:
    """Spark says that a NaN equals a NaN and is above all others; beside a NaN nothing is true (T-29)."""
    is_nan = f"isnan({left.sql}) OR isnan({right.sql})"
    is_null = f"{left.sql} IS NULL OR {right.sql} IS NULL"
    compared = f"{left.sql} {operator} {right.sql}"
    return f"CASE WHEN {is_null} THEN NULL WHEN {is_nan} THEN false ELSE {compared} END"


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
    asks = [
        f"{side}.a" for side, form in ((step.left, left), (step.right, right)) if isinstance(form, AnyKind)
    ]
    body = struct(step.values, " OR ".join([*asks, f"(({' OR '.join(step.applies)}) AND {is_null})"]))
    sides = f"named_struct('l', {struct_of(left, step.read)}, 'r', {struct_of(right, step.read)})"
    sql = f"element_at(transform(array({sides}), {name} -> {body}), 1)"
    return AnyKind(checked(sql), kinds=tuple(step.values))


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
    return AnyKind(checked(sql), kinds=tuple(kinds))


def like(value: str, pattern: str, escape: str | None) -> str:
    """`value` is a text or null; then so is the answer. The pattern is one that the broker took."""
    segments = _segments(pattern, escape)
    if not any(_ANY in segment for segment in segments):
        literal = ["".join(segment) for segment in segments]
        if len(literal) == 1:
            return f"({value} = {sql_values.text(literal[0])})"
        if len(literal) == 2:
            return _ends(value, literal[0], literal[1])
        if len(literal) == 3 and literal[0] == literal[2] == "":
            return f"contains({value}, {sql_values.text(literal[1])})"
    return f"({value} RLIKE {sql_values.text(_regex(segments))})"


def _ends(value: str, first: str, last: str) -> str:
    starts, ends = (
        f"startswith({value}, {sql_values.text(first)})",
        f"endswith({value}, {sql_values.text(last)})",
    )
    if not last:
        return starts
    if not first:
        return ends
    return f"(length({value}) >= {len(first) + len(last)} AND {starts} AND {ends})"


def _segments(pattern: str, escape: str | None) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    is_escaped = False
    for character in pattern:
        if not is_escaped and character == escape:
            is_escaped = True
        elif not is_escaped and character == "%":
            segments.append([])
        else:
            segments[-1].append(_ANY if character == "_" and not is_escaped else character)
            is_escaped = False
    return segments


def _regex(segments: list[list[str]]) -> str:
    if len(segments) == 1:
        return rf"(?s)\A{_piece(segments[0])}\z"
    middle = "".join(f"(?>.*?{_piece(segment)})" for segment in segments[1:-1] if segment)
    return rf"(?s)\A{_piece(segments[0])}{middle}.*{_piece(segments[-1])}\z"


def _piece(segment: list[str]) -> str:
    return "".join("." if character == _ANY else f"\\x{{{ord(character):x}}}" for character in segment)


class Walks:
    """As `busway.rules.operators`. Texts are given by their SQL, or by how long they can be."""

    def __init__(self) -> None:
        #: By text the quarters of a step for each of its characters.
        self._by_text: dict[str, int] = {}
        self._most = 0

    def add(self, text: str | int, pattern: str, escape: str | None) -> None:
        """Raises Unsupported when every message would have to be asked about."""
        quarters = LikePattern(pattern, escape).quarters
        if isinstance(text, str):
            self._by_text[text] = self._by_text.get(text, 0) + quarters
            return
        self._most += text * quarters
        if self._most > CHARACTERS_MAX * QUARTERS:
            raise Unsupported("LIKE with very long texts")

    def ask(self) -> str | None:
        """True where the budget may be spent; None where there is nothing to spend it on."""
        parts = [
            f"coalesce(length({text}), 0) * {quarters}L"
            for text, quarters in self._by_text.items()
            if quarters > 0
        ]
        if not parts:
            return None
        return f"({' + '.join(parts)} > {CHARACTERS_MAX * QUARTERS - self._most}L)"
