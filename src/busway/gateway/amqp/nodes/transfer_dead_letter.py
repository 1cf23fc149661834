"""`Q/$Transfer/$DeadLetterQueue` of a queue that nothing was ever sent via: there, and empty (E-8, D-22).

It holds messages whose transfer to another entity failed; see `broker/send_via`. Tools look into it all the same, so
a receiver can attach and wait there, and management requests are answered as for an empty queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.fragment.outlet import Attachment
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.nodes.request_and_answer import Answer, nothing
from busway.model.errors import BrokerError, InvalidOperation, MessageLockLost, MessageNotFound

if TYPE_CHECKING:
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.broker.namespace.namespace import Queue
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost

_FINDS_NOTHING: Final = frozenset({"peek-message", "batch-delete-messages"})
_KNOWS_NO_LOCK: Final = frozenset({"renew-lock", "update-disposition"})
_RECEIVES: Final = "receive-by-sequence-number"


class EmptyReceiveLink(Attachment):
    """The sending end of a receiver for whom there is never anything. It goes with its queues, which know it
    already."""

    def __init__(
        self, host: LinkHost, link: Link, node: LinkNode, right: str, queues: list[Queue], now: float
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = right
        self.used_at = now
        self._queues = queues
        self._is_gone = False

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Nothing was delivered, so there is nothing to settle."""

    def credit_arrived(self) -> None:
        """R-9: a drain is answered; there is nothing to send."""
        self.link.drained()

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return self.link.credit() == 0

    def evict(self, error: BrokerError) -> None:
        if not self._is_gone:
            self.host.end_link(self, self._error_of(error))

    def gone(self) -> None:
        self._is_gone = True
        for queue in self._queues:
            queue.detach(self)

    def _error_of(self, error: BrokerError) -> AmqpError:
        return amqp_error(error, self.host.tracking, self.node.path)


def answer_of_empty(operation: str, path: str) -> Answer:
    """What a management operation finds there."""
    if operation in _FINDS_NOTHING:
        return nothing()
    if operation in _KNOWS_NO_LOCK:
        raise MessageLockLost
    if operation == _RECEIVES:
        raise MessageNotFound
    raise InvalidOperation(f"'{path}' holds nothing and takes nothing: no messages were sent via its queue.")
