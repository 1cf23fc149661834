"""The WebSocket by which a page watches: one for each page, authorised by its first words.

Browsers give a page six connections to a host, so a page has one socket for all that it watches. A page of another
site can open a WebSocket to anywhere and the browser sends no header of ours with it, so two things are asked: that
its Origin is this very host, and that its first words are a token. The page speaks in lines of JSON, because the
borders of frames mean nothing here:

    {"token": "SharedAccessSignature …", "below": ""}     what it wants to see: the namespace, or one entity

and again with a fresh token before the first one ends. Rights are looked at before each time something is told: who
loses them is told so and left alone. The server says, an object in each frame:

    {"type": "hello", "namespace", "version", "rights", "mode", "below"}
    {"type": "rows", "whole", "last", "version", "rows", "gone"}       see `overview`
    {"type": "server", "stores", "connections", …}                     when it has changed
    {"type": "refused", "status", "sentence"}                          and closes

Nothing is kept for a page that reads slowly: it is told what is new when it has taken what it was told before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from busway import __version__
from busway.broker.namespace.namespace import Namespace
from busway.gateway.http.call import checked_authority
from busway.gateway.http.console.overview import Overview
from busway.gateway.http.untrusted_input import parse_json
from busway.model.authorization import Grant
from busway.model.descriptions import LISTEN, MANAGE, RIGHTS_ORDER
from busway.model.entity_path import EntityAddress, path_key
from busway.model.errors import BadArgument, BrokerError, Unauthorized

LIVE_PATH: Final = "/$console/live"
#: Pages that watch at once.
PAGES_MAX: Final = 256
LINE_BYTES_MAX: Final = 32 * 1024
#: How long a page may wait with its first words, and how long it may leave unread what it was told.
FIRST_WORDS_S: Final = 10.0
READ_S: Final = 30.0
_NORMAL: Final = 1000
_TRY_LATER: Final = 1013
_POLICY: Final = 1008


class LivePages:
    """All pages that watch one bus."""

    def __init__(self, namespace: Namespace, overview: Overview, mode: str) -> None:
        self.namespace = namespace
        self.overview = overview
        self.mode = mode
        #: In the order in which they came.
        self._pages: dict[LivePage, None] = {}

    @property
    def count(self) -> int:
        return len(self._pages)

    async def serve(self, websocket: WebSocket) -> None:
        """Until either side closes. Host has been checked."""
        if not is_own_origin(websocket):
            await websocket.send_denial_response(Response("Refused: another site's page.", 403))
            return
        if len(self._pages) >= PAGES_MAX and not self._end_oldest_stranger():
            await websocket.send_denial_response(Response("Too many pages watch already.", 503))
            return
        page = LivePage(self, websocket)
        self._pages[page] = None
        try:
            await websocket.accept()
            await page.serve()
        except (WebSocketDisconnect, RuntimeError):
            return  # the page has gone
        finally:
            self._pages.pop(page, None)

    def _end_oldest_stranger(self) -> bool:
        """A newcomer gets its place, so that pages which say nothing cannot keep others out."""
        oldest = next((page for page in self._pages if page.is_stranger), None)
        if oldest is None:
            return False
        del self._pages[oldest]
        oldest.end()
        return True

    async def close(self) -> None:
        for page in list(self._pages):
            page.end()
        await self.overview.close()

    def server_text(self) -> str:
        """What concerns the whole server."""
        connections = self.namespace.flows.connections
        told: dict[str, object] = {
            "type": "server",
            "stores": self.namespace.stores.shown(),
            "connections": connections.active,
            "watching": len(self._pages),
        }
        return json.dumps(told, ensure_ascii=False)


def is_own_origin(websocket: WebSocket) -> bool:
    """Host and port: a page of another port of this machine is another site's. Who is no browser says no origin."""
    origin = websocket.headers.get("origin")
    if origin is None:
        return True
    try:
        authority = checked_authority(websocket.headers.get("host", ""))
        return urlsplit(origin).netloc.lower() == authority.lower()
    except (ValueError, BrokerError):
        return False


