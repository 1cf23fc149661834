"""A rule compiled, ready for many messages: its filter, its action, what it gives to its subscription.

A filter of any kind becomes an object that says whether a message is selected (T-20…T-44, E-73). Only TRUE selects
(T-33). So the conjunction at the top of a SQL filter is left at its first part that is not TRUE, be it FALSE or
UNKNOWN; an error behind that part is never seen. The look-up of filters by one of their parts (`anchors`) relies
on it; that part comes before all others, so that what those may cost is spent only where it holds, looked up or
not.

A correlation filter (T-40…T-43) is conditions that must all be equal. Its **shape** is which properties it names,
its **key** their values. All filters of one shape are found by one look-up of the message's values under that
shape (`selection.CorrelationIndex`), which is what lets a topic have a hundred thousand of them (T-44). So
equality here is equality of look-up keys: texts exactly, integers by number whatever their width, a boolean only
with a boolean, a double only with a double.

A SQL action (T-50…T-54) is statements in order, each sees what those before it did. SET keeps the type of a
property where the new value allows it (T-51). A user property takes a value of another type when it cannot be
turned into its own without loss; a system property has one type for ever, so there it is an action error. Texts
are read and written as .NET does, whatever the culture.

A `CompiledRule` is a rule of one owner (a subscription), with its place among the others. What rules give to one
owner of a message is a `Match`: the answer of a selection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import UUID

from busway.rules.anchors import Anchor, anchor_of, can_fail
from busway.rules.evaluate import Compilation, Reading, Truth
from busway.rules.expression import (
    DURATION,
    MOMENT,
    SETTABLE,
    TEXT,
    Expression,
    Likeness,
    NewId,
    Property,
    PropertyOf,
    SetStatement,
    conjuncts_of,
    nodes_of,
)
from busway.rules.operators import Budget
from busway.rules.parse import parse_action, parse_filter
from busway.rules.rule import (
    ActionError,
    CorrelationFilter,
    FalseFilter,
    Filter,
    FilterError,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from busway.rules.subject import (
    INTEGER_MAX,
    INTEGER_MIN,
    MISSING,
    ChangeableSubject,
    Instant,
    Missing,
    Span,
    Subject,
    Value,
    folded,
    value_of,
)
from busway.rules.time_text import instant_of, instant_text, span_of, span_text

#: (is a system property, its canonical or folded name), sorted.
Shape = tuple[tuple[bool, str], ...]


class CorrelationKey:
    """The conditions of one filter. One that contradicts itself, or asks for a NaN, matches nothing."""

    __slots__ = ("is_satisfiable", "keys", "shape")

    def __init__(self, shape: Shape, keys: tuple[object, ...], is_satisfiable: bool) -> None:
        self.shape = shape
        self.keys = keys
        self.is_satisfiable = is_satisfiable

    def matches(self, subject: Subject) -> bool:
        return self.is_satisfiable and keys_under(self.shape, subject) == self.keys


def correlation_key(filter_: CorrelationFilter) -> CorrelationKey:
    """Raises RuleSyntaxError for a filter without conditions (T-42) or with values that are not of their type."""
    conditions: dict[tuple[bool, str], object] = {
        (True, name): value for name, value in _system_conditions(filter_) if value is not None
    }
    is_satisfiable = True
    for name, typed in filter_.properties:
        if not name:
            raise RuleSyntaxError("a property of a correlation filter has an empty name.")
        key = lookup_key(value_of(name, typed))
        place = (False, folded(name))
        is_satisfiable = is_satisfiable and key is not None and conditions.get(place, key) == key
        conditions[place] = key
    if not conditions:
        raise RuleSyntaxError("a correlation filter needs at least one condition.")
    shape = tuple(sorted(conditions))
    return CorrelationKey(shape, tuple(conditions[place] for place in shape), is_satisfiable)


def _system_conditions(filter_: CorrelationFilter) -> tuple[tuple[str, str | None], ...]:
    return (
        ("CorrelationId", filter_.correlation_id),
        ("MessageId", filter_.message_id),
        ("To", filter_.to),
        ("ReplyTo", filter_.reply_to),
        ("Label", filter_.label),
        ("SessionId", filter_.session_id),
        ("ReplyToSessionId", filter_.reply_to_session_id),
        ("ContentType", filter_.content_type),
    )


def keys_under(shape: Shape, subject: Subject) -> tuple[object, ...] | None:
    """The look-up keys of a message under a shape, None if it cannot match any filter of that shape."""
    keys: list[object] = []
    for is_system, name in shape:
        key = lookup_key(subject.system(name) if is_system else subject.user(name))
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def lookup_key(value: Value | Missing) -> object:
    """Equal for values that are equal (T-41, T-43); None for what equals nothing: null, NaN, GUIDs, bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return ("double", value) if value == value else None
    if isinstance(value, Instant):
        return ("dateTime", value.ticks)
    if isinstance(value, Span):
        return ("duration", value.ticks)
    return None


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


class CompiledFilter:
    __slots__ = ()

    def matches(self, subject: Subject) -> bool:
        """Whether the message is selected. Raises FilterError."""
        raise NotImplementedError

    def matches_beside_anchor(self, subject: Subject) -> bool:
        """`matches`, for a message that was found by the anchor, so that this part is known to be TRUE."""
        return self.matches(subject)

    def text_walks(self) -> int:
        """How often an evaluation may walk over a text of the message."""
        return 0

    def walked(self) -> int:
        """Characters, in the last evaluation."""
        return 0


