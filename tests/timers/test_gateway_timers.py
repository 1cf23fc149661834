"""Timers of the gateways whose end is rare: peers that take nothing, bodies that do not end, a server that stops."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from busway.amqp.decode import EMPTY_FRAME
from busway.client import client_connection
from busway.client.connection_string import token_for
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.gateway.http.websocket import WebSocketTransport
from busway.gateway.listener import ACCEPT_PAUSE_S, Listener, Service
from busway.model.descriptions import QueueDescription
from tests.harness.skipping_loop import SkippingLoop
from tests.timers import websocket_wire
from tests.timers.hasty_server import HastyServer, in_haste
from tests.unit.gateway.amqp_peer import Room, in_room, payload


def on_a_loop(scenario: Callable[[SkippingLoop], Awaitable[None]]) -> None:
    loop = SkippingLoop()

    async def run() -> None:
        await scenario(loop)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- AMQP


def test_a_peer_that_does_not_take_our_last_words_keeps_no_socket() -> None:
    """Waiting: two seconds after the good-bye the transport is cut."""

    async def scenario(_: SkippingLoop) -> None:
        room = Room()
        await room.open(QueueDescription("q"))
        peer = await room.client()
        peer.transport.holds = True
        peer.connection.data_received(b"\x00\x00\x00\x03garbage")
        await turns()
        assert peer.transport.get_write_buffer_size() > 0
        await room.pass_time(1.9)
        assert peer.transport.get_write_buffer_size() > 0
        await room.pass_time(0.2)
        assert peer.transport.get_write_buffer_size() == 0
        await room.close()

    on_a_loop(scenario)


def test_the_gateway_has_a_timer_only_while_it_has_connections() -> None:
    """Waiting: started by the first, not started again after the last, stopped by the end."""

    async def scenario(loop: SkippingLoop) -> None:
        room = Room()
        await room.open(QueueDescription("q"))
        assert room.gateway._timer is None
        peer = await room.client()
        assert room.gateway._timer is not None
        peer.connection.connection_lost()
        loop.skip(1.1)
        await turns()
        assert room.gateway._timer is None
        await room.client()
        timer = room.gateway._timer
        assert timer is not None
        await room.close()
        assert timer.cancelled()

    on_a_loop(scenario)


def test_a_stop_does_not_wait_for_clients_that_do_not_answer(tmp_path: Path) -> None:
    """Waiting: three seconds, then they are cut."""

    async def run(hasty: HastyServer) -> None:
        mute = socket.create_connection(("localhost", hasty.port))
        mute.sendall(b"AMQP\x03\x01\x00\x00")
        await hasty.until(lambda: hasty.amqp.connections)
        closing, begun_s = asyncio.ensure_future(hasty.amqp.close()), hasty.passed_s
        while not closing.done() and hasty.passed_s < begun_s + 10:
            await hasty.turns()
            await hasty.skip(0.1)
        assert hasty.passed_s - begun_s <= 3.3
        assert hasty.amqp.connections == 0
        mute.close()

    in_haste(tmp_path, run)


def test_a_drain_that_goes_with_its_link_leaves_no_alarm() -> None:
    """Found by review: the alarm kept the link that was gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.sent(await peer.sender("q"), payload(b"1"), payload(b"2"))
        link = await peer.receiver("q", deletes=True)
        room.store.hold_commits()
        link.grant_credit(5, drain=True)
        await room.turns()
        (alarm,) = [each for each in room.alarms if "drain" in each.callback.__qualname__]
        link.detach()
        await room.turns()
        assert "drain" not in alarm.callback.__qualname__
        room.store.release_commits()

    in_room(scenario, QueueDescription("q"))


# -- the listener


def test_accepting_goes_on_a_second_after_there_were_no_descriptors() -> None:
    """Waiting: and a listener that is closed meanwhile stays closed."""

    async def scenario(loop: SkippingLoop) -> None:
        door = Listener(lambda: asyncio.Protocol(), lambda: asyncio.Protocol(), None)
        port = await door.start("127.0.0.1", 0, Service(plain=True, tls=False, amqp=True, http=True))
        (listening,) = door._sockets
        door._accept_failed(listening, OSError(errno.EMFILE, "Too many open files"))
        with socket.create_connection(("127.0.0.1", port)):
            await turns()
            assert door.arrivals == 0
            loop.skip(ACCEPT_PAUSE_S + 0.01)
            await turns()
            assert door.arrivals == 1
        door._accept_failed(listening, OSError(errno.EMFILE, "Too many open files"))
        pause = door._pauses[listening]
        await door.close()
        assert pause.cancelled()

    on_a_loop(scenario)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such timer")
