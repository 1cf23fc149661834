"""A client without a socket: the engine in its client role, wired to an `AmqpConnection` in memory, over a real
namespace on a memory store with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from busway.amqp.connection import Connection, Role
from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    DeliveriesArrived,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SaslFinished,
    SettlementsAnswered,
)
from busway.amqp.link import Link
from busway.amqp.performatives import Attach, Fields, Properties, Source, Target
from busway.amqp.sasl import plain_response
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.session import Session
from busway.broker.namespace.namespace import Namespace
from busway.client.connection_string import sas_token
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.shared import GatewaySettings
from busway.model.descriptions import ROOT_RULE_NAME, NewEntity, QueueDescription
from busway.model.limits import Limits
from busway.store.contract import FragmentKey, Page
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.quiet_loop import is_quiet

T = TypeVar("T")
E = TypeVar("E", bound=ConnectionEvent)

KEY = "the-key-of-the-tests"
TURNS_MAX = 500


class HeldStore(MemoryStore):
    """A memory store whose range reads can be held up, as its commits can."""

    _reads_on: asyncio.Event | None = None

    def hold_reads(self) -> None:
        self._reads_on = asyncio.Event()

    def release_reads(self) -> None:
        if self._reads_on is not None:
            self._reads_on.set()

    async def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        if self._reads_on is not None:
            await self._reads_on.wait()
        return await super().messages(fragment, place, after, limit, bytes_max)


class Room:
    """A namespace with its gateway, and the clients that came."""

    def __init__(
        self,
        settings: GatewaySettings | None = None,
        limits: Limits | None = None,
        sqlite_folder: Path | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.store: Any = HeldStore("a")
        #: A store with threads of its own needs some real time in each turn.
        self._turn_s = 0.0
        if sqlite_folder is not None:
            self.store = SqliteStore("a", sqlite_folder / "a.db", self.clock)
            self._turn_s = 0.001
        self.namespace = Namespace(
            "ns.local", [self.store], self.clock, SeededEntropy(), limits or Limits(), root_key=KEY
        )
        self.settings = settings
        self.peers: list[Peer] = []
        self.alarms: list[ManualAlarm] = []
        self.gateway: AmqpGateway

    async def open(self, *queues: QueueDescription) -> None:
        await self.namespace.open()
        self.gateway = AmqpGateway(
            self.namespace, self.clock, SeededEntropy(2), self.settings, self.call_later
        )
        for queue in queues:
            await self.namespace.create([NewEntity(queue)])

    async def close(self) -> None:
        for peer in self.peers:
            peer.transport.lose()
        await self.gateway.close(grace_s=0)
        await self.namespace.close()

    async def client(self, rule: str = ROOT_RULE_NAME, key: str = KEY, address: str = "10.0.0.1") -> Peer:
        """A client that is logged in with SASL PLAIN, with one session."""
        peer = Peer(
            self,
            address,
            EngineSettings(
                sasl_mechanism="PLAIN",
                sasl_response=plain_response(rule, key),
                unsettled_per_link_max=100_000,
            ),
        )
        await peer.open()
        return peer

    async def stranger(self, address: str = "10.0.0.1") -> Peer:
        """A client that has only shown up."""
        peer = Peer(self, address, EngineSettings())
        await peer.open()
        return peer

    async def turns(self, count: int = 20) -> None:
        """Lets everything happen that can happen without time passing."""
        for turn in range(count):
            moved = [peer.pump() for peer in self.peers]
            if turn and not any(moved) and not self._turn_s and is_quiet():
                return
            await asyncio.sleep(self._turn_s)

    async def until(self, happened: Callable[[], T | None]) -> T:
        """Goes on until the question has an answer."""
        for _ in range(TURNS_MAX):
            found = happened()
            if found:
                return found
            await self.turns(1)
        raise AssertionError("it did not happen")

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> ManualAlarm:
        self.alarms.append(ManualAlarm(self.clock.monotonic() + delay_s, callback))
        return self.alarms[-1]

    def _ring(self) -> None:
        now = self.clock.monotonic()
        due = [alarm for alarm in self.alarms if alarm.due <= now]
        self.alarms = [alarm for alarm in self.alarms if alarm.due > now]
        for alarm in due:
            alarm.callback()

    async def pass_time(self, seconds: float) -> None:
        """Time passes in small steps; everybody's timers ring, and living clients keep their connections alive."""
        step = min(seconds, 30.0)
        while seconds > 1e-9:
            self.clock.advance(min(step, seconds))
            seconds -= step
            self.namespace.tick()
            for peer in self.peers:
                peer.events.extend(peer.engine.tick(self.clock.monotonic()))
            self.gateway.tick()
            self._ring()
            await self.turns()


