"""A client that writes any request over HTTP and keeps nothing of the answer."""

from __future__ import annotations

import contextlib
import http.client
import socket
from io import BufferedReader
from time import time
from typing import TYPE_CHECKING

from busway.client.connection_string import sas_token
from tests.cost.world import WAIT_S, rule_of

if TYPE_CHECKING:
    from tests.cost.world import World

VERSION = "api-version=2024-05"
_PIECE_BYTES = 65_536


class HttpClient:
    """One connection, for one request after the other."""

    def __init__(self, world: World, right: str | None = None) -> None:
        self._world = world
        self._right = right
        self._socket = socket.create_connection(("127.0.0.1", world.port), timeout=WAIT_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self._reader = self._socket.makefile("rb")
        self._method = "GET"
        #: Of the last answer.
        self.size = 0

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def request(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> bytes:
        """The bytes of it, with the token of the client's right."""
        said = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
        if self._right is not None:
            said["Authorization"] = sas_token("https://localhost/", *rule_of(self._right), int(time()) + 3600)
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return f"{method} /{target} HTTP/1.1\r\n{head}\r\n".encode() + body

    def write(self, data: bytes) -> None:
        """At once as far as the sockets hold it."""
        self._method = data.split(b" ", 1)[0].decode()
        view = memoryview(data)
        self._socket.settimeout(0)
        try:
            with self._world.held():
                while len(view):
                    view = view[self._socket.send(view) :]
        except BlockingIOError:
            pass
        self._socket.settimeout(WAIT_S)
        with contextlib.suppress(OSError):  # refused before the end
            self._socket.sendall(view)

    def hear(self) -> int:
        """The status of the answer, which is read to its end."""
        answer = http.client.HTTPResponse(_Kept(self._reader), method=self._method)  # type: ignore[arg-type]
        answer.begin()
        self.size = 0
        while piece := answer.read(_PIECE_BYTES):
            self.size += len(piece)
        return answer.status

    def ask(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
        self.write(self.request(method, target, body, headers))
        return self.hear()


class _Kept:
    """A reader that stays open from one answer to the next, with what it has read ahead."""

    def __init__(self, reader: BufferedReader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> _Kept:
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def close(self) -> None: ...
