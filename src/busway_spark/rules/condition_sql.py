"""The tree of a rule (`busway.rules.expression`) → SQL that answers as the broker's evaluator does.

Theory of operation. A condition becomes a boolean expression; null is unknown, and Spark's AND, OR and NOT have the
tables of T-33. Errors have no place in it: wherever evaluating may fail, or Spark has no exact word for a value, a
second expression says so (`asks`), and that message is the broker's evaluator's. It may say so too often, never too
seldom. A part that has no form here at all raises Unsupported, and then every message is.

A correlation filter (T-40…T-43) compares what `busway.rules.correlation` looks up. An integer never equals a double
there, and a GUID or bytes equal nothing.
"""

from __future__ import annotations

from busway.rules.arithmetic import TEXT_CHARACTERS_MAX
from busway.rules.correlation import CorrelationKey
from busway.rules.evaluate import Compilation, Constant
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
    Property,
    PropertyOf,
    Sign,
)
from busway.rules.values import Value
from busway_spark.rules import operators_sql, sql_text
from busway_spark.rules.captured_columns import CapturedColumns
from busway_spark.rules.forms import (
    DOUBLE,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    TRUTH,
    UNKNOWN,
    AnyKind,
    Binder,
    Form,
    Nothing,
    OneKind,
    View,
    checked,
    constant,
    is_there,
    view_of,
)
from busway_spark.rules.operators_sql import Walks, like
from busway_spark.rules.sql_text import Unsupported


