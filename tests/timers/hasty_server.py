"""A whole server in this process, with its sockets, under a loop and a clock whose time a test lets pass: an hour
takes as long as what happens in it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from busway.broker.namespace.namespace import Namespace
from busway.client.connection_string import ConnectionString
from busway.clock import Clock
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.http.app import HttpGateway
from busway.gateway.http.entrance import Entrance
from busway.model.descriptions import ROOT_RULE_NAME, NewEntity, QueueDescription
from busway.serve_options import ServeOptions
from busway.server import Server
from busway.streams.hub_descriptions import EventHubDescription
from tests.harness.skipping_loop import SkippingLoop

T = TypeVar("T")

#: What may happen after each step: bytes go to and fro, commits end.
_TURNS: Final = 12


class HastyClock(Clock):
    """The machine's clock and what the loop has skipped."""

    def __init__(self, loop: SkippingLoop) -> None:
        self._loop = loop
        self._begun_wall_ms = time.time_ns() // 1_000_000
        self._begun_s = loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._begun_wall_ms + round((self._loop.time() - self._begun_s) * 1000)

    def time(self) -> float:
        """As the module `time` has it, for clients that make tokens."""
        return self.wall_ms() / 1000


class HastyServer:
    """Made by `in_haste`."""

    def __init__(self, loop: SkippingLoop, folder: Path, **options: Any) -> None:
        self.loop = loop
        self.clock = HastyClock(loop)
        self.server = Server(ServeOptions(data=folder, port=0, stores=1, **options))
        self.server._clock = self.clock
        self.namespace: Namespace
        self.amqp: AmqpGateway
        self._http: Entrance
        self.passed_s = 0.0

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        server = self.server
        await server.start(stack)
        assert server.bus is not None
        self.amqp, self._http = server.bus.amqp, server.bus.http
        self.namespace, hubs = server.bus.namespace, server.bus.hubs
        queues = [
            QueueDescription("q"),
            QueueDescription("idle"),
            QueueDescription("s", requires_session=True),
        ]
        await self.namespace.create([NewEntity(queue) for queue in queues])
        await hubs.create(EventHubDescription("hub", partition_count=1))

    def http_gateway(self) -> HttpGateway:
        """There is one since the first request."""
        gateway = self._http._gateway
        assert gateway is not None
        return gateway

    @property
    def port(self) -> int:
        return self.server._port

    @property
    def ca_file(self) -> Path | None:
        return self.server._ca_file

    def target(self, *, tls: bool = False) -> ConnectionString:
        return ConnectionString(
            "localhost", self.port, ROOT_RULE_NAME, self.namespace.access.root_key, emulator=not tls
        )

    async def turns(self, count: int = _TURNS) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def skip(self, seconds: float) -> None:
        """So much later; whatever was to happen meanwhile happens."""
        self.loop.skip(seconds)
        self.passed_s += seconds
        await self.turns()

    async def until(self, happened: Callable[[], T | None]) -> T:
        """No time passes but that of the machine."""
        for _ in range(2_000):
            found = happened()
            if found:
                return found
            await asyncio.sleep(0.0005)
        raise AssertionError("it did not happen")


def in_haste(folder: Path, scenario: Callable[[HastyServer], Awaitable[None]], **options: Any) -> None:
    loop = SkippingLoop()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            hasty = HastyServer(loop, folder, **options)
            await hasty.start(stack)
            await scenario(hasty)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
