"""AMQP over WebSocket: binary frames carry the byte stream, their borders mean nothing.

`WebSocketTransport` looks like a transport to an AMQP connection. What the connection writes is queued here
and sent by one task as frames of at most 64 KiB; a queue above its high-water mark pauses the connection's
writing, as a socket's buffer would. In the other direction the ASGI server reads the next frame only when the
last one was taken, so a connection that pauses reading slows its peer down.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

_log = logging.getLogger("busway.websocket")

WEBSOCKET_PATHS: Final = ("/$servicebus/websocket", "/$servicebus/websocket/")  # .NET writes the slash
SUBPROTOCOL: Final = "AMQPWSB10"
#: Azure's own name, and that of the OASIS binding, which Go and Qpid's JMS offer.
SUBPROTOCOLS: Final = (SUBPROTOCOL, "amqp")
#: Incoming. AMQP frames are at most 64 KiB; some clients put several into one WebSocket message.
FRAME_BYTES_MAX: Final = 1024 * 1024
_SENT_FRAME_BYTES_MAX: Final = 64 * 1024
_HIGH_WATER_BYTES: Final = 256 * 1024
_LOW_WATER_BYTES: Final = 64 * 1024
_CLOSE_S: Final = 5.0
_TAKEN_AT_ONCE: Final = 50
_NORMAL: Final = 1000
_UNSUPPORTED_DATA: Final = 1003


class ByteConnection(Protocol):
    """The AMQP side: an `AmqpConnection`."""

    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class WebSocketTransport:
    """The transport of one AMQP connection. All methods are for the event loop's thread."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._connection: ByteConnection | None = None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_writing_paused = False
        self._is_closing = False
        self._aborted = asyncio.Event()
        self._work = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()

    # -- for the connection --

    def write(self, data: bytes) -> None:
        if self._is_closing or not data:
            return
        self._queue.append(bytes(data))
        self._queued_bytes += len(data)
        self._work.set()
        if self._queued_bytes > _HIGH_WATER_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            if self._connection is not None:
                self._connection.pause_writing()

    def close(self) -> None:
        """After what is queued has been sent."""
        self._is_closing = True
        self._may_read.set()
        self._work.set()

    def abort(self) -> None:
        self._aborted.set()
        self._queue.clear()
        self._queued_bytes = 0
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def pause_reading(self) -> None:
        if not self._is_closing:
            self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    @property
    def peer(self) -> str:
        client = self._websocket.client
        return "" if client is None else client.host

    # -- the bridge --

    async def serve(self, open_connection: "OpenConnection") -> None:
        """Until either side closes."""
        connection = open_connection(self, self.peer)
        self._connection = connection
        aborting = asyncio.create_task(self._aborted.wait())
        sending = asyncio.create_task(self._send())
        receiving = asyncio.create_task(self._receive(connection))
        try:
            await asyncio.wait((aborting, sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            self.close()
            await asyncio.wait((aborting, sending), timeout=_CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_closing = True
            await _stop(aborting, sending, receiving)
            connection.connection_lost()

    async def _receive(self, connection: ByteConnection) -> None:
        taken = 0
        while True:
            taken += 1
            if taken % _TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn: nothing here waits while messages are there
            await self._may_read.wait()
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self.abort()
                return
            data = message.get("bytes")
            if data is None:
                await self._close_socket(_UNSUPPORTED_DATA)
                self.abort()
                return
            if data and not self._is_closing:
                connection.data_received(data)

    async def _send(self) -> None:
        try:
            while not (self._is_closing and not self._queue):
                await self._work.wait()
                self._work.clear()
                await self._drain()
        except (WebSocketDisconnect, RuntimeError):
            # The peer has gone, or was sent away for what it said.
            self.abort()
            return
        if not self._aborted.is_set():
            await self._close_socket(_NORMAL)

    async def _drain(self) -> None:
        while self._queue:
            frame = self._next_frame()
            await self._websocket.send_bytes(frame)
            self._queued_bytes = max(0, self._queued_bytes - len(frame))
            if self._is_writing_paused and self._queued_bytes <= _LOW_WATER_BYTES:
                self._is_writing_paused = False
                if self._connection is not None:
                    self._connection.resume_writing()

    def _next_frame(self) -> bytes:
        """As many queued pieces as fit; a larger piece is cut."""
        piece = self._queue.popleft()
        if len(piece) > _SENT_FRAME_BYTES_MAX:
            self._queue.appendleft(piece[_SENT_FRAME_BYTES_MAX:])
            return piece[:_SENT_FRAME_BYTES_MAX]
        pieces = [piece]
        room = _SENT_FRAME_BYTES_MAX - len(piece)
        while self._queue and len(self._queue[0]) <= room:
            pieces.append(self._queue.popleft())
            room -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _close_socket(self, code: int) -> None:
        try:
            await self._websocket.close(code)
        except (WebSocketDisconnect, RuntimeError):
            # The peer was first.
            return


#: A transport and its peer's address → the connection that serves it: `AmqpGateway.connect`.
OpenConnection = Callable[[WebSocketTransport, str], ByteConnection]


async def serve_websocket(websocket: WebSocket, open_connection: OpenConnection) -> None:
    """The handshake, then AMQP. Rights are asked for inside AMQP (SASL, `$cbs`), as on a bare socket."""
    subprotocol = _chosen(websocket.scope.get("subprotocols", []))
    if websocket.scope["path"].lower() not in WEBSOCKET_PATHS:
        await websocket.send_denial_response(Response("There is no WebSocket here.", 404))
    elif subprotocol is None:
        told = f"The subprotocol {' or '.join(SUBPROTOCOLS)} must be offered."
        await websocket.send_denial_response(Response(told, 400))
    else:
        await websocket.accept(subprotocol)
        await WebSocketTransport(websocket).serve(open_connection)


def _chosen(offered: list[str]) -> str | None:
    """The first of those offered that we speak, as the client spells it: clients compare it letter for letter."""
    known = {name.lower() for name in SUBPROTOCOLS}
    return next((name for name in offered if name.lower() in known), None)


async def _stop(*tasks: "asyncio.Task[None] | asyncio.Task[bool]") -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            _log.error("an AMQP connection over WebSocket failed", exc_info=outcome)
