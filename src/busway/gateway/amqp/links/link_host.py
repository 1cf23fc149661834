"""What a link needs of the connection that carries it, and what the connection needs of a link.

Two small contracts, so that links know neither sockets nor event loops; and what a management node may ask about the
other links of its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import Link
    from busway.amqp.transfer_runs import ArrivedRun
    from busway.broker.namespace.namespace import SendVia
    from busway.broker.transaction.transactions import Transactions
    from busway.clock import Entropy
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.tracking import Tracking
    from busway.model.limits import Limits


class Alarm(Protocol):
    """A call that is to come."""

    def cancel(self) -> None: ...


class OutputWaiter(Protocol):
    """Somebody who waits until the peer has taken what was written: a link, or the requests of the connection."""

    def room_grew(self) -> None: ...


class LinkHost(Protocol):
    """The connection, seen from its links."""

    entropy: Entropy
    limits: Limits
    tracking: Tracking
    #: The open transactions of the connection.
    transactions: Transactions
    #: Its address, for the log.
    peer: str

    @property
    def is_stranger(self) -> bool:
        """It has shown no token and no key yet: its peer gets little."""

    def output_waits(self, size_bytes: int = 0) -> None:
        """Something (of that size, where it is large) was handed to the engine: flush it in this turn of the loop."""

    def output_room_bytes(self, is_kept: bool = False) -> int:
        """Bytes that may still be written before the peer has taken some; never negative. None as long as too much is
        kept already, except for what is kept itself."""

    def when_output_drains(self, waiter: OutputWaiter) -> None:
        """Call its `room_grew` once there is output room again."""

    def hold_input(self, size_bytes: int) -> None:
        """The link holds so many more bytes that are not yet stored; reading pauses above a limit."""

    def release_input(self, size_bytes: int) -> None:
        """They are stored, or refused."""

    def is_crowded(self) -> bool:
        """So much came in with one read that what becomes many messages must come again later."""

    def keep(self, size_bytes: int) -> None:
        """A reader keeps so many more bytes of what it will send, or fewer."""

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        """As `TransferQueues.send_via`."""

    async def prepare_to_send_via(self, via_path: str) -> None:
        """As `TransferQueues.prepare`."""

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Runs it in the background, as long as the connection lasts."""

    def end_link(self, link: AttachedLink, error: AmqpError) -> None:
        """Detach the link with this error, now; `gone` is called."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Alarm:
        """Calls back once, so much later, unless the alarm is cancelled."""


class AttachedLink(Protocol):
    """An accepted link, seen from its connection; kept in `Link.owner`."""

    link: Link
    node: LinkNode
    #: "Send" or "Listen"; None when none is needed to stand (`$cbs`) or each request shows its own (`$management`).
    right: str | None
    #: Monotonic time of the last sign of life.
    used_at: float

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None: ...

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None: ...

    def credit_arrived(self) -> None: ...

    def room_grew(self) -> None:
        """The session window or the output buffer admits more than before."""

    def is_idle(self) -> bool:
        """No credit, nothing under way (R-22)."""

    def gone(self) -> None:
        """The link is detached, whoever did it. Called exactly once."""


class RunTaker(AttachedLink, Protocol):
    """One whose link takes runs (`Link.takes_runs`)."""

    def run_arrived(self, arrived: ArrivedRun) -> None:
        """Usual deliveries, instead of `deliveries_arrived`."""


class LinkLookup(Protocol):
    """Implemented by `connection.AmqpConnection`."""

    def touch_link(self, link_name: str) -> None:
        """A management request named this link: it is in use, however quiet it is itself (R-22)."""

    def session_of_link(self, link_name: str) -> str | None:
        """The Service Bus session that the receiving link of this name holds (X-4), None when it holds none."""

    def holds_session(self, path: str, session_id: str) -> bool:
        """Whether any link of this connection holds that session of that entity."""
