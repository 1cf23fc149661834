"""The two ends of handing out messages: what a receiver offers, what it is given.

A fragment pulls: it asks a receiver for its `room()` and hands over at most so many messages in one
`deliver`. Nothing is locked beyond what the peer can take right now. When room grows (credit, session window,
socket drained) the receiver's owner calls `outlet.wake(receiver)`.
"""

from mypy_extensions import mypyc_attr

from busway.message.message import Message
from busway.model.errors import BrokerError


class Delivery:
    """A message on its way to a receiver. Under peek-lock `token` is its lock; in receive-and-delete it is
    already deleted and `token` is empty."""

    __slots__ = ("locked_until_ms", "message", "token")

    def __init__(self, message: Message, token: bytes, locked_until_ms: int) -> None:
        self.message = message
        self.token = token
        self.locked_until_ms = locked_until_ms


@mypyc_attr(allow_interpreted_subclasses=True)
class Attachment:
    """Something a client holds open on an entity: a sending link, a receiving link, a waiting session accept."""

    def evict(self, error: BrokerError) -> None:
        """The entity is gone, disabled or its store failed: detach with this error. Called once; the entity
        has already forgotten the attachment."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver(Attachment):
    """A receiving link, implemented by gateways. All calls come on the event loop."""

    #: True for receive-and-delete: deletion is committed before `deliver` is called (R-1).
    deletes: bool = False

    def room(self) -> int:
        """How many messages it can take now: credit, session window, output buffer, all considered."""
        raise NotImplementedError

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Takes the messages and returns those it could not send after all (its credit was withdrawn
        meanwhile). Returned ones are unlocked, or put back under their number, without a count."""
        raise NotImplementedError

    def caught_up(self) -> None:
        """A read or a deletion that was under way for it has ended: what there was has been handed over. A drain
        that waited for it can be answered now (R-9). Nothing has to be done here."""