class ManualAlarm:
    """Rings when a test lets its time come."""

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback

    def cancel(self) -> None:
        self.callback = _nothing


def _nothing() -> None: ...


class MemoryTransport:
    """`ByteTransport` without a socket. `holds` plays a peer that does not read."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.writes = 0
        self.is_closed = False
        self.is_reading = True
        self.holds = False
        self.lost: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        assert type(data) is bytes
        self.writes += 1
        self.written.append(data)

    def take(self) -> bytes:
        if self.holds:
            return b""
        data = b"".join(self.written)
        self.written.clear()
        return data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.written.clear()
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return sum(len(data) for data in self.written) if self.holds else 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def lose(self) -> None:
        """The network is gone."""
        self.is_closed = True
        self.lost()


class Peer:
    """One client connection."""

    def __init__(self, room: Room, address: str, settings: EngineSettings) -> None:
        self.room = room
        self.transport = MemoryTransport()
        self.engine = Connection(Role.CLIENT, settings, room.clock.monotonic())
        self.events: list[ConnectionEvent] = []
        self.connection = room.gateway.connect(self.transport, address)
        self.transport.lost = self.connection.connection_lost
        #: Written by the client, not yet read by the server.
        self._unread = b""
        self.session: Session
        room.peers.append(self)

    def pump(self) -> bool:
        """Moves bytes both ways until neither side has any. Whether there were any."""
        for exchange in range(100):
            self._unread += self.engine.bytes_to_send()
            data = b""
            if self.transport.is_reading:
                data, self._unread = self._unread, b""
            if data and not self.transport.is_closed:
                self.connection.data_received(data)
            answer = self.transport.take()
            if answer:
                self.events.extend(self.engine.receive(answer, self.room.clock.monotonic()))
            if not data and not answer:
                return exchange > 0
        return True

    async def open(self) -> None:
        """As the SDKs do: open and begin without waiting for the answers."""
        self.pump()
        if any(isinstance(event, SaslFinished) and event.ok for event in self.events):
            self.engine.open()
            self.session = self.engine.begin()
        await self.room.turns()

    def seen(self, kind: type[E], link: Link | None = None) -> list[E]:
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (link is None or getattr(event, "link", None) is link)
        ]

    def closed_with(self) -> str | None:
        """The condition with which the server closed the connection."""
        for event in self.seen(ConnectionClosed):
            return None if event.error is None else event.error.condition
        return None

    # -- links

    async def attach(self, link: Link) -> Attach:
        """Waits for the server's answer; refused links are told by `refusal`."""
        await self.room.until(
            lambda: bool(self.seen(LinkAttached, link)) or bool(self.seen(LinkDetached, link))
        )
        await self.room.turns()
        answer = link.peer
        assert answer is not None
        return answer

    async def sender(self, address: str, name: str | None = None, **more: Any) -> Link:
        link = self.session.attach(
            name or f"s-{uuid4()}", is_sender=True, source=Source("here"), target=Target(address), **more
        )
        await self.attach(link)
        return link

    async def receiver(
        self, address: str, *, deletes: bool = False, filters: Fields | None = None, **more: Any
    ) -> Link:
        link = self.session.attach(
            more.pop("name", f"r-{uuid4()}"),
            is_sender=False,
            source=Source(address, filter=filters),
            target=more.pop("target", Target("there")),
            snd_settle_mode=1 if deletes else 0,
            rcv_settle_mode=0 if deletes else 1,
            **more,
        )
        await self.attach(link)
        return link

    def refusal(self, link: Link) -> tuple[str, str] | None:
        """(condition, description) with which the server ended the link."""
        for event in self.seen(LinkDetached, link):
            if event.error is not None:
                return event.error.condition, event.error.description or ""
        return None

    # -- messages

    def send(self, link: Link, payload: bytes, *, settled: bool = False, message_format: int = 0) -> int:
        """Returns the delivery id."""
        return link.send(uuid4().bytes, payload, settled=settled, message_format=message_format).delivery_id

    async def sent(self, link: Link, *payloads: bytes, message_format: int = 0) -> list[object]:
        """Sends and returns the outcome of each."""
        ids = [self.send(link, payload, message_format=message_format) for payload in payloads]
        await self.room.until(lambda: all(number in self.outcomes(link) for number in ids))
        return [self.outcomes(link)[number] for number in ids]

    def outcomes(self, link: Link) -> dict[int, object]:
        return {
            delivery.delivery_id: event.state
            for event in self.seen(OutcomesArrived, link)
            for delivery in event.deliveries
        }

    def deliveries(self, link: Link) -> list[IncomingDelivery]:
        return [delivery for event in self.seen(DeliveriesArrived, link) for delivery in event.deliveries]

    async def received(self, link: Link, count: int) -> list[IncomingDelivery]:
        """Waits until the link has got so many in all."""
        await self.room.until(lambda: len(self.deliveries(link)) >= count)
        return self.deliveries(link)

    async def settle(self, link: Link, deliveries: list[IncomingDelivery], outcome: object) -> list[object]:
        """Proposes an outcome and returns the server's answers in order."""
        before = len(self.seen(SettlementsAnswered, link))
        ids = [delivery.delivery_id for delivery in deliveries]
        link.settle(ids[0], ids[-1], outcome, settled=False)

        def answers() -> dict[int, object]:
            return {
                number: event.state
                for event in self.seen(SettlementsAnswered, link)[before:]
                for number in event.delivery_ids
            }

        await self.room.until(lambda: all(number in answers() for number in ids))
        return [answers()[number] for number in ids]

    # -- requests

    async def request_links(self, node: str, reply_to: str = "answers") -> tuple[Link, Link]:
        """(for requests, for answers)."""
        answers = self.session.attach(
            f"a-{uuid4()}", is_sender=False, source=Source(node), target=Target(reply_to)
        )
        await self.attach(answers)
        answers.grant_credit(100)
        requests = await self.sender(node)
        return requests, answers

    async def request(self, links: tuple[Link, Link], message: AmqpMessage) -> AmqpMessage:
        requests, answers = links
        before = len(self.deliveries(answers))
        self.send(requests, encode_message(message))
        found = await self.received(answers, before + 1)
        return decode_message(found[before].payload)

    async def put_token(
        self, audience: str, *, rule: str = ROOT_RULE_NAME, key: str = KEY, lifetime_s: int = 3600
    ) -> int:
        """Returns the status code."""
        reply_to = f"cbs-{uuid4()}"
        links = await self.request_links("$cbs", reply_to)
        token = sas_token(audience, rule, key, self.room.clock.wall_ms() // 1000 + lifetime_s)
        request = AmqpMessage(
            token,
            properties=Properties(message_id="1", reply_to=reply_to),
            application_properties={
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": audience,
            },
        )
        answer = await self.request(links, request)
        for link in links:  # a connection has one sender on `$cbs` at a time
            link.detach()
        await self.room.turns()
        return int((answer.application_properties or {})["status-code"])


def payload(body: bytes = b"hello", **sections: Any) -> bytes:
    return encode_message(AmqpMessage([body], DATA, **sections))


def body_of(delivery: IncomingDelivery) -> bytes:
    return b"".join(decode_message(delivery.payload).body)


def delivery_count(delivery: IncomingDelivery) -> int:
    header = decode_message(delivery.payload).header
    assert header is not None
    assert header.delivery_count is not None
    return header.delivery_count


async def fill(peer: Peer, *bodies: bytes, path: str = "q") -> None:
    await peer.sent(await peer.sender(path), *(payload(body) for body in bodies))


def in_room(
    scenario: Callable[[Room], Coroutine[Any, Any, None]],
    *queues: QueueDescription,
    settings: GatewaySettings | None = None,
    limits: Limits | None = None,
    sqlite_folder: Path | None = None,
) -> None:
    """Runs a scenario in a fresh room with these queues; on SQLite when there is a folder for it."""

    async def run() -> None:
        room = Room(settings, limits, sqlite_folder)
        await room.open(*queues)
        try:
            await scenario(room)
        finally:
            await room.close()

    asyncio.run(run())
