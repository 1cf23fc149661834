"""The message API on real sockets: clients that leave, answers that cannot be delivered, servers that stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from busway.broker.entity.entity import Queue
from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http import protocol
from busway.gateway.http.app import HttpGateway
from busway.gateway.http.messages import messages
from busway.gateway.listener import Listener, Service
from busway.model.description_checks import default_queue
from busway.model.descriptions import NewEntity
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.unit.gateway.http_exchange import ROOT_KEY, sas_token

PLAIN = Service(plain=True, tls=False, amqp=True, http=True)
TOKEN = sas_token("http://localhost")

Run = Callable[[Coroutine[Any, Any, None]], None]


class Client:
    """One connection that writes HTTP by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def start(self, method: str, target: str, body: bytes = b"", *headers: str, token: str = TOKEN) -> None:
        head = [
            f"{method} {target} HTTP/1.1",
            "Host: localhost",
            f"Authorization: {token}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def answer(self) -> tuple[int, str, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (line for line in head.split("\r\n") if line.lower().startswith("content-length")), ":0"
        )
        body = await self.reader.readexactly(int(length.partition(":")[2]))
        return int(head.split()[1]), head, body

    async def ask(self, method: str, target: str, body: bytes = b"", *headers: str) -> tuple[int, str, bytes]:
        self.start(method, target, body, *headers)
        return await self.answer()

    def leave(self) -> None:
        self.writer.transport.abort()


class Bus:
    def __init__(self, namespace: Namespace, http: HttpGateway, store: MemoryStore, port: int) -> None:
        self.namespace = namespace
        self.http = http
        self.store = store
        self.port = port
        self._clients: list[Client] = []

    @property
    def queue(self) -> Queue:
        return self.namespace.queue("orders")

    async def client(self) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20))
        self._clients.append(made)
        return made

    async def standing(self, count: int) -> None:
        """Until so many receivers stand in line."""
        await until(lambda: len(self.queue.main.receivers()) == count)

    async def send(self, body: bytes = b"x") -> None:
        assert (await (await self.client()).ask("POST", "/orders/messages", body))[0] == 201

    async def take(self) -> tuple[int, str, bytes]:
        return await (await self.client()).ask("DELETE", "/orders/messages/head?timeout=0")

    async def close_clients(self) -> None:
        for client in self._clients:
            client.writer.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()


async def until(condition: Callable[[], object]) -> None:
    for _ in iter(lambda: bool(condition()), True):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Bus]:
    clock = ManualClock()
    store = MemoryStore("store-0")
    namespace = Namespace("busway-test", [store], clock, SeededEntropy(), Limits(), root_key=ROOT_KEY)
    await namespace.open()
    await namespace.create([NewEntity(default_queue("orders", namespace.limits))])

    def no_amqp(transport: object, peer: str) -> Any:
        raise AssertionError(f"no AMQP was asked for: {transport!r} {peer}")

    http = HttpGateway(namespace, clock, SeededEntropy(), no_amqp, PayloadCodec(SeededEntropy()))
    listener = Listener(asyncio.Protocol, http.protocol, None)
    port = await listener.start("127.0.0.1", 0, PLAIN)
    bus = Bus(namespace, http, store, port)
    try:
        yield bus
    finally:
        await bus.close_clients()
        await listener.close()
        await http.close()
        await namespace.close()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_receive_gets_what_arrives_while_it_waits(run: Run, method: str) -> None:
    """R-8 R-23: the answer comes with the message, not with the end of the time."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            client.start(method, "/orders/messages/head?timeout=60")
            await bus.standing(1)
            await bus.send(b"late")
            status, _, body = await client.answer()
            assert (status, body) == (201 if method == "POST" else 200, b"late")
            await bus.standing(0)

    run(work())


def test_names_keep_their_spelling(run: Run) -> None:
    """M-30 M-33: HTTP does not care, filters and AMQP clients do."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            await client.ask("POST", "/orders/messages", b"", "PriorityClass: High", "X-Own-Number: 5")
            _, head, _ = await bus.take()
            assert '\r\nPriorityClass: "High"\r\n' in head
            assert "\r\nX-Own-Number: 5\r\n" in head
            assert "\r\nBrokerProperties: {" in head

    run(work())


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_client_that_leaves_gives_up_its_place(run: Run, method: str) -> None:
    """R-23: the wait ends with the connection, and the next message goes to somebody who is there."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            client.start(method, "/orders/messages/head")
            await bus.standing(1)
            client.leave()
            await bus.standing(0)
            await bus.send()
            status, head, _ = await bus.take()
            assert status == 200
            assert '"DeliveryCount":1' in head

    run(work())


def test_a_message_that_is_being_deleted_for_a_client_that_leaves_is_put_back(run: Run) -> None:
    """R-1 R-23: it left between the choice of the message and the commit of its deletion; nothing is lost."""

    async def work() -> None:
        async with serving() as bus:
            await bus.send()
            bus.store.hold_commits()
            client = await bus.client()
            client.start("DELETE", "/orders/messages/head")
            await until(lambda: bus.queue.main.lane.promised)
            client.leave()
            await bus.standing(0)
            bus.store.release_commits()
            await until(lambda: bus.queue.counts().active == 1)
            status, head, _ = await bus.take()
            assert (status, '"DeliveryCount":1' in head) == (200, True)

    run(work())


def test_a_deletion_that_is_under_way_when_the_time_is_over_is_waited_for(run: Run) -> None:
    """R-8: the message is as good as there; it is not put back for a few milliseconds."""

    async def work() -> None:
        async with serving() as bus:
            await bus.send()
            bus.store.hold_commits()
            client = await bus.client()
            client.start("DELETE", "/orders/messages/head?timeout=0")
            await until(lambda: bus.queue.main.lane.promised)
            bus.store.release_commits()
            assert (await client.answer())[0] == 200

    run(work())


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_message_whose_answer_was_not_written_goes_back(
    run: Run, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-1 R-12 R-23: the client left after the message was handed over and before the answer: unlocked or put back,
    without a count."""
    answer = messages.MessageResponse.__call__
    leaving: list[Client] = []

    async def too_late(response: Any, *asgi: Any) -> None:
        leaving.pop().leave()
        await until(lambda: response._presence.is_gone)
        await answer(response, *asgi)

    async def work() -> None:
        async with serving() as bus:
            await bus.send()
            client = await bus.client()
            with monkeypatch.context() as patched:
                patched.setattr(messages.MessageResponse, "__call__", too_late)
                leaving.append(client)
                client.start(method, "/orders/messages/head")
                await until(lambda: not leaving)
                await until(lambda: bus.queue.counts().active == 1 and len(bus.queue.main.locks.live) == 0)
            status, head, _ = await bus.take()
            assert (status, '"DeliveryCount":1' in head) == (200, True)

    run(work())


