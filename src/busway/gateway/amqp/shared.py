"""What all connections of one namespace share: deadlines and bounds that hold for each of them, and who is let in.

Theory of operation. A connection that has not shown a valid token or key yet is a stranger: there are bounds on
strangers in all and for each peer, and when one is reached the oldest stranger is dropped, because an honest
client is known within milliseconds. Clients are bounded by L-11, and strangers and clients are counted apart
(`Admission`). Each connection holds one `Visit` from its first byte to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from busway.amqp.connection import EngineSettings
from busway.amqp.engine_settings import StrangerLimits
from busway.gateway.amqp.links.link_host import Alarm
from busway.gateway.amqp.links.waiting_attaches import WaitingAttaches
from busway.gateway.amqp.rights_check import RightsCheck
from busway.gateway.tracking import Tracking

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.clock import Clock, Entropy
    from busway.gateway.connection_budget import ConnectionBudget
    from busway.streams.event_hubs import EventHubs

#: For times shorter than a tick. Tests bring their own.
CallLater = Callable[[float, Callable[[], None]], Alarm]


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


class Shared:
    """`hubs`: None where there are no event hubs. `budget` is shared with HTTP."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        entropy: Entropy,
        settings: GatewaySettings,
        call_later: CallLater,
        hubs: EventHubs | None,
        budget: ConnectionBudget,
    ) -> None:
        self.namespace = namespace
        self.hubs = hubs
        self.clock = clock
        self.entropy = entropy
        self.call_later = call_later
        self.settings = settings
        self.tracking = Tracking(namespace.name, clock, entropy)
        self.engine_settings = EngineSettings(
            container_id=entropy.bytes(16).hex(),
            handshake_max_s=settings.handshake_s,
            close_wait_s=settings.close_answer_s,
            stranger=StrangerLimits(),
        )
        self.budget = budget
        self.admission = Admission(
            settings.strangers_max, settings.strangers_per_peer_max, namespace.limits.connections_max
        )
        self.waiting_attaches = WaitingAttaches(namespace.background)
        self.rights = RightsCheck(namespace.access, lambda work: asyncio.get_running_loop().call_soon(work))


class Admission:
    """Of all connections."""

    def __init__(self, strangers_max: int, strangers_per_peer_max: int, clients_max: int) -> None:
        self._strangers_max = strangers_max
        self._per_peer_max = strangers_per_peer_max
        self._clients_max = clients_max
        #: In order of arrival.
        self._strangers: dict[Visit, None] = {}
        self._strangers_by_peer: dict[str, int] = {}
        self._clients = 0

    def enter(self, peer: str, drop: Callable[[], None]) -> Visit:
        """As a stranger. `drop` ends the connection, when somebody else needs the place."""
        self._make_room(peer)
        visit = Visit(self, peer, drop)
        self._strangers[visit] = None
        self._strangers_by_peer[peer] = self._strangers_by_peer.get(peer, 0) + 1
        return visit

    def _make_room(self, peer: str) -> None:
        if len(self._strangers) >= self._strangers_max:
            next(iter(self._strangers)).drop()
        per_peer_max = self._strangers_max if _is_loopback(peer) else self._per_peer_max
        if self._strangers_by_peer.get(peer, 0) >= per_peer_max:
            next(one for one in self._strangers if one.peer == peer).drop()

    # -- from visits

    def recognise(self, visit: Visit) -> bool:
        if self._clients >= self._clients_max:
            return False
        self._forget_stranger(visit)
        self._clients += 1
        return True

    def leave(self, visit: Visit) -> None:
        if visit.is_client:
            self._clients -= 1
        self._forget_stranger(visit)

    def _forget_stranger(self, visit: Visit) -> None:
        if visit not in self._strangers:
            return
        del self._strangers[visit]
        left = self._strangers_by_peer[visit.peer] - 1
        if left:
            self._strangers_by_peer[visit.peer] = left
        else:
            del self._strangers_by_peer[visit.peer]


class Visit:
    """One connection's place among strangers or clients."""

    __slots__ = ("_admission", "drop", "is_client", "peer")

    def __init__(self, admission: Admission, peer: str, drop: Callable[[], None]) -> None:
        self._admission = admission
        self.peer = peer
        self.drop = drop
        self.is_client = False

    def recognise(self) -> bool:
        """It has shown a valid token. False when the namespace is full (L-11)."""
        self.is_client = self._admission.recognise(self)
        return self.is_client

    def leave(self) -> None:
        """The connection is over."""
        self._admission.leave(self)


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
