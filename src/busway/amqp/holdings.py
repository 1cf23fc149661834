"""How much a peer makes a connection hold, counted from what is there.

Numbers are kept where things are, session by session, and added up when somebody asks: so nothing has to be given
back when a session or a link ends, in whichever way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from busway.amqp.connection import Connection

# What these weigh in memory, roughly.
_SESSION_BYTES: Final = 2_048
_LINK_BYTES: Final = 2_048
_UNSETTLED_BYTES: Final = 256


def is_full_of_unsettled(connection: Connection) -> bool:
    """So many deliveries of all links are unsettled that none of them may send any more."""
    count = 0
    for session in connection.sessions.values():
        count += session.unsettled_deliveries()
    return count >= connection.settings.unsettled_max


def held_bytes(connection: Connection) -> int:
    """Everything: unfinished deliveries, attaches, links, sessions, what waits for windows or settlement."""
    allowance = connection.allowance
    held = allowance.partial_bytes() + allowance.attach_bytes() + allowance.waiting_bytes
    held += connection.link_count * _LINK_BYTES
    for session in connection.sessions.values():
        held += _SESSION_BYTES + session.unsettled_deliveries() * _UNSETTLED_BYTES
    return held
