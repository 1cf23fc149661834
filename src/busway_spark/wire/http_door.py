"""Requests to Busway over HTTP: the one client of both formats and of the jobs.

Theory of operation. A request goes out on a connection that was kept, else on a new one (`kept_connections`). When
the bus is away or busy it is made again until its time is over (`patience`). That is only right for a request that
does nothing twice. GET never does; whoever asks by another method says so, by `is_repeatable`, after a look at the
route. One that is not is made again only where it cannot have taken effect: there was no connection, or the server
refused it as busy.

A kept connection that breaks costs no pause: the server closes those that rest, and the next one is new.
"""

from __future__ import annotations

import html
import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from busway.client.errors import (
    ClientError,
    EntityExists,
    EntityMissing,
    LockLost,
    NotAuthorised,
    Refused,
    Unreachable,
)
from busway_spark.wire.bus import CONNECT_TIMEOUT_S, HEALTH, HTTP_TIMEOUT_S, Bus
from busway_spark.wire.kept_connections import connected, kept_connections
from busway_spark.wire.patience import OPERATION_S, Patience, meet

_RETRY_AFTER: Final = "Retry-After"
_SUPPLEMENT: Final = "ServiceBusSupplementaryAuthorization"
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_TOLD_BYTES_MAX: Final = 1024 * 1024
_RETRY_AFTER_MAX_S: Final = 3600.0
#: The server, or somebody before it, is busy.
BUSY: Final = frozenset({429, 502, 503, 504})
#: It did not end well, but may the next time when the server says so by Retry-After.
_FAILED: Final = 500
_DETAIL: Final = re.compile(r"<Detail>(?:SubCode=\d+\. )?(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)
_ERRORS: Final[dict[int, type[ClientError]]] = {
    401: NotAuthorised,
    404: EntityMissing,
    409: EntityExists,
    410: LockLost,
}


@dataclass(frozen=True)
class Question:
    method: str
    #: The path with its query, quoted.
    target: str
    body: bytes | None = None
    accept: str | None = None
    is_repeatable: bool = False
    #: How long the server may wait before it answers.
    wait_s: float = 0.0
    #: Another entity that the request is about: it goes with a token for that, too.
    also_for: str | None = None


@dataclass(frozen=True)
class Told:
    """What a server answered to one request, whatever it means."""

    status: int
    body: bytes
    #: 0 when it does not say.
    retry_after_s: float


class HttpDoor:
    """Requests about one entity of a bus. May be used by several threads."""

    def __init__(self, bus: Bus, entity: str, limit_s: float = OPERATION_S) -> None:
        self._bus = bus
        self._entity = entity
        self._limit_s = limit_s

    def get(self, target: str, accept: str | None = None, wait_s: float = 0.0) -> bytes:
        """The body of a good answer, of the type that is accepted. Raises ClientError."""
        return self._body_of(Question("GET", target, None, accept, True, wait_s))

    def post(
        self,
        target: str,
        body: bytes | None = None,
        *,
        is_repeatable: bool,
        wait_s: float = 0.0,
        also_for: str | None = None,
    ) -> bytes:
        """The same. `is_repeatable`: the route does nothing twice."""
        return self._body_of(Question("POST", target, body, None, is_repeatable, wait_s, also_for))

    def date(self) -> str | None:
        """What the server's clock says: every answer bears it, also a refusal. Raises ClientError."""
        question = Question("GET", HEALTH, is_repeatable=True)
        patience = Patience(self._bus.target.authority, self._limit_s)
        answer, connection = self._exchanged(question, patience, CONNECT_TIMEOUT_S)
        _refusal(answer)
        self._rest(answer, connection)
        return answer.headers.get("Date")

    @contextmanager
    def reading(self, question: Question) -> Iterator[http.client.HTTPResponse]:
        """A good answer whose body is read inside of the block. What breaks there raises Unreachable: nothing is
        repeated any more, because the reader alone knows what it has got."""
        answer, connection = self._answered(question, Patience(self._bus.target.authority, self._limit_s))
        try:
            yield answer
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        self._rest(answer, connection)

    def told(self, question: Question) -> Told:
        """A short answer to one request; whoever asks knows what each status means, and whether to ask again. Raises
        Unreachable: it may have taken effect nevertheless."""
        connection: http.client.HTTPConnection | None = None
        try:
            connection = kept_connections().resting(self._bus) or connected(self._bus, HTTP_TIMEOUT_S)
            answer = self._sent(question, connection)
            body = answer.read(_TOLD_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            raise self._unreachable(error) from error
        meet(self._bus.target.authority)
        self._rest(answer, connection)
        return Told(answer.status, body, _retry_after_s(answer) or 0.0)

    # -- how

    def _body_of(self, question: Question) -> bytes:
        patience = Patience(self._bus.target.authority, self._limit_s)
        while True:
            answer, connection = self._answered(question, patience)
            try:
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._pause(question, patience, error)
                continue
            self._rest(answer, connection)
            return body

    def _answered(
        self, question: Question, patience: Patience
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """An answer whose status is good; its body is still to be read."""
        while True:
            answer, connection = self._exchanged(question, patience)
            meet(self._bus.target.authority)
            if answer.status == 200:
                if question.accept is None or answer.headers.get_content_type() == question.accept:
                    return answer, connection
                connection.close()
                raise Refused(f"The server answered with something else than {question.accept}.")
            refusal = _refusal(answer)
            connection.close()
            told_s = _retry_after_s(answer)
            is_passing = answer.status in BUSY or (
                answer.status == _FAILED and told_s is not None and question.is_repeatable
            )
            if not is_passing or not patience.pause(told_s or 0.0):
                raise patience.over(error_of(answer.status, refusal))

    def _exchanged(
        self, question: Question, patience: Patience, connect_s: float = HTTP_TIMEOUT_S
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        kept = kept_connections()
        while question.is_repeatable and (connection := kept.resting(self._bus)) is not None:
            try:
                return self._sent(question, connection), connection
            except (OSError, http.client.HTTPException):
                connection.close()
        while True:
            try:
                connection = connected(self._bus, connect_s)
            except OSError as error:
                if not patience.pause():
                    raise patience.over(self._unreachable(error)) from error
                continue
            try:
                return self._sent(question, connection), connection
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._pause(question, patience, error)

    def _sent(self, question: Question, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        headers = {"Authorization": self._bus.authorization(self._entity)}
        if question.accept is not None:
            headers["Accept"] = question.accept
        if question.also_for is not None:
            headers[_SUPPLEMENT] = self._bus.authorization(question.also_for)
        if question.body is None and question.method != "GET":
            headers["Content-Length"] = "0"
        connection.sock.settimeout(HTTP_TIMEOUT_S + question.wait_s)
        connection.request(question.method, question.target, question.body, headers)
        return connection.getresponse()

    def _pause(self, question: Question, patience: Patience, error: Exception) -> None:
        """It was sent, and no answer came."""
        if not question.is_repeatable:
            raise Unreachable(f"{self._unreachable(error)} It is not known whether the request took effect.")
        if not patience.pause():
            raise patience.over(self._unreachable(error)) from error

    def _rest(self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> None:
        if answer.will_close or not answer.isclosed():
            connection.close()
        else:
            kept_connections().keep(self._bus, connection)

    def _unreachable(self, error: BaseException) -> Unreachable:
        return Unreachable.at(self._bus.target.host, self._bus.target.http_port, error)


def error_of(status: int, refusal: bytes) -> ClientError:
    """What a refusal means, in the server's own sentence."""
    return _ERRORS.get(status, Refused)(refusal_sentence(status, refusal))


def refusal_sentence(status: int, refusal: bytes) -> str:
    match = _DETAIL.search(refusal.decode(errors="replace"))
    return f"The server answered with status {status}." if match is None else html.unescape(match.group(1))


def _refusal(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(_REFUSAL_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return b""


def _retry_after_s(answer: http.client.HTTPResponse) -> float | None:
    """Whole seconds; a date is nothing that Busway says."""
    text = (answer.headers.get(_RETRY_AFTER) or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        return None
    return min(float(text), _RETRY_AFTER_MAX_S)
