"""Requests to Busway over HTTP, and the connections that are kept between them: the one client of both formats and of
the jobs.

Theory of operation. A request goes out on a connection that was kept, else on a new one. When the bus is away or busy
it is made again until its time is over (`patience`). That is only right for a request that does nothing twice. GET
never does; whoever asks by another method says so, by `is_repeatable`, after a look at the route. One that is not is
made again only where it cannot have taken effect: there was no connection, or the server refused it as busy.

A connection is lent to one thread at a time and comes back when its answer was read to the end. Those that rest are
used last in, first out, so that those beyond the need grow old; whoever has rested for IDLE_S is closed, which is
before the server would (a minute). One that the server has closed meanwhile is noticed before it is lent, and one
that breaks costs no pause: the next one is new. A child that is forked gets nothing of it: two processes on one
socket would read each other's answers.
"""

from __future__ import annotations

import html
import http.client
import os
import re
import select
import socket
import threading
import time
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
from busway_spark.wire.patience import OPERATION_S, Patience, meet

IDLE_S: Final = 30.0
#: Of one bus.
RESTING_MAX: Final = 32
#: A peer that is gone without a word is noticed after KEEP_ALIVE_S + 3 · KEEP_ALIVE_EVERY_S, however long an answer
#: may take.
_KEEP_ALIVE_S: Final = 10
_KEEP_ALIVE_EVERY_S: Final = 5
_KEEP_ALIVE_TRIES: Final = 3

#: Host, port, whether it is plain, and the authority that is trusted.
_Place = tuple[str, int, bool, str | None]
_RETRY_AFTER: Final = "Retry-After"
_SUPPLEMENT: Final = "ServiceBusSupplementaryAuthorization"
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_ANSWER_BYTES_MAX: Final = 1024 * 1024
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


class ConnectionPool:
    """Use `connection_pool()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        #: Since when each rests; the last one was used last.
        self._resting: dict[_Place, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._closing: threading.Timer | None = None

    def resting(self, bus: Bus) -> http.client.HTTPConnection | None:
        """One that was used before and seems to be open."""
        while True:
            with self._lock:
                here = self._resting.get(_place(bus))
                if not here:
                    return None
                since, connection = here.pop()
            if time.monotonic() - since < IDLE_S and _is_quiet(connection):
                return connection
            connection.close()

    def keep(self, bus: Bus, connection: http.client.HTTPConnection) -> None:
        """It is free again."""
        with self._lock:
            here = self._resting.setdefault(_place(bus), [])
            if len(here) < RESTING_MAX:
                here.append((time.monotonic(), connection))
                self._look_later()
                return
        connection.close()

    def close(self) -> None:
        """Those that rest; for programs that end, and for tests."""
        with self._lock:
            found = [each for here in self._resting.values() for _, each in here]
            self._resting.clear()
            if self._closing is not None:
                self._closing.cancel()
                self._closing = None
        for connection in found:
            connection.close()

    def _look_later(self) -> None:
        if self._closing is None:
            self._closing = threading.Timer(IDLE_S, self._close_idle)
            self._closing.daemon = True
            self._closing.start()

    def _close_idle(self) -> None:
        old: list[http.client.HTTPConnection] = []
        limit = time.monotonic() - IDLE_S
        with self._lock:
            self._closing = None
            for place, here in list(self._resting.items()):
                old += [connection for since, connection in here if since <= limit]
                self._resting[place] = [each for each in here if each[0] > limit]
            self._resting = {place: here for place, here in self._resting.items() if here}
            if self._resting:
                self._look_later()
        for connection in old:
            connection.close()


_pool: ConnectionPool | None = None


def connection_pool() -> ConnectionPool:
    """Those of this process."""
    global _pool
    if _pool is None or _pool.pid != os.getpid():
        _pool = ConnectionPool()
    return _pool


def connect(bus: Bus, timeout_s: float) -> http.client.HTTPConnection:
    """A new one. Raises OSError."""
    connection = bus.http_connection(timeout_s)
    connection.connect()
    _watch_peer(connection.sock)
    return connection


def _place(bus: Bus) -> _Place:
    target = bus.target
    return (target.host, target.http_port, target.emulator, bus.ca_file)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whoever rests has nothing to say: something to read is the end of the connection."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _watch_peer(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_S),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_EVERY_S),
        ("TCP_KEEPCNT", _KEEP_ALIVE_TRIES),
    ):
        option = getattr(socket, name, None)  # not every system has them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


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
class HttpAnswer:
    """What a server answered to one request, whatever it means."""

    status: int
    body: bytes
    #: 0 when it does not say.
    retry_after_s: float


class HttpClient:
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
        answer, connection = self._exchange(question, patience, CONNECT_TIMEOUT_S)
        _refusal(answer)
        self._rest(answer, connection)
        return answer.headers.get("Date")

    @contextmanager
    def reading(self, question: Question) -> Iterator[http.client.HTTPResponse]:
        """A good answer whose body is read inside of the block. What breaks there raises Unreachable: nothing is
        repeated any more, because the reader alone knows what it has got."""
        answer, connection = self._answer(question, Patience(self._bus.target.authority, self._limit_s))
        try:
            yield answer
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        self._rest(answer, connection)

    def ask(self, question: Question) -> HttpAnswer:
        """A short answer to one request; whoever asks knows what each status means, and whether to ask again. Raises
        Unreachable: it may have taken effect nevertheless."""
        connection: http.client.HTTPConnection | None = None
        try:
            connection = connection_pool().resting(self._bus) or connect(self._bus, HTTP_TIMEOUT_S)
            answer = self._send(question, connection)
            body = answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            raise self._unreachable(error) from error
        meet(self._bus.target.authority)
        self._rest(answer, connection)
        return HttpAnswer(answer.status, body, _retry_after_s(answer) or 0.0)

    # -- how

    def _body_of(self, question: Question) -> bytes:
        patience = Patience(self._bus.target.authority, self._limit_s)
        while True:
            answer, connection = self._answer(question, patience)
            try:
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._pause(question, patience, error)
                continue
            self._rest(answer, connection)
            return body

    def _answer(
        self, question: Question, patience: Patience
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """An answer whose status is good; its body is still to be read."""
        while True:
            answer, connection = self._exchange(question, patience)
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

    def _exchange(
        self, question: Question, patience: Patience, connect_s: float = HTTP_TIMEOUT_S
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        pool = connection_pool()
        while question.is_repeatable and (connection := pool.resting(self._bus)) is not None:
            try:
                return self._send(question, connection), connection
            except (OSError, http.client.HTTPException):
                connection.close()
        while True:
            try:
                connection = connect(self._bus, connect_s)
            except OSError as error:
                if not patience.pause():
                    raise patience.over(self._unreachable(error)) from error
                continue
            try:
                return self._send(question, connection), connection
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._pause(question, patience, error)

    def _send(self, question: Question, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
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
            connection_pool().keep(self._bus, connection)

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
