"""How long our client waits for a server that does not answer, and what it does then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from busway.client import client_connection
from busway.client.administration import TIMEOUT_S, ServiceBusAdministrationClient, _connection
from busway.client.connection_string import ConnectionString
from busway.client.errors import ClientError, LockLost, TimedOut, Unreachable
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.client.wire import Wire, open_wire
from tests.harness.skipping_loop import SkippingLoop
from tests.timers.hasty_server import HastyServer, in_haste

Scenario = Callable[[HastyServer, ServiceBusClient], Awaitable[None]]


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> None:
    async def run(hasty: HastyServer) -> None:
        monkeypatch.setattr(client_connection, "time", hasty.clock)
        async with ServiceBusClient(hasty.target(), hasty.ca_file) as client:
            await client.wire_for("q")
            await scenario(hasty, client)
            monkeypatch.undo()  # it hears the answer to its good-bye

    in_haste(folder, run)


def deafen(client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Whatever the server says from now on is not heard."""
    wire = client.connection._wire
    assert wire is not None
    monkeypatch.setattr(wire, "_handle", lambda _events: None)
    return wire


async def lasts(hasty: HastyServer, work: Coroutine[Any, Any, object]) -> tuple[int, BaseException | None]:
    """(how many seconds it took, what it raised)"""
    task = asyncio.ensure_future(work)
    begun_s = hasty.passed_s
    for _ in range(200):
        await hasty.turns(30)
        if task.done():
            return round(hasty.passed_s - begun_s), task.exception()
        await hasty.skip(1)
    task.cancel()
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize(("has_heartbeat", "patience_s"), [(True, 10), (False, 20)])
def test_a_server_that_accepts_and_says_nothing_is_given_up(
    has_heartbeat: bool, patience_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: ten seconds for a handshake; and should the engine's own time stand still, twenty in all."""
    loop = SkippingLoop()
    listening = socket.create_server(("localhost", 0))
    target = ConnectionString("localhost", listening.getsockname()[1], "r", "k", emulator=True)
    if not has_heartbeat:
        monkeypatch.setattr(Wire, "_set_timer", lambda _wire: None)

    async def run() -> None:
        opening = asyncio.ensure_future(open_wire(target, None))
        for _ in range(50):  # the name is looked up in a thread
            await asyncio.sleep(0.001)
        loop.skip(patience_s - 1)
        await asyncio.sleep(0.01)
        assert not opening.done()
        loop.skip(2)
        await asyncio.sleep(0.01)
        loop.skip(6)  # our good-bye is not answered either
        with pytest.raises(ClientError, match=r"does not answer|was not opened"):
            await opening

    with listening, asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def test_an_address_that_swallows_everything_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: a firewall that drops packets costs twenty seconds, not minutes."""
    loop = SkippingLoop()

    async def never(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def run() -> None:
        monkeypatch.setattr(asyncio, "open_connection", never)
        opening = asyncio.ensure_future(open_wire(ConnectionString("10.255.255.1", 5671, "r", "k"), None))
        await asyncio.sleep(0)
        loop.skip(19)
        await asyncio.sleep(0)
        assert not opening.done()
        loop.skip(2)
        with pytest.raises(Unreachable):
            await opening

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def test_a_good_bye_that_is_not_answered_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: a verb ends within five seconds, and its timer with it."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        wire = deafen(client, monkeypatch)
        reading = wire._reading
        assert reading is not None
        wire._reading = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]
        assert await lasts(hasty, wire.close()) == (5, None)
        assert wire._timer is None or wire._timer.cancelled()
        reading.cancel()

    play(tmp_path, monkeypatch, scenario)


def test_an_attach_and_a_detach_that_are_not_answered_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: thirty seconds and five."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        sender = client.get_queue_sender("q")
        await sender.open()
        deafen(client, monkeypatch)
        seconds, error = await lasts(hasty, client.get_queue_sender("q").open())
        assert (seconds, type(error)) == (30, TimedOut)
        assert await lasts(hasty, sender.close()) == (5, None)

    play(tmp_path, monkeypatch, scenario)


def test_a_receive_ends_with_its_time_although_the_drain_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: its own time, then ten seconds for what is on its way."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("q") as receiver:
            seconds, error = await lasts(hasty, receiver.receive_messages(1, 7))
            assert (seconds, error) == (7, None)
            monkeypatch.undo()
            deafen(client, monkeypatch)
            seconds, error = await lasts(hasty, receiver.receive_messages(1, 7))
            assert (seconds, error) == (17, None)
            monkeypatch.undo()

    play(tmp_path, monkeypatch, scenario)


def test_a_settlement_that_is_not_answered_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: after a minute nobody knows; the lock tells the rest."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
            await sender.send_messages(ServiceBusMessage(b"x"))
            (message,) = await receiver.receive_messages(1, 30)
            deafen(client, monkeypatch)
            seconds, error = await lasts(hasty, receiver.complete_message(message))
            assert (seconds, type(error)) == (60, LockLost)
            monkeypatch.undo()

    play(tmp_path, monkeypatch, scenario)


def test_requests_and_transactions_that_are_not_answered_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: a minute each."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        management = client.get_management("q")
        assert await management.peek_messages(1, 0) == []
        control = await client.control_link()
        deafen(client, monkeypatch)
        seconds, error = await lasts(hasty, management.peek_messages(1, 0))
        assert (seconds, type(error)) == (60, TimedOut)
        seconds, error = await lasts(hasty, control.declare())
        assert (seconds, type(error)) == (60, TimedOut)

    play(tmp_path, monkeypatch, scenario)


def test_a_reader_of_a_hub_waits_for_its_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: `busway events tail --wait`."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_event_reader("hub", "0", StartPosition.latest()) as reader:
            assert await lasts(hasty, reader.receive(9)) == (9, None)

    play(tmp_path, monkeypatch, scenario)


def test_a_token_that_cannot_be_renewed_keeps_no_other_from_it_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: one refusal at that moment cost every link its right, a quarter of an hour later."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        async with client.get_queue_sender("idle") as first, client.get_queue_sender("q") as second:
            put, failures = client.connection._put_token, ["idle", "q"]

            async def refused_once(entity: str) -> None:
                if entity in failures:
                    failures.remove(entity)
                    raise ClientError("The server is busy.")
                await put(entity)

            monkeypatch.setattr(client.connection, "_put_token", refused_once)
            while hasty.passed_s < 3_700:
                await hasty.skip(40)
            assert failures == []
            await first.send_messages(ServiceBusMessage(b"x"))
            await second.send_messages(ServiceBusMessage(b"x"))

    play(tmp_path, monkeypatch, scenario)


def test_a_closed_client_renews_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting: its task ends with it."""

    async def scenario(hasty: HastyServer, client: ServiceBusClient) -> None:
        renewal = client.connection._renewal
        assert renewal is not None
        await client.close()
        assert renewal.cancelled()
        assert hasty.amqp.connections == 0

    play(tmp_path, monkeypatch, scenario)


@pytest.mark.parametrize("emulator", [True, False], ids=["plain", "TLS"])
def test_a_request_of_administration_has_a_minute(emulator: bool) -> None:
    """Waiting: the system's own patience may be for ever."""
    target = ConnectionString("localhost", 1, "r", "k", emulator=emulator)
    with ServiceBusAdministrationClient(target, None):
        assert _connection(target, None).timeout == TIMEOUT_S == 60
