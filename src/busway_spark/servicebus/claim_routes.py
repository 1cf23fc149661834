"""Busway's routes of claims, as a client sees them (`busway.gateway.http.claims_route`).

Each request may be made again: none does anything twice. So one that fails on a connection that was kept is made once
more on a new one, and one that a busy server refuses is made again after a while. Connections are kept for the life
of a process, which Spark uses for many tasks.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from busway.claimed_run import LENGTH
from busway.client.errors import ClientError, EntityMissing, LockLost, NotAuthorised, Refused, Unreachable
from busway_spark.bus import Bus

FRAMES_TYPE: Final = "application/vnd.busway.claimed"
#: The most that is asked for at once, and waited for.
COUNT_MAX: Final = 100_000
WAIT_S_MAX: Final = 30.0
#: How large a frame may be: a page of the server and its largest message.
_FRAME_BYTES_MAX: Final = 1 << 31
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_BUSY: Final = 503
_BUSY_WAITS_S: Final = (0.2, 0.5, 1.0, 2.0)
_DETAIL: Final = re.compile(r"<Detail>(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)

Runs = list[tuple[int, int]]
#: First, count, and the session where there are sessions.
SessionRun = tuple[int, int, str | None]

#: Connections at rest, by process and address; each is used by one thread at a time.
_resting: dict[tuple[int, str, int, str | None], list[http.client.HTTPConnection]] = {}


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
    def __init__(self, bus: Bus, address: str) -> None:
        self._bus = bus
        self._address = address
        self._root = "/" + "/".join(quote(part, safe="$") for part in address.split("/")) + "/$claims"

    # -- what can be asked; each raises ClientError

    def take(self, stamp: str, count: int, wait_s: float) -> TakenRuns:
        wanted = f"count={min(count, COUNT_MAX)}&wait={min(wait_s, WAIT_S_MAX):.3f}"
        answer = self._ask("POST", f"/{stamp}/take?{wanted}")
        return TakenRuns(
            _session_runs(answer), answer["oldest_ms"], answer["locked_until_ms"], answer["available"]
        )

    def renew(self, stamp: str) -> None:
        self._ask("POST", f"/{stamp}/renew")

    def hold(self, stamp: str, runs: Runs, *, with_sessions: bool = False) -> list[SessionRun]:
        """Those of them that the claim holds from now on."""
        return _session_runs(self._ask("POST", f"/{stamp}/hold" + "?sessions=true" * with_sessions, runs))

    def settle(self, stamp: str, runs: Runs) -> int:
        """How many could not be deleted, because somebody else has locked them."""
        return int(self._ask("POST", f"/{stamp}/settle", runs)["locked"])

    def release(self, stamp: str) -> int:
        return int(self._ask("POST", f"/{stamp}/release")["released"])

    def stamps(self) -> dict[str, int]:
        """Claims that hold messages, and how many."""
        return {str(each["stamp"]): int(each["messages"]) for each in self._ask("GET", "")["claims"]}

    def last_numbers(self) -> list[int]:
        """The newest number of each fragment; none where the server does not tell."""
        return [int(number) for number in self._ask("GET", "").get("last", ())]

    def read(self, stamp: str, runs: Runs) -> Iterator[bytes]:
        """Frames, without their lengths. A connection that breaks on the way is for the caller to take up again."""
        answer, connection = self._answered("POST", f"/{stamp}/read", _body(runs))
        if answer.headers.get_content_type() != FRAMES_TYPE:
            connection.close()
            raise Refused("The server answered with something else than claimed messages.")
        try:
            while head := _exactly(answer, LENGTH.size, is_end_allowed=True):
                size: int = LENGTH.unpack(head)[0]
                if size > _FRAME_BYTES_MAX:
                    raise Refused(f"The server announced a frame of {size} bytes.")
                yield _exactly(answer, size)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        self._rest(answer, connection)

    # -- how

    def _ask(self, method: str, path: str, runs: Runs | None = None) -> Mapping[str, Any]:
        body = None if runs is None else _body(runs)
        for is_last in (False, True):
            answer, connection = self._answered(method, path, body)
            try:
                text = answer.read()
                self._rest(answer, connection)
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if is_last:
                    raise self._unreachable(error) from error
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Refused("The server's answer about a claim cannot be read.")
        return found

    def _answered(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """An answer whose status is good; its body is still to be read."""
        for wait_s in (*_BUSY_WAITS_S, None):
            answer, connection = self._sent(method, self._root + path, body)
            if answer.status == 200:
                return answer, connection
            refusal = answer.read(_REFUSAL_BYTES_MAX)
            connection.close()
            if answer.status != _BUSY or wait_s is None:
                raise _error(answer.status, refusal)
            time.sleep(wait_s)
        raise AssertionError("the last one does not wait")

    def _sent(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        headers = {
            "Authorization": self._bus.authorization(self._address),
            "Content-Length": str(len(body or b"")),
        }
        kept = self._kept()
        while kept:
            connection = kept.pop()
            try:
                connection.request(method, path, body, headers)
                return connection.getresponse(), connection
            except (OSError, http.client.HTTPException):
                connection.close()
        connection = self._bus.http_connection()
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error

    def _rest(self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> None:
        if answer.will_close:
            connection.close()
        else:
            self._kept().append(connection)

    def _kept(self) -> list[http.client.HTTPConnection]:
        target = self._bus.target
        return _resting.setdefault((os.getpid(), target.host, target.http_port, self._bus.ca_file), [])

    def _unreachable(self, error: BaseException) -> Unreachable:
        return Unreachable.at(self._bus.target.host, self._bus.target.http_port, error)


def _session_runs(answer: Mapping[str, Any]) -> list[SessionRun]:
    return [(int(run[0]), int(run[1]), str(run[2]) if len(run) > 2 else None) for run in answer["held"]]


def _body(runs: Runs) -> bytes:
    return json.dumps({"held": runs}, separators=(",", ":")).encode()


def _exactly(answer: http.client.HTTPResponse, size: int, *, is_end_allowed: bool = False) -> bytes:
    data = answer.read(size)
    if len(data) < size and not (is_end_allowed and not data):
        raise http.client.IncompleteRead(data, size - len(data))
    return data


def _error(status: int, answer: bytes) -> ClientError:
    match = _DETAIL.search(answer.decode(errors="replace"))
    sentence = f"The server answered with status {status}." if match is None else match.group(1)
    kinds: dict[int, type[ClientError]] = {401: NotAuthorised, 404: EntityMissing, 410: LockLost}
    return kinds.get(status, Refused)(sentence)
