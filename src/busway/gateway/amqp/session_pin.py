"""The one entity that the receivers of an AMQP session keep to (TX-4).

A client that wants transactions over several entities says so by the order of its links: the control link comes first
on a session, all others follow on the same one. From then on messages go to other entities by way of the first one
that is used (TX-22), so only that one can be received from. A session whose control link came later, or that has
none, is not bound.

The pin lasts as long as the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.broker.entity_path import path_key, topic_path_of
from busway.broker.errors import InvalidOperation
from busway.broker.transaction import OTHER_ENTITY

if TYPE_CHECKING:
    from busway.amqp.session import Session


class SessionPin:
    """Kept in `Session.owner`."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key: str | None = None

    @property
    def is_set(self) -> bool:
        return self._key is not None

    def check(self, path: str) -> None:
        """Raises InvalidOperation for a receiver on another queue or topic."""
        if self._key is not None and _top_key(path) != self._key:
            raise InvalidOperation(OTHER_ENTITY)

    def used(self, path: str) -> None:
        """A receiver stands there, or a transaction took place there: the first one counts."""
        if self._key is None:
            self._key = _top_key(path)


def pin_of(session: Session) -> SessionPin | None:
    pin = session.owner
    return pin if isinstance(pin, SessionPin) else None


def control_attached(session: Session) -> None:
    """A control link was just attached, and is among the session's links."""
    if len(session.links) == 1 and session.owner is None:
        session.owner = SessionPin()


def _top_key(path: str) -> str:
    """Of the queue, or of the subscription's topic."""
    return path_key(topic_path_of(path))
