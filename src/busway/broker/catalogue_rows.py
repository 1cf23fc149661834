"""The catalogue's rows: what each says, as JSON text under a key.

  namespace      who this is: id, name, namespace-level rules
  store:<name>   a store of the namespace, its position (0 is the home) and whether it is out of service
  queue:<key>    a queue: its description, where its fragments lie, its incarnation

A row's `format` goes up when a reader of an older version would misread it. Keys that this version does not
know are kept when a row is written again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.descriptions import (
    AuthorizationRule,
    Json,
    QueueDescription,
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
QUEUE_PREFIX: Final = "queue:"
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
        return _written(known, previous)

    @classmethod
    def parse(cls, text: str) -> "NamespaceRow":
        data = _read(NAMESPACE_KEY, text)
        try:
            return cls(
                text_at(data, "id"),
                text_at(data, "name"),
                rules_of_json(data.get("rules", [])),
                integer_at(data, "created_at_ms"),
            )
        except BadArgument as error:
            raise _damaged(NAMESPACE_KEY) from error


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
        return _written(known, previous)

    @classmethod
    def parse(cls, key: str, text: str) -> "StoreRow":
        data = _read(key, text)
        try:
            return cls(
                key.removeprefix(STORE_PREFIX),
                text_at(data, "url"),
                integer_at(data, "position"),
                data.get("disabled") is True,
            )
        except BadArgument as error:
            raise _damaged(key) from error


@dataclass(frozen=True)
class QueueRow:
    key: str  #: `path_key` of its path
    description: QueueDescription
    store_name: str
    main: FragmentKey
    dead_letter: FragmentKey
    #: The catalogue's version at its creation: a name created again is another entity (E-86).
    incarnation: int

    def text(self, previous: str | None) -> str:
        nested = {} if previous is None else json.loads(previous)["description"]
        known: Json = {
            "description": {**nested, **description_json(self.description)},
            "store": self.store_name,
            "main": self.main,
            "dead_letter": self.dead_letter,
            "incarnation": self.incarnation,
        }
        return _written(known, previous)

    @classmethod
    def parse(cls, key: str, text: str) -> "QueueRow":
        data = _read(key, text)
        nested = data.get("description")
        try:
            if not isinstance(nested, dict):
                raise BadArgument("description: an object is expected.")
            return cls(
                key.removeprefix(QUEUE_PREFIX),
                description_of_json(nested),
                text_at(data, "store"),
                FragmentKey(integer_at(data, "main")),
                FragmentKey(integer_at(data, "dead_letter")),
                integer_at(data, "incarnation"),
            )
        except BadArgument as error:
            raise _damaged(key) from error


def store_rows(rows: Mapping[str, str]) -> list[StoreRow]:
    """The stores of a catalogue, by position."""
    found = [StoreRow.parse(key, text) for key, text in rows.items() if key.startswith(STORE_PREFIX)]
    return sorted(found, key=lambda row: row.position)


def queue_row_key(key: str) -> str:
    return QUEUE_PREFIX + key


def _written(known: Json, previous: str | None) -> str:
    kept = {} if previous is None else json.loads(previous)
    return json.dumps({**kept, "format": _FORMAT, **known}, ensure_ascii=False, separators=(",", ":"))


def _read(key: str, text: str) -> Json:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _damaged(key) from error
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise _damaged(key)
    if data["format"] > _FORMAT:
        raise StoreTooNew(f"The catalogue's row '{key}' was written by a newer version of Busway.")
    return data


def _damaged(key: str) -> StoreError:
    return StoreError(f"The catalogue's row '{key}' cannot be read: restore the store from a backup.")
