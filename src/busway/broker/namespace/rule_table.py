"""The rules of all subscriptions: their rows always, compiled from the moment their topic is first used.

In the catalogue each rule is a row: a topic may have a hundred thousand. The row's key is `rule:<key of the
subscription>/rules/<folded name>`. `order` counts up inside the subscription, in the order of creation; clients
see rules by name (E-64). `began_after` is the topic's last number at the moment the rule began to apply: what was
published up to it can be filled in later from history (E-70).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway.clock import Entropy
from busway.model.entity_path import path_key, topic_key_of
from busway.model.errors import BadArgument
from busway.model.json_rows import Json, integer_at, list_at, read_row, text_at, written_row
from busway.rules.rule import (
    COMPATIBILITY_LEVEL,
    DEFAULT_RULE_NAME,
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
from busway.rules.selection import Selection

#: A captured subscription with its incarnation (`rule_changes`) → its last number in each fragment.
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
    """A subscription's rules as rows of the catalogue, one row for each: a topic may have a hundred thousand."""

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
        with read_row(row_key, text) as data:
            return cls(
                subscription_key_of(row_key),
                rule_of_json(data),
                integer_at(data, "order"),
                integer_at(data, "began_after"),
                _beginnings_of_json(data),
            )


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


class RuleTable:
    """The rules of all subscriptions: their rows always, compiled from the moment their topic is first used."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        #: Subscription → folded name → row, in order of creation.
        self._rows: dict[str, dict[str, RuleRow]] = {}
        #: Subscription → folded names in order, of those whose rules somebody has enumerated: there may be a hundred
        #: thousand of them, and clients ask for a page at a time.
        self._names: dict[str, list[str]] = {}
        #: Topic → how many SQL filters and how many correlation filters it has (E-72, E-73).
        self._filters: dict[str, list[int]] = {}
        #: Loaded topic → its selection.
        self._selections: dict[str, Selection] = {}

    def of(self, subscription_key: str) -> list[RuleRow]:
        """`$Default` first, then in order of creation."""
        rows = self._rows.get(subscription_key, {}).values()
        return sorted(rows, key=lambda row: row.rule.name != DEFAULT_RULE_NAME)

    def by_name(self, subscription_key: str, skip: int, top: int) -> list[RuleRow]:
        """E-64: a page in the order of their names, in which `$Default` comes first by itself."""
        rows = self._rows.get(subscription_key)
        if rows is None:
            return []
        names = self._names.get(subscription_key)
        if names is None:
            names = self._names[subscription_key] = sorted(rows)
        return [rows[name] for name in names[skip : skip + top]]

    def get(self, subscription_key: str, key: str) -> RuleRow | None:
        return self._rows.get(subscription_key, {}).get(key)

    def next_order(self, subscription_key: str) -> int:
        rows = self._rows.get(subscription_key)
        return 1 if not rows else next(reversed(rows.values())).order + 1

    def filter_counts(self, topic_key: str) -> tuple[int, int]:
        """SQL filters and correlation filters (E-72, E-73)."""
        sql, correlation = self._filters.get(topic_key, (0, 0))
        return sql, correlation

    def _count(self, topic_key: str, row: RuleRow, change: int) -> None:
        counts = self._filters.setdefault(topic_key, [0, 0])
        counts[isinstance(row.rule.filter, CorrelationFilter)] += change

    # -- changes

    def put(self, topic_key: str, row: RuleRow) -> None:
        """A rule is new, or another one under its name."""
        rows = self._rows.setdefault(row.subscription_key, {})
        selection = self._selections.get(topic_key)
        present = rows.get(row.key)
        if present is not None:
            self._count(topic_key, present, -1)
        self._count(topic_key, row, 1)
        if selection is not None:
            if present is not None:
                selection.remove(row.subscription_key, present.rule.name)
            selection.add(row.subscription_key, row.rule)
        names = self._names.get(row.subscription_key)
        if names is not None and present is None:
            insort(names, row.key)
        rows[row.key] = row

    def remove(self, topic_key: str, row: RuleRow) -> None:
        if self._rows.get(row.subscription_key, {}).pop(row.key, None) is not None:
            self._count(topic_key, row, -1)
            names = self._names.get(row.subscription_key)
            if names is not None:
                del names[bisect_left(names, row.key)]
        selection = self._selections.get(topic_key)
        if selection is not None:
            selection.remove(row.subscription_key, row.rule.name)

    def put_back(self, topic_key: str, row: RuleRow) -> None:
        """One that was removed is there again, in its old place."""
        self.put(topic_key, row)
        rows = self._rows[row.subscription_key]
        self._rows[row.subscription_key] = dict(sorted(rows.items(), key=lambda entry: entry[1].order))

    def forget(self, topic_key: str, subscription_key: str) -> None:
        """The subscription is gone."""
        self._names.pop(subscription_key, None)
        for row in self._rows.pop(subscription_key, {}).values():
            self._count(topic_key, row, -1)
        selection = self._selections.get(topic_key)
        if selection is not None:
            selection.remove_owner(subscription_key)

    def replace_all(self, rows: Iterable[RuleRow]) -> None:
        """The catalogue was read anew; whoever holds a selection must `load` it again."""
        self._rows.clear()
        self._names.clear()
        self._filters.clear()
        # Also of topics that are not loaded: somebody may have asked for one while its store was away.
        self._selections.clear()
        for row in sorted(rows, key=lambda row: row.order):
            self._rows.setdefault(row.subscription_key, {})[row.key] = row
            self._count(topic_key_of(row.subscription_key), row, 1)

    # -- compiled

    def load(self, topic_key: str, subscription_keys: Iterable[str]) -> Selection:
        selection = self._selections[topic_key] = Selection(self._new_id)
        for key in subscription_keys:
            for row in self._rows.get(key, {}).values():
                selection.add(key, row.rule)
        return selection

    def selection(self, topic_key: str) -> Selection | None:
        """The one that was loaded."""
        return self._selections.get(topic_key)

    def unload(self, topic_key: str) -> None:
        self._selections.pop(topic_key, None)

    def _new_id(self) -> UUID:
        return UUID(bytes=self._entropy.bytes(16), version=4)
