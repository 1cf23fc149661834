"""Messages that come over a link: arrived and arriving. Those that are sent belong to their link (`link`)."""

from __future__ import annotations

from typing import Final

from busway.amqp.performatives import TransactionalState, Transfer

_TXN_ID_BYTES_MAX: Final = 64


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


class PartialDelivery:
    """The one unfinished delivery of a receiving link."""

    __slots__ = ("delivery_id", "frame_count", "message_format", "parts", "settled", "size", "state", "tag")

    def __init__(self, delivery_id: int, first: Transfer) -> None:
        self.delivery_id = delivery_id
        self.tag = first.delivery_tag
        self.message_format = first.message_format
        self.settled = False
        self.state: object = None
        self.parts: list[bytes] = []
        self.size = 0
        self.frame_count = 0

    def matches(self, transfer: Transfer) -> bool:
        """Later frames may repeat what the first one said, but not contradict it."""
        return (
            (transfer.delivery_id is None or transfer.delivery_id == self.delivery_id)
            and (transfer.delivery_tag is None or transfer.delivery_tag == self.tag)
            and (transfer.message_format is None or transfer.message_format == (self.message_format or 0))
        )

    def add(self, transfer: Transfer, payload: bytes) -> None:
        self.frame_count += 1
        self.size += len(payload)
        if payload:
            self.parts.append(payload)
        # "If set on any frame, the delivery is settled" [2.7.5]; the last state given counts.
        if transfer.settled is True:
            self.settled = True
        if transfer.state is not None:
            self.state = shortened_state(transfer.state)


def shortened_state(state: object) -> TransactionalState | None:
    """What is kept of the state of a delivery that waits for something. Nobody asks for more, and it may be large; no
    transaction has an id as long as that."""
    return (
        TransactionalState(state.txn_id[:_TXN_ID_BYTES_MAX])
        if isinstance(state, TransactionalState)
        else None
    )
