"""All AMQP connections of the server: how they come, the one timer, and the clean stop.

Straight on a socket they come by `AmqpProtocol`: the event loop's callbacks, handed on to the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from busway.amqp.errors import AmqpError, Condition
from busway.event_loop import LOOP
from busway.gateway.amqp.carrier import OUTPUT_HIGH_BYTES, ByteTransport
from busway.gateway.amqp.connection import AmqpConnection
from busway.gateway.amqp.links.link_host import Alarm
from busway.gateway.amqp.shared import CallLater, GatewaySettings, Shared
from busway.gateway.connection_budget import ConnectionBudget

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.clock import Clock, Entropy
    from busway.streams.event_hubs import EventHubs

_TICK_S: Final = 1.0
_CLOSE_LOOK_S: Final = 0.02


def _call_later(delay_s: float, callback: Callable[[], None]) -> Alarm:
    return asyncio.get_running_loop().call_later(delay_s, callback)


class AmqpGateway:
    """All connections to one namespace."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        entropy: Entropy,
        settings: GatewaySettings | None = None,
        call_later: CallLater | None = None,
        hubs: EventHubs | None = None,
        budget: ConnectionBudget | None = None,
    ) -> None:
        self.shared = Shared(
            namespace,
            clock,
            entropy,
            settings if settings is not None else GatewaySettings(),
            call_later if call_later is not None else _call_later,
            hubs,
            budget if budget is not None else ConnectionBudget(),
        )
        self._connections: set[AmqpConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._unwatch = namespace.access.watch(self.shared.rights.rules_changed)

    @property
    def connections(self) -> int:
        return len(self._connections)

    # -- coming and going

    def connect(self, transport: ByteTransport, peer: str) -> AmqpConnection:
        """A transport speaks AMQP: the connection that serves it."""
        connection = AmqpConnection(self.shared, transport, peer, self._connections.discard)
        self._connections.add(connection)
        self._start_timer()
        if self._is_closed:
            connection.abort()
        return connection

    # -- time

    def _start_timer(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        began_s = LOOP.now()
        self.tick()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"deadlines of {len(self._connections):,} connections")
        if self._connections:
            self._start_timer()

    def tick(self) -> None:
        """Calls every connection whose deadline has come."""
        now = self.shared.clock.monotonic()
        for connection in list(self._connections):
            if connection.deadline <= now:
                connection.tick(now)
        self.shared.budget.look()

    # -- the end

    async def close(self, grace_s: float = 3.0) -> None:
        """A clean stop: every link detached and every connection closed with amqp:connection:forced, which
        clients take as "try again". Waits until the peers have it, at most `grace_s`."""
        self._is_closed = True
        self._unwatch()
        sentence = self.shared.tracking.describe("The server is stopping.")
        stopping = AmqpError(Condition.CONNECTION_FORCED, sentence)
        for connection in list(self._connections):
            connection.close(stopping)
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while self._connections and loop.time() < until:
            self.tick()
            await asyncio.sleep(_CLOSE_LOOK_S)
        for connection in list(self._connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AmqpProtocol(asyncio.Protocol):
    """One per socket. Everything of interest is in `AmqpConnection`."""

    def __init__(self, server: AmqpGateway) -> None:
        self._server = server
        self._connection: AmqpConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        # It tells of what is above its mark, and at OUTPUT_HIGH_BYTES there is no room any more.
        stream.set_write_buffer_limits(high=OUTPUT_HIGH_BYTES - 1)
        address = stream.get_extra_info("peername")
        peer = str(address[0]) if isinstance(address, tuple) and address else ""
        self._connection = self._server.connect(stream, peer)

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.data_received(data)

    def eof_received(self) -> bool:
        """The client speaks no more: nothing is left to be said to it either."""
        return False

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._connection is not None:
            self._connection.connection_lost()
            self._connection = None
