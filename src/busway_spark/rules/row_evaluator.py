"""What a subscription gets of a captured row: verdicts of columns where they stand, the broker's evaluator where they
say *ask*, and the broker's own copies of the message (T-4, T-6, T-60).

A captured row becomes the broker's own message, so that the broker's own rules can be asked about it and change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.message.message import Head, Message
from busway.message.message_subject import RULE_NAME, ChangedMessage, MessageSubject, changed_copy, plain_copy
from busway.rules.compiled_rule import CompiledRule
from busway.rules.expression import SetStatement, Statement
from busway.rules.parse import parse_action
from busway.rules.rule import ActionError, FilterError, Rule, shown
from busway.rules.subject import Instant, Span, Value, folded
from busway_spark.property_types import properties_of
from busway_spark.rules.rule_columns import ASK, NOT_SELECTED, SELECTED

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
#: Of a message that came to its topic by forwarding: how often is not captured, that it did is.
_HOPS: Final = 1
#: The struct of a column `sets_N`.
Sets = Mapping[str, Any]


def captured_message(row: Mapping[str, object]) -> Message:
    """Raises UnknownProperties. Columns that the row lacks are taken as null."""
    bare = AmqpMessage(
        [_body(row.get("body"))],
        DATA,
        properties=_properties(row),
        application_properties=properties_of(_text(row, "properties"), _text(row, "propertyTypes")) or None,
    )
    return Message(
        _head(row),
        encode_message(bare),
        ttl_ms=_life_ms(row),
        session_id=_text(row, "sessionId"),
        partition_key=_text(row, "partitionKey"),
        scheduled_at_ms=_instant_ms(row.get("scheduledEnqueueTime")) or 0,
    )


def payload_of(message: Message) -> bytes:
    """As a sender sends it. A scheduled time is not told: it is over."""
    if message.ttl_ms < 0 and message.partition_key is None:
        return message.bare
    front = AmqpMessage(
        None,
        0,
        header=None if message.ttl_ms < 0 else Header(ttl=UInt(message.ttl_ms)),
        message_annotations=None
        if message.partition_key is None
        else {Symbol("x-opt-partition-key"): message.partition_key},
    )
    return encode_message(front) + message.bare


def _properties(row: Mapping[str, object]) -> Properties:
    content_type = _text(row, "contentType")
    return Properties(
        message_id=_text(row, "messageId"),
        to=_text(row, "to"),
        subject=_text(row, "subject"),
        reply_to=_text(row, "replyTo"),
        correlation_id=_text(row, "correlationId"),
        content_type=None if content_type is None else Symbol(content_type),
        group_id=_text(row, "sessionId"),
        reply_to_group_id=_text(row, "replyToSessionId"),
    )


def _head(row: Mapping[str, object]) -> bytes:
    number = row.get("enqueuedSequenceNumber")
    if not isinstance(number, int):
        return b""
    head = Head()
    head.hops, head.first_number = _HOPS, number
    return head.encoded()


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)


def _body(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else b""


def _life_ms(row: Mapping[str, object]) -> int:
    end, start = _instant_ms(row.get("expiresAt")), _instant_ms(row.get("enqueuedTime"))
    return -1 if end is None or start is None else max(end - start, 0)


def _instant_ms(value: object) -> Timestamp | None:
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return Timestamp((moment - _EPOCH) // _MS)


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