@contextlib.contextmanager
def narrow_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server's side takes a few kilobytes at a time."""
    made = protocol.HttpProtocol.connection_made

    def connection_made(self: protocol.HttpProtocol, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        made(self, transport)

    with monkeypatch.context() as patched:
        patched.setattr(protocol.HttpProtocol, "connection_made", connection_made)
        yield


async def stalled_receive(bus: Bus, method: str, header: str = "Accept: */*") -> socket.socket:
    """A client that asks for a message and takes none of its bytes."""
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    stalled.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(stalled, ("127.0.0.1", bus.port))
    head = f"{method} /orders/messages/head HTTP/1.1\r\nHost: localhost\r\nAuthorization: {TOKEN}\r\n{header}\r\n\r\n"
    await loop.sock_sendall(stalled, head.encode())
    return stalled


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("header", ["Connection: keep-alive", "Connection: close"])
def test_a_message_that_never_left_the_server_whole_goes_back(
    run: Run, method: str, leaves: bool, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-1 R-23, Attack: a client that takes no bytes, and then leaves or is left, has not got the message."""
    monkeypatch.setattr(protocol, "FLUSH_S", 20.0 if leaves else 0.05)

    async def work() -> None:
        async with serving() as bus:
            await bus.send(b"x" * 200_000)
            with narrow_sockets(monkeypatch):
                stalled = await stalled_receive(bus, method, header)
                await until(lambda: bus.queue.counts().active == 0 or len(bus.queue.main.locks.live) == 1)
                if leaves:
                    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    stalled.close()
                await until(lambda: bus.queue.counts().active == 1 and len(bus.queue.main.locks.live) == 0)
                stalled.close()
            status, head, body = await bus.take()
            assert (status, '"DeliveryCount":1' in head, len(body)) == (200, True, 200_000)

    run(work())


def test_a_stopping_server_sends_everybody_home(run: Run) -> None:
    """ERR-17: 503 at once, not after the time the client would wait."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            client.start("POST", "/orders/messages/head?timeout=300")
            await bus.standing(1)
            closing = asyncio.create_task(bus.http.close())
            status, head, body = await client.answer()
            await closing
            assert (status, "Retry-After" in head or "retry-after" in head) == (503, True)
            assert b"The server is stopping" in body

    run(work())


def test_a_token_that_ends_while_its_client_waits_gets_nothing(run: Run) -> None:
    """A-8 A-10: the key was changed meanwhile: 401, and the message is for others."""

    async def work() -> None:
        async with serving() as bus:
            (root,) = bus.namespace.access.rules()
            other = replace(root, name="other", primary_key="abc", secondary_key="abc")
            await bus.namespace.access.set((root, other))
            client = await bus.client()
            token = sas_token("http://localhost", "other", "abc")
            client.start("DELETE", "/orders/messages/head", token=token)
            await bus.standing(1)
            await bus.namespace.access.set((root,))
            await bus.send()
            assert (await client.answer())[0] == 401
            assert (await bus.take())[0] == 200

    run(work())


def test_a_deleted_queue_sends_everybody_home(run: Run) -> None:
    """E-86 ERR-1: 404 for whoever waits there."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            client.start("POST", "/orders/messages/head")
            await bus.standing(1)
            await bus.namespace.delete("orders")
            assert (await client.answer())[0] == 404

    run(work())


def test_too_many_receives_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-12 ERR-17: 503; those that wait are served."""
    monkeypatch.setattr(messages, "WAITING_MAX", 2)

    async def work() -> None:
        async with serving() as bus:
            first, second, third = await bus.client(), await bus.client(), await bus.client()
            first.start("POST", "/orders/messages/head")
            second.start("POST", "/orders/messages/head")
            await bus.standing(2)
            assert (await third.ask("POST", "/orders/messages/head"))[0] == 503
            await bus.send(b"1")
            await bus.send(b"2")
            assert {(await first.answer())[2], (await second.answer())[2]} == {b"1", b"2"}
            assert (await third.ask("POST", "/orders/messages/head?timeout=0"))[0] == 204

    run(work())


def test_a_message_in_the_last_answer_of_a_connection_is_delivered(run: Run) -> None:
    """R-23: `Connection: close`; the message is gone and not put back."""

    async def work() -> None:
        async with serving() as bus:
            for body in (b"x", b"y" * 200_000):
                await bus.send(body)
                client = await bus.client()
                client.start("DELETE", "/orders/messages/head", b"", "Connection: close")
                assert await client.answer() == (200, ANY, body)
                assert await client.reader.read() == b""
                await until(lambda: bus.http.connections <= 3)
                assert (await bus.take())[0] == 204

    run(work())


def test_a_connection_serves_many_requests(run: Run) -> None:
    """P-43: keep-alive, also after a message larger than the bodies of management; and pipelined."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            for _ in range(3):
                assert (await client.ask("POST", "/orders/messages", b"x" * 100_000))[0] == 201
            for _ in range(3):
                client.start("DELETE", "/orders/messages/head?timeout=0")
            for _ in range(3):
                status, _, body = await client.answer()
                assert (status, len(body)) == (200, 100_000)

    run(work())


def test_a_body_in_chunks_is_a_body(run: Run) -> None:
    """S-5 L-5: without a declared length, with the same bound."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            head = f"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {TOKEN}\r\n"
            start = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
            client.writer.write(start + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            assert (await client.answer())[0] == 201
            assert (await client.ask("DELETE", "/orders/messages/head"))[2] == b"abcde"
            client.writer.write(start + (b"10000\r\n" + b"x" * 65_536 + b"\r\n") * 5)
            assert (await client.answer())[0] == 403

    run(work())


@pytest.mark.parametrize(
    "headers",
    [
        ["BrokerProperties: {}", "BrokerProperties: {}"],
        ["Content-Type: a/b", "Content-Type: a/b"],
        ["Shade: 1", "SHADE: 1"],
        ["Shade: \xff"],
        ["Shade: " + "x" * 40_000],
    ],
)
def test_headers_that_make_no_sense_are_refused(run: Run, headers: list[str]) -> None:
    """S-5 M-33: twice, not UTF-8, or too large: 400 with a sentence, and nothing is stored."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            lines = [f"Authorization: {TOKEN}", "Host: localhost", "Content-Length: 0", *headers]
            head = "POST /orders/messages HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n"
            client.writer.write(head.encode("latin-1"))
            line = await client.reader.readline()
            assert line.split()[1] == b"400"
            assert bus.queue.counts().active == 0

    run(work())


def test_the_lock_uri_is_absolute_and_works(run: Run) -> None:
    """R-23: Location is what the client needs, with the scheme and host it used."""

    async def work() -> None:
        async with serving() as bus:
            client = await bus.client()
            await bus.send()
            _, head, _ = await client.ask("POST", "/orders/messages/head")
            location = head.partition("Location: ")[2].partition("\r\n")[0]
            properties = json.loads(head.partition("BrokerProperties: ")[2].partition("\r\n")[0])
            assert location == f"http://localhost/orders/messages/1/{properties['LockToken']}"
            assert (await client.ask("DELETE", location.removeprefix("http://localhost")))[0] == 200

    run(work())