class FixedFilter(CompiledFilter):
    """It says the same of every message."""

    __slots__ = ("is_true",)

    def __init__(self, is_true: bool) -> None:
        self.is_true = is_true

    def matches(self, subject: Subject) -> bool:
        del subject
        return self.is_true


class CompiledSqlFilter(CompiledFilter):
    """`budget` None: nothing in it needs one."""

    __slots__ = ("_beside_anchor", "_budget", "_conjuncts", "_text_walks", "anchor")

    def __init__(
        self, conjuncts: list[Truth], anchor: Anchor | None, budget: Budget | None, text_walks: int
    ) -> None:
        self.anchor = anchor
        self._budget = budget
        self._text_walks = text_walks
        index = -1 if anchor is None else anchor.conjunct_index
        self._beside_anchor = [conjunct for at, conjunct in enumerate(conjuncts) if at != index]
        self._conjuncts = self._beside_anchor if index < 0 else [conjuncts[index], *self._beside_anchor]

    def matches(self, subject: Subject) -> bool:
        if self._budget is not None:
            self._budget.renew()
        return _all_true(self._conjuncts, subject)

    def matches_beside_anchor(self, subject: Subject) -> bool:
        if self._budget is not None:
            self._budget.renew()
        return _all_true(self._beside_anchor, subject)

    def text_walks(self) -> int:
        return self._text_walks

    def walked(self) -> int:
        return 0 if self._budget is None else self._budget.walked()


def _all_true(conjuncts: list[Truth], subject: Subject) -> bool:
    truth: bool | None = True
    for conjunct in conjuncts:
        truth = conjunct.evaluate(subject)
        if truth is not True:
            break
    return truth is True


class CompiledCorrelationFilter(CompiledFilter):
    __slots__ = ("key",)

    def __init__(self, key: CorrelationKey) -> None:
        self.key = key

    def matches(self, subject: Subject) -> bool:
        return self.key.matches(subject)


def compiled_filter(filter_: Filter, new_id: Callable[[], UUID]) -> CompiledFilter:
    """Raises RuleSyntaxError, nothing else. `new_id` is what `newid()` calls."""
    if isinstance(filter_, TrueFilter):
        return FixedFilter(True)
    if isinstance(filter_, FalseFilter):
        return FixedFilter(False)
    if isinstance(filter_, CorrelationFilter):
        return CompiledCorrelationFilter(correlation_key(filter_))
    return _compiled_sql(filter_, new_id)


def _compiled_sql(filter_: SqlFilter, new_id: Callable[[], UUID]) -> CompiledFilter:
    expression = parse_filter(filter_.expression)
    compilation = Compilation(filter_.expression, filter_.parameters, new_id)
    conjuncts = conjuncts_of(expression)
    truths = [compilation.truth(conjunct) for conjunct in conjuncts]
    walks = len([node for node in nodes_of(expression) if isinstance(node, Likeness | PropertyOf)])
    compiled = CompiledSqlFilter(truths, anchor_of(conjuncts, compilation), compilation.budget, walks)
    if not _reads_nothing(expression) or can_fail(expression):
        return compiled
    try:
        return FixedFilter(compiled.matches(_NOTHING))
    except FilterError:  # beyond its budget, for every message
        return compiled


def _reads_nothing(expression: Expression) -> bool:
    return not any(isinstance(node, Property | PropertyOf | NewId) for node in nodes_of(expression))


class _Nothing(Subject):
    """A message for filters that read none."""

    def user(self, folded_name: str) -> Value | Missing:
        del folded_name
        return MISSING

    def system(self, name: str) -> Value:
        del name
        return None


_NOTHING = _Nothing()


class ActingRule:
    """A rule with an action, as the one who makes copies needs it (T-4)."""

    __slots__ = ("action", "name")

    def __init__(self, name: str, action: CompiledAction) -> None:
        self.name = name
        self.action = action


class Match:
    """What one owner gets of a message. Shared: not to be changed by who receives it."""

    __slots__ = ("acting", "errors", "is_plain", "ordinal", "owner")

    def __init__(self, owner: str, ordinal: int) -> None:
        self.owner = owner
        #: The owner's place in every answer.
        self.ordinal = ordinal
        #: At least one rule without an action matches: one copy (T-4).
        self.is_plain = False
        #: The rules with an action that match, in the order of their addition: one copy each.
        self.acting: list[ActingRule] = []
        #: Filters that failed, one sentence each that names the rule (T-60).
        self.errors: list[FilterError] = []

    def add(self, acting: ActingRule | None) -> None:
        """One more rule matches; None for a plain one."""
        if acting is None:
            self.is_plain = True
        else:
            self.acting.append(acting)


class CompiledRule:
    """`number` counts all rules ever added to a selection; it orders them and tells them apart."""

    __slots__ = ("_alone", "acting", "filter", "number", "ordinal", "owner", "rule")

    def __init__(self, owner: str, number: int, rule: Rule, new_id: Callable[[], UUID]) -> None:
        self.owner = owner
        self.number = number
        self.rule = rule
        self.filter: CompiledFilter = compiled_filter(rule.filter, new_id)
        #: None for a plain rule.
        self.acting: ActingRule | None = None
        if rule.action is not None:
            self.acting = ActingRule(rule.name, compiled_action(rule.action, new_id))
        #: The owner's place among owners.
        self.ordinal = number
        self._alone: Match | None = None

    def alone(self) -> Match:
        """What the owner gets when no other of its rules matches. Made once: most rules of many never match."""
        match = self._alone
        if match is None:
            match = self._alone = Match(self.owner, self.ordinal)
            match.add(self.acting)
        return match