class ConditionSql:
    """`compilation` knows the parameters; `columns` where properties are. `asks` gathers."""

    def __init__(self, compilation: Compilation, columns: CapturedColumns) -> None:
        self._compilation = compilation
        self._columns = columns
        self._binder = Binder()
        self._lambdas = 0
        #: Each is true for messages that are the evaluator's.
        self.asks: dict[str, None] = {}
        self._walks = Walks()

    def condition(self, expression: Expression) -> tuple[str, list[str]]:
        """Of a whole filter: its truth, and when the evaluator must be asked instead."""
        truth = self.truth(expression)
        beyond = self._walks.ask()
        return truth, [*self.asks] if beyond is None else [*self.asks, beyond]

    # -- operands

    def operand(self, operand: Operand) -> Form:
        form = self._operand(operand)
        if isinstance(form, AnyKind):
            self.asks[form.field("a")] = None
        return form

    def _operand(self, operand: Operand) -> Form:
        found = self._compilation.constant(operand)
        if found is not None:
            return constant(found.constant)
        if isinstance(operand, Property):
            return self.property(operand)
        if isinstance(operand, PropertyOf):
            return self._named(operand)
        if isinstance(operand, NewId):
            raise Unsupported("newid()")
        if isinstance(operand, Sign):
            inner = self._operand(operand.operand)
            return self._kept(operators_sql.signed(operand.operator, inner, self._lambda()), inner)
        assert isinstance(operand, Arithmetic)
        return self._arithmetic(operand)

    def property(self, property_: Property) -> Form:
        if property_.is_system:
            return self._columns.system(property_.name)
        return self._columns.user(property_.name)

    def _named(self, call: PropertyOf) -> Form:
        name = self._constant(call.name)
        if name is None:
            raise Unsupported("property() with a name out of the message")
        return self.property(Property(name.constant)) if isinstance(name.constant, str) else Nothing()

    def _arithmetic(self, arithmetic: Arithmetic) -> Form:
        form = self._operand(arithmetic.first)
        for operator, right in arithmetic.steps:
            sides = form, self._operand(right)
            form = self._kept(operators_sql.calculated(operator, *sides, self._lambda()), *sides)
        return form

    def _kept(self, result: Form, *sides: Form) -> Form:
        """Sides that never have a result together are worked out all the same, and may fail."""
        if isinstance(result, Nothing):
            self.asks.update({side.field("a"): None for side in sides if isinstance(side, AnyKind)})
        return result

    def _lambda(self) -> str:
        self._lambdas += 1
        return f"w{self._lambdas}"

    def _constant(self, operand: Operand) -> Constant | None:
        return self._compilation.constant(operand)

    # -- conditions

    def truth(self, expression: Expression) -> str:
        if isinstance(expression, And | Or):
            word = " AND " if isinstance(expression, And) else " OR "
            return checked("(" + word.join(self.truth(part) for part in expression.parts) + ")")
        if isinstance(expression, Not):
            return f"(NOT {self.truth(expression.condition)})"
        if isinstance(expression, Comparison):
            return self._comparison(expression)
        if isinstance(expression, Membership):
            return _negated_if(expression.is_negated, self._membership(expression))
        if isinstance(expression, Likeness):
            return _negated_if(expression.is_negated, self._likeness(expression))
        if isinstance(expression, NullTest):
            return _negated_if(not expression.is_negated, self._is_there(expression.property))
        if isinstance(expression, Existence):
            return self._existence(expression.property)
        return self._bare(expression)

    def _comparison(self, comparison: Comparison) -> str:
        forms = [self.operand(comparison.left), self.operand(comparison.right)]
        operator = comparison.operator
        if operator not in ("=", "<>"):
            return self._binder.bound(forms, lambda views: operators_sql.ordered(operator, *views))
        equal = self._binder.bound(forms, lambda views: operators_sql.equal(*views))
        return _negated_if(operator == "<>", equal)

    def _membership(self, membership: Membership) -> str:
        forms = [self.operand(each) for each in (membership.operand, *membership.choices)]

        def among(views: list[View]) -> str:
            return "(" + " OR ".join(operators_sql.equal(views[0], each) for each in views[1:]) + ")"

        return self._binder.bound(forms, among)

    def _likeness(self, likeness: Likeness) -> str:
        form = self.operand(likeness.operand)
        pattern = self._constant(likeness.pattern)
        escape: Value = None
        if likeness.escape is not None:
            given = self._constant(likeness.escape)
            if given is None:
                raise Unsupported("LIKE with an escape character out of the message")
            if given.constant is None:
                return UNKNOWN
            escape = given.constant
        if pattern is None:
            raise Unsupported("LIKE with a pattern out of the message")
        if not isinstance(pattern.constant, str):
            return UNKNOWN
        text, character = pattern.constant, escape if isinstance(escape, str) else None
        self._walk(likeness.operand, form, text, character)

        def liked(views: list[View]) -> str:
            return like(views[0][TEXT].sql, text, character) if TEXT in views[0] else UNKNOWN

        return self._binder.bound([form], liked)

    def _walk(self, operand: Operand, form: Form, pattern: str, escape: str | None) -> None:
        fixed = self._constant(operand)
        if fixed is not None:
            if isinstance(fixed.constant, str):
                self._walks.add(len(fixed.constant), pattern, escape)
        elif isinstance(form, AnyKind):
            # What was worked out has no name outside of the place where it is needed; but it has a bound.
            text = form.field(TEXT) if form.is_columns else TEXT_CHARACTERS_MAX
            self._walks.add(text, pattern, escape)
        elif isinstance(form, OneKind) and form.kind == TEXT:
            self._walks.add(form.sql, pattern, escape)

    def _is_there(self, property_: Property | PropertyOf) -> str:
        """Never unknown (T-32)."""
        return f"({is_there(view_of(self.operand(property_)))})"

    def _existence(self, property_: Property | PropertyOf) -> str:
        form = self.operand(property_)
        if isinstance(form, AnyKind):
            return form.field("e")
        if isinstance(property_, PropertyOf):
            return UNKNOWN  # its name is no text
        return f"({is_there(view_of(form))})"

    def _bare(self, operand: Operand) -> str:
        if isinstance(operand, Literal) and operand.value is None:
            return UNKNOWN
        view = view_of(self.operand(operand))
        return view[TRUTH].sql if TRUTH in view else UNKNOWN


def _negated_if(is_negated: bool, truth: str) -> str:
    return f"(NOT {truth})" if is_negated else truth


def correlation(key: CorrelationKey, columns: CapturedColumns) -> tuple[str, list[str]]:
    """(whether the message is selected, when the evaluator must be asked)."""
    if not key.is_satisfiable:
        return "false", []
    parts: list[str] = []
    asks: list[str] = []
    for (is_system, name), wanted in zip(key.shape, key.keys, strict=True):
        form = columns.system(name) if is_system else columns.user(name)
        if isinstance(form, AnyKind):
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
