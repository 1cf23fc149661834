"""What a subscription gets of a captured row: verdicts of columns where they stand, the broker's evaluator where they
say *ask*, and the broker's own copies of the message (T-4, T-6, T-60)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from busway.message.message import Message
from busway.rules.compiled_rule import CompiledRule
from busway.rules.errors import ActionError, FilterError, shown
from busway.rules.expression import SetStatement, Statement
from busway.rules.parse import parse_action
from busway.rules.rule import Rule
from busway.rules.subject import folded
from busway.rules.values import Instant, Span, Value
from busway.subject.copies import RULE_NAME, ChangedMessage, changed_copy, plain_copy
from busway.subject.message_subject import MessageSubject
from busway_spark.rules.rule_columns import ASK, NOT_SELECTED, SELECTED

#: The struct of a column `sets_N`.
Sets = Mapping[str, Any]


@dataclass(frozen=True)
class Copy:
    """`rule` is empty for the one copy of all rules without an action."""

    rule: str
    message: Message


@dataclass(frozen=True)
class Failure:
    """A filter or an action that failed. `reason` is the one of dead letters."""

    rule: str
    reason: str
    sentence: str


class RowEvaluator:
    """Made where it is used: rules travel, what is compiled does not."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [CompiledRule("", at, rule, uuid4) for at, rule in enumerate(rules)]
        self._statements = [
            () if rule.action is None else parse_action(rule.action.expression) for rule in rules
        ]

    def verdict(self, at: int, message: Message, told: int) -> int | Failure:
        """SELECTED, NOT_SELECTED, or the failure of the filter."""
        if told != ASK:
            return told
        rule = self._rules[at]
        try:
            return SELECTED if rule.filter.matches(MessageSubject(message)) else NOT_SELECTED
        except FilterError as error:
            return Failure(rule.rule.name, "FilterException", f"Rule {shown(rule.rule.name)}: {error}")

    def copy(self, at: int, message: Message, sets: Sets | None) -> Copy | Failure:
        """Of a row that the rule selects. `sets` None: the evaluator carries the action out."""
        rule = self._rules[at]
        acting = rule.acting
        if acting is None:
            return Copy("", plain_copy(message))
        try:
            if sets is None or _asks(sets):
                return Copy(acting.name, changed_copy(message, acting))
            return Copy(acting.name, self._changed(at, message, sets))
        except ActionError as error:
            return Failure(acting.name, "RuleActionException", str(error))

    def _changed(self, at: int, message: Message, sets: Sets) -> Message:
        changed = ChangedMessage(message)
        values = iter([value_of(each) for name, each in sets.items() if name != "asks"])
        for statement in self._statements[at]:
            _apply(changed, statement, values)
        changed.set_user(RULE_NAME, self._rules[at].rule.name)
        return changed.message()


def _apply(changed: ChangedMessage, statement: Statement, values: Iterator[Value]) -> None:
    target = statement.target
    if isinstance(statement, SetStatement):
        value = next(values)
        if target.is_system:
            changed.set_system(target.name, value)
        else:
            changed.set_user(target.name, value)
    elif target.is_system:
        changed.set_system(target.name, None)
    else:
        changed.remove_user(folded(target.name))


def _asks(sets: Sets) -> bool:
    return bool(sets["asks"]) or any(each["a"] for name, each in sets.items() if name != "asks")


def value_of(struct: Mapping[str, object]) -> Value:
    """Out of a struct the one field that is not null."""
    for kind, make in _MAKES.items():
        found = struct.get(kind)
        if found is not None:
            return make(found)
    return None


def _bytes(value: object) -> Value:
    assert isinstance(value, bytes | bytearray)
    return bytes(value)


def _plain(value: object) -> Value:
    assert isinstance(value, str | bool | int | float)
    return value


_MAKES: Final[dict[str, Callable[[object], Value]]] = {
    "t": _plain,
    "i": _plain,
    "d": _plain,
    "b": _plain,
    "m": lambda value: Instant(int(str(value))),
    "s": lambda value: Span(int(str(value))),
    "g": lambda value: UUID(str(value)),
    "x": _bytes,
}
