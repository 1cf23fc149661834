"""Every kind of connection for an hour, idle and busy, against a real server: none is ended, none has to come again.

A round is a minute. Idle clients do what SDKs do (empty frames, renewed tokens) and nothing else; at the end each of
them is used once more, over the connection that it opened at the beginning. How many connections were opened is also
asked of the server: whoever came a second time was ended in between. And one client that says nothing at all is ended
when the service would end it.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from azure.servicebus import ServiceBusMessage as SdkMessage
from azure.servicebus.aio import ServiceBusClient as SdkClient

from busway.client import service_bus_client
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.connection_string import ConnectionString, token_for
from busway.client.errors import TimedOut
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.client.wire import Wire, open_wire
from tests.chaos.scenario import Outcome
from tests.harness.running_server import RunningServer
from tests.timers import websocket_wire

NAME = "connections held"
DOORS: Final = ("plain", "tls", "websocket")
#: Between two messages of a busy one.
BUSY_EVERY_S: Final = 2.0
#: Less than a keep-alive connection may rest.
REQUEST_EVERY_S: Final = 45.0
#: A silent client is ended after 240 s; a round that is shorter does not see it.
SILENCE_S: Final = 240.0
_CONNECT_S: Final = 40.0
_OPENED: Final = re.compile(r"^busway_connections_opened_total (\d+)", re.MULTILINE)


@dataclass
class Held:
    """What all of them share."""

    server: RunningServer
    until: float
    #: How many have connected, and how many shall.
    connected: int = 0
    expected: int = 0
    all_connected: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0
    received: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    #: How often each client has connected, by its target.
    opened: Counter[int] = field(default_factory=Counter)

    def arrive(self) -> None:
        self.connected += 1
        if self.connected == self.expected:
            self.all_connected.set()

    def found(self, what: str) -> None:
        self.violations[what] = self.violations.get(what, 0) + 1

    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    async def rest(self) -> None:
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))

    def target(self, door: str) -> ConnectionString:
        target = ConnectionString.parse(self.server.connection_string)
        if door == "plain":
            return target
        kind = _WebSocketTarget if door == "websocket" else ConnectionString
        return kind(target.host, target.port, target.key_name, target.key, emulator=door == "websocket")

    @asynccontextmanager
    async def client(self, door: str) -> AsyncIterator[ServiceBusClient]:
        """Connected once, and still by the same connection in the end."""
        target = self.target(door)
        async with ServiceBusClient(target, Path(self.server.ca_file)) as client:
            yield client
            if self.opened[id(target)] != 1:
                self.found(f"{door}: connected {self.opened[id(target)]} times")

    async def open_wire(
        self, target: ConnectionString, ca_file: Path | None, *, plain_login: bool = False
    ) -> Wire:
        """By the door that the target means."""
        self.opened[id(target)] += 1
        opener = websocket_wire.open_wire if isinstance(target, _WebSocketTarget) else open_wire
        return await opener(target, ca_file, plain_login=plain_login)


class _WebSocketTarget(ConnectionString):
    pass


async def idle_receiver(held: Held, door: str) -> None:
    queue = f"idle-{door}"
    async with held.client(door) as client, client.get_queue_receiver(queue) as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(1, 1e6))
        held.arrive()
        await held.rest()
        if waiting.done():
            held.found(f"{door}: an idle receiver was ended")
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"at last"))
            held.sent += 1
        (message,) = await waiting
        await receiver.complete_message(message)
        held.received += 1


async def busy(held: Held, door: str) -> None:
    queue = f"busy-{door}"
    async with (
        held.client(door) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        held.arrive()
        while not held.is_over():
            await sender.send_messages(ServiceBusMessage(b"x"))
            held.sent += 1
            (message,) = await receiver.receive_messages(1, 30)
            await receiver.complete_message(message)
            held.received += 1
            await asyncio.sleep(BUSY_EVERY_S)


async def hub_reader(held: Held, door: str, *, is_busy: bool) -> None:
    partition = str(DOORS.index(door))
    hub = "busy-hub" if is_busy else "idle-hub"
    async with (
        held.client(door) as client,
        client.get_event_reader(hub, partition, StartPosition.latest()) as reader,
        client.get_queue_sender(f"{hub}/Partitions/{partition}") as sender,
    ):
        held.arrive()
        while is_busy and not held.is_over():
            await sender.send_messages(ServiceBusMessage(b"x"))
            held.sent += 1
            events = await reader.receive(30)
            held.received += len(events)
            await asyncio.sleep(BUSY_EVERY_S)
        waiting = asyncio.create_task(reader.receive())
        await held.rest()
        if waiting.done():
            held.found(f"{door}: an idle reader of a hub was ended")
        await sender.send_messages(ServiceBusMessage(b"at last"))
        held.sent += 1
        events = await waiting
        held.received += len(events)


async def session_waiter(held: Held, door: str) -> None:
    """One wait for a session after the other; then it comes, and is kept by renewing for as long again as is left."""
    queue = f"sessions-{door}"
    async with held.client(door) as client:
        await client.wire_for(queue)
        held.arrive()
        while held.until - time.monotonic() > 70:
            begun = time.monotonic()
            try:
                async with client.get_queue_receiver(queue, session_id=True, session_wait=60.0):
                    held.found(f"{door}: a session came from nowhere")
            except TimedOut:
                if time.monotonic() - begun < 59:
                    held.found(f"{door}: a wait for a session was cut short")
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage(b"x", session_id="blue"))
            held.sent += 1
        async with client.get_queue_receiver(queue, session_id=True, session_wait=60.0) as receiver:
            (message,) = await receiver.receive_messages(1, 30)
            while not held.is_over():
                await receiver.renew_session_lock()
                await asyncio.sleep(BUSY_EVERY_S)
            await receiver.complete_message(message)
            held.received += 1


async def sdk_client(held: Held, *, is_busy: bool) -> None:
    """The official one, with its own heartbeats and tokens."""
    queue = f"sdk-{'busy' if is_busy else 'idle'}"
    text = held.server.connection_string
    async with (
        SdkClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(SdkMessage("first"))
        held.sent += 1
        for message in await receiver.receive_messages(max_wait_time=30):
            await receiver.complete_message(message)
            held.received += 1
        held.arrive()
        while is_busy and not held.is_over():
            await sender.send_messages(SdkMessage("x"))
            held.sent += 1
            for message in await receiver.receive_messages(max_wait_time=30):
                await receiver.complete_message(message)
                held.received += 1
            await asyncio.sleep(BUSY_EVERY_S)
        if not is_busy:
            idle = max(1.0, held.until - time.monotonic())
            if await receiver.receive_messages(max_wait_time=idle):
                held.found("the SDK received what nobody sent")
        await sender.send_messages(SdkMessage("last"))
        held.sent += 1
        for message in await receiver.receive_messages(max_wait_time=30):
            await receiver.complete_message(message)
            held.received += 1


class _Requests:
    """HTTP over one connection."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._held.server.port)

    def close(self) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: str = "") -> int:
        target = self._held.target("plain")
        token = token_for(target, target.audience(""), time.time())
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        await self._reader.readexactly(int(length or 0))
        return int(head.split(" ")[1])


