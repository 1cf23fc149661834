"""The catalogue's rows: what each says, as JSON text under a key.

  namespace      who this is: id, name, namespace-level rules
  store:<name>   a store of the namespace, its position (0 is the home) and whether it is out of service
  queue:<key>    an entity: its description, where its fragments lie, its incarnation; likewise `topic:` and
                 `subscription:`. The key is the `path_key` of its path. A partitioned entity lists its fragments
                 as `shares`, under a format that versions without partitions refuse. Likewise a subscription that
                 history is captured through, unless its user metadata say so in the words that all versions know
  rule:<key>     a subscription's rule; see `rule_table`

A row's `format` goes up when a reader of an older version would misread it. Keys that this version does not know
are kept when a row is written again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from busway.broker.forward.transfers import Doubt
from busway.model.descriptions import (
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    description_json,
    description_of_json,
    rule_json,
    rules_of_json,
)
from busway.model.errors import BadArgument
from busway.model.json_rows import (
    ROW_FORMAT,
    SHARES_FORMAT,
    Json,
    integer_at,
    list_at,
    object_at,
    read_row,
    text_at,
    written_row,
)
from busway.store.contract import FragmentKey

#: Of captured subscriptions that earlier versions would not know as such: rules that began there would not note it.
_CAPTURE_FORMAT: Final = 3
_SHARES: Final = "shares"
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
_DOUBTS: Final = "doubts"


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
        with read_row(NAMESPACE_KEY, text) as data:
            return cls(
                text_at(data, "id"),
                text_at(data, "name"),
                rules_of_json(data.get("rules", [])),
                integer_at(data, "created_at_ms"),
            )


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
        with read_row(key, text) as data:
            return cls(
                key.removeprefix(STORE_PREFIX),
                text_at(data, "url"),
                integer_at(data, "position"),
                data.get("disabled") is True,
            )


@dataclass(frozen=True)
class Share:
    """Where one fragment of an entity lies, with its dead letters."""

    store_name: str
    main: FragmentKey
    dead_letter: FragmentKey

    @property
    def fragments(self) -> tuple[FragmentKey, ...]:
        return (self.main,) if self.dead_letter == NO_FRAGMENT else (self.main, self.dead_letter)


@dataclass(frozen=True)
class EntityRow:
    """A queue, a topic or a subscription."""

    key: str  #: `path_key` of its path
    description: Description
    #: By fragment_index; a plain entity has one.
    shares: tuple[Share, ...]
    is_partitioned: bool
    #: The catalogue's version at its creation: a name created again is another entity (E-86).
    incarnation: int
    doubts: tuple[Doubt, ...] = ()

    @property
    def row_key(self) -> str:
        return _PREFIX_OF[type(self.description)] + self.key

    @property
    def store_names(self) -> list[str]:
        """Each once, in the order of its first fragment there."""
        return list(dict.fromkeys(share.store_name for share in self.shares))

    # Of a plain entity:

    @property
    def store_name(self) -> str:
        return self.shares[0].store_name

    @property
    def main(self) -> FragmentKey:
        return self.shares[0].main

    @property
    def dead_letter(self) -> FragmentKey:
        return self.shares[0].dead_letter

    def text(self, previous: str | None) -> str:
        nested = {} if previous is None else json.loads(previous)["description"]
        known: Json = {
            "description": {**nested, **description_json(self.description)},
            "incarnation": self.incarnation,
        }
        if self.doubts or (previous is not None and _DOUBTS in json.loads(previous)):
            known[_DOUBTS] = [
                [doubt.store_name, doubt.fragment, doubt.number, doubt.gone_to] for doubt in self.doubts
            ]
        if self.is_partitioned:
            known[_SHARES] = [_share_json(share) for share in self.shares]
        else:
            known.update(_share_json(self.shares[0]))
        return written_row(known, previous, self._format())

    def _format(self) -> int:
        description = self.description
        if (
            isinstance(description, SubscriptionDescription)
            and description.captures_history
            and not description.says_capture_in_words
        ):
            return _CAPTURE_FORMAT
        return SHARES_FORMAT if self.is_partitioned else ROW_FORMAT

    @classmethod
    def parse(cls, row_key: str, text: str) -> "EntityRow":
        prefix = row_key[: row_key.index(":") + 1]
        is_subscription = ENTITY_PREFIXES[prefix] is SubscriptionDescription
        newest = _CAPTURE_FORMAT if is_subscription else SHARES_FORMAT
        with read_row(row_key, text, newest) as data:
            shares = _shares_of_json(data)
            description = _description_of(prefix, object_at(data, "description"))
            if not isinstance(description, SubscriptionDescription):
                description = replace(description, fragment_count=len(shares))
            return cls(
                row_key.removeprefix(prefix),
                description,
                shares,
                _has_shares(data),
                integer_at(data, "incarnation"),
                tuple(_doubt_of_json(entry) for entry in list_at(data, _DOUBTS)) if _DOUBTS in data else (),
            )


def _share_json(share: Share) -> Json:
    return {"store": share.store_name, "main": share.main, "dead_letter": share.dead_letter}


def _shares_of_json(data: Json) -> tuple[Share, ...]:
    entries = list_at(data, _SHARES) if _has_shares(data) else [data]
    if not entries:
        raise BadArgument("shares: one or more are expected.")
    return tuple(_share_of_json(entry) for entry in entries)


def _has_shares(data: Json) -> bool:
    return data["format"] == SHARES_FORMAT or (data["format"] == _CAPTURE_FORMAT and _SHARES in data)


def _share_of_json(data: object) -> Share:
    if not isinstance(data, dict):
        raise BadArgument("shares: each entry must be an object.")
    main, dead_letter = integer_at(data, "main"), integer_at(data, "dead_letter")
    return Share(text_at(data, "store"), FragmentKey(main), FragmentKey(dead_letter))


def _doubt_of_json(data: object) -> Doubt:
    match data:
        case [str(store_name), int(fragment), int(number), str(gone_to)]:
            return Doubt(store_name, FragmentKey(fragment), number, gone_to)
    raise BadArgument("doubts: each entry must be a store, a fragment, a number and a store.")


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