def test_bytes_go_unacknowledged_for_a_minute_at_most(tmp_path: Path) -> None:
    """Waiting: the kernel's own timer, for peers whose machine is gone; every connection that is accepted has it."""

    async def run(hasty: HastyServer) -> None:
        with socket.create_connection(("localhost", hasty.port)) as client:
            client.sendall(b"AMQP\x03\x01\x00\x00")
            connection = await hasty.until(lambda: next(iter(hasty.amqp._connections), None))
            transport: Any = connection.carrier.transport
            accepted = transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000

    in_haste(tmp_path, run)


# -- HTTP


async def half_a_body(hasty: HastyServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("localhost", hasty.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await reader.read(1 << 16)
    target = hasty.target()
    token = token_for(target, target.audience("q"), hasty.clock.time())
    writer.write(
        f"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        "Content-Length: 10\r\n\r\nhalf".encode()
    )
    for _ in range(20):
        await asyncio.sleep(0.001)
    return reader, writer


def test_a_body_that_does_not_end_has_thirty_seconds(tmp_path: Path) -> None:
    """Waiting: then the request is answered, without a message."""

    async def run(hasty: HastyServer) -> None:
        reader, writer = await half_a_body(hasty)
        answer = asyncio.ensure_future(reader.readline())
        await hasty.skip(29)
        await hasty.turns(100)
        assert not answer.done()
        await hasty.skip(2)
        status = (await answer).split(b" ")[1]
        assert status in (b"408", b"500", b"504"), status
        assert hasty.namespace.queue("q").counts().total == 0
        writer.close()

    in_haste(tmp_path, run)


def test_a_request_that_does_not_end_keeps_a_stopping_server_for_five_seconds(tmp_path: Path) -> None:
    """Waiting: then it is cut."""

    async def run(hasty: HastyServer) -> None:
        _, writer = await half_a_body(hasty)
        gateway = hasty.http_gateway()
        assert gateway.connections == 1
        closing, begun_s = asyncio.ensure_future(gateway.close()), hasty.passed_s
        while not closing.done() and hasty.passed_s < begun_s + 10:
            await hasty.turns()
            await hasty.skip(0.5)
        assert 5 <= hasty.passed_s - begun_s <= 6
        writer.close()

    in_haste(tmp_path, run)


def test_tiny_frames_of_a_websocket_are_looked_at_in_turns_and_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: ten milliseconds at a time; what is behind them comes through."""

    async def run(hasty: HastyServer) -> None:
        monkeypatch.setattr(client_connection, "open_wire", websocket_wire.open_wire)
        async with (
            ServiceBusClient(hasty.target(), plain_login=True) as client,
            client.get_queue_sender("q") as sender,
        ):
            wire = client.connection._wire
            assert wire is not None
            writer: Any = wire._writer
            writer._stream.write(websocket_wire.frame(EMPTY_FRAME) * 20_000)
            await sender.send_messages(ServiceBusMessage(b"behind them"))
            assert wire.failure is None
        assert hasty.namespace.queue("q").counts().active == 1

    in_haste(tmp_path, run)


class _StuckSocket:
    """A client that neither reads nor says anything."""

    client = None

    async def receive(self) -> dict[str, Any]:
        await asyncio.get_running_loop().create_future()
        return {}

    async def send_bytes(self, _data: bytes) -> None:
        await asyncio.get_running_loop().create_future()


class _Served:
    def __init__(self) -> None:
        self.is_lost = False

    def connection_lost(self) -> None:
        self.is_lost = True


def test_a_websocket_whose_client_does_not_read_closes_within_five_seconds() -> None:
    """Waiting: what is queued for it is dropped then."""

    async def scenario(loop: SkippingLoop) -> None:
        transport, served = WebSocketTransport(_StuckSocket()), _Served()  # type: ignore[arg-type]
        serving = asyncio.ensure_future(transport.serve(lambda *_: served))  # type: ignore[arg-type]
        await turns()
        transport.write(b"last words")
        await turns()
        transport._aborted.clear()
        transport.close()
        (receiving,) = [each for each in asyncio.all_tasks() if "_receive" in repr(each.get_coro())]
        receiving.cancel()
        await turns()
        loop.skip(4.9)
        await turns()
        assert not serving.done()
        loop.skip(0.2)
        await turns()
        assert serving.done()
        assert served.is_lost

    on_a_loop(scenario)


@pytest.mark.parametrize("seconds", [9.0])
def test_a_stranger_that_says_nothing_leaves_no_timer_behind(seconds: float, tmp_path: Path) -> None:
    """Waiting: a connection that goes in the anteroom takes its timer along."""

    async def run(hasty: HastyServer) -> None:
        silent = socket.create_connection(("localhost", hasty.port))
        await hasty.skip(seconds)
        armed = [handle for handle in hasty.loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert any("drop" in repr(handle) for handle in armed)
        silent.close()
        await hasty.turns(50)
        armed = [handle for handle in hasty.loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert not any("drop" in repr(handle) for handle in armed)

    in_haste(tmp_path, run)
