"""What a management operation works on: one queue or sub-queue, and the links of the connection that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.errors import InvalidOperation, SessionLockLost

if TYPE_CHECKING:
    from busway.broker.fragment import Fragment
    from busway.broker.limits import Limits
    from busway.broker.queue import Queue
    from busway.clock import Entropy
    from busway.gateway.amqp.link_lookup import LinkLookup


class ManagedEntity:
    """Made for each request, because the entity behind an address may be another one the next time (E-86)."""

    __slots__ = ("detects_duplicates", "entropy", "limits", "link_name", "links", "outlet", "path", "queue")

    def __init__(
        self,
        path: str,
        queue: Queue | None,
        outlet: Fragment,
        limits: Limits,
        links: LinkLookup,
        link_name: str | None,
        detects_duplicates: bool,
        entropy: Entropy,
    ) -> None:
        self.path = path
        #: None for a sub-queue: nobody can send there (E-10).
        self.queue = queue
        self.outlet = outlet
        self.limits = limits
        self.links = links
        #: `associated-link-name` of the request.
        self.link_name = link_name
        self.detects_duplicates = detects_duplicates
        self.entropy = entropy

    def sendable(self) -> Queue:
        if self.queue is None:
            raise InvalidOperation(
                f"Nobody can send to '{self.path}': messages enter it by dead-lettering only."
            )
        return self.queue

    def session_of_request(self, session_id: str | None) -> str | None:
        """The session a request is about: the one it names, else the one its link holds."""
        if session_id is not None or self.link_name is None:
            return session_id
        return self.links.session_of_link(self.link_name)

    def check_holds(self, session_id: str) -> None:
        """X-15, R-54: reading and writing a session's inside needs its lock, held by this client."""
        if not self.outlet.requires_session:
            raise InvalidOperation(f"The entity '{self.path}' does not require sessions.")
        if not self.links.holds_session(self.path, session_id):
            raise SessionLockLost
