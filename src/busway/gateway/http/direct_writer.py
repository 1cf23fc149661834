"""Bytes that go from memory to the socket in a thread: the loop does not carry them, and nobody waits behind them.

A transport copies what it is given and sends it on the loop's thread, with the interpreter's lock held: of megabytes
that is most of what the loop does, and every commit waits for the lock behind it. Here a thread hands pieces to the
kernel as they lie in memory, as many as the socket takes at once, without the lock. What the socket does not take
waits for room on the loop, which costs nothing.

The writer has a descriptor of its own for the connection's socket, and writes when the transport has nothing left to
write. Only a connection without TLS has one: a transport alone can encrypt.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from busway.model.errors import OperationCancelled

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
