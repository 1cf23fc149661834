"""The rules of a subscription in a configuration file and their values, read and written.

    {"Name": "reds", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "color = 'red'"},
                                    "Action": {"SqlExpression": "SET seen = TRUE"}}}

The emulator's format knows the filter types Correlation and Sql. Ours knows True and False besides, and values
with a type as `Parameters` of SQL texts and as properties of correlations.

Such a value is plain JSON where JSON has the type: a text is a string, a whole number a long, a number with a
point or an exponent a double, true and false are boolean. Everything else names its type:
`{"Type": "int", "Value": 5}`, `{"Type": "dateTime", "Value": "2030-01-01T08:00:00Z"}`,
`{"Type": "duration", "Value": "PT30S"}`, `{"Type": "double", "Value": "INF"}`.
"""

import math
from typing import Final

from busway.config.node import ConfigError, Node
from busway.model.description_checks import check_rule_text
from busway.model.entity_path import path_key
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.rules.rule import (
    COMPATIBILITY_LEVEL,
    VALUE_TYPES,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.time_text import format_span, has_zone, instant_of, moment_text, parse_span

Pairs = tuple[tuple[str, TypedValue], ...]
Json = dict[str, object]

_INT_BITS: Final = {"int": 32, "long": 64}
_UNUSUAL_DOUBLES: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}


def read_pairs(node: Node) -> Pairs:
    """The members of an object, in their order; any name may be given."""
    return tuple((name, read_value(member)) for name, member in node.any_members().items())


def read_value(node: Node) -> TypedValue:
    value = node.value
    if isinstance(value, dict):
        return _read_typed(node)
    if isinstance(value, bool):
        return TypedValue("boolean", value)
    if isinstance(value, str):
        return TypedValue("string", value)
    if isinstance(value, int):
        return _whole(node, "long", value)
    if isinstance(value, float) and math.isfinite(value):
        return TypedValue("double", value)
    raise node.error(
        'a text, a number, true, false or an object like {"Type": "int", "Value": 5} is expected'
    )


def _read_typed(node: Node) -> TypedValue:
    members = node.members(("Type", "Value"))
    if len(members) < 2:
        raise node.error('both "Type" and "Value" are needed')
    type_name = members["Type"].text()
    if type_name not in VALUE_TYPES:
        raise members["Type"].error(f"'{type_name[:60]}' is not one of {', '.join(VALUE_TYPES)}")
    place = members["Value"]
    value = place.value
    if type_name == "dateTime":
        return _moment(place)
    if type_name == "duration":
        return TypedValue(type_name, _ticks(place))
    if type_name in _INT_BITS and isinstance(value, int) and not isinstance(value, bool):
        return _whole(place, type_name, value)
    if type_name == "boolean" and isinstance(value, bool):
        return TypedValue(type_name, value)
    if type_name == "string":
        return TypedValue(type_name, place.text())
    if type_name == "double":
        return TypedValue(type_name, _double(place))
    raise place.error(f"this is not a value of type {type_name}")


def _whole(node: Node, type_name: str, value: int) -> TypedValue:
    half = 1 << (_INT_BITS[type_name] - 1)
    if not -half <= value < half:
        raise node.error(f"the number does not fit into {type_name} ({_INT_BITS[type_name]} bits)")
    return TypedValue(type_name, value)


