"""Connections that arrive before the HTTP gateway is loaded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from busway.gateway.http import entrance as entrance_module
from busway.gateway.http.app import HttpGateway
from busway.gateway.http.entrance import Entrance


class Echo(asyncio.Protocol):
    """In place of the gateway's protocol: says again what it is told."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class EchoGateway:
    def __init__(self) -> None:
        self.is_closed = False

    def protocol(self) -> asyncio.Protocol:
        return Echo()

    async def close(self) -> None:
        self.is_closed = True


class Bench:
    """An entrance behind a port; loading lasts until `may_load` is set."""

    def __init__(self) -> None:
        self.may_load = threading.Event()
        self.failures = 0
        self.gateways: list[EchoGateway] = []
        self.entrance = Entrance(self._make)
        self.port = 0

    def load(self) -> None:
        assert self.may_load.wait(100)
        if self.failures:
            self.failures -= 1
            raise ImportError("the installation is being changed")

    def _make(self) -> HttpGateway:
        self.gateways.append(EchoGateway())
        return cast(HttpGateway, self.gateways[-1])

    async def connect(self, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(words)
        await writer.drain()
        return reader, writer

    async def waiting(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.entrance._waiting) != count:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Without an answer; whether as an end or as a reset is the kernel's choice."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@asynccontextmanager
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made = Bench()
    monkeypatch.setattr(entrance_module, "_import_gateway", made.load)
    server = await asyncio.get_running_loop().create_server(made.entrance.protocol, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.may_load.set()
        server.close()
        await made.entrance.close()


def test_connections_wait_for_the_gateway_and_nothing_they_said_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Start: the gateway is made once, for all that came meanwhile, and the loop runs on."""

    async def scenario() -> None:
        async with bench(monkeypatch) as made:
            first, first_writer = await made.connect(b"one")
            second, second_writer = await made.connect(b"two")
            await made.waiting(2)
            first_writer.write(b" more")
            made.may_load.set()
            assert await first.readexactly(8) == b"one more"
            assert await second.readexactly(3) == b"two"
            third, third_writer = await made.connect(b"three")
            assert await third.readexactly(5) == b"three"
            assert len(made.gateways) == 1
            for writer in (first_writer, second_writer, third_writer):
                writer.close()

    asyncio.run(scenario())


def test_who_leaves_before_the_gateway_is_there_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start: a connection that is gone is not handed over."""

    async def scenario() -> None:
        async with bench(monkeypatch) as made:
            _, writer = await made.connect(b"x")
            await made.waiting(1)
            connection = next(iter(made.entrance._waiting))
            connection.drop()
            await made.waiting(0)
            made.may_load.set()
            writer.close()

    asyncio.run(scenario())


def test_a_gateway_that_cannot_be_loaded_closes_who_waits_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Start: an installation that is changed under a running server does not end HTTP for ever."""

    async def scenario() -> None:
        async with bench(monkeypatch) as made:
            made.failures = 1
            made.may_load.set()
            reader, writer = await made.connect(b"x")
            assert await is_closed(reader)
            writer.close()
            assert "HTTP cannot be served" in caplog.text
            reader, writer = await made.connect(b"again")
            assert await reader.readexactly(5) == b"again"
            writer.close()

    asyncio.run(scenario())


def test_only_so_many_wait_and_the_oldest_is_closed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: connections that arrive while the gateway is loaded are bounded."""
    monkeypatch.setattr(entrance_module, "WAITING_MAX", 1)

    async def scenario() -> None:
        async with bench(monkeypatch) as made:
            oldest, oldest_writer = await made.connect(b"one")
            await made.waiting(1)
            newest, newest_writer = await made.connect(b"two")
            assert await is_closed(oldest)
            made.may_load.set()
            assert await newest.readexactly(3) == b"two"
            oldest_writer.close()
            newest_writer.close()

    asyncio.run(scenario())


def test_a_server_that_stops_while_the_gateway_is_loaded_closes_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Start: stopping does not wait for connections that nobody serves yet, and makes no gateway for them."""

    async def scenario() -> None:
        async with bench(monkeypatch) as made:
            reader, writer = await made.connect(b"x")
            await made.waiting(1)
            await made.entrance.close()
            assert await is_closed(reader)
            made.may_load.set()
            assert made.gateways == []
            writer.close()

    asyncio.run(scenario())
