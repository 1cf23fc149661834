"""The rows of event hubs in the catalogue.

  eventhub:<key>             a hub: its description, where the logs of its partitions lie, its incarnation
  consumergroup:<key>/<key>  a consumer group of a hub; `$Default` has a row too

The rules of `catalogue_rows` hold: a format that goes up when older readers would misread a row, and keys of newer
versions that are kept.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.namespace import damaged_row, read_row, written_row
from busway.model.descriptions import Json, integer_at, list_at, text_at
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument
from busway.store.contract import FragmentKey
from busway.streams.hub_descriptions import (
    ConsumerGroupDescription,
    EventHubDescription,
    group_json,
    group_of_json,
    hub_json,
    hub_of_json,
)

HUB_PREFIX: Final = "eventhub:"
GROUP_PREFIX: Final = "consumergroup:"


@dataclass(frozen=True)
class LogShare:
    """Where the log of one partition lies."""

    store_name: str
    log: FragmentKey


@dataclass(frozen=True)
class HubRow:
    key: str  #: `path_key` of its path
    description: EventHubDescription
    shares: tuple[LogShare, ...]  #: by partition
    #: The catalogue's version at its creation: a name created again is another hub.
    incarnation: int

    @property
    def row_key(self) -> str:
        return HUB_PREFIX + self.key

    @property
    def store_names(self) -> list[str]:
        return list(dict.fromkeys(share.store_name for share in self.shares))

    def text(self, previous: str | None) -> str:
        nested: Json = {} if previous is None else json.loads(previous)["description"]
        nested.pop("CaptureDescription", None)  # it is said only where there is one
        known: Json = {
            "description": {**nested, **hub_json(self.description)},
            "logs": [{"store": share.store_name, "log": share.log} for share in self.shares],
            "incarnation": self.incarnation,
        }
        return written_row(known, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> "HubRow":
        data = read_row(row_key, text)
        nested = data.get("description")
        try:
            if not isinstance(nested, dict):
                raise BadArgument("description: an object is expected.")
            shares = tuple(_share_of(entry) for entry in list_at(data, "logs"))
            return cls(
                row_key.removeprefix(HUB_PREFIX), hub_of_json(nested), shares, integer_at(data, "incarnation")
            )
        except BadArgument as error:
            raise damaged_row(row_key) from error


@dataclass(frozen=True)
class GroupRow:
    hub_key: str
    description: ConsumerGroupDescription

    @property
    def key(self) -> str:
        return path_key(self.description.name)

    @property
    def row_key(self) -> str:
        return f"{GROUP_PREFIX}{self.hub_key}/{self.key}"

    def text(self, previous: str | None) -> str:
        return written_row({"hub": self.description.hub_path, **group_json(self.description)}, previous)

    @classmethod
    def parse(cls, row_key: str, text: str) -> "GroupRow":
        data = read_row(row_key, text)
        try:
            description = group_of_json(text_at(data, "hub"), data)
        except BadArgument as error:
            raise damaged_row(row_key) from error
        return cls(path_key(description.hub_path), description)


def _share_of(data: object) -> LogShare:
    if not isinstance(data, dict):
        raise BadArgument("logs: each entry must be an object.")
    return LogShare(text_at(data, "store"), FragmentKey(integer_at(data, "log")))


def hub_rows(rows: Mapping[str, str]) -> list[HubRow]:
    return [HubRow.parse(key, text) for key, text in rows.items() if key.startswith(HUB_PREFIX)]


def group_rows(rows: Mapping[str, str]) -> list[GroupRow]:
    return [GroupRow.parse(key, text) for key, text in rows.items() if key.startswith(GROUP_PREFIX)]
