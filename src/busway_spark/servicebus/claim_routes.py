"""Busway's routes of claims, as a client sees them (`busway.gateway.http.bulk.claims_route`).

Each request may be made again: none does anything twice. Taking under a stamp that has taken gives the same messages;
holding happens once and then tells what is held; what is settled or released is gone the second time.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from busway.client.errors import Refused
from busway.message.claimed_run import LENGTH
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpDoor, Question
from busway_spark.wire.patience import OPERATION_S

FRAMES_TYPE: Final = "application/vnd.busway.claimed"
#: The most that is asked for at once, and waited for.
COUNT_MAX: Final = 100_000
WAIT_S_MAX: Final = 30.0
#: How large a frame may be: a page of the server and its largest message.
_FRAME_BYTES_MAX: Final = 1 << 31

Runs = list[tuple[int, int]]
#: First, count, and the session where there are sessions.
SessionRun = tuple[int, int, str | None]


@dataclass(frozen=True)
class TakenRuns:
    """What was locked."""

    runs: list[SessionRun]
    #: When the oldest of them was enqueued, by the server's clock.
    oldest_ms: int
    locked_until_ms: int
    #: Messages that nobody has taken yet, about.
    available: int


class ClaimRoutes:
    def __init__(self, bus: Bus, address: str, operation_s: float = OPERATION_S) -> None:
        self._door = HttpDoor(bus, address, operation_s)
        self._root = "/" + "/".join(quote(part, safe="$") for part in address.split("/")) + "/$claims"

    # -- what can be asked; each raises ClientError

    def take(self, stamp: str, count: int, wait_s: float) -> TakenRuns:
        wait_s = min(wait_s, WAIT_S_MAX)
        answer = self._post(f"/{stamp}/take?count={min(count, COUNT_MAX)}&wait={wait_s:.3f}", wait_s=wait_s)
        return TakenRuns(
            _session_runs(answer), answer["oldest_ms"], answer["locked_until_ms"], answer["available"]
        )

    def renew(self, stamp: str) -> None:
        self._post(f"/{stamp}/renew")

    def hold(self, stamp: str, runs: Runs, *, with_sessions: bool = False) -> list[SessionRun]:
        """Those of them that the claim holds from now on."""
        return _session_runs(self._post(f"/{stamp}/hold" + "?sessions=true" * with_sessions, runs))

    def settle(self, stamp: str, runs: Runs) -> int:
        """How many could not be deleted, because somebody else has locked them."""
        return int(self._post(f"/{stamp}/settle", runs)["locked"])

    def release(self, stamp: str) -> int:
        return int(self._post(f"/{stamp}/release")["released"])

    def stamps(self) -> dict[str, int]:
        """Claims that hold messages, and how many."""
        return {
            str(each["stamp"]): int(each["messages"]) for each in _json(self._door.get(self._root))["claims"]
        }

    def last_numbers(self) -> list[int]:
        """The newest number of each fragment; none where the server does not tell."""
        return [int(number) for number in _json(self._door.get(self._root)).get("last", ())]

    def read(self, stamp: str, runs: Runs) -> Iterator[bytes]:
        """Frames, without their lengths. A connection that breaks on the way is for the caller to take up again."""
        question = Question(
            "POST", f"{self._root}/{stamp}/read", _body(runs), FRAMES_TYPE, is_repeatable=True
        )
        with self._door.reading(question) as answer:
            while head := _exactly(answer, LENGTH.size, is_end_allowed=True):
                size: int = LENGTH.unpack(head)[0]
                if size > _FRAME_BYTES_MAX:
                    raise Refused(f"The server announced a frame of {size} bytes.")
                yield _exactly(answer, size)

    def _post(self, path: str, runs: Runs | None = None, wait_s: float = 0.0) -> Mapping[str, Any]:
        body = None if runs is None else _body(runs)
        return _json(self._door.post(self._root + path, body, is_repeatable=True, wait_s=wait_s))


def _session_runs(answer: Mapping[str, Any]) -> list[SessionRun]:
    return [(int(run[0]), int(run[1]), str(run[2]) if len(run) > 2 else None) for run in answer["held"]]


def _body(runs: Runs) -> bytes:
    return json.dumps({"held": runs}, separators=(",", ":")).encode()


def _exactly(answer: http.client.HTTPResponse, size: int, *, is_end_allowed: bool = False) -> bytes:
    data = answer.read(size)
    if len(data) < size and not (is_end_allowed and not data):
        raise http.client.IncompleteRead(data, size - len(data))
    return data


def _json(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("The server's answer about a claim cannot be read.")
    return found
