"""uvicorn's HTTP/1.1 protocol with what a listener among strangers needs: deadlines and a bound on idlers; and with
what a request must know of its connection (`presence`).

uvicorn waits for ever for the rest of a request head. Here a head has ten seconds from its first byte, and the
connections that are between requests (silent, or with half a head) are bounded: the oldest is closed first. Both end
with an upgrade to WebSocket: from then on the connection is AMQP's, which has deadlines and bounds of its own.

Targets may be written in full: `GET https://HOST/path HTTP/1.1` means `/path` of HOST (RFC 9112 3.2.2). Java's SDKs
upgrade to WebSocket that way. Such a request is read as what it says: its host stands in the target, and the Host
header is ignored. From here on everybody sees a path and a Host header, whichever way they came in.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState
from wsproto import events

from busway.event_loop import LOOP
from busway.gateway.http.presence import PRESENCE, SPELLED_HEADERS, ClientPresence, DirectWriter

if TYPE_CHECKING:
    from uvicorn._types import WebSocketEvent

HEAD_S = 10.0
IDLE_CONNECTIONS_MAX = 1_000
#: A client that takes an answer with a message more slowly than this has not got it.
FLUSH_S = 30.0
#: Of a WebSocket: how long and how much at a time its frames are looked at before others have their turn.
LOOK_S = 0.01
LOOK_BYTES = 8 * 1024
#: Of a WebSocket that pings: what it may leave unread.
UNREAD_BYTES_MAX = 512 * 1024


_SCHEME: Final = re.compile(rb"(?:https?|wss?)://", re.IGNORECASE)
_ANY_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,31}:")
#: As in a Host header: no user, no escapes.
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class HttpProtocol(H11Protocol):
    """Made by `HttpGateway.protocol` for each connection the listener hands over."""

    def __init__(
        self, config: Config, server_state: ServerState, idlers: "Idlers", bulk_threads: Executor
    ) -> None:
        self.presence = ClientPresence(self.flush, self.room, self.abort, self.direct_writer, self.framed)
        super().__init__(config=config, server_state=server_state, app_state={PRESENCE: self.presence})
        self.conn = SpellingConnection(self.app_state, config.h11_max_incomplete_event_size)
        self.ws_protocol_class = StreamingWebSocket
        self._idlers = idlers
        self._bulk_threads = bulk_threads
        self._head_timer: asyncio.TimerHandle | None = None
        #: The transport has another protocol: nothing that happens here concerns it any more.
        self._is_upgraded = False
        #: How often the transport has told that its buffer is empty again.
        self._drains = 0
        #: What was written before its end may not have gone out.
        self._is_broken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's TLS transport is a transport in all but its class.
        super().connection_made(cast(asyncio.Transport, transport))
        self._idlers.add(self)

    def data_received(self, data: bytes) -> None:
        began_s = LOOP.now()
        super().data_received(data)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"HTTP input, from {self.client[0] if self.client else ''}")
        if self._is_upgraded:
            return
        if self._is_between_requests():
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self.abort)
            return
        self._stop_head_timer()
        self._idlers.discard(self)

    def on_response_complete(self) -> None:
        self.presence.answered()
        super().on_response_complete()
        if self._is_between_requests() and not self._is_upgraded:
            self._idlers.add(self)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._is_upgraded = True
        self._stop_head_timer()
        self._idlers.discard(self)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._idlers.discard(self)
        self._is_broken = self._is_broken or exc is not None
        super().connection_lost(exc)
        self.presence.lost()

    def resume_writing(self) -> None:
        self._drains += 1
        super().resume_writing()

    def room(self) -> Awaitable[None] | None:
        return self.flow.drain() if self.flow.write_paused else None

    def direct_writer(self) -> DirectWriter | None:
        """To be used when what was written by the transport has gone to the socket (`flush`)."""
        transport = self.transport
        if transport.is_closing() or transport.get_extra_info("sslcontext") is not None:
            return None
        return DirectWriter(transport.get_extra_info("socket").fileno(), self._bulk_threads)

    def framed(self, pieces: Sequence[bytes]) -> list[bytes]:
        """A part of the answer's body, behind and before what HTTP wants there."""
        size = sum(map(len, pieces))
        if not size:
            return []
        framed: list[bytes] = []
        for part in self.conn.send_with_data_passthrough(h11.Data(data=cast(bytes, _Sized(size)))) or ():
            framed += [part] if isinstance(part, bytes) else pieces
        return framed

    async def flush(self) -> bool:
        """True when what was written has gone to the socket, or over TLS to the transport below the encryption, which
        tells no more; False when the connection ends before, or is ended here because that takes too long. To be
        called right after writing, before anything else can happen."""
        try:
            async with asyncio.timeout(FLUSH_S):
                return await (self._closed() if self.transport.is_closing() else self._drained())
        except TimeoutError:
            self.abort()
            return False

    async def _drained(self) -> bool:
        transport, drains = self.transport, self._drains
        transport.set_write_buffer_limits(0)
        if not self.flow.write_paused or transport.get_write_buffer_size() == 0:
            # Over TLS a bound of nothing pauses the protocol although nothing waits, until the bound is lifted below.
            is_drained = True
        else:
            await self.flow.drain()
            is_drained = self._drains > drains
        if not transport.is_closing():
            transport.set_write_buffer_limits()
        return is_drained

    async def _closed(self) -> bool:
        """After a last answer the transport closes when that has gone out; if it closes for another reason, the
        answer was written to nobody."""
        if self.presence.is_gone or self.conn.our_state is not h11.CLOSED:
            return False
        closed = asyncio.Event()
        self.presence.watch(closed.set)
        await closed.wait()
        return not self._is_broken

    def abort(self) -> None:
        self._is_broken = True
        self.transport.abort()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Sized:
    """Stands for bytes of which h11 wants to know only how many they are."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class StreamingWebSocket(WSProtocol):
    """Hands on the parts of a message as they come. The borders of messages mean nothing to AMQP, and a stranger must
    not make us hold a long one that never ends; its length is bounded all the same.

    A read may hold tens of thousands of tiny frames. They are looked at for a moment, then others have their turn,
    and nothing more is read before the rest is through."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: Read, and not looked at yet.
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        if self._rest:  # read_paused was ended by a close
            self._rest += data
            return
        self._rest = data
        self._look()

    def _look(self) -> None:
        until = self.loop.time() + LOOK_S
        data, at = self._rest, 0
        while at < len(data) and not self.transport.is_closing() and (at == 0 or self.loop.time() < until):
            super().data_received(data[at : at + LOOK_BYTES])
            at += LOOK_BYTES
        self._rest = b"" if self.transport.is_closing() else data[at:]
        if self._rest:
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()
            self.loop.call_soon(self._look)
        elif self.queue.empty():
            self._read_on()

    async def receive(self) -> "WebSocketEvent":
        message = await self.queue.get()
        if self.queue.empty() and not self._rest:
            self._read_on()
        return message

    def _read_on(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def handle_ping(self, event: events.Ping) -> None:
        """Whoever asks for answers and takes none goes without a word."""
        if self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.transport.abort()
        else:
            super().handle_ping(event)

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        length = self.buffer.length + len(event.data)
        if event.message_finished or length > self.buffer.max_length:
            super().handle_message(event)
            return
        super().handle_message(replace(event, message_finished=True))
        self.buffer.length = length


class SpellingConnection(h11.Connection):
    """Makes the target a path, and leaves the headers as they are spelled in the state that the next request gets."""

    def __init__(self, state: dict[str, Any], head_bytes_max: int | None) -> None:
        limits = {} if head_bytes_max is None else {"max_incomplete_event_size": head_bytes_max}
        super().__init__(h11.SERVER, **limits)
        self._state_of_requests = state

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            event = in_origin_form(event)
            self._state_of_requests[SPELLED_HEADERS] = event.headers.raw_items()
        return event


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


def in_origin_form(request: h11.Request) -> h11.Request:
    """The same request with a path for its target. Raises h11.RemoteProtocolError for a target that is no address."""
    target: bytes = request.target
    if target.startswith(b"/"):
        return request
    scheme = _SCHEME.match(target)
    if scheme is None:
        if _ANY_SCHEME.match(target) is None:
            return request  # the gateway has words for a path without a slash
        raise h11.RemoteProtocolError("the target is an address of another kind")
    rest = target[scheme.end() :]
    authority = _AUTHORITY.match(rest)
    if authority is None or rest[authority.end() : authority.end() + 1] not in (b"", b"/", b"?"):
        raise h11.RemoteProtocolError("the target does not name a host")
    path = rest[authority.end() :]
    headers = [(name, value) for name, value in request.headers.raw_items() if name.lower() != b"host"]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=[(b"Host", authority.group()), *headers],
        http_version=request.http_version,
    )
