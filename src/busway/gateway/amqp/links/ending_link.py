"""A link that stands for a durable subscription, to end it: JMS unsubscribes by closing it (`topic_subscriptions`).

Nothing is delivered by it. As long as it stands nobody new may receive from the subscription: when it is closed there
is nobody under whom that would go away. The close is answered when the deletion is durable, or with the reason why it
is not; clients of JMS do not look at a reason any more then, so whatever can be refused is refused at the attach. A
client that goes without closing the link has changed its mind, or lost its network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import BrokerError
from busway.broker.fragment.receiver import Attachment
from busway.gateway.amqp.wire.error_conditions import amqp_error

if TYPE_CHECKING:
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.broker.entity.queue import Queue
    from busway.broker.namespace.namespace import Namespace
    from busway.gateway.amqp.links.addresses import Node
    from busway.gateway.amqp.links.link_host import LinkHost


class EndingLink(Attachment):
    """`queues`: the subscriptions that go with it, which know it already."""

    def __init__(
        self, host: LinkHost, namespace: Namespace, link: Link, node: Node, queues: list[Queue], now: float
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = "Manage"
        self.used_at = now
        self._namespace = namespace
        self._queues = queues
        self._is_gone = False
        for queue in queues:
            queue.end_by(self)
        link.closes_late = True

    # -- from the subscriptions

    def evict(self, error: BrokerError) -> None:
        if not self._is_gone:  # else the deletion tells
            self.host.end_link(self, self._told(error))

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Nothing was delivered, so there is nothing to settle."""

    def credit_arrived(self) -> None:
        """R-9: a drain is answered; nothing will come."""
        self.link.drained()

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return True

    def gone(self) -> None:
        self._is_gone = True
        if self.link.peer_closed:
            # Not work of the connection: what was asked for is done, also when nobody hears of it.
            self._namespace.background.spawn(self._end())
        else:
            self._spare()

    # -- ending

    async def _end(self) -> None:
        error: AmqpError | None = None
        try:
            for queue in self._queues:
                await self._namespace.end(queue.path, self)
        except BrokerError as problem:
            error = self._told(problem)
        finally:
            self._spare()
        self.link.detach(error)
        self.host.output_waits()

    def _spare(self) -> None:
        for queue in self._queues:
            queue.detach(self)

    def _told(self, error: BrokerError) -> AmqpError:
        return amqp_error(error, self.host.tracking, self.node.path)
