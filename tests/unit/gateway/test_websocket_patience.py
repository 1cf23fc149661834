"""AMQP over WebSocket outlives every timer of the HTTP connection that it once was."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from busway.amqp.decode import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from busway.amqp.sasl import plain_response
from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http import protocol
from busway.gateway.http.app import HttpGateway
from busway.gateway.http.websocket import SUBPROTOCOL
from busway.model.descriptions import ROOT_RULE_NAME, NewEntity, QueueDescription
from busway.model.limits import Limits
from tests.harness.frame_factory import make_frame, sasl
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.skipping_loop import SkippingLoop
from tests.unit.gateway.amqp_peer import KEY, payload

CONNECTIONS = 1_100
#: Longer than any timer of the gateways: the longest is that of an idle link, 600 s.
HELD_S = 700
STEP_S = 100
UPGRADE = (
    "GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
).encode()
LOGIN = (
    SASL_HEADER
    + sasl(SaslInit("PLAIN", plain_response(ROOT_RULE_NAME, KEY)))
    + AMQP_HEADER
    + make_frame(Open("patient"))
    + make_frame(Begin(None, 0, 65_536, 65_536))
)


def frame(data: bytes) -> bytes:
    """A binary WebSocket frame; the mask is made of zeros, so the data look as they are."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x82" + length + bytes(4) + data


class Pipe(asyncio.Transport):
    """The server's end of a connection without a socket."""

    def __init__(self, made: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 5672)})
        self.protocol: Any = made
        self.is_closed = False
        self.is_read = True
        self.answers = 0
        self._unread: list[bytes] = []
        made.connection_made(self)

    def say(self, data: bytes) -> None:
        self._unread.append(data)
        self._feed()

    def _feed(self) -> None:
        while self._unread and self.is_read and not self.is_closed:
            self.protocol.data_received(self._unread.pop(0))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answers += len(data) > 0

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        if not self.is_read:
            self.is_read = True
            asyncio.get_running_loop().call_soon(self._feed)


class Bus:
    """Both gateways without a listener, under a clock and a loop that the test lets pass together."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = MemoryStore("a")
        self.namespace = Namespace("ns", [store], self.clock, SeededEntropy(), Limits(), root_key=KEY)
        self.amqp: AmqpGateway
        self.http: HttpGateway

    async def open(self) -> None:
        await self.namespace.open()
        await self.namespace.create([NewEntity(QueueDescription("q")), NewEntity(QueueDescription("idle"))])
        self.amqp = AmqpGateway(self.namespace, self.clock, SeededEntropy())
        self.http = HttpGateway(
            self.namespace, self.clock, SeededEntropy(), self.amqp.connect, PayloadCodec(SeededEntropy())
        )

    async def close(self) -> None:
        await self.amqp.close(0)
        await self.http.close()
        await self.namespace.close()

    async def turns(self, count: int = 30) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def skip(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        self.clock.advance(seconds)
        loop.skip(seconds)
        await self.turns()


def in_bus(scenario: Any) -> None:
    async def run() -> None:
        bus = Bus()
        await bus.open()
        try:
            await scenario(bus)
        finally:
            await bus.close()

    work: Coroutine[Any, Any, None] = run()
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(work)


def idle() -> bytes:
    """A receiver that waits for messages of a queue where none come."""
    attach = Attach("r", 0, ROLE_RECEIVER, source=Source("idle"), target=Target("x"))
    return LOGIN + make_frame(attach) + make_frame(Flow(1, 65_536, 0, 65_536, 0, 0, 1))


def busy() -> bytes:
    attach = Attach("s", 0, ROLE_SENDER, source=Source("x"), target=Target("q"), initial_delivery_count=0)
    return LOGIN + make_frame(attach)


def sent(number: int) -> bytes:
    return make_frame(Transfer(0, number, b"t", 0, False, False), payload=payload())


def test_1100_connections_over_websocket_outlive_every_timer() -> None:
    """Found by review: each died 10 s after it was opened, and the 1,001st ended the first."""

    async def scenario(bus: Bus) -> None:
        pipes: list[Pipe] = []
        for number in range(CONNECTIONS):
            pipes.append(Pipe(bus.http.protocol()))
            pipes[-1].say(UPGRADE)
            await bus.turns(2)
            pipes[-1].say(frame(busy() if number % 2 else idle()))
        await bus.turns()
        assert [pipe.is_closed for pipe in pipes].count(True) == 0
        assert bus.amqp.connections == CONNECTIONS
        for step in range(HELD_S // STEP_S):
            await bus.skip(STEP_S)
            for number, pipe in enumerate(pipes):
                pipe.say(frame(sent(step) if number % 2 else EMPTY_FRAME))
            await bus.turns()
            assert [pipe.is_closed for pipe in pipes].count(True) == 0
        assert bus.amqp.connections == CONNECTIONS
        counts = bus.namespace.queue("q").counts()
        assert counts.active == CONNECTIONS // 2 * (HELD_S // STEP_S)

    in_bus(scenario)


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_a_connection_that_asked_before_its_upgrade_outlives_every_timer(is_pipelined: bool) -> None:
    """Found by review: a request before the upgrade, answered or not, leaves no timer and no idler behind."""

    async def scenario(bus: Bus) -> None:
        asked = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        pipe = Pipe(bus.http.protocol())
        if is_pipelined:
            pipe.say(asked + UPGRADE)
        else:
            pipe.say(asked)
            await bus.turns()
            pipe.say(UPGRADE[:40])  # half a head, whose timer runs
            pipe.say(UPGRADE[40:])
        await bus.turns()
        pipe.say(frame(idle()))
        await bus.turns()
        for _ in range(HELD_S // STEP_S):
            await bus.skip(STEP_S)
            pipe.say(frame(EMPTY_FRAME))
            await bus.turns()
        assert not pipe.is_closed
        assert bus.amqp.connections == 1
        assert len(bus.http._idlers) == 0

    in_bus(scenario)


def test_half_a_head_still_has_ten_seconds() -> None:
    """A-11: only the upgrade ends the timer of a head."""

    async def scenario(bus: Bus) -> None:
        pipe = Pipe(bus.http.protocol())
        pipe.say(UPGRADE[:40])
        await bus.skip(protocol.HEAD_S - 1)
        assert not pipe.is_closed
        await bus.skip(2)
        assert pipe.is_closed

    in_bus(scenario)
