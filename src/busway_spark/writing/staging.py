"""Busway's routes of two-phase writes, as a client sees them (`busway.gateway.http.bulk.staging_route`).

Every request may be made again: none does anything twice. One that is not answered, or that a busy server puts
off, is made again until its time is over (`limit_s`); a part says then that it may have come before (`again`), so
that its rows are looked for where the first try may have left them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Refused, Unreachable
from busway_spark.wire.bus import BUSWAY, Bus
from busway_spark.wire.http_client import BUSY, Answer, HttpClient, Question, refusal_sentence
from busway_spark.wire.patience import OPERATION_S, Patience
from busway_spark.writing.write_names import WriteName

#: How long a decision waits for its rows to be seen by everybody.
PUBLISHED_WAIT_S: Final = 30
_ROOT: Final = "/$staging"
#: A server that does not speak HTTP is asked once more after this: Busway opens its ports one after the other.
_SECOND_LOOK_S: Final = 0.5

#: Who spoke AMQP alone at both looks, for the life of the process.
_silent: set[str] = set()


class PartRefused(ClientError):
    """A row of a part is refused, and nothing of the part is staged."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        #: Its place in the part.
        self.at = at


class PartTooLarge(ClientError):
    """Nothing of it is staged."""


class WriteRefused(ClientError):
    """The write cannot go on as it is; `code` says why to programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


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
        query = {"entity": entity, "part": str(part), "kind": name.kind}
        if partition is not None:
            query["partition"] = partition
        found = self._ask("POST", f"{_batch(name)}/{stage}?{urlencode(query)}", entity, body, "&again=1")
        return found.get("known") is not True

    def decide(self, name: WriteName, stages: Mapping[str, int], entity: str) -> Mapping[str, Any]:
        """Everything of these stages is seen by everybody from now on, or nothing ever."""
        body = json.dumps({"kind": name.kind, "stages": stages}, separators=(",", ":")).encode()
        target = f"{_batch(name)}?wait={PUBLISHED_WAIT_S}{_of(entity, '&')}"
        return self._ask("POST", target, entity, body, wait_s=PUBLISHED_WAIT_S)

    def decided(self, write: str) -> Mapping[str, Any] | None:
        """The last batch of the write that was decided; None when there is none."""
        try:
            return self._ask("GET", f"{_ROOT}/{write}", "")
        except EntityMissing:
            return None

    def drop(self, name: WriteName, stage: str, entity: str) -> None:
        self._ask("DELETE", f"{_batch(name)}/{stage}{_of(entity, '?')}", entity)

    # -- how

    def _ask(
        self,
        method: str,
        target: str,
        entity: str,
        body: bytes = b"",
        when_again: str = "",
        wait_s: float = 0.0,
    ) -> Mapping[str, Any]:
        """Until there is an answer that is not put off, or no time is left."""
        client = HttpClient(self._bus, entity)
        patience = Patience(self._bus.target.authority, self._limit_s)
        failure: ClientError
        again = ""
        while True:
            pause_s = 0.0
            try:
                answer = client.ask(Question(method, target + again, body, wait_s=wait_s))
            except Unreachable as error:
                failure = error
            else:
                if answer.status == 200:
                    return _object(answer.body)
                failure, pause_s = _error(answer), answer.retry_after_s
                if answer.status not in BUSY:
                    raise failure
            if not patience.pause(pause_s):
                raise patience.over(failure) from failure
            again = when_again


def can_stage(bus: Bus, limit_s: float = OPERATION_S) -> bool:
    """Whether this is a Busway; asked on the driver when a writer is made, and its tasks do as it says. Raises
    Unreachable. One that is just being started must not pass for another service, whose rows can come twice: who
    answers by AMQP alone is asked again."""
    if bus.kind(limit_s) == BUSWAY:
        return True
    if bus.is_azure_host() or bus.target.authority in _silent:
        return False
    time.sleep(_SECOND_LOOK_S)
    if bus.kind(limit_s) == BUSWAY:
        return True
    _silent.add(bus.target.authority)
    return False


def _batch(name: WriteName) -> str:
    return f"{_ROOT}/{quote(name.write, safe='')}/{name.batch}"


def _of(entity: str, before: str) -> str:
    """Whose key signs, where it is not the namespace's."""
    return f"{before}entity={quote(entity, safe='')}" if entity else ""


def _object(text: bytes) -> Mapping[str, Any]:
    """Empty where it is no object of JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error(answer: Answer) -> ClientError:
    found = _object(answer.body)
    named = (found.get(name) for name in ("reason", "detail", "message", "error"))
    sentence = next((each for each in named if isinstance(each, str) and each), None)
    if sentence is None:
        sentence = refusal_sentence(answer.status, answer.body)
    row, code = found.get("row"), found.get("code")
    if answer.status == 400 and isinstance(row, int):
        return PartRefused(row, sentence)
    if answer.status == 409:
        return WriteRefused(str(code), sentence)
    kinds: dict[int, type[ClientError]] = {401: NotAuthorised, 404: EntityMissing, 413: PartTooLarge}
    return kinds.get(answer.status, Refused)(sentence)