async def keep_alive(held: Held, every_s: float) -> None:
    requests = _Requests(held)
    await requests.open()
    held.arrive()
    while not held.is_over():
        if await requests.ask("POST", "/http/messages", "x") == 201:
            held.sent += 1
        if await requests.ask("DELETE", "/http/messages/head") == 200:
            held.received += 1
        await asyncio.sleep(min(every_s, max(0.0, held.until - time.monotonic())))
    requests.close()


async def long_polls(held: Held, *, is_busy: bool) -> None:
    queue = f"polls-{'busy' if is_busy else 'idle'}"
    requests, other = _Requests(held), _Requests(held)
    await requests.open()
    held.arrive()
    while not held.is_over():
        wait_s = min(300, max(1, round(held.until - time.monotonic())))
        begun = time.monotonic()
        polling = asyncio.create_task(requests.ask("DELETE", f"/{queue}/messages/head?timeout={wait_s}"))
        if is_busy:
            await asyncio.sleep(min(20.0, wait_s / 2))
            await other.open()
            status = await other.ask("POST", f"/{queue}/messages", "x")
            held.sent += status == 201
            other.close()
        status = await polling
        held.received += status == 200
        if status != (200 if is_busy else 204) or (not is_busy and time.monotonic() - begun < wait_s - 1):
            held.found(
                f"a long poll of {wait_s} s ended with {status} after {time.monotonic() - begun:.0f} s"
            )
    requests.close()


