"""Busway's routes of two-phase writes, as a client sees them (`busway.gateway.http.staging_route`).

Every request may be made again: none does anything twice. One that is not answered, or that a busy server puts off, is
made again until its time is over (`limit_s`); a part says then that it may have come before (`again`), so that its rows
are looked for where the first try may have left them.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any, Final
from urllib.parse import quote, urlencode

from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Refused, Unreachable
from busway_spark.bus import BUSWAY, Bus
from busway_spark.write_names import STREAM, WriteName

#: How long a request is tried, where no option says so.
OPERATION_S: Final = 60.0
#: How long a decision waits for its rows to be seen by everybody.
PUBLISHED_WAIT_S: Final = 30
_ROOT: Final = "/$staging"
_BUSY: Final = frozenset({429, 502, 503, 504})
_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ANSWER_BYTES_MAX: Final = 1 << 20
_DETAIL: Final = re.compile(r"<Detail>(?:SubCode=\d+\. )?(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)

#: Connections at rest, by process and address; each is used by one thread at a time.
_resting: dict[tuple[int, str, int, str | None], list[http.client.HTTPConnection]] = {}


class PartRefused(ClientError):
    """A row of a part is refused, and nothing of the part is staged."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        #: Its place in the part.
        self.at = at


class WriteRefused(ClientError):
    """The write cannot go on as it is; `code` says why to programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Answer:
    status: int
    #: Empty where the body is no object of JSON.
    found: Mapping[str, Any]
    text: str
    retry_after_s: float = 0.0


class StagingRoutes:
    """May be used by several threads."""

    def __init__(self, bus: Bus, limit_s: float = OPERATION_S) -> None:
        self._bus = bus
        self._limit_s = limit_s

    # -- what can be asked; each raises ClientError

    def stage(
        self, name: WriteName, stage: str, part: int, entity: str, partition: str | None, body: bytes
    ) -> bool:
        """False when the batch was decided before: nothing is staged then."""
        query = {"entity": entity, "part": str(part)}
        if partition is not None:
            query["partition"] = partition
        if name.kind == STREAM:
            query["kind"] = STREAM
        found = self._ask("POST", f"{_batch(name)}/{stage}?{urlencode(query)}", entity, body, "&again=1")
        return found.get("known") is not True

    def decide(self, name: WriteName, stages: Mapping[str, int], entity: str) -> Mapping[str, Any]:
        """Everything of these stages is seen by everybody from now on, or nothing ever."""
        body = json.dumps({"kind": name.kind, "stages": stages}, separators=(",", ":")).encode()
        return self._ask("POST", f"{_batch(name)}?wait={PUBLISHED_WAIT_S}", entity, body)

    def decided(self, write: str) -> Mapping[str, Any] | None:
        """The last batch of the write that was decided; None when there is none."""
        try:
            return self._ask("GET", f"{_ROOT}/{write}", "")
        except EntityMissing:
            return None

    def drop(self, name: WriteName, stage: str, entity: str) -> None:
        self._ask("DELETE", f"{_batch(name)}/{stage}", entity)

    # -- how

    def _ask(
        self, method: str, target: str, entity: str, body: bytes = b"", when_again: str = ""
    ) -> Mapping[str, Any]:
        deadline = time.monotonic() + self._limit_s
        tries = 0
        while True:
            try:
                answer = self.request(method, target + (when_again if tries else ""), entity, body)
                if answer.status == 200:
                    return answer.found
                failure, pause_s = _error(answer), answer.retry_after_s
                if answer.status not in _BUSY:
                    raise failure
            except Unreachable as error:
                failure, pause_s = error, 0.0
            pause_s = max(pause_s, _PAUSES_S[min(tries, len(_PAUSES_S) - 1)] * random.uniform(0.5, 1.0))
            if time.monotonic() + pause_s > deadline:
                raise failure
            time.sleep(pause_s)
            tries += 1

    def request(self, method: str, target: str, entity: str, body: bytes) -> Answer:
        """One exchange. Raises Unreachable when it is not known whether it took place."""
        headers = {"Authorization": self._bus.authorization(entity), "Content-Length": str(len(body))}
        kept = self._kept()
        while kept:
            connection = kept.pop()
            try:
                return self._exchange(connection, method, target, body, headers)
            except (OSError, http.client.HTTPException):
                connection.close()
                if body:
                    break
        connection = self._bus.http_connection()
        try:
            return self._exchange(connection, method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            place = self._bus.target
            raise Unreachable.at(place.host, place.http_port, error) from error

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Answer:
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        text = answer.read(_ANSWER_BYTES_MAX).decode(errors="replace")
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._kept().append(connection)
        return Answer(answer.status, _object(text), text, _seconds(answer.headers.get("Retry-After")))

    def _kept(self) -> list[http.client.HTTPConnection]:
        place = self._bus.target
        return _resting.setdefault((os.getpid(), place.host, place.http_port, self._bus.ca_file), [])


def can_stage(bus: Bus) -> bool:
    """Whether this is a Busway, on the driver when a writer is made: its tasks do as it says. Raises Unreachable.

    A Busway that is just being restarted must not pass for another service, whose writes can come twice. So silence at
    the HTTP door counts only where somebody answers by AMQP."""
    deadline = time.monotonic() + OPERATION_S
    for pause_s in (0.2, 0.5, 1.0, 2.0, *[5.0] * 60):
        if bus.kind() == BUSWAY:
            return True
        if bus.is_known() or (bus.answers_amqp() and not bus.is_known() and pause_s > 0.5):
            return False
        if time.monotonic() + pause_s > deadline:
            break
        time.sleep(pause_s)
    raise Unreachable(f"The server at {bus.target.host}:{bus.target.http_port} cannot be reached.")


def _batch(name: WriteName) -> str:
    return f"{_ROOT}/{quote(name.write, safe='')}/{name.batch}"


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float:
    told = (text or "").strip()
    return float(told) if told.isascii() and told.isdigit() and len(told) <= 4 else 0.0


def _error(answer: Answer) -> ClientError:
    sentence = _sentence(answer)
    row, code = answer.found.get("row"), answer.found.get("code")
    if answer.status == 400 and isinstance(row, int):
        return PartRefused(row, sentence)
    if answer.status == 409:
        return WriteRefused(str(code), sentence)
    kinds: dict[int, type[ClientError]] = {401: NotAuthorised, 404: EntityMissing}
    return kinds.get(answer.status, Refused)(sentence)


def _sentence(answer: Answer) -> str:
    for name in ("reason", "detail", "message", "error"):
        told = answer.found.get(name)
        if isinstance(told, str) and told:
            return told
    match = _DETAIL.search(answer.text)
    return f"The server answered with status {answer.status}." if match is None else unescape(match.group(1))
