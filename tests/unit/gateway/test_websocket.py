"""AMQP over WebSocket, and HTTP on real sockets: through the listener, as clients come in."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http import protocol
from busway.gateway.http.app import HttpGateway, HttpSettings
from busway.gateway.http.websocket import FRAME_BYTES_MAX, SUBPROTOCOL, ByteConnection, WebSocketTransport
from busway.gateway.listener import Listener, Service
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.unit.gateway.http_exchange import ROOT_KEY, sas_token

PLAIN = Service(plain=True, tls=False, amqp=True, http=True)
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


class Echo:
    """A connection that says everything back, and remembers what happened to it."""

    def __init__(self, transport: WebSocketTransport, peer: str) -> None:
        self.transport = transport
        self.peer = peer
        self.events: list[str] = []
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if data == b"bye":
            self.transport.write(b"last words")
            self.transport.close()
        elif data == b"abort":
            self.transport.abort()
        elif data == b"fail":
            raise ZeroDivisionError("a bug")
        elif data == b"pause":
            self.transport.pause_reading()
        else:
            self.transport.write(data)

    def connection_lost(self) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("paused")

    def resume_writing(self) -> None:
        self.events.append("resumed")


class Bus:
    """A server on a real port, and a client session for it."""

    def __init__(
        self, port: int, session: aiohttp.ClientSession, opened: list[Echo], http: HttpGateway
    ) -> None:
        self.port = port
        self.session = session
        self.opened = opened
        self.http = http

    def url(self, path: str = "/$servicebus/websocket") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def connect(self, path: str = "/$servicebus/websocket") -> aiohttp.ClientWebSocketResponse:
        return await self.session.ws_connect(self.url(path), protocols=(SUBPROTOCOL,), max_msg_size=0)


@contextlib.asynccontextmanager
async def serving(settings: HttpSettings | None = None, *, real_amqp: bool = False) -> AsyncIterator[Bus]:
    clock = ManualClock()
    store = MemoryStore("store-0")
    namespace = Namespace("busway-test", [store], clock, SeededEntropy(), Limits(), root_key=ROOT_KEY)
    await namespace.open()
    amqp = AmqpGateway(namespace, clock, SeededEntropy())
    opened: list[Echo] = []

    def open_echo(transport: WebSocketTransport, peer: str) -> ByteConnection:
        opened.append(Echo(transport, peer))
        return opened[-1]

    open_amqp = amqp.connect if real_amqp else open_echo
    http = HttpGateway(namespace, clock, SeededEntropy(), open_amqp, PayloadCodec(SeededEntropy()), settings)
    listener = Listener(asyncio.Protocol, http.protocol, None)
    port = await listener.start("127.0.0.1", 0, PLAIN)
    try:
        async with aiohttp.ClientSession() as session:
            yield Bus(port, session, opened, http)
    finally:
        await listener.close()
        await amqp.close(0.1)
        await http.close()
        await namespace.close()


@pytest.mark.parametrize(
    "path", ["/$servicebus/websocket", "/$servicebus/websocket/", "/$ServiceBus/WebSocket"]
)
def test_bytes_go_both_ways(run, path: str) -> None:
    """A-11: binary frames, subprotocol AMQPWSB10, with .NET's slash too; frame borders mean nothing."""

    async def work() -> None:
        async with serving() as bus:
            async with await bus.connect(path) as socket:
                assert socket.protocol == SUBPROTOCOL
                await socket.send_bytes(b"AMQP")
                assert await socket.receive_bytes() == b"AMQP"
                large = bytes(range(256)) * 1024
                await socket.send_bytes(large)
                received = b""
                while len(received) < len(large):
                    frame = await socket.receive_bytes()
                    assert len(frame) <= 64 * 1024
                    received += frame
                assert received == large
                assert bus.opened[0].peer == "127.0.0.1"
            await until(lambda: bus.opened[0].events[-1:] == ["lost"])

    run(work())


def test_the_real_gateway_answers_over_websocket(run) -> None:
    """A-11 A-7: the AMQP gateway offers its SASL mechanisms on a WebSocket as on a socket."""

    async def work() -> None:
        async with serving(real_amqp=True) as bus, await bus.connect() as socket:
            await socket.send_bytes(SASL_HEADER)
            answer = await socket.receive_bytes()
            while b"ANONYMOUS" not in answer:
                answer += await socket.receive_bytes()
            assert answer.startswith(SASL_HEADER)
            assert b"PLAIN" in answer

    run(work())


