"""Event hubs over HTTP: what `ServiceBusAdministrationClient` can do with them. Hubs, groups and partitions come and
go as JSON objects under the names of the management route."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote

from busway.client.json_answer import Json, object_of, objects_of

_HUBS: Final = "/$eventhubs"
_UPDATES: Final = {"If-Match": "*"}


class Exchange(Protocol):
    """One request and its answer."""

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: str = "",
        content: str = "atom+xml",
    ) -> bytes: ...


class HubAdministration:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def create(self, name: str, properties: Mapping[str, object], groups: Sequence[str] = ()) -> Json:
        return self._put(_hub_url(name), {**properties, "ConsumerGroups": list(groups)})

    def update(self, name: str, properties: Mapping[str, object]) -> Json:
        """Properties that are not named stay as they are."""
        return self._put(_hub_url(name), properties, _UPDATES)

    def get(self, name: str) -> Json:
        return object_of(self._exchange("GET", _hub_url(name), content="json"))

    def list(self) -> list[Json]:
        return objects_of(self._exchange("GET", _HUBS, content="json"))

    def delete(self, name: str) -> None:
        self._exchange("DELETE", _hub_url(name), content="json")

    def partitions(self, name: str) -> "Sequence[Json]":
        """Of each: store, health, first and last number, events, size."""
        return objects_of(self._exchange("GET", f"{_hub_url(name)}/partitions", content="json"))

    def create_group(self, hub: str, name: str, properties: Mapping[str, object] | None = None) -> Json:
        return self._put(_group_url(hub, name), properties or {})

    def groups(self, hub: str) -> "Sequence[Json]":
        return objects_of(self._exchange("GET", f"{_hub_url(hub)}/consumergroups", content="json"))

    def delete_group(self, hub: str, name: str) -> None:
        self._exchange("DELETE", _group_url(hub, name), content="json")

    def _put(
        self, url: str, properties: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Json:
        body = json.dumps(properties).encode()
        return object_of(self._exchange("PUT", url, body, headers, content="json"))


def _hub_url(name: str) -> str:
    return f"{_HUBS}/{quote(name, safe='')}"


def _group_url(hub: str, name: str) -> str:
    return f"{_hub_url(hub)}/consumergroups/{quote(name, safe='$')}"
