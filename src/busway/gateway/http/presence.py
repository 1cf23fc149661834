"""Whether the client of a request is still there, known at once and for certain.

A message that was taken for a client must never get lost with the connection: until its answer has left this
process whole, it can be given back. ASGI tells of a lost connection only to whoever waits for it, and lets an answer
to nobody look like any other; so the connection itself keeps this account and hands it to its requests.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.requests import Request

from busway.gateway.http.direct_writer import DirectWriter

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
