"""One port for everything: recognition, deadlines, bounds, modes."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates, server_context
from busway.gateway.listener import (
    EVERYTHING,
    EVERYTHING_OVER_TLS,
    Listener,
    ListenError,
    ListenerSettings,
    Service,
    peer_group,
    recognise,
)
from busway.gateway.tls_files import TlsFiles

AMQP_HEADER = b"AMQP\x03\x01\x00\x00"
REQUEST = b"GET / HTTP/1.1\r\n\r\n"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return ensure_certificates(Path(tmp_path_factory.mktemp("tls")), Clock(), Entropy())


class Gateway(asyncio.Protocol):
    """Says its name and what it got, then closes."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._name + b":" + data)
        self._transport.close()


@contextlib.asynccontextmanager
async def listening(
    tls: TlsFiles,
    service: Service = EVERYTHING,
    settings: ListenerSettings | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[Listener, int]]:
    context = server_context(tls.server, tls.server_key)
    listener = Listener(lambda: Gateway(b"amqp"), lambda: Gateway(b"http"), context, settings)
    port = await listener.start(host, 0, service)
    try:
        yield listener, port
    finally:
        await listener.close()


async def exchange(port: int, data: bytes, trust: TlsFiles | None = None, host: str = "127.0.0.1") -> bytes:
    """What the server says until it closes; b"" when it closes without a word."""
    context = ssl.create_default_context(cafile=str(trust.ca)) if trust is not None else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(data)
        return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """The server closed the connection, with or without ceremony, and said nothing."""
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("waited for two seconds in vain")


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (AMQP_HEADER, b"amqp"),
        (REQUEST, b"http"),
        (b"PUT /x", b"http"),
        (b"DELETE /", b"http"),
        (b"POST /", b"http"),
    ],
)
def test_the_first_bytes_decide(run, tls: TlsFiles, sent: bytes, name: bytes, is_tls: bool) -> None:
    """A-11: AMQP and HTTP, plain and over TLS, on one port; the gateway gets every byte."""

    async def work() -> None:
        async with listening(tls) as (listener, port):
            assert await exchange(port, sent, tls if is_tls else None) == name + b":" + sent
            assert listener.arrivals == 0

    run(work())


@pytest.mark.parametrize(
    "junk", [b"\x00", b"SSH-2.0-x", b"PRI * HTTP/2.0", b"AMQX", b"GETX", b"get / ", b"A" * 65536]
)
@pytest.mark.parametrize("is_tls", [False, True])
def test_junk_is_closed_without_a_word(run, tls: TlsFiles, junk: bytes, is_tls: bool) -> None:
    """A-11: who speaks nothing we know gets nothing."""

    async def work() -> None:
        async with listening(tls) as (listener, port):
            assert await exchange(port, junk, tls if is_tls else None) == b""
            assert listener.arrivals == 0

    run(work())


def test_bytes_that_come_one_by_one_are_put_together(run, tls: TlsFiles) -> None:
    """A-11: a slow beginning is still a beginning."""

    async def work() -> None:
        async with listening(tls) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in b"AMQ":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b"P")
            assert await reader.read() == b"amqp:AMQP"
            writer.close()

    run(work())


def test_nothing_is_plain_off_loopback(run, tls: TlsFiles) -> None:
    """A-11: a network port speaks TLS only, and through it both protocols; plain bytes are closed."""

    async def work() -> None:
        async with listening(tls, EVERYTHING_OVER_TLS) as (_, port):
            for said in (AMQP_HEADER, REQUEST):
                assert (await exchange(port, said, tls)).endswith(said)
                assert await exchange(port, said) == b""

    run(work())


def test_a_port_may_serve_one_protocol_only(run, tls: TlsFiles) -> None:
    """A-11: the other one is closed without an answer."""

    async def work() -> None:
        async with listening(tls, Service(plain=False, tls=True, amqp=True, http=False)) as (_, port):
            assert (await exchange(port, AMQP_HEADER, tls)).endswith(AMQP_HEADER)
            assert await exchange(port, REQUEST, tls) == b""

    run(work())


def test_silence_ends_at_the_deadline(run, tls: TlsFiles) -> None:
    """A-11: before the first byte, in the handshake, and before the first word."""
    settings = ListenerSettings(first_byte_s=0.05, handshake_s=0.05, sniff_s=0.05)

    async def work() -> None:
        async with listening(tls, settings=settings) as (listener, port):
            assert await exchange(port, b"") == b""
            assert await exchange(port, b"\x16\x03\x01") == b""
            assert await exchange(port, b"AM") == b""
            assert await exchange(port, b"", tls) == b""
            assert listener.arrivals == 0

    run(work())


