"""An action in SQL (T-50…T-54): what each SET gives its property, with the type kept where that is plain to see.

Theory of operation. A statement sees what those before it did, so what was set takes the place of the property's
column from there on. `busway.rules.actions` keeps types; the conversions that need the text of a double or of a
time, or read one out of a text, are left to the evaluator, message by message (`asks`). So is a double zero, whose
sign Spark's JSON loses.
"""

from __future__ import annotations

from typing import Final

from busway.rules.evaluate import Compilation
from busway.rules.expression import Operand, Property, PropertyOf, SetStatement, Statement, nodes_of
from busway.rules.subject import folded
from busway.rules.system_properties import DURATION, SETTABLE
from busway.rules.system_properties import MOMENT as A_MOMENT
from busway.rules.system_properties import TEXT as A_TEXT
from busway_spark.rules.captured_columns import CapturedColumns
from busway_spark.rules.condition_sql import ConditionSql
from busway_spark.rules.forms import (
    DOUBLE,
    GUID,
    INTEGER,
    MOMENT,
    SPAN,
    TEXT,
    TRUTH,
    AnyKind,
    Form,
    Nothing,
    OneKind,
    checked,
    kinds_of,
    null,
    struct,
    struct_of,
)

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
