"""A store of objects that speaks S3, in this process, whose requests are counted and fail as a test likes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "lake"
ACCOUNT = "123456789012"
#: The store is busy, and did nothing.
BUSY = "503"
#: The connection breaks before the request is carried out.
RESET = "reset"
#: The request is carried out, and nobody hears the answer.
LOST = "answer lost"
#: Whoever asks is dead before or behind this request: nothing of it reaches the store any more.
DEAD = "dead"
DEAD_AFTER = "dead after"
HAPPENINGS = (BUSY, RESET, LOST, DEAD, DEAD_AFTER)


@dataclass(frozen=True)
class Happening:
    """With the request of that number, counted from 1."""

    request: int
    what: str


NEVER = Happening(0, BUSY)


class S3Server:
    def __init__(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._counting = threading.Lock()
        self._together = 0
        self.requests: list[str] = []
        self.most_together = 0
        self.happening = NEVER
        self.is_dead = False
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def arm(self, happening: Happening = NEVER) -> None:
        """Counting begins anew."""
        with self._counting:
            self.requests, self.happening, self.is_dead, self.most_together = [], happening, False, 0

    def begin(self) -> None:
        """With one empty bucket."""
        backend = get_backend("s3")[ACCOUNT]["aws"]
        backend.reset()
        backend.create_bucket(BUCKET, "us-east-1")
        self.arm()

    def objects(self) -> dict[str, bytes]:
        """What is there, without asking for it."""
        keys = get_backend("s3")[ACCOUNT]["aws"].buckets[BUCKET].keys
        return {str(name): bytes(key.value) for name, key in keys.items()}

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._counting:
            if self.is_dead:
                return self._hang_up(environ)
            self.requests.append(_name(environ))
            happens = len(self.requests) == self.happening.request
            what = self.happening.what if happens else ""
            self.is_dead = what in (DEAD, DEAD_AFTER)
            self._together += 1
            self.most_together = max(self.most_together, self._together)
        try:
            if what in (RESET, DEAD):
                return self._hang_up(environ)
            if what == BUSY:
                start_response("503 Slow Down", [("Content-Length", "0")])
                return []
            found = self._inner(environ, start_response)
            return self._hang_up(environ) if what in (LOST, DEAD_AFTER) else found
        finally:
            with self._counting:
                self._together -= 1

    def _hang_up(self, environ: dict[str, Any]) -> Iterable[bytes]:
        with suppress(OSError):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError


def _name(environ: dict[str, Any]) -> str:
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    more = environ.get("QUERY_STRING", "")
    if "HTTP_X_AMZ_COPY_SOURCE" in environ:
        method = "COPY"
    elif method == "PUT" and environ.get("HTTP_IF_NONE_MATCH") == "*":
        method = "CREATE"
    return f"{method} {path}{'?' + more if more else ''}"


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Requests are in `S3Server.requests`."""


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    with server.running():
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """An empty bucket, the environment that leads to it, a client that tries once, and no lease to wait for."""
    from busway_spark.pipeline.captured import object_store

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "RETRIES", 0)
    monkeypatch.setattr(object_store, "LEASE_S", 0.0)
    s3_server.begin()
    return s3_server
