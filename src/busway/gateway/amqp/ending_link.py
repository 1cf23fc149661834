"""A link that stands for a durable subscription, to end it: JMS unsubscribes by closing it (`topic_subscriptions`).

Nothing is delivered by it. A client that goes without closing it has changed its mind, or lost its network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.gateway.amqp.addresses import Node


class EndingLink:
    """`closed` is called when the client has closed it."""

    def __init__(self, link: Link, node: Node, now: float, closed: Callable[[], None]) -> None:
        self.link = link
        self.node = node
        self.right: str | None = "Manage"
        self.used_at = now
        self._closed = closed

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Nothing was delivered, so there is nothing to settle."""

    def credit_arrived(self) -> None:
        """R-9."""
        self.link.drained()

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return True

    def gone(self) -> None:
        if self.link.peer_closed:
            self._closed()
