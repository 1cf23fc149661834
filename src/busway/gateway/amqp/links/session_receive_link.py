"""A receiving link that holds a Service Bus session (X-1…X-13), and how a client asks for one.

A client attaches with the source filter `com.microsoft:session-filter`: a string names a session, null means the
next available one. The attach is answered only when the session is held: the same source with the session id in
the filter, in the shape the client used (described or bare), and the end of the session's lock as a link property.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.performatives import Fields, Source
from busway.amqp.types import Char, Described, Long, Symbol
from busway.gateway.amqp.links.receive_link import ReceiveLink
from busway.message.message import ticks_of
from busway.model.errors import BadArgument, NotImplementedByServer, OperationCancelled

if TYPE_CHECKING:
    from busway.broker.fragment.outlet import MessageSession

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
#: By which .NET asks for a session that several receivers share and take over from one another.
SHARED_SESSION_FILTER: Final = Symbol("com.microsoft:non-exclusive-session-filter:list")
_LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
#: X-7: the wait when the client names none, and the longest wait it gets.
TIMEOUT_S_MAX: Final = 65.0


class SessionWish:
    """The session a client asks for."""

    __slots__ = ("_descriptor", "_is_described", "session_id")

    def __init__(self, session_id: str | None, descriptor: object = None, is_described: bool = False) -> None:
        #: None: the next available one.
        self.session_id = session_id
        self._descriptor = descriptor
        self._is_described = is_described

    def answer(self, source: Source, session_id: str) -> Source:
        """The client's source with the session that it got."""
        value: object = Described(self._descriptor, session_id) if self._is_described else session_id
        filters = {} if source.filter is None else dict(source.filter)
        return replace(source, filter={**filters, SESSION_FILTER: value})


def session_wish(source: Source | None, characters_max: int) -> SessionWish | None:
    """What the source's filter asks for; None when it asks for no session. Raises BadArgument (X-3), and
    NotImplementedByServer for a session that is not one receiver's alone."""
    if source is None or not source.filter:
        return None
    if SHARED_SESSION_FILTER in source.filter:
        raise NotImplementedByServer(
            f"A session has one receiver here: the filter '{SHARED_SESSION_FILTER}', by which several share it, is"
            f" not implemented. Accept the session with '{SESSION_FILTER}'."
        )
    if SESSION_FILTER not in source.filter:
        return None
    value: object = source.filter[SESSION_FILTER]
    descriptor: object = None
    is_described = isinstance(value, Described)
    if isinstance(value, Described):
        descriptor, value = value.descriptor, value.value
    if value is not None and (not isinstance(value, str) or isinstance(value, Symbol | Char)):
        raise BadArgument("The session filter must be a string, or null for the next available session.")
    if value is not None and len(value) > characters_max:
        raise BadArgument(f"A session id has at most {characters_max} characters.")
    return SessionWish(value, descriptor, is_described)


def wait_s(properties: Fields | None) -> float:
    """How long the client is willing to wait for a session (X-7)."""
    given = None if properties is None else properties.get(_TIMEOUT)
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        return TIMEOUT_S_MAX
    return min(given / 1000, TIMEOUT_S_MAX)


def lock_properties(locked_until_ms: int) -> Fields:
    """The link properties of the answering attach."""
    return {_LOCKED_UNTIL: Long(ticks_of(locked_until_ms))}


class SessionWait(Protocol):
    """The task that waits for the session."""

    def cancel(self) -> bool: ...


class SessionReceiveLink(ReceiveLink):
    """A receiver of one session, or one that waits for it. The session's lock is that of its messages (X-13)."""

    _waiting: SessionWait | None = None
    _session: MessageSession | None = None

    def wait_for(self, waiting: SessionWait) -> None:
        self._waiting = waiting

    def hold(self, session: MessageSession) -> bool:
        """False when the link went while it waited: the session is free again at once."""
        self._waiting = None
        if self._is_gone:
            session.close()
            return False
        self._session = session
        self.session_id = session.session_id
        return True

    def cancel_wait(self) -> None:
        """ERR-25: the connection is being closed; whoever still waits for a session may try again elsewhere."""
        if self._session is None:
            self.evict(OperationCancelled())

    def is_idle(self) -> bool:
        return self._session is not None and super().is_idle()

    def gone(self) -> None:
        """X-11: the session is free at once, its unsettled messages return without a count."""
        self._is_gone = True
        self._silence_alarm()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._session is not None:
            self._session.close()
        self._queue.detach(self)
