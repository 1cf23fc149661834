"""What happened on a connection itself, whatever sessions and links it has: see `events`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway.amqp.errors import AmqpError
    from busway.amqp.performatives import Open


class Event:
    """Any of the facts here and in `events`."""

    __slots__ = ()


@dataclass(frozen=True)
class SaslInitArrived(Event):
    """The client chose a mechanism. Answer with `connection.sasl_outcome(ok=…)`; what the client pipelined
    behind it waits until then."""

    mechanism: str
    #: May hold a key: never shown, never logged.
    response: bytes = field(repr=False)
    hostname: str | None


@dataclass(frozen=True)
class SaslFinished(Event):
    """Client role: the server's verdict."""

    ok: bool


@dataclass(frozen=True)
class ConnectionOpened(Event):
    """The peer's open arrived (server: answer with `connection.open()`; pipelined frames follow as events)."""

    open: Open


@dataclass(frozen=True)
class ConnectionClosed(Event):
    """The connection is over: the peer closed it, broke the protocol, or fell silent. Told exactly once and last.
    Send what is left in `bytes_to_send()`, then close the transport."""

    error: AmqpError | None
