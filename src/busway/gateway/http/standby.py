"""What a server answers to HTTP while it does not serve the bus: whether it lives, that it is not ready, its figures.

Everything else is a 503, with the one sentence that says where the bus is. Nothing here needs a key, and nothing
here is secret; figures are for this machine only, because nobody's key can be looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from busway.gateway.http.app import HttpSettings, is_known_host, uvicorn_config
from busway.gateway.http.call import host_of
from busway.gateway.http.operator_routes import CONTENT_TYPE
from busway.gateway.http.protocol import HttpProtocol, Idlers

_NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class StandbyAnswers:
    """`protocol` is the factory for the listener; `close` ends what is open."""

    def __init__(
        self, settings: HttpSettings, told: Callable[[], tuple[str, str]], figures: Callable[[], bytes]
    ) -> None:
        """`told`: what GET /ready says, and a sentence for everybody else."""
        self._settings = settings
        self._told = told
        self._figures = figures
        self._state = ServerState()
        self._idlers = Idlers()
        self._threads = ThreadPoolExecutor(1, "busway-standby")
        self._config = uvicorn_config(self.app)

    def protocol(self) -> asyncio.Protocol:
        return HttpProtocol(self._config, self._state, self._idlers, self._threads)

    async def close(self) -> None:
        for connection in list(self._state.connections):
            connection.transport.close()
        self._threads.shutdown(wait=False)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013})
            return
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        headers = dict(scope["headers"])
        host = host_of(headers.get(b"host", b"").decode("latin-1"))
        if not is_known_host(self._settings, host):
            return _told(403, {"error": f"This server does not answer to the name {host!r}."})
        state, sentence = self._told()
        path = scope["path"].strip("/").lower()
        is_read = scope["method"] in ("GET", "HEAD")
        if is_read and path == "health":
            return _told(200, {"status": "healthy"})
        if is_read and path == "ready":
            return _told(503, {"status": state, "detail": sentence})
        if is_read and path == "metrics" and self._settings.loopback_hosts is not None:
            return Response(self._figures(), 200, _NO_STORE, media_type=CONTENT_TYPE)
        return _told(503, {"error": sentence})


def _told(status: int, content: dict[str, str]) -> Response:
    headers = {**_NO_STORE, "Retry-After": "1"} if status == 503 else _NO_STORE
    return Response(json.dumps(content), status, headers, media_type="application/json")