class LivePage:
    """One page."""

    def __init__(self, pages: LivePages, websocket: WebSocket) -> None:
        self._pages = pages
        self._websocket = websocket
        self._grant: Grant | None = None
        #: The entity that it may see; "" is the namespace.
        self._below = ""
        self._seen = 0
        self._server_seen = ""
        self._work = asyncio.Event()
        self._is_over = False
        self._refusal: BrokerError | None = None
        #: Said once for each token.
        self._hello = ""

    @property
    def is_stranger(self) -> bool:
        """It has shown no token yet."""
        return self._grant is None

    def end(self) -> None:
        """The server stops, or somebody else gets the place."""
        self._is_over = True
        self._work.set()

    async def serve(self) -> None:
        receiving = asyncio.create_task(self._receive())
        try:
            await self._tell_all()
        except TimeoutError:
            await self._close(_POLICY)  # it reads nothing
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    # -- what the page says

    async def _receive(self) -> None:
        try:
            lines = self._lines()
            async with asyncio.timeout(FIRST_WORDS_S):
                self._take(await anext(lines))
            async for line in lines:
                self._take(line)
        except BrokerError as error:
            self._refusal = error
        except TimeoutError:
            self._refusal = BadArgument(f"Nothing was said within {FIRST_WORDS_S:.0f} seconds.")
        except (WebSocketDisconnect, StopAsyncIteration, RuntimeError):
            pass
        self.end()

    async def _lines(self) -> AsyncIterator[str]:
        left = ""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            left += message.get("text") or ""
            *lines, left = left.split("\n")
            if max(map(len, [left, *lines])) > LINE_BYTES_MAX or message.get("bytes") is not None:
                raise BadArgument("A page speaks in lines of JSON, of at most 32 KiB each.")
            for line in lines:
                yield line

    def _take(self, line: str) -> None:
        """Raises BrokerError."""
        said = parse_json(line.encode("utf-8", "replace"), "What the page said")
        if not isinstance(said, dict) or not isinstance(said.get("token"), str):
            raise BadArgument("What the page said is no object with a token.")
        below = said.get("below", "")
        if not isinstance(below, str):
            raise BadArgument("below must be a text.")
        authorizer = self._pages.namespace.authorizer
        host = self._websocket.headers.get("host", "")
        self._grant = authorizer.grant_of_token(said["token"], f"http://{host}/{below}")
        if below != self._below:
            self._seen = 0
        self._below = below
        rights = self._rights()
        self._hello = json.dumps(
            {
                "type": "hello",
                "namespace": self._pages.namespace.name,
                "version": __version__,
                "rights": rights,
                "mode": self._pages.mode,
                "below": below,
                "watches": MANAGE in rights or LISTEN in rights,
            },
            ensure_ascii=False,
        )
        self._work.set()

    def _rights(self) -> list[str]:
        """Those that count now, at what the page looks at. Raises Unauthorized when there are none."""
        authorizer = self._pages.namespace.authorizer
        assert self._grant is not None
        found: list[str] = []
        for right in RIGHTS_ORDER:
            try:
                authorizer.authorise([self._grant], self._below, right)
            except Unauthorized:
                continue
            found.append(right)
        if not found:
            raise Unauthorized("The token has ended, or its rule has changed.")
        return found

    # -- what it is told

    async def _tell_all(self) -> None:
        unwatch: Callable[[], None] | None = None
        try:
            while not self._is_over:
                await self._work.wait()
                self._work.clear()
                if self._grant is None or self._is_over:
                    continue
                hello, self._hello = self._hello, ""
                if hello:
                    await self._send(hello)
                try:
                    rights = self._rights()
                except BrokerError as error:
                    self._refusal = error
                    break
                if MANAGE in rights or LISTEN in rights:
                    if unwatch is None:
                        await self._pages.overview.fresh()
                        unwatch = self._pages.overview.watch(self._work.set)
                    for text in self._news():
                        await self._send(text)
        finally:
            if unwatch is not None:
                unwatch()
        await self._say_goodbye()

    def _news(self) -> Iterator[str]:
        overview = self._pages.overview
        if not self._below:
            server = self._pages.server_text()
            if server != self._server_seen:
                self._server_seen = server
                yield server
        if self._seen == overview.version:
            return
        seen, self._seen = self._seen, overview.version
        if self._below:
            below = path_key(EntityAddress.parse(self._below).path)
            yield from [piece.text() for piece in overview.pieces(seen, below)]
        else:
            yield from overview.texts(seen)

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(READ_S):
            await self._websocket.send_text(text)

    async def _say_goodbye(self) -> None:
        if self._refusal is None:
            await self._close(_TRY_LATER)
            return
        status = 401 if isinstance(self._refusal, Unauthorized) else self._status_of(self._refusal)
        told = {"type": "refused", "status": status, "sentence": self._refusal.sentence}
        await self._send(json.dumps(told, ensure_ascii=False))
        await self._close(_NORMAL)

    @staticmethod
    def _status_of(error: BrokerError) -> int:
        return 400 if isinstance(error, BadArgument) else 401

    async def _close(self, code: int) -> None:
        try:
            await self._websocket.close(code)
        except (WebSocketDisconnect, RuntimeError):
            return  # the page was first
