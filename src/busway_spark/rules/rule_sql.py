"""The tree of a rule (`busway.rules.expression`) → SQL that answers as the broker's evaluator does.

Theory of operation. A condition becomes a boolean expression; null is unknown, and Spark's AND, OR and NOT have
the tables of T-33. Errors have no place in it: wherever evaluating may fail, or Spark has no exact word for a
value, a second expression says so (`asks`), and that message is the broker's evaluator's. It may say so too often,
never too seldom. A part that has no form here at all raises Unsupported, and then every message is.

A correlation filter (T-40…T-43) compares what `busway.rules.compiled_rule` looks up. An integer never equals a
double there, and a GUID or bytes equal nothing.

An action (T-50…T-54) tells what each SET gives its property, with the type kept where that is plain to see. A
statement sees what those before it did, so what was set takes the place of the property's column from there on.
`busway.rules.compiled_rule` keeps types; the conversions that need the text of a double or of a time, or read one
out of a text, are left to the evaluator, message by message (`asks`). So is a double zero, whose sign Spark's JSON
loses.
"""

from __future__ import annotations

from typing import Final

from busway.rules.compiled_rule import CorrelationKey
from busway.rules.evaluate import Compilation, Constant
from busway.rules.expression import (
    DURATION,
    SETTABLE,
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
    SetStatement,
    Sign,
    Statement,
    nodes_of,
)
from busway.rules.expression import MOMENT as A_MOMENT
from busway.rules.expression import TEXT as A_TEXT
from busway.rules.operators import TEXT_CHARACTERS_MAX
from busway.rules.subject import Value, folded
from busway_spark.rules import operators_sql, sql_values
from busway_spark.rules.captured_columns import CapturedColumns
from busway_spark.rules.operators_sql import Walks, like
from busway_spark.rules.sql_values import (
    DOUBLE,
    GUID,
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
    Unsupported,
    View,
    checked,
    constant,
    is_there,
    kinds_of,
    null,
    struct,
    struct_of,
    view_of,
)


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
        return TEXT, sql_values.text(key)
    if isinstance(key, int):
        return INTEGER, sql_values.integer(key)
    if isinstance(key, tuple) and len(key) == 2:
        word, value = key
        if word == "boolean" and isinstance(value, bool):
            return TRUTH, sql_values.boolean(value)
        if word == "double" and isinstance(value, float):
            return DOUBLE, sql_values.double(value)
        if word in ("dateTime", "duration") and isinstance(value, int):
            return (MOMENT if word == "dateTime" else SPAN), sql_values.integer(value)
    raise Unsupported("a value of this type in a correlation filter")


#: The one system property that is a symbol.
_CONTENT_TYPE: Final = Property("ContentType", is_system=True)
_PARTS: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


class ActionSql(ConditionSql):
    """`values` are structs, one for each SET, in order; each has the fields that it may have."""

    def __init__(
        self, statements: tuple[Statement, ...], compilation: Compilation, columns: CapturedColumns
    ) -> None:
        super().__init__(compilation, columns)
        #: What was set or removed so far, by (is a system property, its name); Nothing is gone.
        self._set: dict[tuple[bool, str], Form] = {}
        self.values: list[str] = []
        for statement in statements:
            self._take(statement)

    def property(self, property_: Property) -> Form:
        changed = self._set.get(_key(property_))
        return super().property(property_) if changed is None else changed

    def _take(self, statement: Statement) -> None:
        target = statement.target
        if not isinstance(statement, SetStatement):
            self._set[_key(target)] = Nothing()
            return
        value = self._operand(statement.value)
        self._ask_about_types(statement.value)
        if target.is_system:
            changed = _system_value(target.name, value, self._lambda())
        else:
            changed = _converted(value, self.property(target), self._lambda())
        self._set[_key(target)] = changed
        self.values.append(changed.sql)

    def _ask_about_types(self, value: Operand) -> None:
        """What is set to a property's value gets its AMQP type too, which only the evaluator knows."""
        for node in nodes_of(value):
            form = self.property(node) if isinstance(node, Property) else Nothing()
            if isinstance(node, PropertyOf):
                form = self._named(node)
            if isinstance(form, AnyKind) and form.is_columns:
                self.asks[form.field("w")] = None
            if node == _CONTENT_TYPE and isinstance(form, OneKind):
                self.asks[f"{form.sql} IS NOT NULL"] = None


