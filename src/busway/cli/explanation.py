"""Why a filter selects a message or does not: every part of it with what it comes to.

The parts are shown in the text's order, each one deeper than what it belongs to. AND and OR stop early when the bus
evaluates them; here every part is evaluated, so that all of them can be seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from busway.cli.trial_message import plain
from busway.rules.errors import FilterError
from busway.rules.evaluate import Compilation
from busway.rules.expression import (
    And,
    Arithmetic,
    Comparison,
    Existence,
    Expression,
    Likeness,
    Literal,
    Membership,
    NewId,
    Not,
    NullTest,
    Operand,
    Or,
    Parameter,
    Property,
    PropertyOf,
    Sign,
)
from busway.rules.parse import parse_filter
from busway.rules.printed import printed
from busway.rules.rule import SqlFilter
from busway.rules.subject import Subject, folded
from busway.rules.values import Instant, Missing, Span, Value

_OPERANDS = (Literal, Property, Parameter, NewId, PropertyOf, Sign, Arithmetic)


@dataclass(frozen=True)
class Part:
    """`result`: true, false, unknown or error; for an operand its value as JSON writes it (`is_value`). `why` is
    empty where it is plain."""

    depth: int
    text: str
    result: object
    why: str = ""
    is_value: bool = False


def explained(filter_: SqlFilter, subject: Subject) -> list[Part]:
    """The first part is the whole filter. Raises RuleSyntaxError."""
    expression = parse_filter(filter_.expression)
    compilation = Compilation(filter_.expression, filter_.parameters, uuid4)
    compilation.truth(expression)
    return list(_Explainer(compilation, subject).parts(expression, 0, is_condition=True))


class _Explainer:
    def __init__(self, compilation: Compilation, subject: Subject) -> None:
        self._compilation = compilation
        self._subject = subject

    def parts(self, expression: Expression, depth: int, *, is_condition: bool = False) -> Iterator[Part]:
        if isinstance(expression, Literal) and not is_condition:
            return
        if isinstance(expression, _OPERANDS) and not is_condition:
            yield self._operand(expression, depth)
        else:
            yield self._condition(expression, depth)
        for child, is_inner_condition in _children(expression):
            yield from self.parts(child, depth + 1, is_condition=is_inner_condition)

    def _condition(self, expression: Expression, depth: int) -> Part:
        text = printed(expression)
        try:
            truth = self._compilation.truth(expression).evaluate(self._subject)
        except FilterError as error:
            return Part(depth, text, "error", str(error))
        if truth is None:
            return Part(depth, text, "unknown", self._why_unknown(expression))
        return Part(depth, text, "true" if truth else "false")

    def _operand(self, operand: Operand, depth: int) -> Part:
        text = printed(operand)
        try:
            value = self._value(operand)
        except FilterError as error:
            return Part(depth, text, "error", str(error))
        if value is None:
            return Part(depth, text, "unknown", self._why_null(operand))
        return Part(depth, text, plain(value), is_value=True)

    def _value(self, operand: Operand) -> Value:
        return self._compilation.reading(operand).value(self._subject)

    def _why_null(self, operand: Operand) -> str:
        if isinstance(operand, Property) and operand.is_system:
            return f"the message has no {operand.name}"
        if isinstance(operand, Property):
            found = self._subject.user(folded(operand.name))
            is_missing = isinstance(found, Missing)
            return f"the message has no property '{operand.name}'" if is_missing else "it is null"
        return "a part of it is unknown"

    def _why_unknown(self, expression: Expression) -> str:
        if isinstance(expression, Property):
            value = self._value(expression)
            return self._why_null(expression) if value is None else f"{kind_of(value)} is no truth value"
        if isinstance(expression, Comparison):
            return self._why_incomparable(expression.left, expression.right)
        if isinstance(expression, Likeness):
            return self._why_incomparable(expression.operand, expression.pattern, "LIKE needs two texts")
        if isinstance(expression, Membership):
            is_null = self._value(expression.operand) is None
            return "its left side is unknown" if is_null else "the values do not compare"
        return "a part of it is unknown"

    def _why_incomparable(self, left: Operand, right: Operand, sentence: str = "") -> str:
        values = (self._value(left), self._value(right))
        for operand, value in zip((left, right), values, strict=True):
            if value is None:
                return self._why_null(operand)
        return sentence or f"{kind_of(values[0])} and {kind_of(values[1])} do not compare"


def kind_of(value: Value) -> str:
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"),
        (int, "a number"),
        (float, "a number"),
        (str, "a text"),
        (Instant, "a time"),
        (Span, "a duration"),
        (bytes, "a run of bytes"),
    )
    return next((word for kind, word in kinds if isinstance(value, kind)), "a GUID")


def _children(expression: Expression) -> list[tuple[Expression, bool]]:
    """The parts right below, and whether each stands where a condition is expected."""
    if isinstance(expression, And | Or):
        return [(part, True) for part in expression.parts]
    if isinstance(expression, Not):
        return [(expression.condition, True)]
    return [(operand, False) for operand in _operands(expression)]


def _operands(expression: Expression) -> list[Operand]:
    if isinstance(expression, Comparison):
        return [expression.left, expression.right]
    if isinstance(expression, Membership):
        return [expression.operand, *expression.choices]
    if isinstance(expression, Likeness):
        return [expression.operand, expression.pattern]
    if isinstance(expression, NullTest):
        return [expression.property]
    if isinstance(expression, Arithmetic):
        return [expression.first, *(operand for _, operand in expression.steps)]
    if isinstance(expression, Sign):
        return [expression.operand]
    if isinstance(expression, PropertyOf):
        return [expression.name]
    return [expression.property] if isinstance(expression, Existence) else []