async def silent(held: Held) -> None:
    """Logged in by nobody: it is ended, and soon."""
    held.arrive()
    reader, writer = await asyncio.open_connection("127.0.0.1", held.server.port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    begun = time.monotonic()
    try:
        async with asyncio.timeout(SILENCE_S):
            while await reader.read(1 << 16):
                pass
    except TimeoutError:
        held.found("a connection that said nothing was kept")
    if time.monotonic() - begun < 5:
        held.found("a connection that said nothing had no time")
    writer.close()


def everybody(held: Held) -> list[Awaitable[None]]:
    return [
        *(idle_receiver(held, door) for door in DOORS),
        *(busy(held, door) for door in DOORS),
        *(hub_reader(held, door, is_busy=is_busy) for door in DOORS for is_busy in (False, True)),
        *(session_waiter(held, door) for door in DOORS),
        *(sdk_client(held, is_busy=is_busy) for is_busy in (False, True)),
        keep_alive(held, BUSY_EVERY_S),
        keep_alive(held, REQUEST_EVERY_S),
        *(long_polls(held, is_busy=is_busy) for is_busy in (False, True)),
        silent(held),
    ]


def held_for_long(folder: Path, rounds: int, _seed: int) -> Outcome:
    """`rounds` are minutes."""
    folder.mkdir(exist_ok=True)
    with RunningServer(folder) as server:
        _provide(server)
        held = Held(server, time.monotonic() + 60.0 * rounds)
        begun = time.monotonic()
        with patch.object(service_bus_client, "open_wire", held.open_wire):
            asyncio.run(_hold(held))
        minutes = (time.monotonic() - begun) / 60
    whole = min(rounds, int(minutes + 0.05))
    note = f"({held.connected} connections)"
    return Outcome(NAME, whole, rounds, held.sent, held.received, held.violations, note)


async def _hold(held: Held) -> None:
    working = [asyncio.ensure_future(each) for each in everybody(held)]
    held.expected = len(working)
    try:
        async with asyncio.timeout(_CONNECT_S):
            await held.all_connected.wait()
    except TimeoutError:
        held.found(f"only {held.connected} of {held.expected} could connect")
    opened = await asyncio.to_thread(_opened, held.server)
    watching = asyncio.ensure_future(_watch(held, opened))
    for failure in await asyncio.gather(*working, return_exceptions=True):
        if isinstance(failure, BaseException):
            held.found(f"{type(failure).__name__}: {failure}"[:200])
    watching.cancel()
    if held.sent != held.received:
        held.found(f"{held.sent} sent, {held.received} received")


async def _watch(held: Held, opened: int) -> None:
    """Nobody comes a second time."""
    while True:
        await asyncio.sleep(5)
        if held.until - time.monotonic() < 5:
            return
        now = await asyncio.to_thread(_opened, held.server)
        if now != opened:
            held.found(f"{now - opened} connections were opened again")
            return


def _opened(server: RunningServer) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        found = _OPENED.search(answer.read().decode())
    return int(found[1]) if found else -1


def _provide(server: RunningServer) -> None:
    queues = ["sdk-idle", "sdk-busy", "http", "polls-idle", "polls-busy"]
    queues += [f"{kind}-{door}" for kind in ("idle", "busy") for door in DOORS]
    target = ConnectionString.parse(server.connection_string)
    with ServiceBusAdministrationClient(target, Path(server.ca_file)) as administration:
        for queue in queues:
            administration.create_queue(queue)
        for door in DOORS:
            administration.create_queue(f"sessions-{door}", {"RequiresSession": True})
        for hub in ("idle-hub", "busy-hub"):
            administration.hubs.create(hub, {"PartitionCount": len(DOORS)})
