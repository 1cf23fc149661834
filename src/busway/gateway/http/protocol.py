"""uvicorn's HTTP/1.1 protocol with what a listener among strangers needs: deadlines and a bound on idlers.

uvicorn waits for ever for the rest of a request head. Here a head has ten seconds from its first byte, and the
connections that are between requests (silent, or with half a head) are bounded: the oldest is closed first.
"""

import asyncio
from collections import OrderedDict
from typing import cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_S = 10.0
IDLE_CONNECTIONS_MAX = 1_000


class HttpProtocol(H11Protocol):
    """Made by `HttpGateway.protocol` for each connection the listener hands over."""

    def __init__(self, config: Config, server_state: ServerState, idlers: "Idlers") -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._idlers = idlers
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's TLS transport is a transport in all but its class.
        super().connection_made(cast(asyncio.Transport, transport))
        self._idlers.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_between_requests():
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self.abort)
            return
        self._stop_head_timer()
        self._idlers.discard(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_between_requests():
            self._idlers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._idlers.discard(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        self.transport.abort()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Idlers:
    """Connections between requests, oldest first."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[HttpProtocol, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: HttpProtocol) -> None:
        self._waiting[connection] = None
        if len(self._waiting) > IDLE_CONNECTIONS_MAX:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.abort()

    def discard(self, connection: HttpProtocol) -> None:
        self._waiting.pop(connection, None)