def test_a_connection_closes_after_its_last_words(run) -> None:
    """A-11: what is queued leaves before the close."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            await socket.send_bytes(b"bye")
            assert await socket.receive_bytes() == b"last words"
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1000
            await until(lambda: bus.opened[0].events == ["lost"])

    run(work())


@pytest.mark.parametrize("word", [b"abort", b"fail"])
def test_an_abort_or_a_bug_ends_one_connection(run, word: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A-11: the next one is served."""

    async def work() -> None:
        async with serving() as bus:
            async with await bus.connect() as socket:
                await socket.send_bytes(word)
                assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
            await until(lambda: bus.opened[0].events == ["lost"])
            async with await bus.connect() as socket:
                await socket.send_bytes(b"AMQP")
                assert await socket.receive_bytes() == b"AMQP"

    run(work())
    assert ("ZeroDivisionError" in caplog.text) is (word == b"fail")


def test_text_is_refused(run) -> None:
    """A-11: close code 1003."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            await socket.send_str("AMQP")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1003
            assert bus.opened[0].received == b""

    run(work())


def test_a_frame_beyond_the_cap_is_refused(run) -> None:
    """A-11: close code 1009, and AMQP sees no more of it than the cap."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            with contextlib.suppress(ConnectionError):
                await socket.send_bytes(b"x" * (FRAME_BYTES_MAX + 1))
            message = await socket.receive()
            while message.type is aiohttp.WSMsgType.BINARY:  # the parts were handed on as they came
                message = await socket.receive()
            assert message.type in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            )
            assert len(bus.opened[0].received) <= FRAME_BYTES_MAX

    run(work())


def test_a_message_that_does_not_end_is_handed_on_as_it_comes(run) -> None:
    """Attack: a stranger must not make us gather a megabyte; the borders of messages mean nothing to AMQP."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            writer = socket._writer.transport
            assert writer is not None
            # The first frame of a longer message, its mask made of zeros.
            writer.write(b"\x02\xfe" + (1000).to_bytes(2, "big") + bytes(4) + b"x" * 1000)
            # The echo comes back although the message has not ended.
            assert await socket.receive_bytes() == b"x" * 1000

    run(work())


def test_a_reader_that_does_not_read_pauses_the_writer(run) -> None:
    """A-11: above the high-water mark the connection is told to stop, and to go on when the peer reads."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            await socket.send_bytes(b"hello")
            assert await socket.receive_bytes() == b"hello"
            echo = bus.opened[0]
            sent = 0
            while "paused" not in echo.events and sent < 64 << 20:
                echo.transport.write(b"x" * 65536)
                sent += 65536
            assert echo.transport.get_write_buffer_size() > 256 * 1024
            received = 0
            while received < sent:
                received += len(await socket.receive_bytes())
            assert echo.events == ["paused", "resumed"]
            assert echo.transport.get_write_buffer_size() == 0

    run(work())


def test_a_paused_connection_is_not_read(run) -> None:
    """A-11: what comes meanwhile waits outside, and arrives when reading goes on."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            await socket.send_bytes(b"pause")
            await until(lambda: bool(bus.opened) and bus.opened[0].received == b"pause")
            await socket.send_bytes(b"later")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.receive_bytes(), 0.05)
            bus.opened[0].transport.resume_reading()
            assert await socket.receive_bytes() == b"later"

    run(work())


@pytest.mark.parametrize(
    ("path", "headers", "protocols", "status"),
    [
        ("/$servicebus/websocket", {}, (), 400),
        ("/$servicebus/websocket", {}, ("mqtt",), 400),
        ("/elsewhere", {}, (SUBPROTOCOL,), 404),
        ("/$servicebus/websocket", {"Host": "evil.example"}, (SUBPROTOCOL,), 403),
        ("/$servicebus/websocket", {"Origin": "https://evil.example"}, (SUBPROTOCOL,), 403),
        ("/$servicebus/websocket", {"Origin": "null"}, (SUBPROTOCOL,), 403),
    ],
)
def test_a_wrong_handshake_is_refused(
    run, path: str, headers: dict[str, str], protocols: tuple[str, ...], status: int
) -> None:
    """A-11: no subprotocol, another path, another site's name or page: no AMQP connection is opened."""

    async def work() -> None:
        async with serving() as bus:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await bus.session.ws_connect(bus.url(path), headers=headers, protocols=protocols)
            assert refusal.value.status == status
            assert bus.opened == []

    run(work())


