"""What a request knows of its client's connection: whether the client is still there, and a way for large answers.

Whether it is there is known at once and for certain (`ClientPresence`). A message that was taken for a client must
never get lost with the connection: until its answer has left this process whole, it can be given back. ASGI tells
of a lost connection only to whoever waits for it, and lets an answer to nobody look like any other; so the
connection itself keeps this account and hands it to its requests.

Large answers go from memory to the socket in a thread (`DirectWriter`): the loop does not carry them, and nobody
waits behind them. A transport copies what it is given and sends it on the loop's thread, with the interpreter's
lock held: of megabytes that is most of what the loop does, and every commit waits for the lock behind it. Here a
thread hands pieces to the kernel as they lie in memory, as many as the socket takes at once, without the lock.
What the socket does not take waits for room on the loop, which costs nothing.

The writer has a descriptor of its own for the connection's socket, and writes when the transport has nothing left
to write. Only a connection without TLS has one: a transport alone can encrypt.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from starlette.requests import Request

from busway.model.errors import OperationCancelled

#: Under these names the connection's account and the headers' own spelling lie in a request's state.
PRESENCE: Final = "presence"
SPELLED_HEADERS: Final = "spelled_headers"


async def _at_once() -> bool:
    return True


def _has_room() -> Awaitable[None] | None:
    return None


def _stay() -> None:
    """There is no connection to end."""


def _nothing_direct() -> DirectWriter | None:
    return None


def _unframed(pieces: Sequence[bytes]) -> list[bytes]:
    return list(pieces)


class ClientPresence:
    """Of one connection. `flush` returns True when everything that was written has left this process, False when it
    never will. `room` is None when more may be written, else what to wait for; `abort` ends the connection. `direct`
    makes a writer past the transport, None where there can be none; `framed` are pieces of a body as they go on the
    wire."""

    __slots__ = ("_watchers", "abort", "answers", "direct", "flush", "framed", "is_gone", "room")

    def __init__(
        self,
        flush: Callable[[], Awaitable[bool]] = _at_once,
        room: Callable[[], Awaitable[None] | None] = _has_room,
        abort: Callable[[], None] = _stay,
        direct: Callable[[], DirectWriter | None] = _nothing_direct,
        framed: Callable[[Sequence[bytes]], list[bytes]] = _unframed,
    ) -> None:
        self.flush = flush
        self.room = room
        self.abort = abort
        self.direct = direct
        self.framed = framed
        self.is_gone = False
        #: Answers that were written to their last byte.
        self.answers = 0
        self._watchers: set[Callable[[], None]] = set()

    def watch(self, lost: Callable[[], None]) -> None:
        """Calls `lost` once when the connection ends; at once when it has ended."""
        if self.is_gone:
            lost()
        else:
            self._watchers.add(lost)

    def unwatch(self, lost: Callable[[], None]) -> None:
        self._watchers.discard(lost)

    # -- from the connection

    def answered(self) -> None:
        self.answers += 1

    def lost(self) -> None:
        self.is_gone = True
        watchers = list(self._watchers)
        self._watchers.clear()
        for lost in watchers:
            lost()


def presence_of(request: Request) -> ClientPresence:
    """Of the request's connection."""
    found = request.scope["state"][PRESENCE]
    assert isinstance(found, ClientPresence)
    return found


def spelled_headers(request: Request) -> list[tuple[str, bytes]]:
    """The headers with their names as the client wrote them (M-30); ASGI alone has them in lower case."""
    raw = request.scope["state"].get(SPELLED_HEADERS, request.scope["headers"])
    return [(name.decode("latin-1"), value) for name, value in raw]


#: Pieces that the kernel takes in one call.
_PIECES_MAX: Final = 512

#: What is left to write.
Rest = list[memoryview]


class DirectWriter:
    """To one socket, until `close`."""

    def __init__(self, descriptor: int, threads: Executor) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._rest: Rest = []
        self._room: asyncio.Future[None] | None = None

    @property
    def is_done(self) -> bool:
        """Everything that was begun lies in the socket."""
        return not self._rest

    def begin(self, pieces: Sequence[bytes]) -> None:
        """They are kept, not copied."""
        assert not self._rest, "one page after the other"
        self._rest = [memoryview(piece) for piece in pieces if piece]

    async def go_on(self) -> None:
        """Writes as much as the socket takes. Raises OperationCancelled when the connection has ended."""
        try:
            self._rest = await self._loop.run_in_executor(self._threads, _send, self._socket, self._rest)
        except OSError as error:
            raise OperationCancelled("The client has gone.") from error

    def room(self) -> asyncio.Future[None]:
        """Comes when the socket takes more, or when the connection has ended."""
        if self._room is None or self._room.done():
            self._room = self._loop.create_future()
            self._loop.add_writer(self._socket.fileno(), self._has_room)
        return self._room

    def close(self) -> None:
        """Idempotent."""
        self._has_room()
        self._socket.close()

    def _has_room(self) -> None:
        if self._room is not None:
            self._loop.remove_writer(self._socket.fileno())
            if not self._room.done():
                self._room.set_result(None)
            self._room = None


def _send(to: socket.socket, rest: Rest) -> Rest:
    """In a thread. What the socket did not take."""
    at = 0
    while at < len(rest):
        try:
            sent = to.sendmsg(rest[at : at + _PIECES_MAX])
        except BlockingIOError:
            break
        while at < len(rest) and sent >= len(rest[at]):
            sent -= len(rest[at])
            at += 1
        if sent:
            rest[at] = rest[at][sent:]
    return rest[at:]
