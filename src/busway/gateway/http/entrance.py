"""Where HTTP connections come in, before the gateway is there.

Loading the gateway (starlette, uvicorn, wsproto and our routes) costs as much as all the rest of a server's start,
and whoever speaks AMQP only never needs it. So the first HTTP connection has it loaded. That happens in a thread,
because it takes longer than the loop may stand still: connections that arrive meanwhile wait here, with what they
have said so far, and everybody else is served on.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, cast

_log = logging.getLogger("busway.http")

#: Connections that wait for the gateway at once; the oldest is closed first.
WAITING_MAX: Final = 1_000


class Answers(Protocol):
    """Where an entrance leads: the gateway, or who stands in for it."""

    def protocol(self) -> asyncio.Protocol: ...
    async def close(self) -> None: ...


class Entrance:
    """`protocol` is the factory for the listener; `close` ends what is open."""

    def __init__(self, make_gateway: Callable[[], Answers]) -> None:
        """`make_gateway` is called once, on the event loop, when everything it imports is loaded."""
        self._make_gateway = make_gateway
        self._gateway: Answers | None = None
        self._loading: asyncio.Task[None] | None = None
        self._waiting: OrderedDict[WaitingConnection, None] = OrderedDict()

    def protocol(self) -> asyncio.Protocol:
        """For one connection; call it on the event loop."""
        return WaitingConnection(self) if self._gateway is None else self._gateway.protocol()

    async def close(self) -> None:
        """As the gateway does; who still waits for it is closed at once."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        self._drop_all()
        if self._gateway is not None:
            await self._gateway.close()

    def wait(self, connection: "WaitingConnection") -> None:
        if self._gateway is not None:  # it was made between this connection's arrival and its first word
            connection.hand_over(self._gateway.protocol())
            return
        self._waiting[connection] = None
        if len(self._waiting) > WAITING_MAX:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.drop()
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    def left(self, connection: "WaitingConnection") -> None:
        self._waiting.pop(connection, None)

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(_import_gateway)
            gateway = self._gateway = self._make_gateway()
        except Exception:
            # Such as an installation that was changed under a running server. The next connection tries again.
            _log.exception("HTTP cannot be served")
            self._drop_all()
            return
        finally:
            self._loading = None
        while self._waiting:
            connection, _ = self._waiting.popitem(last=False)
            connection.hand_over(gateway.protocol())

    def _drop_all(self) -> None:
        while self._waiting:
            connection, _ = self._waiting.popitem(last=False)
            connection.drop()


def _import_gateway() -> None:
    """All that making the gateway and answering a first request would import on the loop otherwise."""
    import uvicorn.lifespan.off
    import uvicorn.protocols.websockets.wsproto_impl  # noqa: F401

    import busway.gateway.http.app  # noqa: F401


class WaitingConnection(asyncio.Protocol):
    """Reads no further than what arrived with its first words, until the gateway's own protocol takes its place."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's TLS transport is a transport in all but its class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        is_first = not self._received
        self._received += data
        if is_first and self._transport is not None:
            self._transport.pause_reading()
            self._entrance.wait(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._entrance.left(self)

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.set_protocol(protocol)
        # Before the protocol sees anything: from there on it is the protocol's to pause.
        self._transport.resume_reading()
        protocol.connection_made(self._transport)
        protocol.data_received(self._received)

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
