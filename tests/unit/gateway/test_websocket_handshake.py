"""Handshakes of other SDKs than Python's, written on a bare socket: absolute targets and other subprotocols."""

import asyncio

import pytest

from busway.gateway.http.app import HttpSettings
from tests.unit.gateway.test_websocket import Bus, serving

PATH = "/$servicebus/websocket"
NETWORK = HttpSettings.for_host("0.0.0.0", is_loopback=False)
#: RFC 6455 1.3: the key and what is to be answered.
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def upgrade(target: str, host: str, subprotocol: str | None = "AMQPWSB10") -> bytes:
    """As Java's SDKs write it."""
    lines = [
        f"GET {target} HTTP/1.1",
        "Connection: Upgrade,Keep-Alive",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {KEY}",
        f"Host: {host}",
    ]
    if subprotocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join([*lines, "", ""]).encode()


async def answer_to(bus: Bus, request: bytes) -> list[str]:
    """The lines of the answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bus.port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        return head.decode().split("\r\n")[:-2]
    finally:
        writer.close()


def header(lines: list[str], name: str) -> str | None:
    found = [line.partition(": ")[2] for line in lines if line.lower().startswith(f"{name}: ")]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (f"https://127.0.0.1{PATH}", "127.0.0.1"),
        (f"https://localhost:443{PATH}", "localhost:443"),
        (f"http://localhost{PATH}/", "localhost"),
        (f"HTTPS://LocalHost{PATH}?x=1", "localhost"),
        (f"wss://localhost{PATH}", "localhost"),
        (f"https://[::1]:5671{PATH}", "[::1]:5671"),
    ],
)
def test_a_target_may_be_written_in_full(run, target: str, host: str) -> None:
    """A-11: RFC 9112 3.2.2, as all Java SDKs upgrade to WebSocket."""

    async def work() -> None:
        async with serving() as bus:
            lines = await answer_to(bus, upgrade(target, host))
            assert lines[0].startswith("HTTP/1.1 101")
            assert header(lines, "sec-websocket-accept") == ACCEPT
            assert header(lines, "sec-websocket-protocol") == "AMQPWSB10"
            assert len(bus.opened) == 1

    run(work())


def test_the_host_of_a_full_target_counts_not_the_header(run) -> None:
    """A-11: RFC 9112 3.2.2: where the two differ, the Host header is ignored, on loopback and off it."""

    async def work() -> None:
        async with serving() as bus:
            lines = await answer_to(bus, upgrade(f"https://evil.example{PATH}", "localhost"))
            assert lines[0].startswith("HTTP/1.1 403")
            assert bus.opened == []
            lines = await answer_to(bus, upgrade(f"https://localhost{PATH}", "evil.example"))
            assert lines[0].startswith("HTTP/1.1 101")
        async with serving(NETWORK) as bus:
            lines = await answer_to(bus, upgrade(f"https://bus.example{PATH}", "bus.example"))
            assert lines[0].startswith("HTTP/1.1 101")

    run(work())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("https://localhost/elsewhere", 404),
        ("https://localhost", 404),
        (f"https:///{PATH}", 400),
        (f"https://user:key@localhost{PATH}", 400),
        (f"https://local%68ost{PATH}", 400),
        (f"https://localhost:99999999{PATH}", 400),
        (f"https://{'h' * 300}{PATH}", 400),
        (f"ftp://localhost{PATH}", 400),
        (f"https://localhost{PATH}#x", 404),
        (f"https:{PATH}", 400),
        ("localhost:443", 400),
        ("*", 403),
    ],
)
def test_a_target_that_is_no_address_of_ours_is_refused(run, target: str, status: int) -> None:
    """Attack: odd targets open nothing, and nothing of them is logged."""

    async def work() -> None:
        async with serving() as bus:
            lines = await answer_to(bus, upgrade(target, "localhost"))
            assert lines[0].startswith(f"HTTP/1.1 {status}")
            assert bus.opened == []

    run(work())


def test_plain_requests_may_name_the_target_in_full_too(run) -> None:
    """A-11: RFC 9112 3.2.2 holds for every request; other hosts are refused as by their Host header."""

    async def work() -> None:
        async with serving() as bus:
            request = b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            assert (await answer_to(bus, request))[0].startswith("HTTP/1.1 200")
            request = b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            assert (await answer_to(bus, request))[0].startswith("HTTP/1.1 403")
            request = b"GET http://localhost/health HTTP/1.0\r\n\r\n"
            assert (await answer_to(bus, request))[0].startswith("HTTP/1.1 200")

    run(work())


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("amqp", "amqp"),
        ("AMQPWSB10", "AMQPWSB10"),
        ("AMQP", "AMQP"),
        ("amqpwsb10", "amqpwsb10"),
        ("mqtt, amqp", "amqp"),
        ("amqp, AMQPWSB10", "amqp"),
        ("AMQPWSB10,amqp", "AMQPWSB10"),
        ("mqtt\r\nSec-WebSocket-Protocol: amqp", "amqp"),
    ],
)
def test_the_answer_names_the_subprotocol_that_was_offered(run, offered: str, chosen: str) -> None:
    """A-11: Go and Qpid JMS offer `amqp` (the OASIS binding), Azure's other SDKs AMQPWSB10; the first one counts."""

    async def work() -> None:
        async with serving() as bus:
            lines = await answer_to(bus, upgrade(PATH, "localhost", offered))
            assert lines[0].startswith("HTTP/1.1 101")
            assert header(lines, "sec-websocket-protocol") == chosen
            assert len(bus.opened) == 1

    run(work())


@pytest.mark.parametrize("offered", [None, "mqtt", "amqp10", "amqp;q=1", ", ,", "mqtt, " * 2_000 + "soap"])
def test_a_subprotocol_that_we_do_not_speak_is_refused(run, offered: str | None) -> None:
    """A-11: no known name among those offered, however many: 400, and no AMQP connection is opened."""

    async def work() -> None:
        async with serving() as bus:
            lines = await answer_to(bus, upgrade(PATH, "localhost", offered))
            assert lines[0].startswith("HTTP/1.1 400")
            assert bus.opened == []

    run(work())
