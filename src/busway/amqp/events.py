"""What happened on a connection: facts in the past tense, returned by `Connection.receive` and `tick`.

One event per run, not per frame: all transfers that arrive together on a link are one `DeliveriesArrived`, all
outcomes of one disposition that concern a link are one `OutcomesArrived`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.amqp.performatives import Open
    from busway.amqp.session import Session


class Event:
    """Any of the facts below."""

    __slots__ = ()


@dataclass(frozen=True)
class SaslInitArrived(Event):
    """The client chose a mechanism. Answer with `connection.sasl_outcome(ok=…)`."""

    mechanism: str
    response: bytes
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
class SessionBegun(Event):
    """The peer began a session; the engine has answered by itself."""

    session: Session


@dataclass(frozen=True)
class LinkAttached(Event):
    """The peer attached a link (server: answer with `link.accept(…)` or `link.refuse(error)`, now or later),
    or answered our attach."""

    link: Link


@dataclass(frozen=True)
class CreditArrived(Event):
    """The peer's flow changed what may be sent on one of our sending links, or asks to drain it."""

    link: Link


@dataclass(frozen=True)
class DeliveriesArrived(Event):
    """Complete deliveries on one of our receiving links, in order."""

    link: Link
    deliveries: list[IncomingDelivery]


@dataclass(frozen=True)
class OutcomesArrived(Event):
    """The peer gave one outcome to deliveries that we sent on one link. `state` is a performative outcome
    (Accepted, Rejected, Released, Modified, TransactionalState, Declared) or None."""

    link: Link
    deliveries: list[OutgoingDelivery]
    state: object
    settled: bool


@dataclass(frozen=True)
class WindowOpened(Event):
    """The peer's session window, shut before, admits transfers again: links of this session may send."""

    session: Session


@dataclass(frozen=True)
class LinkDetached(Event):
    """The peer detached; the engine has answered. Also raised for each link when its session ends or the
    connection closes."""

    link: Link
    error: AmqpError | None
    closed: bool


@dataclass(frozen=True)
class SessionEnded(Event):
    session: Session
    error: AmqpError | None


@dataclass(frozen=True)
class ConnectionClosed(Event):
    """The connection is over: the peer closed it, broke the protocol, or fell silent. Send what is left in
    `bytes_to_send()`, then close the transport."""

    error: AmqpError | None
