"""Each kind of connection, idle and busy, outlives ten times the longest timer of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from busway.client import client_connection
from busway.client.connection_string import token_for
from busway.client.errors import ClientError, TimedOut
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.gateway.http.app import _KEEP_ALIVE_S
from tests.timers import websocket_wire
from tests.timers.hasty_server import HastyServer, in_haste
from tests.timers.timers import TIMERS

#: The longest of those that may end a connection or a link.
LONGEST_S: Final = max(timer.longest_s for timer in TIMERS if timer.ends_connections)
HELD_S: Final = 10 * LONGEST_S
#: Less than half of any patience: both sides' heartbeats are due every 54 s.
STEP_S: Final = 40.0

KINDS = ("plain", "tls", "websocket")
Play = Callable[[HastyServer, ServiceBusClient], Awaitable[None]]


@asynccontextmanager
async def connected(
    hasty: HastyServer, kind: str, *, key_login: bool = False
) -> AsyncIterator[ServiceBusClient]:
    target = hasty.target(tls=kind == "tls")
    async with ServiceBusClient(target, hasty.ca_file, plain_login=key_login) as client:
        await client.wire_for("q")
        wire = client.connection._wire
        yield client
        assert client.connection._wire is wire, "it was connected once"
        assert wire is not None
        assert wire.failure is None


def play(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, scenario: Play, *, key_login: bool = False
) -> None:
    async def run(hasty: HastyServer) -> None:
        monkeypatch.setattr(client_connection, "time", hasty.clock)  # tokens end by the server's clock
        if kind == "websocket":
            monkeypatch.setattr(client_connection, "open_wire", websocket_wire.open_wire)
        async with connected(hasty, kind, key_login=key_login) as client:
            await scenario(hasty, client)

    in_haste(folder, run)


async def hold(hasty: HastyServer, each_step: Callable[[], Awaitable[None]] | None = None) -> None:
    """Ten times as long as any timer; then some."""
    until_s = hasty.passed_s + HELD_S
    while hasty.passed_s <= until_s:
        await hasty.skip(STEP_S)
        if each_step is not None:
            await each_step()


def test_the_longest_timer_is_known() -> None:
    """Waiting: ten minutes of an idle link; whoever adds a longer one makes these tests longer."""
    assert LONGEST_S == 600


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_receiver_outlives_every_timer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: credit is open, nothing comes, both sides send empty frames and the token is renewed."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("idle") as receiver:
            waiting = asyncio.create_task(receiver.receive_messages(1, 2 * HELD_S))
            await hold(hasty)
            assert not waiting.done()
            async with client.get_queue_sender("idle") as sender:
                await sender.send_messages(ServiceBusMessage(b"at last"))
            await receiver.complete_message((await waiting)[0])

    play(tmp_path, monkeypatch, kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_connection_outlives_every_timer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: a message there and back every now and then, over the same links."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:

            async def exchange() -> None:
                await sender.send_messages(ServiceBusMessage(b"x"))
                (message,) = await receiver.receive_messages(1, 30)
                await receiver.complete_message(message)

            await hold(hasty, exchange)

    play(tmp_path, monkeypatch, kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_sender_outlives_every_timer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: a producer that has nothing to say keeps its link."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("q") as sender:
            await hold(hasty)
            await sender.send_messages(ServiceBusMessage(b"late"))

    play(tmp_path, monkeypatch, kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_reader_of_a_hub_outlives_every_timer(
    kind: str, busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: at the end of its partition, whether anything comes or not."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        reader = client.get_event_reader("hub", "0", StartPosition.latest())
        async with reader, client.get_queue_sender("hub") as sender:

            async def exchange() -> None:
                await sender.send_messages(ServiceBusMessage(b"event"))
                assert len(await reader.receive(30)) == 1

            if busy:
                await hold(hasty, exchange)
            else:
                waiting = asyncio.create_task(reader.receive())
                await hold(hasty)
                assert not waiting.done()
                await sender.send_messages(ServiceBusMessage(b"event"))
                assert len(await waiting) == 1

    play(tmp_path, monkeypatch, kind, scenario)


@pytest.mark.parametrize("key_login", [False, True], ids=["token", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_those_who_wait_for_a_session_outlive_every_timer(
    kind: str, key_login: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: one wait of 65 s after the other, none of them cut short; then the session that comes is theirs."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async def accepted() -> str | None:
            async with client.get_queue_receiver("s", session_id=True, session_wait=65.0) as receiver:
                return receiver.session_id

        waits: list[float] = []
        until_s = hasty.passed_s + HELD_S
        while hasty.passed_s <= until_s:
            begun_s, waiting = hasty.passed_s, asyncio.create_task(accepted())
            while not waiting.done():
                await hasty.turns(40)
                await hasty.skip(5)
            waits.append(hasty.passed_s - begun_s)
            assert isinstance(waiting.exception(), TimedOut), waiting.exception()
        assert min(waits) >= 65
        waiting = asyncio.create_task(accepted())
        await hasty.skip(STEP_S)
        async with client.get_queue_sender("s") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", session_id="blue"))
        assert await waiting == "blue"

    play(tmp_path, monkeypatch, kind, scenario, key_login=key_login)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_is_renewed_outlives_every_timer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: its receiver has no credit all the while: renewing is use enough."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("s", session_id="red") as receiver:

            async def renew() -> None:
                await receiver.renew_session_lock()

            await hold(hasty, renew)
            await receiver.set_session_state(b"still mine")
            assert await receiver.get_session_state() == b"still mine"

    play(tmp_path, monkeypatch, kind, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_says_nothing_is_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: an SDK sends empty frames; one that does not is taken for gone after 240 s."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        wire = client.connection._wire
        assert wire is not None
        monkeypatch.setattr(wire, "flush", lambda: None)  # nothing leaves any more
        for _ in range(5):
            await hasty.skip(STEP_S)
            assert wire.failure is None
        await hasty.skip(STEP_S + 1)
        await hasty.until(lambda: wire.failure)
        assert isinstance(wire.failure, ClientError)
        assert hasty.amqp.connections == 0

    async def run(hasty: HastyServer) -> None:
        monkeypatch.setattr(client_connection, "time", hasty.clock)
        if kind == "websocket":
            monkeypatch.setattr(client_connection, "open_wire", websocket_wire.open_wire)
        async with ServiceBusClient(hasty.target(tls=kind == "tls"), hasty.ca_file) as client:
            await client.wire_for("q")
            await scenario(hasty, client)

    in_haste(tmp_path, run)


# -- HTTP


class Browser:
    """One connection, one request after the other."""

    def __init__(self, hasty: HastyServer) -> None:
        self._hasty = hasty
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """With a first request: HTTP is loaded by then."""
        self._reader, self._writer = await asyncio.open_connection("localhost", self._hasty.port)
        self.ask("GET", "/health")
        assert await self.status() == 200

    def close(self) -> None:
        self._writer.close()

    def ask(self, method: str, path: str, body: str = "") -> None:
        target = self._hasty.target()
        token = token_for(target, target.audience("q"), self._hasty.clock.time())
        login = "" if path == "/health" else f"Authorization: {token}\r\n"
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{login}"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    async def status(self) -> int:
        """Of the next answer; 0 at the end of the connection."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        await self._reader.readexactly(int(length or 0))
        return int(head.split(" ")[1])


