"""The server's door for history (`busway.gateway.http.backfill_route`): when rules began, and copies to store, each
once. A request that failed on its way is made again: what it had stored is known by its ids."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from busway_spark.bus import Bus
from busway_spark.pipeline.job import JobFailed

_LENGTH: Final = Struct(">I")
_TRIES: Final = 8
_PAUSE_FIRST_S: Final = 0.2
_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
_WORDS_MAX: Final = 400

#: Its id, why a rule failed (empty when none did), its payload.
SentCopy = tuple[str, str, bytes]


class BackfillDoor:
    """Of one subscription; one connection, made when it is needed."""

    def __init__(self, bus: Bus, subscription_path: str) -> None:
        self._bus = bus
        self._path = subscription_path
        self._connection: http.client.HTTPConnection | None = None

    def beginnings(self) -> dict[str, Any]:
        """Raises JobFailed."""
        found = self._exchange("GET", "", None)
        if not isinstance(found.get("rules"), list) or not isinstance(found.get("captured"), dict):
            raise JobFailed("The server does not tell when rules began; is it an older Busway?")
        return found

    def store(self, fragment: int, copies: Sequence[SentCopy]) -> tuple[int, int]:
        """(new ones, those that were there). Raises JobFailed."""
        body = bytearray()
        for copy in copies:
            for piece in (copy[0].encode(), copy[1].encode(), copy[2]):
                body += _LENGTH.pack(len(piece)) + piece
        answer = self._exchange("POST", f"?fragment={fragment}", bytes(body))
        return int(answer["new"]), int(answer["known"])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, query: str, body: bytes | None) -> dict[str, Any]:
        pause_s = _PAUSE_FIRST_S
        for attempt in range(_TRIES):
            try:
                status, answer = self._once(method, query, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, answer = 503, str(error).encode()
            if status < 300:
                found = json.loads(answer)
                return found if isinstance(found, dict) else {}
            if status not in _PASSING or attempt == _TRIES - 1:
                raise JobFailed(f"'{self._path}': {_sentence(status, answer)}")
            time.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")

    def _once(self, method: str, query: str, body: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._bus.http_connection()
        headers = {"Authorization": self._bus.authorization(self._path)}
        path = f"/$backfill/{quote(self._path, safe='/$')}{query}"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read(_ANSWER_BYTES_MAX)


def _sentence(status: int, answer: bytes) -> str:
    text = answer.decode("utf-8", "replace")
    detail = text.partition("<Detail>")[2].partition("</Detail>")[0].partition(" TrackingId:")[0]
    if detail.startswith("SubCode="):
        detail = detail.partition(". ")[2]
    return (detail or text)[:_WORDS_MAX] + f" (HTTP status {status})"