def test_a_full_anteroom_drops_its_oldest_guest(run, tls: TlsFiles) -> None:
    """A-11: thousands of silent connections keep nobody out."""
    settings = ListenerSettings(arrivals_max=20)

    async def work() -> None:
        async with listening(tls, settings=settings) as (listener, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            assert await exchange(port, AMQP_HEADER) == b"amqp:" + AMQP_HEADER
            assert await exchange(port, AMQP_HEADER, tls) == b"amqp:" + AMQP_HEADER
            assert listener.arrivals <= 20
            await ended(silent[0][0])  # the oldest
            for _, writer in silent:
                writer.close()

    run(work())


def test_a_peer_has_its_share(run, tls: TlsFiles) -> None:
    """A-11: one peer cannot fill the anteroom."""
    settings = ListenerSettings(arrivals_per_loopback_peer_max=5)

    async def work() -> None:
        async with listening(tls, settings=settings) as (listener, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
            assert await exchange(port, REQUEST) == b"http:" + REQUEST
            assert listener.arrivals <= 5
            for _, writer in silent:
                writer.close()

    run(work())


def test_half_handshakes_are_dropped_when_room_is_needed(run, tls: TlsFiles) -> None:
    """A-11: a half TLS handshake holds a place no longer than silence does."""
    settings = ListenerSettings(arrivals_max=3)

    async def work() -> None:
        async with listening(tls, settings=settings) as (listener, port):
            half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
            for _, writer in half:
                writer.write(b"\x16\x03\x01\x02\x00")
                await writer.drain()
            assert await exchange(port, AMQP_HEADER, tls) == b"amqp:" + AMQP_HEADER
            assert listener.arrivals <= 3
            for _, writer in half:
                writer.close()

    run(work())


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_a_share_belongs_to_an_owner(address: str, group: str) -> None:
    """A-11: an IPv6 customer has a whole /64 and still one share."""
    assert peer_group(address) == group


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"", "more"),
        (b"A", "more"),
        (b"G", "more"),
        (b"DELETE", "more"),
        (b"P", "more"),
        (b"PX", "junk"),
        (b"GET /", "http"),
    ],
)
def test_a_beginning_is_recognised_as_early_as_it_can_be(first: bytes, kind: str) -> None:
    """A-11: no more bytes are held than needed."""
    assert recognise(first) == kind


def test_a_used_port_is_one_clear_sentence(run, tls: TlsFiles) -> None:
    """A-11: it names host and port and says what to do."""

    async def work() -> None:
        async with listening(tls) as (listener, port):
            with pytest.raises(ListenError, match=f"Port {port} on 127.0.0.1 is already in use"):
                await listener.start("127.0.0.1", port)

    run(work())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a..b"])
def test_a_host_that_is_not_ours_is_one_clear_sentence(run, tls: TlsFiles, host: str) -> None:
    """A-11: nothing listens."""

    async def work() -> None:
        async with listening(tls) as (listener, _):
            with pytest.raises(ListenError, match="is not an address of this machine"):
                await listener.start(host, 0)

    run(work())


def test_tls_without_a_certificate_is_refused(run) -> None:
    """A-11: no port that cannot do what it promises."""

    async def work() -> None:
        listener = Listener(lambda: Gateway(b"amqp"), lambda: Gateway(b"http"), None)
        with pytest.raises(ListenError, match="no certificate"):
            await listener.start("127.0.0.1", 0)

    run(work())


def test_localhost_is_every_loopback_address_of_the_machine(run, tls: TlsFiles) -> None:
    """A-11: IPv4 and, where the machine has it, IPv6 on the same port."""

    async def work() -> None:
        async with listening(tls, host="localhost") as (_, port):
            addresses = {
                entry[4][0] for entry in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
            }
            for address in addresses:
                assert await exchange(port, AMQP_HEADER, host=address) == b"amqp:" + AMQP_HEADER

    run(work())


def test_a_closed_listener_accepts_nobody(run, tls: TlsFiles) -> None:
    """A-11: waiting connections are dropped, new ones refused, and the port is free at once."""

    async def work() -> None:
        async with listening(tls) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            halfway, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(b"\x16\x03")
            await until(lambda: listener.arrivals == 2)
            await listener.close()
            await ended(reader)
            await ended(halfway)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            other.close()
            assert await listener.start("127.0.0.1", port) == port

    run(work())


def test_a_client_that_leaves_at_once_leaves_nothing_behind(run, tls: TlsFiles) -> None:
    """A-11: port scans cost nothing lasting."""

    async def work() -> None:
        async with listening(tls) as (listener, port):
            for data in (b"", b"A", b"\x16"):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                writer.close()
                await writer.wait_closed()
            assert await exchange(port, AMQP_HEADER) == b"amqp:" + AMQP_HEADER
            await until(lambda: listener.arrivals == 0)

    run(work())