def test_a_keep_alive_connection_in_use_outlives_every_timer(tmp_path: Path) -> None:
    """Waiting: a request now and then, less than a minute apart, all over one connection."""

    async def run(hasty: HastyServer) -> None:
        browser = Browser(hasty)
        await browser.open()

        async def exchange() -> None:
            browser.ask("POST", "/q/messages", "x")
            assert await browser.status() == 201
            browser.ask("DELETE", "/q/messages/head")
            assert await browser.status() == 200

        await hold(hasty, exchange)
        browser.close()

    in_haste(tmp_path, run)


def test_a_keep_alive_connection_that_is_not_used_is_closed(tmp_path: Path) -> None:
    """Waiting: between two requests it has a minute."""

    async def run(hasty: HastyServer) -> None:
        browser = Browser(hasty)
        await browser.open()
        await hasty.skip(_KEEP_ALIVE_S - 1)
        browser.ask("GET", "/health")
        assert await browser.status() == 200
        await hasty.skip(_KEEP_ALIVE_S + 1)
        assert await browser.status() == 0
        browser.close()

    in_haste(tmp_path, run)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_long_polls_outlive_every_timer(busy: bool, tmp_path: Path) -> None:
    """Waiting: one after the other over one connection; each as long as it asked for, or until something comes."""

    async def run(hasty: HastyServer) -> None:
        browser, other = Browser(hasty), Browser(hasty)
        await browser.open()
        until_s = hasty.passed_s + HELD_S
        while hasty.passed_s <= until_s:
            begun_s = hasty.passed_s
            browser.ask("DELETE", "/q/messages/head?timeout=300")
            answer = asyncio.create_task(browser.status())
            while not answer.done() and hasty.passed_s < begun_s + 400:
                await hasty.turns(30)
                await hasty.skip(STEP_S)
                if busy and hasty.passed_s >= begun_s + 5 * STEP_S:
                    await other.open()
                    other.ask("POST", "/q/messages", "x")
                    assert await other.status() == 201
                    other.close()
                    await hasty.until(answer.done)
            assert await answer == (200 if busy else 204)
            assert busy or hasty.passed_s - begun_s >= 300
        browser.close()

    in_haste(tmp_path, run)
