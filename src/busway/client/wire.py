"""One AMQP connection of a client: a socket or a WebSocket, our engine in the client role, and who waits for what.

Theory of operation. A reader task feeds bytes to the engine and hands each event to the owner of its link
(`Link.owner`, a `LinkEnd`); owners complete futures that coroutines wait on. Commands write into the engine and
`flush` moves its bytes to the socket. A timer calls `tick` for heartbeats. When the connection ends, every owner
hears of it once, so nobody waits forever.

A `LinkEnd` is our end of a link: it attaches, waits, and knows when it is over.

A `WebSocketStream` looks like a socket's reader and writer, for networks that let nothing but HTTPS out. Binary
frames carry the byte stream, their borders mean nothing. What a client sends is masked, as RFC 6455 demands.
"""

import asyncio
import base64
import contextlib
import hashlib
import os
import ssl
import struct
from pathlib import Path
from typing import Final, Generic, Self, TypeVar
from uuid import uuid4

from busway.amqp.connection import Connection, Role
from busway.amqp.engine_settings import ANONYMOUS, PLAIN, EngineSettings
from busway.amqp.errors import AmqpError
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    ConnectionOpened,
    CreditArrived,
    CreditDrained,
    DeliveriesArrived,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SaslFinished,
    SettlementsAnswered,
    WindowOpened,
)
from busway.amqp.link import Link
from busway.amqp.performatives import Coordinator, Source, Target
from busway.amqp.sasl import plain_response
from busway.amqp.session import Session
from busway.client.connection_string import ConnectionString
from busway.client.errors import ClientError, NotAuthorised, Refused, TimedOut, Unreachable, error_of

PATH: Final = "/$servicebus/websocket"
SUBPROTOCOL: Final = "AMQPWSB10"
#: A server sends AMQP frames of 64 KiB; some put several into one message.
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_ACCEPT_TAIL: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_DATA: Final = (0x0, 0x1, _BINARY)
_LAST: Final = 0x80
_MASKED: Final = 0x80
_NORMAL: Final = struct.pack(">H", 1000)
_SHORT_MAX: Final = 125
_WORD_MAX: Final = 0xFFFF


class WebSocketRefused(OSError):
    """The server answered with something else than a WebSocket."""


class WebSocketStream:
    """Use `open_websocket`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_closed = False

    # -- as a reader

    async def read(self, _: int) -> bytes:
        """The next bytes, as many as came together; none at the end. Raises OSError."""
        while True:
            try:
                opcode, payload = await self._frame()
            except asyncio.IncompleteReadError:
                return b""
            if opcode == _CLOSE:
                return b""
            if opcode == _PING:
                self._send(0xA, payload)
            elif opcode in _DATA and payload:
                return payload

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & ~_MASKED
        if size > _SHORT_MAX:
            width = 2 if size == _SHORT_MAX + 1 else 8
            size = int.from_bytes(await self._reader.readexactly(width), "big")
        if second & _MASKED or size > FRAME_BYTES_MAX:
            raise WebSocketRefused(f"The server sent a WebSocket frame that is masked, or of {size} bytes.")
        return first & 0xF, await self._reader.readexactly(size)

    # -- as a writer

    def write(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def is_closing(self) -> bool:
        return self._is_closed or self._writer.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._send(_CLOSE, _NORMAL)
        self._is_closed = True
        self._writer.close()

    async def wait_closed(self) -> None:
        await self._writer.wait_closed()

    def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size <= _SHORT_MAX:
            head = bytes((_LAST | opcode, _MASKED | size))
        elif size <= _WORD_MAX:
            head = bytes((_LAST | opcode, _MASKED | 126)) + struct.pack(">H", size)
        else:
            head = bytes((_LAST | opcode, _MASKED | 127)) + struct.pack(">Q", size)
        mask = os.urandom(4)
        self._writer.write(head + mask + masked(data, mask))


def masked(data: bytes, mask: bytes) -> bytes:
    """Each byte with one of the mask's in turn; twice is nothing."""
    size = len(data)
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(data, "big") ^ pattern).to_bytes(size, "big")


