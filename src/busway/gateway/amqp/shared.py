"""What all connections of one namespace share, and the deadlines and bounds that hold for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busway.amqp.allowance import StrangerLimits
from busway.amqp.connection import EngineSettings
from busway.gateway.amqp.admission import Admission
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
        self.rights = RightsCheck(namespace, lambda work: asyncio.get_running_loop().call_soon(work))
