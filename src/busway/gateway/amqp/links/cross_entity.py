"""Cross-entity mode of an AMQP session: all it receives comes from one entity (TX-4, TX-22).

Clients that work in transactions across entities open a session for that alone, and on it their control link before
any other. So the first link of a session says what the session is for. In this mode the first receiver, the first
message that is sent, or the first transaction that is discharged pins the session to its queue or topic for the rest
of the session's life: receivers elsewhere are refused whether or not a transaction is open, senders are not. Clients
that open a control link beside the links they have are not pinned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.gateway.amqp.links.addresses import LinkNode, NodeKind
from busway.model.entity_path import path_key, topic_path_of
from busway.model.errors import InvalidOperation

if TYPE_CHECKING:
    from busway.amqp.session import Session

_OTHER_ENTITY: Final = "Local transactions cannot span multiple top-level entities such as queue or topic."


class SessionUse:
    """What a session is for; kept in `Session.owner`."""

    __slots__ = ("_is_cross_entity", "_top_key")

    def __init__(self, first_node: LinkNode) -> None:
        self._is_cross_entity = first_node.kind is NodeKind.COORDINATOR
        #: What it is pinned to.
        self._top_key: str | None = None

    def check_receiver(self, node: LinkNode) -> None:
        """Raises InvalidOperation for a receiver that may not stand here."""
        if self._top_key is not None and self._top_key != _top_key(node.address.path):
            raise InvalidOperation(_OTHER_ENTITY)

    @property
    def is_free(self) -> bool:
        """In this mode, and not pinned yet."""
        return self._is_cross_entity and self._top_key is None

    def receiver_accepted(self, node: LinkNode) -> None:
        self.took_place_at(node.address.path)

    def took_place_at(self, path: str) -> None:
        """A receiver stands there, a message was sent there, or a transaction made: the first one counts."""
        if self.is_free:
            self._top_key = _top_key(path)


def use_of(session: Session, node: LinkNode) -> SessionUse:
    """`node` is what a link that is attached now is for."""
    if not isinstance(session.owner, SessionUse):
        session.owner = SessionUse(node)
    return session.owner


def _top_key(path: str) -> str:
    return path_key(topic_path_of(path))
