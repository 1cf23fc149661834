"""Streams that read the bus, over HTTP: what `ServiceBusAdministrationClient` can ask about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from busway.client.hub_administration import Exchange
from busway.client.json_answer import Json, object_of, objects_of

_PIPELINES: Final = "/$pipelines"


class PipelineReports:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def list(self) -> Sequence[Json]:
        """By name: state, what each reads, how far it is behind."""
        return objects_of(self._exchange("GET", _PIPELINES, content="json"))

    def get(self, name: str) -> Json:
        """The same of one, with each partition."""
        return object_of(self._exchange("GET", f"{_PIPELINES}/{quote(name, safe='')}", content="json"))

    def forget(self, name: str) -> None:
        """Until it reports again."""
        self._exchange("DELETE", f"{_PIPELINES}/{quote(name, safe='')}", content="json")
