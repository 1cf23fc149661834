"""What happened on a connection: facts in the past tense, returned by `Connection.receive` and `tick`.

One event per run, not per frame: all transfers that arrive together on a link are one `DeliveriesArrived`, all
equal outcomes that arrive together for a link are one `OutcomesArrived`. Events are read after the whole read has
been worked through, so a link or session may already be gone when its event is looked at; every command on
something gone is a no-op.

First what happens on the connection itself, whatever sessions and links it has; then what happens on these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import Link
    from busway.amqp.performatives import Open
    from busway.amqp.session import Session
    from busway.amqp.transfer_runs import ArrivedRun


class ConnectionEvent:
    """Any of the facts here and in `events`."""

    __slots__ = ()


@dataclass(frozen=True)
class SaslInitArrived(ConnectionEvent):
    """The client chose a mechanism. Answer with `connection.sasl_outcome(ok=…)`; what the client pipelined
    behind it waits until then."""

    mechanism: str
    #: May hold a key: never shown, never logged.
    response: bytes = field(repr=False)
    hostname: str | None


@dataclass(frozen=True)
class SaslFinished(ConnectionEvent):
    """Client role: the server's verdict."""

    ok: bool


@dataclass(frozen=True)
class ConnectionOpened(ConnectionEvent):
    """The peer's open arrived (server: answer with `connection.open()`; pipelined frames follow as events)."""

    open: Open


@dataclass(frozen=True)
class ConnectionClosed(ConnectionEvent):
    """The connection is over: the peer closed it, broke the protocol, or fell silent. Told exactly once and last.
    Send what is left in `bytes_to_send()`, then close the transport."""

    error: AmqpError | None


@dataclass(frozen=True)
class SessionBegun(ConnectionEvent):
    """The peer began a session, and the engine has answered by itself; or it answered our begin."""

    session: Session


@dataclass(frozen=True)
class LinkAttached(ConnectionEvent):
    """The peer attached a link (server: answer with `link.accept(…)` or `link.refuse(error)`, now or later),
    or answered our attach. Credit and deliveries of an eager peer may follow before the answer is given."""

    link: Link


class CreditArrived(ConnectionEvent):
    """The peer's flow changed what may be sent on one of our sending links, or asks to drain it
    (`link.drain_requested()`)."""

    __slots__ = ("link",)
    __match_args__: ClassVar[tuple[str, ...]] = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


@dataclass(frozen=True)
class CreditDrained(ConnectionEvent):
    """The peer has sent what it had on one of our receiving links and gave the rest of the credit back, as
    `grant_credit(…, drain=True)` asked. Only our own client asks for this."""

    link: Link


class DeliveriesArrived(ConnectionEvent):
    """Complete deliveries on one of our receiving links, in order. On a link that takes runs, `run` has all of them
    when all are usual, else none."""

    __slots__ = ("deliveries", "link", "run")
    __match_args__: ClassVar[tuple[str, ...]] = ("link", "deliveries")

    def __init__(self, link: Link, deliveries: list[IncomingDelivery], run: ArrivedRun | None = None) -> None:
        self.link = link
        self.deliveries = deliveries
        self.run = run


class OutcomesArrived(ConnectionEvent):
    """The peer gave one outcome to deliveries that we sent on one link. `state` is a performative outcome
    (Accepted, Rejected, Released, Modified, TransactionalState, Declared) or None.

    `settled=False`: the peer waits for `link.answer(deliveries, state)`. A delivery is reported once until it is
    answered, however often the peer repeats itself.
    """

    __slots__ = ("deliveries", "link", "settled", "state")
    __match_args__: ClassVar[tuple[str, ...]] = ("link", "deliveries", "state", "settled")

    def __init__(self, link: Link, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        self.link = link
        self.deliveries = deliveries
        self.state = state
        self.settled = settled


class SettlementsAnswered(ConnectionEvent):
    """The peer settled deliveries whose outcome we had proposed with `link.settle(…, settled=False)`; `state` is
    what it made of the proposal. Only our own client asks for this."""

    __slots__ = ("delivery_ids", "link", "state")
    __match_args__: ClassVar[tuple[str, ...]] = ("link", "delivery_ids", "state")

    def __init__(self, link: Link, delivery_ids: list[int], state: object) -> None:
        self.link = link
        self.delivery_ids = delivery_ids
        self.state = state


@dataclass(frozen=True)
class WindowOpened(ConnectionEvent):
    """The peer's session window, shut before, admits transfers again: links of this session may send."""

    session: Session


@dataclass(frozen=True)
class LinkDetached(ConnectionEvent):
    """The link is over, told exactly once per link: the peer detached (the engine has answered), it answered our
    detach, it broke a rule of the link (the engine has detached), or session or connection are gone."""

    link: Link
    error: AmqpError | None
    closed: bool


@dataclass(frozen=True)
class SessionEnded(ConnectionEvent):
    """The session is over, told exactly once per session, after the LinkDetached of each of its links."""

    session: Session
    error: AmqpError | None
