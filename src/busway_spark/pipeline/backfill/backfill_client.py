"""The client of the server's route for history (`gateway.http.bulk.backfill_route`): when rules began, and copies
to store, each once. A request that failed on its way is made again: what it had stored is known by its ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from busway.client.errors import ClientError
from busway_spark.pipeline.job import JobFailed
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpClient


class BackfillClient:
    """Of one subscription."""

    def __init__(self, bus: Bus, subscription_path: str) -> None:
        self._client = HttpClient(bus, subscription_path)
        self._path = subscription_path
        self._target = f"/$backfill/{quote(subscription_path, safe='/$')}"

    def beginnings(self) -> dict[str, Any]:
        """Raises JobFailed."""
        found = self._exchange(lambda: self._client.get(self._target))
        if not isinstance(found.get("rules"), list) or not isinstance(found.get("captured"), dict):
            raise JobFailed("The server does not tell when rules began; is it an older Busway?")
        return found

    def store(self, fragment: int, copies: bytes) -> tuple[int, int]:
        """Encoded copies: (new ones, those that were there). Raises JobFailed."""
        target = f"{self._target}?fragment={fragment}"
        answer = self._exchange(lambda: self._client.post(target, copies, is_repeatable=True))
        return int(answer["new"]), int(answer["known"])

    def _exchange(self, ask: Callable[[], bytes]) -> dict[str, Any]:
        try:
            found = json.loads(ask())
        except (ClientError, ValueError) as error:
            raise JobFailed(f"'{self._path}': {error}") from error
        return found if isinstance(found, dict) else {}
