"""A subscription's rules as rows of the catalogue, one row for each: a topic may have a hundred thousand.

The row's key is `rule:<key of the subscription>/rules/<folded name>`. `order` counts up inside the subscription,
in the order of creation; clients see rules by name (E-64). `began_after` is the topic's last number at the moment
the rule began to apply: what was published up to it can be filled in later from history (E-70).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.catalogue_rows import damaged_row, read_row, written_row
from busway.model.descriptions import Json, integer_at, list_at, text_at
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument
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

#: A captured subscription with its incarnation (`rule_beginnings`) → its last number in each fragment.
Beginnings = tuple[tuple[str, tuple[int, ...]], ...]

RULE_PREFIX: Final = "rule:"
_RULES_SEGMENT: Final = "/rules/"
_BEGINNINGS: Final = "births"
#: Fields of a correlation filter that are texts, under the same names here.
_CORRELATION_TEXTS: Final = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)


@dataclass(frozen=True)
class RuleRow:
    subscription_key: str
    rule: Rule
    order: int
    began_after: int = 0
    #: The same in the numbers of subscriptions that history is captured through; None: not known.
    beginnings: Beginnings | None = ()

    @property
    def key(self) -> str:
        """Names compare without case (E-7)."""
        return path_key(self.rule.name)

    @property
    def row_key(self) -> str:
        return f"{RULE_PREFIX}{self.subscription_key}{_RULES_SEGMENT}{self.key}"

    def text(self, previous: str | None) -> str:
        known: Json = {
            **rule_json(self.rule),
            "order": self.order,
            "began_after": self.began_after,
            _BEGINNINGS: _beginnings_json(self.beginnings),
        }
        return written_row(known, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> "RuleRow":
        data = read_row(row_key, text)
        try:
            return cls(
                subscription_key_of(row_key),
                rule_of_json(data),
                integer_at(data, "order"),
                integer_at(data, "began_after"),
                _beginnings_of_json(data),
            )
        except BadArgument as error:
            raise damaged_row(row_key) from error


def _beginnings_json(noted: Beginnings | None) -> object:
    """null where it is not known."""
    return None if noted is None else {key: list(numbers) for key, numbers in noted}


def _beginnings_of_json(data: Mapping[str, object]) -> Beginnings | None:
    """None: not known. A row without them is of a time when nothing was captured."""
    found = data.get(_BEGINNINGS, {})
    if not isinstance(found, dict):
        return None
    return tuple((str(key), _numbers(numbers)) for key, numbers in found.items())


def _numbers(entry: object) -> tuple[int, ...]:
    listed = entry if isinstance(entry, list) else []
    return tuple(number for number in listed if isinstance(number, int))


def subscription_key_of(row_key: str) -> str:
    return row_key.removeprefix(RULE_PREFIX).rpartition(_RULES_SEGMENT)[0]


def rule_rows(rows: Mapping[str, str]) -> list[RuleRow]:
    return [RuleRow.parse(key, text) for key, text in rows.items() if key.startswith(RULE_PREFIX)]


def rule_json(rule: Rule) -> Json:
    written: Json = {
        "name": rule.name,
        "created_at_ms": rule.created_at_ms,
        "filter": _filter_json(rule.filter),
    }
    if rule.action is not None:
        written["action"] = _sql_json(rule.action)
    return written


def rule_of_json(data: Mapping[str, object]) -> Rule:
    action = data.get("action")
    return Rule(
        text_at(data, "name"),
        _filter_of(_object(data.get("filter"), "filter")),
        None if action is None else _action_of(_object(action, "action")),
        integer_at(data, "created_at_ms"),
    )


def _filter_json(filter_: Filter) -> Json:
    if isinstance(filter_, TrueFilter):
        return {"kind": "true", **_sql_json(filter_)}
    if isinstance(filter_, FalseFilter):
        return {"kind": "false", **_sql_json(filter_)}
    if isinstance(filter_, SqlFilter):
        return {"kind": "sql", **_sql_json(filter_)}
    written: Json = {"kind": "correlation"}
    for name in _CORRELATION_TEXTS:
        value = getattr(filter_, name)
        if value is not None:
            written[name] = value
    written["properties"] = _typed_json(filter_.properties)
    return written


def _filter_of(data: Json) -> Filter:
    kind = text_at(data, "kind")
    if kind == "correlation":
        texts = {name: text_at(data, name) for name in _CORRELATION_TEXTS if name in data}
        return CorrelationFilter(**texts, properties=_typed_of(data, "properties"))
    sql = {"sql": SqlFilter, "true": TrueFilter, "false": FalseFilter}.get(kind)
    if sql is None:
        raise BadArgument(f"filter: the kind {kind!r} is not known.")
    return sql(
        text_at(data, "expression"),
        _typed_of(data, "parameters"),
        _level(data),
        data.get("requires_preprocessing") is True,
    )


def _action_of(data: Json) -> SqlAction:
    return SqlAction(
        text_at(data, "expression"),
        _typed_of(data, "parameters"),
        _level(data),
        data.get("requires_preprocessing") is True,
    )


def _level(data: Json) -> int:
    return integer_at(data, "compatibility_level") if "compatibility_level" in data else COMPATIBILITY_LEVEL


def _sql_json(part: SqlFilter | SqlAction) -> Json:
    written: Json = {"expression": part.expression}
    if part.parameters:
        written["parameters"] = _typed_json(part.parameters)
    if part.compatibility_level != COMPATIBILITY_LEVEL:
        written["compatibility_level"] = part.compatibility_level
    if part.requires_preprocessing:
        written["requires_preprocessing"] = True
    return written


def _typed_json(pairs: tuple[tuple[str, TypedValue], ...]) -> list[object]:
    """A fourth part only where it says something: `false`, a time that was written without a zone."""
    return [
        [name, typed.type_name, typed.value]
        if typed.has_zone
        else [name, typed.type_name, typed.value, False]
        for name, typed in pairs
    ]


def _typed_of(data: Json, key: str) -> tuple[tuple[str, TypedValue], ...]:
    return tuple(_pair_of(entry) for entry in list_at(data, key))


def _pair_of(entry: object) -> tuple[str, TypedValue]:
    if not isinstance(entry, list) or len(entry) not in (3, 4):
        raise BadArgument("a name, a type and a value are expected.")
    name, type_name, value = entry[:3]
    if not isinstance(name, str) or type_name not in VALUE_TYPES:
        raise BadArgument("a name, a type and a value are expected.")
    if not isinstance(value, str | int | float):
        raise BadArgument(f"the value of {name} is not possible.")
    return name, TypedValue(type_name, value, entry[3:] != [False])


def _object(data: object, name: str) -> Json:
    if not isinstance(data, dict):
        raise BadArgument(f"{name}: an object is expected.")
    return data
