"""Rules of a subscription over AMQP: add, remove, enumerate (T-11, T-12). JavaScript, Go and .NET use these.

A request carries a rule as a map of maps, an answer as nested described lists; the descriptors are the service's
own, in two magnitudes (wire facts E).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from busway.amqp.types import Described, Int, Timestamp, ULong
from busway.broker.transaction.transactions import RuleStep
from busway.gateway.amqp.nodes.management_operations import ManagedEntity
from busway.gateway.amqp.nodes.request_and_answer import INT_MAX, NO_CONTENT, Answer, RequestBody, done
from busway.message.message_subject import amqp_value, value_of_amqp
from busway.model.description_checks import RULE_CHARACTERS_MAX, check_rule_text, rule_characters
from busway.model.descriptions import SubscriptionDescription
from busway.model.errors import ArgumentOutOfRange, BadArgument, EntityNotFound, InvalidOperation
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.subject import Instant, Span, value_of

_RULE: Final = ULong(0x1370_0000_004)
_SQL_FILTER: Final = ULong(0x137_0000_006)
_TRUE_FILTER: Final = ULong(0x137_0000_007)
_FALSE_FILTER: Final = ULong(0x137_0000_008)
_CORRELATION_FILTER: Final = ULong(0x137_0000_009)
_EMPTY_ACTION: Final = ULong(0x1370_0000_005)
_SQL_ACTION: Final = ULong(0x1370_0000_006)

#: Key in the request's map → field of a correlation filter, in the order of the answer's list.
_CORRELATION_FIELDS: Final = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
_RULES_PER_ANSWER_MAX: Final = 1_000
#: A hundred rules always fit, as large as they may be.
_ANSWER_CHARACTERS_MAX: Final = 100 * RULE_CHARACTERS_MAX
#: Built in one turn of the loop.
_BUILD_RULES: Final = 50
_INT32_MAX: Final = (1 << 31) - 1


async def add_rule(entity: ManagedEntity, body: RequestBody) -> Answer:
    path = _subscription(entity)
    rule = _rule_of(body.text("rule-name"), body.optional_map("rule-description"))
    if entity.transaction is None:
        await entity.namespace.rules.add(path, rule)
    else:
        check_rule_text(rule, entity.namespace.limits)
        work = entity.namespace.rules.work
        entity.transaction.change_rules(entity.outlet, work, RuleStep(path, rule.name, rule))
    return done()


async def remove_rule(entity: ManagedEntity, body: RequestBody) -> Answer:
    path, name = _subscription(entity), body.text("rule-name")
    if entity.transaction is None:
        await entity.namespace.rules.remove(path, name)
        return done()
    if entity.namespace.rules.get(path, name) is None:
        raise EntityNotFound(f"The rule '{name[:80]}' could not be found.")
    entity.transaction.change_rules(entity.outlet, entity.namespace.rules.work, RuleStep(path, name, None))
    return done()


async def enumerate_rules(entity: ManagedEntity, body: RequestBody) -> Answer:
    path = _subscription(entity)
    skip = body.integer("skip", 0, INT_MAX)
    top = min(body.integer("top", 0, INT_MAX), _RULES_PER_ANSWER_MAX)
    rules = entity.namespace.rules.by_name(path, skip, top)
    if not rules:
        return Answer(None, NO_CONTENT)
    _check_fit(rules)
    entries: list[object] = []
    for count, rule in enumerate(rules, 1):
        entries.append({"rule-description": described_rule(rule)})
        if count % _BUILD_RULES == 0:
            await asyncio.sleep(0)  # others have their turn
    return Answer({"rules": entries})


def _check_fit(rules: list[Rule]) -> None:
    """Raises ArgumentOutOfRange: an answer that is cut would look like the last one to some clients."""
    left = _ANSWER_CHARACTERS_MAX
    for count, rule in enumerate(rules):
        left -= rule_characters(rule)
        if left < 0:
            raise ArgumentOutOfRange(
                f"The {len(rules)} rules asked for are too large for one answer: the first {count} of them fit."
                " Please ask for fewer at a time."
            )


def _subscription(entity: ManagedEntity) -> str:
    description = entity.namespace.description(entity.path)
    if not isinstance(description, SubscriptionDescription):
        raise InvalidOperation(f"The entity '{entity.path}' is no subscription: only these have rules.")
    return description.path


# -- in


def _rule_of(name: str, data: Mapping[str, object] | None) -> Rule:
    if data is None:
        raise BadArgument("The request lacks 'rule-description'.")
    action = data.get("sql-rule-action")
    made = None if action is None else _action_of(_map_at(data, "sql-rule-action"))
    return Rule(name, _filter_of(data), made)


def _filter_of(data: Mapping[str, object]) -> Filter:
    """A rule without a filter selects everything (T-3)."""
    if data.get("sql-filter") is not None:
        text = _text(_map_at(data, "sql-filter"), "expression")
        return {"1=1": TrueFilter(), "1=0": FalseFilter()}.get(text) or SqlFilter(text)
    if data.get("correlation-filter") is not None:
        return _correlation_of(_map_at(data, "correlation-filter"))
    return TrueFilter()


def _correlation_of(data: Mapping[str, object]) -> CorrelationFilter:
    texts = {field: _optional_text(data, key) for key, field in _CORRELATION_FIELDS.items()}
    properties = data.get("properties")
    pairs: tuple[tuple[str, TypedValue], ...] = ()
    if properties is not None:
        pairs = tuple((name, _typed(name, value)) for name, value in _map_at(data, "properties").items())
    return CorrelationFilter(**texts, properties=pairs)


def _action_of(data: Mapping[str, object]) -> SqlAction | None:
    text = _optional_text(data, "expression")
    return None if text is None or text == "" else SqlAction(text)


def _typed(name: str, value: object) -> TypedValue:
    known = value_of_amqp(value)
    if isinstance(known, bool):
        return TypedValue("boolean", known)
    if isinstance(known, int):
        return TypedValue("int" if isinstance(value, Int) else "long", int(known))
    if isinstance(known, float):
        return TypedValue("double", float(known))
    if isinstance(known, Instant):
        return TypedValue("dateTime", known.ticks)
    if isinstance(known, Span):
        return TypedValue("duration", known.ticks)
    if isinstance(known, str):
        return TypedValue("string", str(known))
    raise BadArgument(f"The value of the property '{name[:80]}' is of a type that filters cannot compare.")


def _map_at(data: Mapping[str, object], key: str) -> dict[str, object]:
    value = data[key]
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadArgument(f"'{key}' must be a map with strings as keys.")
    return {str(name): item for name, item in value.items()}


def _text(data: Mapping[str, object], key: str) -> str:
    found = _optional_text(data, key)
    if found is None:
        raise BadArgument(f"The rule lacks '{key}'.")
    return found


def _optional_text(data: Mapping[str, object], key: str) -> str | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadArgument(f"'{key}' must be a string.")
    return str(value)


# -- out


def described_rule(rule: Rule) -> Described:
    fields = [_described_filter(rule.filter), _described_action(rule.action), rule.name]
    return Described(_RULE, [*fields, Timestamp(rule.created_at_ms)])


def _described_filter(filter_: Filter) -> Described:
    if isinstance(filter_, TrueFilter):
        return Described(_TRUE_FILTER, [])
    if isinstance(filter_, FalseFilter):
        return Described(_FALSE_FILTER, [])
    if isinstance(filter_, SqlFilter):
        return Described(_SQL_FILTER, [filter_.expression, Int(filter_.compatibility_level)])
    fields: list[object] = [getattr(filter_, field) for field in _CORRELATION_FIELDS.values()]
    properties = {name: _amqp_of(name, typed) for name, typed in filter_.properties}
    return Described(_CORRELATION_FILTER, [*fields, properties])


def _described_action(action: SqlAction | None) -> Described:
    """Never left out: a client looks into it."""
    if action is None:
        return Described(_EMPTY_ACTION, [])
    return Described(_SQL_ACTION, [action.expression, Int(action.compatibility_level)])


def _amqp_of(name: str, typed: TypedValue) -> object:
    if typed.type_name == "int" and isinstance(typed.value, int) and abs(typed.value) <= _INT32_MAX:
        return Int(typed.value)
    try:
        return amqp_value(value_of(name, typed), None)
    except RuleSyntaxError:  # it was checked when the rule was stored
        return None
