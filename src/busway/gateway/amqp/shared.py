"""What all connections of one namespace share: deadlines and bounds that hold for each of them, who is let in, and
which of their links may have lost their right.

Theory of operation. A connection that has not shown a valid token or key yet is a stranger: there are bounds on
strangers in all and for each peer, and when one is reached the oldest stranger is dropped, because an honest
client is known within milliseconds. Clients are bounded by L-11, and strangers and clients are counted apart
(`Admission`). Each connection holds one `AdmittedConnection` from its first byte to its end.

A right comes from a grant, a grant from a rule of the namespace or of one entity (its level). So there are two ways
to lose one (A-8, A-10), and each says what is concerned:

  a token is replaced by a lesser one, or ends  → links at and below its audience, on that connection
  rules change, or an entity goes               → the same, for the grants of that level, on the connections that
                                                  hold some; who holds what is booked here (`RightsCheck`)
Nothing else is looked at. What is concerned waits here, and is worked off in slices, one in each turn of the loop,
so that nobody else is stopped for long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.engine_settings import EngineSettings, StrangerLimits
from busway.event_loop import LOOP
from busway.gateway.amqp.links.link_host import Alarm
from busway.gateway.amqp.links.waiting_attaches import WaitingAttaches
from busway.gateway.tracking import Tracking

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.clock import Clock, Entropy
    from busway.gateway.connection_budget import ConnectionBudget
    from busway.model.authorization import Grant, RuleBook, Segments
    from busway.streams.event_hubs import EventHubs

#: Levels whose rules are compared with what they were, in one turn.
SLICE_LEVELS: Final = 500
#: Links that are looked at in one turn.
SLICE_LINKS: Final = 64
#: Connections whose links are searched for those that are concerned, in one turn.
SLICE_CONNECTIONS: Final = 8

LevelKey = str | None


class Checked(Protocol):
    """A connection."""

    def audiences_of(self, level_key: LevelKey) -> Iterable[Segments]:
        """Those of its grants that come from that level."""

    def links_below(self, audiences: set[Segments]) -> list[object]:
        """Its links that such grants may have opened."""

    def check_link(self, link: object) -> None:
        """Ends the link if it has lost its right; nothing if it is gone already."""


class RightsCheck:
    """Of all connections of a gateway."""

    def __init__(self, rules: RuleBook, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._rules = rules
        self._call_soon = call_soon
        #: By level who holds grants of it, and how many.
        self._holders: dict[LevelKey, dict[Checked, int]] = {}
        #: By level its rules when they were looked at last.
        self._seen: dict[LevelKey, object] = {}
        #: What is to be looked at: levels, then audiences by connection, then links.
        self._levels: deque[LevelKey] = deque()
        self._is_changed = False
        self._concerned: dict[Checked, set[Segments]] = {}
        self._links: deque[tuple[Checked, object]] = deque()
        self._is_waiting = False

    # -- the book of grants

    def hold(self, connection: Checked, grant: Grant) -> None:
        key = grant.level.key
        holders = self._holders.setdefault(key, {})
        if not holders:
            self._seen[key] = self._now(key)
        holders[connection] = holders.get(connection, 0) + 1

    def drop(self, connection: Checked, grant: Grant) -> None:
        key = grant.level.key
        holders = self._holders.get(key)
        if holders is None or connection not in holders:
            return
        holders[connection] -= 1
        if holders[connection] == 0:
            del holders[connection]
        if not holders:
            del self._holders[key]
            self._seen.pop(key, None)

    def _now(self, key: LevelKey) -> object:
        return self._rules.rules() if key is None else self._rules.entity_rules(key)

    # -- what is concerned

    def rules_changed(self) -> None:
        """Some rules, or some entity: which, is found out by what is held at all. Many changes at once are one."""
        self._is_changed = True
        self._wait()

    def _compare(self, key: LevelKey) -> None:
        holders = self._holders.get(key)
        if holders is None:
            return
        rules = self._now(key)
        if rules != self._seen.get(key):
            self._seen[key] = rules
            for connection in holders:
                self._concerned.setdefault(connection, set()).update(connection.audiences_of(key))

    def recheck(self, connection: Checked, audiences: Iterable[Segments]) -> None:
        self._concerned.setdefault(connection, set()).update(audiences)
        self._wait()

    def forget(self, connection: Checked) -> None:
        """The connection is over."""
        self._concerned.pop(connection, None)

    # -- slices

    def _wait(self) -> None:
        if not self._is_waiting and (self._is_changed or self._levels or self._concerned or self._links):
            self._is_waiting = True
            self._call_soon(self._work)

    def _work(self) -> None:
        began_s = LOOP.now()
        self._is_waiting = False
        if self._is_changed and not self._levels:
            self._is_changed = False
            self._levels.extend(self._holders)
        for _ in range(min(SLICE_LEVELS, len(self._levels))):
            self._compare(self._levels.popleft())
        for _ in range(SLICE_CONNECTIONS):
            if self._links or not self._concerned:
                break
            connection = next(iter(self._concerned))
            links = connection.links_below(self._concerned.pop(connection))
            self._links.extend((connection, link) for link in links)
        for _ in range(min(SLICE_LINKS, len(self._links))):
            connection, link = self._links.popleft()
            connection.check_link(link)
        self._wait()
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, "a check of rights")


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
        self._strangers: dict[AdmittedConnection, None] = {}
        self._strangers_by_peer: dict[str, int] = {}
        self._clients = 0

    def enter(self, peer: str, drop: Callable[[], None]) -> AdmittedConnection:
        """As a stranger. `drop` ends the connection, when somebody else needs the place."""
        self._make_room(peer)
        admitted = AdmittedConnection(self, peer, drop)
        self._strangers[admitted] = None
        self._strangers_by_peer[peer] = self._strangers_by_peer.get(peer, 0) + 1
        return admitted

    def _make_room(self, peer: str) -> None:
        if len(self._strangers) >= self._strangers_max:
            next(iter(self._strangers)).drop()
        per_peer_max = self._strangers_max if _is_loopback(peer) else self._per_peer_max
        if self._strangers_by_peer.get(peer, 0) >= per_peer_max:
            next(one for one in self._strangers if one.peer == peer).drop()

    # -- from admitted connections

    def recognise(self, admitted: AdmittedConnection) -> bool:
        if self._clients >= self._clients_max:
            return False
        self._forget_stranger(admitted)
        self._clients += 1
        return True

    def leave(self, admitted: AdmittedConnection) -> None:
        if admitted.is_client:
            self._clients -= 1
        self._forget_stranger(admitted)

    def _forget_stranger(self, admitted: AdmittedConnection) -> None:
        if admitted not in self._strangers:
            return
        del self._strangers[admitted]
        left = self._strangers_by_peer[admitted.peer] - 1
        if left:
            self._strangers_by_peer[admitted.peer] = left
        else:
            del self._strangers_by_peer[admitted.peer]


class AdmittedConnection:
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
