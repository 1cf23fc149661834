"""What `ServiceBusAdministrationClient` manages as JSON: event hubs, and streams that read the bus. They come and go
as objects under the names of the management routes."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import quote

from busway.client.errors import Refused

Json = dict[str, object]

_HUBS: Final = "/$eventhubs"
_PIPELINES: Final = "/$pipelines"
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


class PipelineReports:
    """Streams that read the bus, as they report themselves."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def list(self) -> "Sequence[Json]":
        """By name: state, what each reads, how far it is behind."""
        return objects_of(self._exchange("GET", _PIPELINES, content="json"))

    def get(self, name: str) -> Json:
        """The same of one, with each partition."""
        return object_of(self._exchange("GET", f"{_PIPELINES}/{quote(name, safe='')}", content="json"))

    def forget(self, name: str) -> None:
        """Until it reports again."""
        self._exchange("DELETE", f"{_PIPELINES}/{quote(name, safe='')}", content="json")


def object_of(answer: bytes) -> Json:
    loaded = _loaded(answer)
    if not isinstance(loaded, dict):
        raise Refused("The server answered with JSON of another shape than an object.")
    return loaded


def objects_of(answer: bytes) -> list[Json]:
    loaded = _loaded(answer)
    if not isinstance(loaded, list) or not all(isinstance(item, dict) for item in loaded):
        raise Refused("The server answered with JSON of another shape than a list of objects.")
    return loaded


def _loaded(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Refused("The server answered with something that is not JSON.") from error


def _hub_url(name: str) -> str:
    return f"{_HUBS}/{quote(name, safe='')}"


def _group_url(hub: str, name: str) -> str:
    return f"{_hub_url(hub)}/consumergroups/{quote(name, safe='$')}"
