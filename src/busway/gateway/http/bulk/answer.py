"""An answer of megabytes: written by a thread (`DirectWriter`), or over TLS in slices, each in its own turn of the
loop (`admission`).

The pages come one by one and are let go of as soon as they are written; while one is written the next may be on
its way. A client that takes nothing for a while is hung up on if others wait for the memory that it holds: whoever
reads in bulk can go on behind what came. So is one whose answer cannot be finished: it was told how the answer
ends, and notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from busway.gateway.http.bulk.admission import SLICE_BYTES, STALLED_S, BulkPlace
from busway.gateway.http.presence import DirectWriter
from busway.model.errors import OperationCancelled

#: Where they work who write; no store or entity has such a name.
_SOCKETS: Final = " sockets"

#: Pieces that are written one behind the other.
Page = Sequence[bytes]


class BulkAnswer(Response):
    """Closes the place when it is over."""

    def __init__(self, place: BulkPlace, pages: AsyncGenerator[Page, None], media_type: str) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self._place = place
        self._pages = pages
        self.init_headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Raises what breaks the answer off."""
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] != "HEAD":
                async with aclosing(self._pages):
                    await self._write_pages(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OperationCancelled:
            return  # the client has gone
        finally:
            self._place.close()

    async def _write_pages(self, send: Send) -> None:
        presence = self._place.presence
        direct = presence.direct() if await presence.flush() else None
        if direct is None:
            async for page in self._pages:
                await self._write(page, send)
            return
        presence.watch(direct.close)
        try:
            async for page in self._pages:
                await self._write_directly(page, direct)
        finally:
            presence.unwatch(direct.close)
            direct.close()

    async def _write(self, page: Page, send: Send) -> None:
        """By the transport, which copies it."""
        presence = self._place.presence
        for data in slices(page, SLICE_BYTES):
            while (room := presence.room()) is not None and not presence.is_gone:
                await self._wait_for(room)
            await self._place.turn()
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _write_directly(self, page: Page, direct: DirectWriter) -> None:
        """In a thread, from where it lies."""
        direct.begin(self._place.presence.framed(page))
        while True:
            async with self._place.working(_SOCKETS):
                await direct.go_on()
            if direct.is_done:
                return
            await self._wait_for(direct.room())

    async def _wait_for(self, room: Awaitable[None]) -> None:
        """Until the client has taken something, but not for ever. Raises OperationCancelled."""
        try:
            async with asyncio.timeout(STALLED_S):
                await room
        except TimeoutError:
            if self._place.is_short:
                self._place.presence.abort()
                raise OperationCancelled("The client took nothing while others waited.") from None


def slices(page: Page, size: int) -> Iterator[bytes]:
    """The same bytes in pieces of at most so many; small ones are laid together."""
    gathered: list[bytes | memoryview] = []
    room = size
    for piece in page:
        rest = memoryview(piece)
        while len(rest) > room:
            gathered.append(rest[:room])
            yield b"".join(gathered)
            rest = rest[room:]
            gathered, room = [], size
        if rest:
            gathered.append(rest)
            room -= len(rest)
    if gathered:
        yield b"".join(gathered)
