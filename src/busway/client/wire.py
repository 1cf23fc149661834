"""One AMQP connection of a client: a socket, our engine in the client role, and who waits for what.

Theory of operation. A reader task feeds bytes to the engine and hands each event to the owner of its link
(`Link.owner`, a `LinkEnd`); owners complete futures that coroutines wait on. Commands write into the engine and
`flush` moves its bytes to the socket. A timer calls `tick` for heartbeats. When the connection ends, every owner
hears of it once, so nobody waits forever.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Final
from uuid import uuid4

from busway.amqp.connection import Connection, EngineSettings, Role
from busway.amqp.engine_settings import ANONYMOUS, PLAIN
from busway.amqp.errors import AmqpError
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditArrived,
    CreditDrained,
    DeliveriesArrived,
    Event,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SaslFinished,
    SettlementsAnswered,
    WindowOpened,
)
from busway.amqp.sasl import plain_response
from busway.amqp.session import Session
from busway.client.connection_string import ConnectionString
from busway.client.errors import ClientError, NotAuthorised, Unreachable, error_of
from busway.client.link_end import LinkEnd
from busway.client.websocket_stream import WebSocketStream, open_websocket

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

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            self._dispatch(event)
        self.flush()

    def _dispatch(self, event: Event) -> None:
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