async def open_websocket(host: str, port: int, context: ssl.SSLContext | None) -> WebSocketStream:
    """Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        await _upgrade(reader, writer, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except BaseException:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
        raise
    return WebSocketStream(reader, writer)


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
    key = base64.b64encode(os.urandom(16))
    lines = (
        f"GET {PATH} HTTP/1.1", f"Host: {authority}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
    )  # fmt: skip
    writer.write("\r\n".join((*lines, "", "")).encode())
    try:
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise WebSocketRefused("The server does not answer as a WebSocket does.") from error
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in answer[1:])
    }
    status = answer[0].split(" ")[1:2]
    digest = hashlib.sha1(key + _ACCEPT_TAIL, usedforsecurity=False).digest()
    expected = base64.b64encode(digest).decode()
    if status != ["101"] or headers.get("sec-websocket-accept") != expected:
        raise WebSocketRefused(f"The server takes no WebSocket at {PATH}: it answered {answer[0][:80]!r}.")


ATTACH_TIMEOUT_S: Final = 30.0
DETACH_TIMEOUT_S: Final = 5.0


class LinkEnd:
    """Subclasses react to events in `happened_while_open`; coroutines wait with `changed`."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire
        self._link: Link | None = None
        self._is_open = False
        #: Why the link is over; None while it is not.
        self.failure: ClientError | None = None
        #: Set and replaced whenever anything happened that somebody may wait for.
        self._news = asyncio.Event()

    @property
    def link(self) -> Link:
        if self._link is None:
            raise Refused("The link is not open.")
        return self._link

    async def attach(
        self,
        *,
        is_sender: bool,
        source: Source,
        target: Target | Coordinator,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[object, object] | None = None,
        desired_capabilities: list[str] | None = None,
        timeout_s: float = ATTACH_TIMEOUT_S,
    ) -> None:
        """Returns when the server has accepted the link; raises its refusal."""
        self._wire.attach(self)
        session = self._wire.session
        if session is None:
            raise Refused("The connection is not open.")
        self._link = session.attach(
            f"busway-{uuid4()}",
            is_sender=is_sender,
            source=source,
            target=target,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            properties=properties,
            desired_capabilities=desired_capabilities,
        )
        self._link.owner = self
        self._wire.flush()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_open:
                    await self.changed()
        except TimeoutError:
            self._link.detach()
            self._wire.flush()
            raise TimedOut("The server did not answer in time.") from None

    async def detach(self) -> None:
        """Ends the link and waits for the server's answer, so that what it frees is free afterwards."""
        if self._link is None or self.failure is not None:
            return
        self._link.detach()
        self._wire.flush()
        try:
            async with asyncio.timeout(DETACH_TIMEOUT_S):
                while self.failure is None:
                    await self._news.wait()
        except TimeoutError:
            self.over(Refused("The link is closed."))
        self._wire.forget(self)

    def check(self) -> None:
        """Raises why the link is over: whoever waits for an answer asks before, for none would come."""
        if self.failure is not None:
            raise self.failure

    async def changed(self) -> None:
        """Waits for the next news; raises when the link is over."""
        self.check()
        await self._news.wait()
        self.check()

    def happened(self, event: ConnectionEvent) -> None:
        if isinstance(event, LinkDetached):
            self.over(
                Refused("The server closed the link.") if event.error is None else error_of(event.error)
            )
            self._wire.forget(self)
            return
        if isinstance(event, LinkAttached):
            # A refusal is an attach without the terminus, and a detach that tells why follows it.
            terminus = self.link.target if self.link.is_sender else self.link.source
            self._is_open = terminus is not None
        else:
            self.happened_while_open(event)
        self.tell()

    def happened_while_open(self, event: ConnectionEvent) -> None:
        """For subclasses."""

    def room_grew(self) -> None:
        self.tell()

    def over(self, failure: ClientError) -> None:
        if self.failure is None:
            self.failure = failure
            self._is_open = False
            self.ended(failure)
            self.tell()

    def ended(self, failure: ClientError) -> None:
        """For subclasses: fail what waits for an answer."""

    def tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


CONNECT_TIMEOUT_S: Final = 20.0
CLOSE_TIMEOUT_S: Final = 5.0
_READ_BYTES: Final = 256 * 1024
#: The largest message a server of any size sends (L-5, Premium).
_DELIVERY_BYTES_MAX: Final = 104_857_600


