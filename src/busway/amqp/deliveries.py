"""Deliveries of a session's links: one that has arrived, one that arrives in parts, one that was sent; and the books
of those that are not settled yet.

Theory of operation. A delivery that we sent unsettled is in `unsettled` until the peer gives it an outcome, then in
`_decided` until one side settles. Dispositions name ranges that the peer chooses freely, so work is bounded by our
own books, never by the range; and because an outcome moves a delivery from the first book to the second, a peer
that repeats itself finds the first one empty. Deliveries of links that are gone stay in the books as `_stale`
until they are the larger half, then they are swept out together.

A delivery larger than a frame arrives in parts, which are kept as they came and joined once. Their sum is held
against the link's and the connection's limits before it grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from busway.amqp.errors import Condition, ProtocolViolation, Scope
from busway.amqp.events import OutcomesArrived, SettlementsAnswered
from busway.amqp.performatives import TransactionalState, Transfer
from busway.amqp.states import LinkState

if TYPE_CHECKING:
    from busway.amqp.connection import Connection
    from busway.amqp.link import Link

#: What a part of a delivery weighs in memory beside its bytes.
PART_BYTES: Final = 64
_KEPT_TXN_ID_BYTES_MAX: Final = 64
_MASK: Final = 0xFFFF_FFFF


class IncomingDelivery:
    """A complete delivery that the peer sent."""

    __slots__ = ("delivery_id", "message_format", "payload", "settled", "state", "tag")

    def __init__(
        self, delivery_id: int, tag: bytes, message_format: int, settled: bool, payload: bytes, state: object
    ) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        #: The peer wants no outcome (S-3).
        self.settled = settled
        self.payload = payload
        #: What the transfer carried in `state`: a TransactionalState, or None.
        self.state = state


class OutgoingDelivery:
    """A delivery that we sent. Unsettled ones are known to their session until both sides have settled."""

    __slots__ = ("delivery_id", "link", "owner", "settled", "tag")

    def __init__(self, link: Link, delivery_id: int, tag: bytes, settled: bool) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        #: Nothing more will be said about it, by whichever side settled.
        self.settled = settled
        #: Free for the owner of the link.
        self.owner: object | None = None


class PartialDelivery:
    """The one unfinished delivery of a receiving link. Made when `Allowance.begin_partial` has allowed it."""

    __slots__ = (
        "_connection", "_message_format", "_settled", "_tag", "delivery_id", "frame_count", "parts", "size", "state"
    )  # fmt: skip

    def __init__(self, connection: Connection, delivery_id: int, first: Transfer) -> None:
        self._connection = connection
        self.delivery_id = delivery_id
        self._tag = first.delivery_tag
        self._message_format = first.message_format
        self._settled = False
        self.state: object = None
        self.parts: list[bytes] = []
        self.size = 0
        self.frame_count = 0

    def matches(self, transfer: Transfer) -> bool:
        """Later frames may repeat what the first one said, but not contradict it."""
        return (
            (transfer.delivery_id is None or transfer.delivery_id == self.delivery_id)
            and (transfer.delivery_tag is None or transfer.delivery_tag == self._tag)
            and (transfer.message_format is None or transfer.message_format == (self._message_format or 0))
        )

    def add(self, transfer: Transfer, payload: bytes, bytes_max: int) -> None:
        """Raises ProtocolViolation when it becomes larger than it may."""
        self._admit(len(payload), bytes_max)
        self.frame_count += 1
        self.size += len(payload)
        if payload:
            self.parts.append(payload)
        # "If set on any frame, the delivery is settled" [2.7.5]; the last state given counts.
        if transfer.settled is True:
            self._settled = True
        if transfer.state is not None:
            self.state = shortened_state(transfer.state)

    def _admit(self, size: int, bytes_max: int) -> None:
        connection = self._connection
        if self.size + size > bytes_max:
            raise oversized(self.delivery_id, self.size + size, bytes_max)
        frames_max = connection.settings.frames_per_delivery_max
        if self.frame_count >= frames_max:
            raise ProtocolViolation(
                Scope.LINK,
                Condition.NOT_ALLOWED,
                f"A delivery has more than {frames_max} transfer frames.",
            )
        if not connection.allowance.reserve_partial_bytes(size + PART_BYTES):
            raise too_much_unfinished()
        connection.fit_frames()

    def whole(self, handle: int) -> Transfer:
        """As if it had come in one frame."""
        return Transfer(
            handle, self.delivery_id, self._tag, self._message_format, self._settled, state=self.state
        )

    def drop(self) -> None:
        """What it holds is given back."""
        self._connection.allowance.end_partial(self.size + self.frame_count * PART_BYTES)
        self._connection.fit_frames()


def oversized(delivery_id: int, size: int, bytes_max: int) -> ProtocolViolation:
    return ProtocolViolation(
        Scope.LINK,
        Condition.LINK_MESSAGE_SIZE_EXCEEDED,
        f"The received message (delivery-id:{delivery_id}, size:{size} bytes) exceeds the limit"
        f" ({bytes_max} bytes) currently allowed on the link.",
    )


def too_much_unfinished() -> ProtocolViolation:
    return ProtocolViolation(
        Scope.LINK,
        Condition.RESOURCE_LIMIT_EXCEEDED,
        "The unfinished deliveries of this connection exceed the allowed number of bytes.",
    )


def shortened_state(state: object) -> TransactionalState | None:
    """What is kept of the state of a delivery that waits for something. Nobody asks for more, and it may be large; no
    transaction has an id as long as that."""
    return (
        TransactionalState(state.txn_id[:_KEPT_TXN_ID_BYTES_MAX])
        if isinstance(state, TransactionalState)
        else None
    )


class DeliveryBooks:
    """Of one session: what was sent, or proposed, and is not settled by both sides."""

    __slots__ = ("_connection", "_decided", "_proposed", "_stale", "unsettled")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: By delivery id: sent, without an outcome.
        self.unsettled: dict[int, OutgoingDelivery] = {}
        #: With an outcome of the peer, which waits for us to settle.
        self._decided: dict[int, OutgoingDelivery] = {}
        #: How many of both are of links that are gone.
        self._stale = 0
        #: Client role: deliveries whose outcome we proposed and the peer has not settled yet.
        self._proposed: dict[int, Link] = {}

    def unsettled_count(self) -> int:
        return len(self.unsettled) + len(self._decided)

    def clear(self) -> None:
        self.unsettled.clear()
        self._decided.clear()
        self._proposed.clear()

    def forget(self, link: Link) -> None:
        """It is gone: nobody is told of its deliveries any more."""
        self._stale += link.unsettled_count()
        if self._stale * 2 > self.unsettled_count():
            self._stale = 0
            over = LinkState.OVER
            self.unsettled = {key: one for key, one in self.unsettled.items() if one.link.state is not over}
            self._decided = {key: one for key, one in self._decided.items() if one.link.state is not over}

    # --- what the peer says -------------------------------------------------------------------------------------

    def outcomes_arrived(self, first: int, last: int, state: object) -> None:
        """The receiver decided, and waits for us to settle."""
        found = _taken(self.unsettled, first, last)
        for delivery in found:
            self._decided[delivery.delivery_id] = delivery
        self._tell_outcomes(found, state, False)

    def settled_arrived(self, first: int, last: int, state: object) -> None:
        """The receiver settled: nothing more will be said about these deliveries."""
        found = _taken(self.unsettled, first, last)
        for delivery in found:
            self._close(delivery)
        self._tell_outcomes(found, state, True)
        for delivery in _taken(self._decided, first, last):
            self._close(delivery)

    def answers_arrived(self, first: int, last: int, state: object) -> None:
        """The sender settled what we have proposed."""
        proposed = self._proposed
        answered: dict[Link, list[int]] = {}
        for delivery_id in _in_range(proposed, first, last):
            link = proposed.pop(delivery_id, None)
            if link is not None:
                answered.setdefault(link, []).append(delivery_id)
        for link, delivery_ids in answered.items():
            self._connection.events.append(SettlementsAnswered(link, delivery_ids, state))

    def _close(self, delivery: OutgoingDelivery) -> None:
        delivery.settled = True
        link = delivery.link
        link.delivery_settled()
        if self._stale and link.state is LinkState.OVER:
            self._stale -= 1

    def _tell_outcomes(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        link: Link | None = None
        told: list[OutgoingDelivery] = []
        for delivery in deliveries:
            if delivery.link is not link:
                link = delivery.link
                told = self._outcomes_of(link, state, settled)
            told.append(delivery)

    def _outcomes_of(self, link: Link, state: object, settled: bool) -> list[OutgoingDelivery]:
        """Where outcomes of one link are told: equal ones are one event, and nobody is told of a link that is gone.
        Only `accepted` is compared: the others carry details."""
        if not link.is_live():
            return []
        event = link.outcomes
        if event is None or event.state is not state or event.settled != settled:
            event = link.outcomes = OutcomesArrived(link, [], state, settled)
            self._connection.events.append(event)
            self._connection.touched.append(link)
        return event.deliveries

    # --- what we say --------------------------------------------------------------------------------------------

    def propose(self, link: Link, first: int, last: int) -> None:
        delivery_id = first
        while True:
            self._proposed[delivery_id] = link
            if delivery_id == last:
                return
            delivery_id = (delivery_id + 1) & _MASK

    def answered(self, deliveries: list[OutgoingDelivery], settled: bool) -> list[tuple[int, int]]:
        """Our outcome is given to these deliveries: to which ranges of ids. Those that the peer has settled already
        are passed over."""
        ranges: list[tuple[int, int]] = []
        first = last = -1
        for delivery in deliveries:
            if delivery.settled:
                continue
            delivery_id = delivery.delivery_id
            self._record_answer(delivery, settled)
            if first >= 0 and delivery_id == (last + 1) & _MASK:
                last = delivery_id
                continue
            if first >= 0:
                ranges.append((first, last))
            first = last = delivery_id
        if first >= 0:
            ranges.append((first, last))
        return ranges

    def _record_answer(self, delivery: OutgoingDelivery, settled: bool) -> None:
        delivery_id = delivery.delivery_id
        decided = self._decided.pop(delivery_id, None)
        if not settled:
            # Still open on both sides: the peer may decide once more (a rolled back transaction).
            if decided is not None:
                self.unsettled[delivery_id] = delivery
            return
        if decided is None:
            self.unsettled.pop(delivery_id, None)
        self._close(delivery)


def _taken(book: dict[int, OutgoingDelivery], first: int, last: int) -> list[OutgoingDelivery]:
    """Takes those out of our book that lie in a range of the peer's choice."""
    if first == last:
        only = book.pop(first, None)
        return [] if only is None else [only]
    found: list[OutgoingDelivery] = []
    for delivery_id in _in_range(book, first, last):
        delivery = book.get(delivery_id)
        if delivery is not None:
            del book[delivery_id]
            found.append(delivery)
    return found


def _in_range(book: Mapping[int, object], first: int, last: int) -> list[int]:
    """Every key of our book that lies in a range of the peer's choice, and perhaps others. Never walks the range when
    it is larger than the book."""
    span = (last - first) & _MASK
    if not book:
        return []
    if span >= len(book):
        return [delivery_id for delivery_id in book if (delivery_id - first) & _MASK <= span]
    return [(first + step) & _MASK for step in range(span + 1)]