def test_a_browser_client_is_welcome_off_loopback(run) -> None:
    """A-11: the JS client runs in pages of other sites; AMQP inside asks for the key."""

    async def work() -> None:
        async with serving(HttpSettings.for_host("0.0.0.0", is_loopback=False)) as bus:
            headers = {"Origin": "https://app.example"}
            async with bus.session.ws_connect(bus.url(), headers=headers, protocols=(SUBPROTOCOL,)) as socket:
                await socket.send_bytes(b"AMQP")
                assert await socket.receive_bytes() == b"AMQP"

    run(work())


def test_a_stopping_server_ends_websockets(run) -> None:
    """A-11: close code 1012 or the AMQP side's own close; nothing stays open."""

    async def work() -> None:
        async with serving() as bus, await bus.connect() as socket:
            await socket.send_bytes(b"AMQP")
            await socket.receive_bytes()
            await bus.http.close()
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            await until(lambda: bus.opened[0].events == ["lost"])

    run(work())


# -- HTTP on a socket --


def test_requests_share_a_connection(run) -> None:
    """A-11: keep-alive, with a Date and no word about the software."""

    async def work() -> None:
        async with serving() as bus:
            for _ in range(3):
                async with bus.session.get(bus.url("/health")) as answer:
                    assert (answer.status, await answer.json()) == (200, {"status": "healthy"})
                    assert answer.headers["Date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
                    assert "Server" not in answer.headers
            assert bus.http.connections == 1

    run(work())


@pytest.mark.parametrize(
    "head", [b"GET /health HTTP/1.1\r\nHost: x", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 9]
)
def test_half_a_head_has_a_deadline(run, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """A-11: slowloris: a head that does not end is closed."""
    monkeypatch.setattr(protocol, "HEAD_S", 0.05)

    async def work() -> None:
        async with serving() as bus:
            reader, writer = await asyncio.open_connection("127.0.0.1", bus.port)
            writer.write(head)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    run(work())


def test_a_head_without_end_is_refused(run) -> None:
    """A-11: 32 KiB of head are enough."""

    async def work() -> None:
        async with serving() as bus:
            reader, writer = await asyncio.open_connection("127.0.0.1", bus.port)
            writer.write(b"GET /health HTTP/1.1\r\nX: " + b"y" * 100_000)
            with contextlib.suppress(ConnectionResetError):
                assert (await reader.read())[:12] in (b"", b"HTTP/1.1 400")
            writer.close()

    run(work())


def test_silent_http_connections_make_room(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-11: connections between requests are bounded; the oldest goes first."""
    monkeypatch.setattr(protocol, "IDLE_CONNECTIONS_MAX", 3)

    async def work() -> None:
        async with serving() as bus:
            idle = []
            for _ in range(6):
                reader, writer = await asyncio.open_connection("127.0.0.1", bus.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await reader.readuntil(b'healthy"}')).startswith(b"HTTP/1.1 200")
                idle.append((reader, writer))
            with contextlib.suppress(ConnectionResetError):
                assert await idle[0][0].read() == b""
            assert bus.http.connections <= 3
            for _, writer in idle:
                writer.close()

    run(work())


def test_a_body_without_end_is_cut(run) -> None:
    """A-11 ERR-42: more than 64 KiB are refused while they come, and the connection is closed."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    async def work() -> None:
        async with serving() as bus:
            headers = {"Authorization": sas_token(f"https://127.0.0.1:{bus.port}")}
            with contextlib.suppress(aiohttp.ClientError):
                async with bus.session.put(bus.url("/orders"), data=endless(), headers=headers) as answer:
                    assert answer.status == 400
                    assert answer.headers["Connection"] == "close"

    run(work())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("waited for two seconds in vain")
