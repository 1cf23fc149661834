"""A message to try a rule on, and why a filter selects it or does not.

The message is given as JSON: what `busway peek --json` prints, or less.

    {"message_id": "m-1", "subject": "order", "time_to_live": "PT1H",
     "application_properties": {"color": "red", "size": 12, "pause": {"Type": "duration", "Value": "PT5S"}}}

System properties may be spelt as the language spells them too (`MessageId`), `properties` is short for
`application_properties`; a body is passed over, because rules never see it (T-2).

A filter is explained by every part of it with what it comes to. The parts are shown in the text's order, each one
deeper than what it belongs to. AND and OR stop early when the bus evaluates them; here every part is evaluated, so
that all of them can be seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from busway.config.node import Node
from busway.config.rules import read_value, write_value
from busway.rules.evaluate import Compilation
from busway.rules.expression import (
    CANONICAL,
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
from busway.rules.rule import FilterError, SqlFilter, TypedValue
from busway.rules.subject import (
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
from busway.rules.time_text import format_span, instant_of, instant_text, parse_span

_TICKS_PER_MS: Final = 10_000
_USER: Final = ("application_properties", "properties")
#: Of `busway peek --json`, besides the names of the language.
_OTHER_NAMES: Final = {
    "enqueuedtime": "EnqueuedTimeUtc",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "lockeduntil": "LockedUntilUtc",
    "timetolivems": "TimeToLive",
}
_PASSED_OVER: Final = ("body", "bodybase64", "deadletterreason", "deadlettererrordescription")
_MOMENTS: Final = ("EnqueuedTimeUtc", "ScheduledEnqueueTimeUtc", "LockedUntilUtc", "ExpiresAtUtc")
_NUMBERS: Final = ("SequenceNumber", "EnqueuedSequenceNumber", "DeliveryCount", "Size")
_STATES: Final = {"active": 0, "deferred": 1, "scheduled": 2}
#: Shown when a key is not known.
_NAMES: Final = (
    *_USER,
    *("message_id", "subject", "correlation_id", "session_id", "to", "reply_to", "reply_to_session_id"),
    *("content_type", "partition_key", "time_to_live", "scheduled_enqueue_time", "enqueued_time"),
    *("sequence_number", "delivery_count", "state", "body"),
)


class TrialMessage(ChangeableSubject):
    """A message given as JSON, to try a filter or an action on: what `busway peek --json` prints, or less."""

    def __init__(self) -> None:
        #: By folded name the name as written, and the value.
        self._user: dict[str, tuple[str, Value]] = {}
        self._system: dict[str, Value] = {}

    @classmethod
    def read(cls, text: str) -> "TrialMessage":
        """Raises ConfigError, whose sentence names the place."""
        root = Node.parse(text)
        if isinstance(root.value, list) and len(root.value) == 1:
            root = root.entries()[0]
        message = cls()
        for name, member in root.any_members().items():
            message._take(name, member)
        return message

    def _take(self, name: str, member: Node) -> None:
        plain = name.replace("_", "").replace("-", "").lower()
        canonical = CANONICAL.get(plain) or _OTHER_NAMES.get(plain)
        if name in _USER:
            for property_name, value in member.any_members().items():
                self.set_user(property_name, _user_value(value))
        elif canonical is not None:
            self._system[canonical] = _system_value(canonical, member, is_ms=plain.endswith("ms"))
        elif plain not in _PASSED_OVER:
            raise member.unknown(list(_NAMES))

    def user(self, folded_name: str) -> Value | Missing:
        found = self._user.get(folded_name)
        return MISSING if found is None else found[1]

    def system(self, name: str) -> Value:
        return self._system.get(name)

    def set_user(self, name: str, value: Value) -> None:
        self._user[folded(name)] = (name, value)

    def remove_user(self, folded_name: str) -> None:
        self._user.pop(folded_name, None)

    def set_system(self, name: str, value: Value) -> None:
        self._system[name] = value

    def as_object(self) -> dict[str, object]:
        """What is there, under the names of the language; `user` properties under their own."""
        return {
            "properties": {name: plain(value) for name, value in self._user.values()},
            **{f"sys.{name}": plain(value) for name, value in self._system.items() if value is not None},
        }


def plain(value: Value) -> object:
    """A value as JSON can say it; the form in which the file gives it."""
    if isinstance(value, Instant):
        return {"Type": "dateTime", "Value": instant_text(value)}
    if isinstance(value, Span):
        return {"Type": "duration", "Value": format_span(value.ticks)}
    if isinstance(value, float):
        return write_value(TypedValue("double", value))
    return value if value is None or isinstance(value, str | int) else str(value)


def _user_value(node: Node) -> Value:
    return None if node.value is None else value_of(node.path, read_value(node))


def _system_value(name: str, node: Node, *, is_ms: bool) -> Value:
    value = node.value
    if value is None or isinstance(value, Mapping):
        return _user_value(node)
    if name in _MOMENTS:
        moment = instant_of(node.text())
        if moment is None:
            raise node.error("a time such as 2030-01-01T08:00:00Z is expected")
        return moment
    if name == "TimeToLive":
        return Span(node.whole_number() * _TICKS_PER_MS) if is_ms else _span(node)
    if name in _NUMBERS:
        return node.whole_number()
    if name == "State":
        return _STATES.get(value, -1) if isinstance(value, str) else node.whole_number()
    return node.flag() if name == "ForcePersistence" else node.text()


def _span(node: Node) -> Value:
    try:
        return Span(parse_span(node.text()))
    except ValueError as error:
        raise node.error(str(error)) from None


_OPERANDS = (Literal, Property, Parameter, NewId, PropertyOf, Sign, Arithmetic)


@dataclass(frozen=True)
class ExplainedPart:
    """`result`: true, false, unknown or error; for an operand its value as JSON writes it (`is_value`). `why` is
    empty where it is plain."""

    depth: int
    text: str
    result: object
    why: str = ""
    is_value: bool = False


def explained(filter_: SqlFilter, subject: Subject) -> list[ExplainedPart]:
    """The first part is the whole filter. Raises RuleSyntaxError."""
    expression = parse_filter(filter_.expression)
    compilation = Compilation(filter_.expression, filter_.parameters, uuid4)
    compilation.truth(expression)
    return list(_Explainer(compilation, subject).parts(expression, 0, is_condition=True))


class _Explainer:
    def __init__(self, compilation: Compilation, subject: Subject) -> None:
        self._compilation = compilation
        self._subject = subject

    def parts(
        self, expression: Expression, depth: int, *, is_condition: bool = False
    ) -> Iterator[ExplainedPart]:
        if isinstance(expression, Literal) and not is_condition:
            return
        if isinstance(expression, _OPERANDS) and not is_condition:
            yield self._operand(expression, depth)
        else:
            yield self._condition(expression, depth)
        for child, is_inner_condition in _children(expression):
            yield from self.parts(child, depth + 1, is_condition=is_inner_condition)

    def _condition(self, expression: Expression, depth: int) -> ExplainedPart:
        text = printed(expression)
        try:
            truth = self._compilation.truth(expression).evaluate(self._subject)
        except FilterError as error:
            return ExplainedPart(depth, text, "error", str(error))
        if truth is None:
            return ExplainedPart(depth, text, "unknown", self._why_unknown(expression))
        return ExplainedPart(depth, text, "true" if truth else "false")

    def _operand(self, operand: Operand, depth: int) -> ExplainedPart:
        text = printed(operand)
        try:
            value = self._value(operand)
        except FilterError as error:
            return ExplainedPart(depth, text, "error", str(error))
        if value is None:
            return ExplainedPart(depth, text, "unknown", self._why_null(operand))
        return ExplainedPart(depth, text, plain(value), is_value=True)

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
