"""What a management operation works on: one entity or sub-queue, and the links of the connection that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.model.errors import InvalidOperation, SessionLockLost

if TYPE_CHECKING:
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.namespace.namespace import Namespace, Queue, Topic
    from busway.broker.transaction.transactions import Transaction
    from busway.clock import Entropy
    from busway.gateway.amqp.links.link_host import LinkLookup
    from busway.model.limits import Limits


class ManagedEntity:
    """Made for each request, because the entity behind an address may be another one the next time (E-86)."""

    __slots__ = (
        "_outlet",
        "_sender",
        "detects_duplicates",
        "entropy",
        "limits",
        "link_name",
        "links",
        "namespace",
        "path",
        "transaction",
    )

    def __init__(
        self,
        path: str,
        sender: Queue | Topic | None,
        outlet: Outlet | None,
        namespace: Namespace,
        links: LinkLookup,
        link_name: str | None,
        detects_duplicates: bool,
        entropy: Entropy,
    ) -> None:
        self.path = path
        self._sender = sender
        self._outlet = outlet
        self.namespace = namespace
        self.limits: Limits = namespace.limits
        self.links = links
        #: `associated-link-name` of the request.
        self.link_name = link_name
        self.detects_duplicates = detects_duplicates
        self.entropy = entropy
        #: In which the request shall take place.
        self.transaction: Transaction | None = None

    @property
    def outlet(self) -> Outlet:
        """What is received from; a topic is not (E-9)."""
        if self._outlet is None:
            raise InvalidOperation(
                f"The topic '{self.path}' has no messages of its own: ask one of its subscriptions."
            )
        return self._outlet

    def sendable(self) -> Queue | Topic:
        if self._sender is None:
            raise InvalidOperation(f"Nobody can send to '{self.path}': send to its queue or topic.")
        return self._sender

    def session_of_request(self, session_id: str | None) -> str | None:
        """The session a request is about: the one it names, else the one its link holds."""
        if session_id is not None or self.link_name is None:
            return session_id
        return self.links.session_of_link(self.link_name)

    def check_holds(self, session_id: str) -> None:
        """X-15, R-54: reading and writing a session's inside needs its lock, held by this client."""
        if not self.outlet.requires_session:
            raise InvalidOperation(f"The entity '{self.path}' does not require sessions.")
        if not self.is_holder(session_id):
            raise SessionLockLost

    def is_holder(self, session_id: str) -> bool:
        """Whether a link of this client holds the session."""
        return self.links.holds_session(self.path, session_id)