def _double(node: Node) -> float:
    value = node.value
    if isinstance(value, str) and value in _UNUSUAL_DOUBLES:
        return _UNUSUAL_DOUBLES[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            double = float(value)
        except OverflowError:
            double = math.inf
        if math.isfinite(double):
            return double
    raise node.error('a number, or one of "NaN", "INF", "-INF" is expected')


def _moment(node: Node) -> TypedValue:
    text = node.text()
    moment = instant_of(text)
    if moment is None:
        raise node.error(f"'{text[:60]}' is not a time such as 2030-01-01T08:00:00Z")
    return TypedValue("dateTime", moment.ticks, has_zone(text))


def _ticks(node: Node) -> int:
    text = node.text()
    try:
        return parse_span(text)
    except ValueError as error:
        raise node.error(f"'{text[:60]}' is {error}") from None


def write_pairs(pairs: Pairs) -> Json:
    return {name: write_value(value) for name, value in pairs}


def write_value(typed: TypedValue) -> object:
    """What `read_value` reads back as the same value of the same type."""
    type_name, value = typed.type_name, typed.value
    if type_name in ("string", "boolean", "long"):
        return value
    if type_name == "double":
        return _written_double(float(value))
    if type_name == "dateTime":
        return {"Type": type_name, "Value": moment_text(typed)}
    if type_name == "duration":
        return {"Type": type_name, "Value": format_span(int(value))}
    return {"Type": type_name, "Value": value}


def _written_double(value: float) -> object:
    if math.isfinite(value):
        return value
    text = "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return {"Type": "double", "Value": text}


_PROPERTIES: Final = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
_OFFICIAL_TYPES: Final = ("Correlation", "Sql")
_OUR_TYPES: Final = ("Correlation", "Sql", "True", "False")
_OFFICIAL_SQL: Final = ("SqlExpression",)
_OUR_SQL: Final = ("SqlExpression", "Parameters", "CompatibilityLevel", "RequiresPreprocessing")
#: Name in the file → field of the filter.
_CONDITIONS: Final = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


def read_rules(node: Node, is_ours: bool, limits: Limits) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    names: set[str] = set()
    for entry in node.entries():
        rule = _read_rule(entry, is_ours)
        try:
            check_rule_text(rule, limits)
        except BrokerError as error:
            raise ConfigError(f"{entry.path}: {error.sentence}") from error
        if path_key(rule.name) in names:
            raise entry.error(f"the rule '{rule.name}' is there already")
        names.add(path_key(rule.name))
        rules.append(rule)
    return tuple(rules)


def _read_rule(node: Node, is_ours: bool) -> Rule:
    members = node.members(("Name", "Properties"))
    if "Name" not in members:
        raise node.error('the key "Name" is missing')
    name = members["Name"].text()
    if "Properties" not in members:
        return Rule(name, TrueFilter())
    properties = members["Properties"].members(_PROPERTIES)
    action = _action(properties["Action"], is_ours) if "Action" in properties else None
    return Rule(name, _filter(members["Properties"], properties, is_ours), action)


def _filter(node: Node, members: dict[str, Node], is_ours: bool) -> Filter:
    kind = _filter_type(members, is_ours)
    for name, owner in (("CorrelationFilter", "Correlation"), ("SqlFilter", "Sql")):
        if name in members and kind not in ("", owner):
            raise members[name].error(f'it does not belong to "FilterType": "{kind}"')
    if kind == "Correlation" or (kind == "" and "CorrelationFilter" in members):
        return _correlation(_needed(node, members, "CorrelationFilter"))
    if kind == "Sql" or (kind == "" and "SqlFilter" in members):
        place = _needed(node, members, "SqlFilter")
        expression, parameters, level, is_prepared = _sql(place, is_ours)
        return SqlFilter(expression, parameters, level, is_prepared)
    # T-3: an action without a filter applies to every message.
    return FalseFilter() if kind == "False" else TrueFilter()


def _filter_type(members: dict[str, Node], is_ours: bool) -> str:
    """Empty when the file leaves it out: then the filter that is there tells."""
    if "FilterType" not in members:
        return ""
    known = {name.lower(): name for name in (_OUR_TYPES if is_ours else _OFFICIAL_TYPES)}
    text = members["FilterType"].text()
    if text.lower() not in known:
        raise members["FilterType"].error(f"'{text[:60]}' is not one of {', '.join(known.values())}")
    return known[text.lower()]


def _needed(node: Node, members: dict[str, Node], name: str) -> Node:
    if name not in members:
        raise node.error(f'the key "{name}" is missing')
    return members[name]


def _correlation(node: Node) -> CorrelationFilter:
    members = node.members((*_CONDITIONS, "Properties"))
    texts = {field: members[name].text() for name, field in _CONDITIONS.items() if name in members}
    pairs = read_pairs(members["Properties"]) if "Properties" in members else ()
    return CorrelationFilter(**texts, properties=pairs)


def _action(node: Node, is_ours: bool) -> SqlAction:
    return SqlAction(*_sql(node, is_ours))


def _sql(node: Node, is_ours: bool) -> tuple[str, Pairs, int, bool]:
    members = node.members(_OUR_SQL if is_ours else _OFFICIAL_SQL)
    expression = _needed(node, members, "SqlExpression").text()
    pairs = read_pairs(members["Parameters"]) if "Parameters" in members else ()
    level, is_prepared = COMPATIBILITY_LEVEL, False
    if "CompatibilityLevel" in members:
        level = members["CompatibilityLevel"].whole_number()
    if "RequiresPreprocessing" in members:
        is_prepared = members["RequiresPreprocessing"].flag()
    return expression, pairs, level, is_prepared


def write_rule(rule: Rule) -> Json:
    properties: Json = _written_filter(rule.filter)
    if rule.action is not None:
        properties["Action"] = _written_sql(rule.action)
    return {"Name": rule.name, "Properties": properties}


def _written_filter(filter_: Filter) -> Json:
    if isinstance(filter_, CorrelationFilter):
        conditions: Json = {
            name: getattr(filter_, field)
            for name, field in _CONDITIONS.items()
            if getattr(filter_, field) is not None
        }
        if filter_.properties:
            conditions["Properties"] = write_pairs(filter_.properties)
        return {"FilterType": "Correlation", "CorrelationFilter": conditions}
    if filter_ == TrueFilter():
        return {"FilterType": "True"}
    if filter_ == FalseFilter():
        return {"FilterType": "False"}
    return {"FilterType": "Sql", "SqlFilter": _written_sql(filter_)}


def _written_sql(part: SqlFilter | SqlAction) -> Json:
    written: Json = {"SqlExpression": part.expression}
    if part.parameters:
        written["Parameters"] = write_pairs(part.parameters)
    if part.compatibility_level != COMPATIBILITY_LEVEL:
        written["CompatibilityLevel"] = part.compatibility_level
    if part.requires_preprocessing:
        written["RequiresPreprocessing"] = True
    return written
