"""The catalogue's rows: what each says, as JSON text under a key.

  namespace      who this is: id, name, namespace-level rules
  store:<name>   a store of the namespace, its position (0 is the home) and whether it is out of service
  queue:<key>    an entity: its description, where its fragments lie, its incarnation; likewise `topic:` and
                 `subscription:`. The key is the `path_key` of its path
  rule:<key>     a subscription's rule; see `rule_rows`

A row's `format` goes up when a reader of an older version would misread it. Keys that this version does not
know are kept when a row is written again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.descriptions import (
    AuthorizationRule,
    Description,
    Json,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    description_json,
    description_of_json,
    integer_at,
    rule_json,
    rules_of_json,
    text_at,
)
from busway.broker.errors import BadArgument
from busway.store.contract import FragmentKey, StoreError, StoreTooNew

_FORMAT: Final = 1
NAMESPACE_KEY: Final = "namespace"
#: What a row of an entity starts with, by kind.
ENTITY_PREFIXES: Final[Mapping[str, type[Description]]] = {
    "queue:": QueueDescription,
    "topic:": TopicDescription,
    "subscription:": SubscriptionDescription,
}
_PREFIX_OF: Final = {kind: prefix for prefix, kind in ENTITY_PREFIXES.items()}
#: D-7: a topic has no dead letters; no fragment bears this key.
NO_FRAGMENT: Final = FragmentKey(0)
STORE_PREFIX: Final = "store:"


@dataclass(frozen=True)
class NamespaceRow:
    id: str
    name: str
    rules: tuple[AuthorizationRule, ...]
    created_at_ms: int

    def text(self, previous: str | None) -> str:
        known: Json = {
            "id": self.id,
            "name": self.name,
            "rules": [rule_json(rule) for rule in self.rules],
            "created_at_ms": self.created_at_ms,
        }
        return written_row(known, previous)

    @classmethod
    def parse(cls, text: str) -> "NamespaceRow":
        data = read_row(NAMESPACE_KEY, text)
        try:
            return cls(
                text_at(data, "id"),
                text_at(data, "name"),
                rules_of_json(data.get("rules", [])),
                integer_at(data, "created_at_ms"),
            )
        except BadArgument as error:
            raise damaged_row(NAMESPACE_KEY) from error


@dataclass(frozen=True)
class StoreRow:
    name: str
    url: str
    position: int
    is_disabled: bool = False

    @property
    def key(self) -> str:
        return STORE_PREFIX + self.name

    def text(self, previous: str | None) -> str:
        known: Json = {"url": self.url, "position": self.position, "disabled": self.is_disabled}
        return written_row(known, previous)

    @classmethod
    def parse(cls, key: str, text: str) -> "StoreRow":
        data = read_row(key, text)
        try:
            return cls(
                key.removeprefix(STORE_PREFIX),
                text_at(data, "url"),
                integer_at(data, "position"),
                data.get("disabled") is True,
            )
        except BadArgument as error:
            raise damaged_row(key) from error


@dataclass(frozen=True)
class EntityRow:
    """A queue, a topic or a subscription."""

    key: str  #: `path_key` of its path
    description: Description
    store_name: str
    main: FragmentKey
    dead_letter: FragmentKey
    #: The catalogue's version at its creation: a name created again is another entity (E-86).
    incarnation: int

    @property
    def row_key(self) -> str:
        return _PREFIX_OF[type(self.description)] + self.key

    @property
    def fragments(self) -> tuple[FragmentKey, ...]:
        return (self.main,) if self.dead_letter == NO_FRAGMENT else (self.main, self.dead_letter)

    def text(self, previous: str | None) -> str:
        nested = {} if previous is None else json.loads(previous)["description"]
        known: Json = {
            "description": {**nested, **description_json(self.description)},
            "store": self.store_name,
            "main": self.main,
            "dead_letter": self.dead_letter,
            "incarnation": self.incarnation,
        }
        return written_row(known, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> "EntityRow":
        data = read_row(row_key, text)
        prefix = row_key[: row_key.index(":") + 1]
        nested = data.get("description")
        try:
            if not isinstance(nested, dict):
                raise BadArgument("description: an object is expected.")
            return cls(
                row_key.removeprefix(prefix),
                _description_of(prefix, nested),
                text_at(data, "store"),
                FragmentKey(integer_at(data, "main")),
                FragmentKey(integer_at(data, "dead_letter")),
                integer_at(data, "incarnation"),
            )
        except BadArgument as error:
            raise damaged_row(row_key) from error


def _description_of(prefix: str, data: Json) -> Description:
    kind = ENTITY_PREFIXES[prefix]
    if kind is QueueDescription:
        return description_of_json(QueueDescription, data)
    if kind is TopicDescription:
        return description_of_json(TopicDescription, data)
    return description_of_json(SubscriptionDescription, data)


def entity_rows(rows: Mapping[str, str]) -> list[EntityRow]:
    """Every queue, topic and subscription of a catalogue."""
    prefixes = tuple(ENTITY_PREFIXES)
    return [EntityRow.parse(key, text) for key, text in rows.items() if key.startswith(prefixes)]


def store_rows(rows: Mapping[str, str]) -> list[StoreRow]:
    """The stores of a catalogue, by position."""
    found = [StoreRow.parse(key, text) for key, text in rows.items() if key.startswith(STORE_PREFIX)]
    return sorted(found, key=lambda row: row.position)


def written_row(known: Json, previous: str | None) -> str:
    kept = {} if previous is None else json.loads(previous)
    return json.dumps({**kept, "format": _FORMAT, **known}, ensure_ascii=False, separators=(",", ":"))


def read_row(key: str, text: str) -> Json:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise damaged_row(key) from error
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise damaged_row(key)
    if data["format"] > _FORMAT:
        raise StoreTooNew(f"The catalogue's row '{key}' was written by a newer version of Busway.")
    return data


def damaged_row(key: str) -> StoreError:
    return StoreError(f"The catalogue's row '{key}' cannot be read: restore the store from a backup.")