class Wire:
    """Use `open_wire`."""

    def __init__(
        self,
        target: ConnectionString,
        reader: asyncio.StreamReader | WebSocketStream,
        writer: asyncio.StreamWriter | WebSocketStream,
        *,
        plain_login: bool,
    ) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        mechanism, response = _login(target, plain_login)
        settings = EngineSettings(
            container_id=f"busway-{uuid4()}",
            hostname=target.host,
            delivery_bytes_max=_DELIVERY_BYTES_MAX,
            sasl_mechanism=mechanism,
            sasl_response=response,
        )
        self._engine = Connection(Role.CLIENT, settings, self._loop.time())
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends: set[LinkEnd] = set()
        #: Why nothing works any more; None while it does.
        self.failure: ClientError | None = None
        self.session: Session | None = None

    async def start(self) -> None:
        """Returns when the server has answered our open."""
        self.flush()
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._opened

    def attach(self, end: LinkEnd) -> None:
        """Remembers who owns a link, so that it hears of the connection's end."""
        if self.failure is not None:
            raise self.failure
        self._ends.add(end)

    def forget(self, end: LinkEnd) -> None:
        self._ends.discard(end)

    def flush(self) -> None:
        data = self._engine.bytes_to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)
        self._set_timer()

    async def close(self) -> None:
        """Says good-bye and waits a little for the answer."""
        if self.failure is None:
            self._engine.close()
            self.flush()
        if self._reading is not None:
            done, _ = await asyncio.wait({self._reading}, timeout=CLOSE_TIMEOUT_S)
            if not done:
                self._reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._reading
        self._end(ClientError("The client was closed."))
        self._writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        failure = self._closed_by_server(None)
        try:
            while data := await self._reader.read(_READ_BYTES):
                self._handle(self._engine.receive(data, self._loop.time()))
                if self.failure is not None:
                    return
        except OSError as error:
            failure = Unreachable.at(self._target.host, self._target.amqp_port, error)
        self._end(failure)

    def _handle(self, events: list[ConnectionEvent]) -> None:
        for event in events:
            self._dispatch(event)
        self.flush()

    def _dispatch(self, event: ConnectionEvent) -> None:
        match event:
            case SaslFinished(ok=False):
                self._end(NotAuthorised("The server refused the login."))
            case SaslFinished():
                self._engine.open()
                self.session = self._engine.begin()
            case ConnectionOpened():
                if not self._opened.done():
                    self._opened.set_result(None)
            case ConnectionClosed(error=error):
                self._end(self._closed_by_server(error))
            case WindowOpened():
                for end in list(self._ends):
                    end.room_grew()
            case (
                LinkAttached() | CreditArrived() | CreditDrained() | DeliveriesArrived() | OutcomesArrived()
                | SettlementsAnswered() | LinkDetached()
            ) if isinstance(event.link.owner, LinkEnd):  # fmt: skip
                event.link.owner.happened(event)
            case _:
                pass

    def _closed_by_server(self, error: AmqpError | None) -> ClientError:
        if error is not None:
            return error_of(error)
        return Unreachable.closed_by(self._target.host, self._target.amqp_port)

    def _end(self, failure: ClientError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
        if not self._opened.done():
            self._opened.set_exception(failure)
        for end in list(self._ends):
            end.over(failure)
        self._ends.clear()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._engine.next_deadline()
        if deadline is not None and self.failure is None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._handle(self._engine.tick(self._loop.time()))


async def open_wire(target: ConnectionString, ca_file: Path | None, *, plain_login: bool = False) -> Wire:
    """Connects. With `plain_login` the key itself logs in (SASL PLAIN), else tokens follow on `$cbs`."""
    port = target.amqp_port
    context = None
    if not target.emulator:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            wire = await _connected(target, context, plain_login)
    except (OSError, TimeoutError) as error:
        raise Unreachable.at(target.host, port, error) from error
    try:
        await wire.start()
    except TimeoutError as error:
        await wire.close()
        raise Unreachable(f"The server at {target.host}:{port} does not answer.") from error
    except BaseException:
        await wire.close()
        raise
    return wire


async def _connected(target: ConnectionString, context: ssl.SSLContext | None, plain_login: bool) -> Wire:
    if target.over_websocket:
        stream = await open_websocket(target.host, target.amqp_port, context)
        return Wire(target, stream, stream, plain_login=plain_login)
    reader, writer = await asyncio.open_connection(target.host, target.amqp_port, ssl=context)
    return Wire(target, reader, writer, plain_login=plain_login)


def _login(target: ConnectionString, plain_login: bool) -> tuple[str, bytes]:
    if plain_login and target.key_name is not None and target.key is not None:
        return PLAIN, plain_response(target.key_name, target.key)
    return ANONYMOUS, b""


End = TypeVar("End", bound=LinkEnd)


class OneLink(Generic[End]):
    """Who works with one link of a connection: an asynchronous context manager. Subclasses open it."""

    #: What it is called when it is not open.
    what = "link"

    def __init__(self) -> None:
        self._end: End | None = None

    async def __aenter__(self) -> Self:
        if self._end is None:
            await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        if self._end is not None:
            await self._end.detach()
            self._end = None

    def _opened(self) -> End:
        if self._end is None:
            raise Refused(f"The {self.what} is not open.")
        return self._end
