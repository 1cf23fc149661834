"""A SQL action, ready for many messages (T-50…T-54): statements in order, each sees what those before it did.

SET keeps the type of a property where the new value allows it (T-51). A user property takes a value of another type
when it cannot be turned into its own without loss; a system property has one type for ever, so there it is an action
error. Texts are read and written as .NET does, whatever the culture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import UUID

from busway.rules.budget import Budget
from busway.rules.errors import ActionError, FilterError
from busway.rules.evaluate import Compilation, Reading
from busway.rules.expression import SetStatement
from busway.rules.parse import parse_action
from busway.rules.rule import SqlAction
from busway.rules.subject import ChangeableSubject, folded
from busway.rules.system_properties import DURATION, MOMENT, SETTABLE, TEXT
from busway.rules.time_text import instant_of, instant_text, span_of, span_text
from busway.rules.values import INTEGER_MAX, INTEGER_MIN, Instant, Missing, Span, Value


class CompiledStatement:
    """`value` is None for REMOVE."""

    __slots__ = ("folded_name", "is_system", "name", "value")

    def __init__(self, name: str, is_system: bool, value: Reading | None) -> None:
        self.name = name
        self.folded_name = folded(name)
        self.is_system = is_system
        self.value = value

    def apply(self, subject: ChangeableSubject) -> None:
        """Raises FilterError from the value, ActionError from its conversion."""
        if self.value is None:
            if self.is_system:
                subject.set_system(self.name, None)
            else:
                subject.remove_user(self.folded_name)
            return
        value = self.value.value(subject)
        if self.is_system:
            subject.set_system(self.name, system_value(self.name, value))
            return
        existing = subject.user(self.folded_name)
        subject.set_user(self.name, value if isinstance(existing, Missing) else converted(value, existing))


class CompiledAction:
    __slots__ = ("_budget", "_statements")

    def __init__(self, statements: list[CompiledStatement], budget: Budget | None) -> None:
        self._statements = statements
        self._budget = budget

    def apply(self, subject: ChangeableSubject) -> None:
        """Raises ActionError; the subject may be changed in part then."""
        if self._budget is not None:
            self._budget.renew()
        try:
            for statement in self._statements:
                statement.apply(subject)
        except FilterError as error:
            raise ActionError(str(error)) from error


def compiled_action(action: SqlAction, new_id: Callable[[], UUID]) -> CompiledAction:
    """Raises RuleSyntaxError, nothing else. `new_id` is what `newid()` calls."""
    compilation = Compilation(action.expression, action.parameters, new_id)
    compiled = []
    for statement in parse_action(action.expression):
        value = compilation.reading(statement.value) if isinstance(statement, SetStatement) else None
        compiled.append(CompiledStatement(statement.target.name, statement.target.is_system, value))
    return CompiledAction(compiled, compilation.budget)


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