def _key(property_: Property) -> tuple[bool, str]:
    name = property_.name
    return property_.is_system, name if property_.is_system else folded(name)


def _converted(value: Form, existing: Form, name: str) -> AnyKind:
    """`value` as the type of `existing`, or as it is if it has no such form."""
    ours, theirs = kinds_of(value), kinds_of(existing)
    new, old = f"{name}.v", f"{name}.x"
    was_text = f"{old}.t IS NOT NULL" if TEXT in theirs else "false"
    was_double = f"{old}.d IS NOT NULL" if DOUBLE in theirs else "false"
    values = {kind: f"{new}.{kind}" for kind in ours}
    as_text = _as_text(new, ours)
    if TEXT in theirs and as_text:
        values[TEXT] = f"IF({was_text}, {as_text}, {values.get(TEXT, 'NULL')})"
    for kind in {INTEGER, TRUTH, GUID} & set(ours):
        values[kind] = f"IF({was_text}, NULL, {new}.{kind})"
    if INTEGER in ours and DOUBLE in theirs:
        values[INTEGER] = f"IF({was_text} OR {was_double}, NULL, {new}.i)"
        doubles = [f"{new}.d"] if DOUBLE in ours else []
        doubles.append(f"IF({was_double}, CAST({new}.i AS DOUBLE), NULL)")
        values[DOUBLE] = f"coalesce({', '.join(doubles)})"
    sides = f"named_struct('v', {struct_of(value, ours)}, 'x', {struct_of(existing, theirs)})"
    body = struct(values, " OR ".join(_conversion_asks(new, old, ours, theirs)))
    return AnyKind(
        checked(f"element_at(transform(array({sides}), {name} -> {body}), 1)"), kinds=tuple(values)
    )


def _conversion_asks(new: str, old: str, ours: tuple[str, ...], theirs: tuple[str, ...]) -> list[str]:
    """When the evaluator must convert. A double zero may have a sign that JSON's decimal has not."""
    hard = [(kind, TEXT) for kind in (DOUBLE, MOMENT, SPAN)]
    hard += [(TEXT, kind) for kind in (INTEGER, DOUBLE, TRUTH, MOMENT, SPAN, GUID)]
    hard.append((DOUBLE, INTEGER))
    asks = [f"{new}.a", f"{old}.a"]
    asks += [
        f"({new}.{one} IS NOT NULL AND {old}.{two} IS NOT NULL)"
        for one, two in hard
        if one in ours and two in theirs
    ]
    return [*asks, f"coalesce({new}.d = 0D, false)"] if DOUBLE in ours else asks


def _system_value(name: str, value: Form, lambda_name: str) -> AnyKind:
    kinds = kinds_of(value)
    kind = {A_TEXT: TEXT, DURATION: SPAN, A_MOMENT: MOMENT}.get(SETTABLE[name], TRUTH)
    if kind == TEXT:
        given = _as_text(lambda_name, kinds) or null(TEXT)
    else:
        given = f"{lambda_name}.{kind}" if kind in kinds else null(kind)
    if kind == SPAN and SPAN in kinds:
        given = f"IF({given} >= 0L, {given}, NULL)"
    asks = f"{lambda_name}.a"
    if kinds:
        is_there = " OR ".join(f"{lambda_name}.{each} IS NOT NULL" for each in kinds)
        asks += f" OR (({is_there}) AND ({given}) IS NULL)"
    body = struct({kind: given}, asks)
    sql = f"element_at(transform(array({struct_of(value, kinds)}), {lambda_name} -> {body}), 1)"
    return AnyKind(checked(sql), kinds=(kind,))


def _as_text(value: str, kinds: tuple[str, ...]) -> str:
    """Where that needs no more than digits; Python's words for a boolean. Empty where no kind allows it."""
    dashed = ", '-', ".join(f"substr({value}.g, {at}, {length})" for at, length in _PARTS)
    texts = {
        TEXT: f"{value}.t",
        INTEGER: f"CAST({value}.i AS STRING)",
        TRUTH: f"CASE WHEN {value}.b THEN 'True' WHEN NOT {value}.b THEN 'False' END",
        GUID: f"concat({dashed})",
    }
    found = [sql for kind, sql in texts.items() if kind in kinds]
    return f"coalesce({', '.join(found)})" if found else ""
