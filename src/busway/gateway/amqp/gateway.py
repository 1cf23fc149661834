"""All AMQP connections of the server: who is let in, the one timer, and the clean stop.

Strangers and clients are counted apart. A connection that has not shown a valid token or key yet is a stranger:
there are bounds on strangers in all and for each peer, and when one is reached the oldest stranger is dropped,
because an honest client is known within milliseconds. Clients are bounded by L-11.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from busway.amqp.allowance import StrangerLimits
from busway.amqp.connection import EngineSettings
from busway.amqp.errors import AmqpError, Condition
from busway.clock import Clock, Entropy
from busway.gateway.amqp.connection import AmqpConnection, ByteTransport
from busway.gateway.amqp.links.link_host import Alarm
from busway.gateway.amqp.links.waiting_attaches import WaitingAttaches
from busway.gateway.amqp.rights_check import RightsCheck
from busway.gateway.connection_budget import ConnectionBudget
from busway.gateway.tracking import Tracking
from busway.loop_entries import LOOP

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.streams.event_hubs import EventHubs

_log = logging.getLogger("busway.gateway.amqp")

_TICK_S: Final = 1.0
_CLOSE_LOOK_S: Final = 0.02


@dataclass(frozen=True)
class GatewaySettings:
    """Deadlines and bounds; tests lower them (L-22)."""

    handshake_s: float = 10.0  # SASL and open
    token_s: float = 20.0
    first_link_s: float = 60.0
    last_link_gone_s: float = 300.0
    link_idle_s: float = 600.0
    write_stall_s: float = 60.0
    close_answer_s: float = 2.0
    strangers_max: int = 1_000
    strangers_per_peer_max: int = 64


CallLater = Callable[[float, Callable[[], None]], Alarm]


def _call_later(delay_s: float, callback: Callable[[], None]) -> Alarm:
    return asyncio.get_running_loop().call_later(delay_s, callback)


class AmqpGateway:
    """Shared by all connections of one namespace."""

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
        self.namespace = namespace
        #: None where there are no event hubs.
        self.hubs = hubs
        self.clock = clock
        self.entropy = entropy
        #: For times shorter than a tick. Tests bring their own.
        self.call_later = call_later if call_later is not None else _call_later
        self.settings = settings if settings is not None else GatewaySettings()
        self.tracking = Tracking(namespace.name, clock, entropy)
        self.engine_settings = EngineSettings(
            container_id=entropy.bytes(16).hex(),
            handshake_max_s=self.settings.handshake_s,
            close_wait_s=self.settings.close_answer_s,
            stranger=StrangerLimits(),
        )
        #: Shared with HTTP.
        self.budget = budget if budget is not None else ConnectionBudget()
        self.waiting_attaches = WaitingAttaches(namespace.background)
        self._connections: set[AmqpConnection] = set()
        #: In order of arrival.
        self._strangers: dict[AmqpConnection, None] = {}
        self._strangers_by_peer: dict[str, int] = {}
        self._clients = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.rights = RightsCheck(namespace.access, lambda work: asyncio.get_running_loop().call_soon(work))
        self._unwatch = namespace.access.watch(self.rights.rules_changed)

    @property
    def connections(self) -> int:
        return len(self._connections)

    # -- coming and going

    def connect(self, transport: ByteTransport, peer: str) -> AmqpConnection:
        """A transport speaks AMQP: the connection that serves it."""
        connection = AmqpConnection(self, transport, peer)
        self._make_room(peer)
        self._connections.add(connection)
        self._strangers[connection] = None
        self._strangers_by_peer[peer] = self._strangers_by_peer.get(peer, 0) + 1
        self._start_timer()
        if self._is_closed:
            connection.abort()
        return connection

    def authenticated(self, connection: AmqpConnection) -> bool:
        """The connection has shown a valid token. False when the namespace is full (L-11)."""
        if self._clients >= self.namespace.limits.connections_max:
            return False
        self._forget_stranger(connection)
        self._clients += 1
        self.namespace.flows.connections.opened += 1
        return True

    def forget(self, connection: AmqpConnection) -> None:
        """The connection is over."""
        self._connections.discard(connection)
        if connection.is_authenticated:
            self._clients -= 1
            self.namespace.flows.connections.closed += 1
        self._forget_stranger(connection)

    def _forget_stranger(self, connection: AmqpConnection) -> None:
        if connection not in self._strangers:
            return
        del self._strangers[connection]
        left = self._strangers_by_peer[connection.peer] - 1
        if left:
            self._strangers_by_peer[connection.peer] = left
        else:
            del self._strangers_by_peer[connection.peer]

    def _make_room(self, peer: str) -> None:
        settings = self.settings
        if len(self._strangers) >= settings.strangers_max:
            next(iter(self._strangers)).abort()
        per_peer_max = settings.strangers_max if _is_loopback(peer) else settings.strangers_per_peer_max
        if self._strangers_by_peer.get(peer, 0) >= per_peer_max:
            next(one for one in self._strangers if one.peer == peer).abort()

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
        now = self.clock.monotonic()
        for connection in list(self._connections):
            if connection.deadline <= now:
                connection.tick(now)
        self.budget.look()

    # -- the end

    async def close(self, grace_s: float = 3.0) -> None:
        """A clean stop: every link detached and every connection closed with amqp:connection:forced, which
        clients take as "try again". Waits until the peers have it, at most `grace_s`."""
        self._is_closed = True
        self._unwatch()
        stopping = AmqpError(Condition.CONNECTION_FORCED, self.tracking.describe("The server is stopping."))
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


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
