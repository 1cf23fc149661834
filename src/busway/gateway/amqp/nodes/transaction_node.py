"""The transaction coordinator: a client's control link declares and discharges transactions (TX-5, TX-21).

  declare    an AMQP value, described 0x31     → declared, with the id of the new transaction
  discharge  an AMQP value, described 0x32     → accepted when it is committed durably, or rolled back as asked;
                                                 rejected with the reason when it was rolled back instead

What takes place in a transaction comes on other links, with the id in its delivery state. When the control link goes,
by itself or with its session or connection, its open transactions are rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import ACCEPTED, Declare, Declared, Discharge, Rejected, compose
from busway.amqp.sections import decode_message
from busway.gateway.amqp.error_conditions import amqp_error, undecodable
from busway.gateway.amqp.links.addresses import SessionUse
from busway.model.errors import BrokerError, NotImplementedByServer, QuotaExceeded, StoreOutcomeUnknown

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.link import Link
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost
    from busway.model.flow import FlowCounts

CREDIT_MAX: Final = 1_000
#: Of a client that has shown no token yet: some declare their first one before.
STRANGER_OPEN_MAX: Final = 8
#: Far more than a declare or a discharge weighs.
REQUEST_BYTES_MAX: Final = 4_096

#: The forms in which clients write a declare without a global id: its list is empty, or its field is null.
_DECLARES: Final = frozenset(
    b"\x00\x53\x77\x00\x53\x31" + fields
    for fields in (b"\x45", b"\xc0\x01\x00", b"\xc0\x02\x01\x40", b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40")
)
_DECLARE: Final = Declare()
#: A discharge up to the size of its list8; then come size, the number of fields, the id as a binary8, and a flag.
_DISCHARGE: Final = b"\x00\x53\x77\x00\x53\x32\xc0"
_FLAGS: Final = {b"\x41": True, b"\x42": False, b"\x56\x00": False, b"\x56\x01": True}


class _AskedDischarge:
    """A discharge that waits for the end of its transaction."""

    __slots__ = ("_delivery", "_owner")

    def __init__(self, owner: ControlLink, delivery: IncomingDelivery) -> None:
        self._owner = owner
        self._delivery = delivery

    def done(self, error: BrokerError | None) -> None:
        self._owner.discharged(self._delivery, error)


class ControlLink:
    """The receiving end of a client's control link."""

    def __init__(self, host: LinkHost, link: Link, node: LinkNode, flow: FlowCounts, now: float) -> None:
        self.host = host
        self.link = link
        self.node = node
        #: O-2: of the namespace.
        self._flow = flow
        #: A-7: whoever got through SASL may have one; the operations have rights of their own.
        self.right: str | None = None
        self.used_at = now
        self._credit = 0
        self._is_gone = False

    def start(self) -> None:
        """After the attach was answered."""
        self._top_up()

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        self._credit -= len(deliveries)
        for delivery in deliveries:
            try:
                self._handle(delivery)
            except DecodeError as problem:
                self._flow.mistaken()
                self._settle(delivery, Rejected(undecodable(problem, self.host.tracking)))
            except BrokerError as error:
                self._refuse(delivery, error)
        self._top_up()

    def _refuse(self, delivery: IncomingDelivery, error: BrokerError) -> None:
        self._flow.refused(error)
        self._settle(delivery, Rejected(amqp_error(error, self.host.tracking)))

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None: ...

    def credit_arrived(self) -> None: ...

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return False

    def gone(self) -> None:
        self._is_gone = True
        self.host.transactions.owner_gone(self)

    # -- requests

    def _handle(self, delivery: IncomingDelivery) -> None:
        request = _request_of(delivery.payload)
        if isinstance(request, Declare):
            self._declare(delivery, request)
        elif isinstance(request, Discharge):
            self._discharge(delivery, request)
        else:
            raise NotImplementedByServer("A control link takes only the messages 'declare' and 'discharge'.")

    def _declare(self, delivery: IncomingDelivery, request: Declare) -> None:
        if request.global_id is not None:
            raise NotImplementedByServer("Distributed transactions are not supported: leave 'global-id' out.")
        if delivery.settled:  # nobody would ever learn its id
            return
        if self.host.is_stranger and len(self.host.transactions) >= STRANGER_OPEN_MAX:
            raise QuotaExceeded(
                f"A connection can open {STRANGER_OPEN_MAX} transactions before it puts a token on '$cbs'."
            )
        self._flow.answered(1, [])
        self._settle(delivery, Declared(self.host.transactions.declare(self, self.link.session)))

    def _discharge(self, delivery: IncomingDelivery, request: Discharge) -> None:
        use = self.link.session.owner
        if isinstance(use, SessionUse) and use.is_free:
            self._pin(use, request.txn_id)
        asked = _AskedDischarge(self, delivery)
        self.host.transactions.discharge(self, request.txn_id, fail=request.fail is True, done=asked.done)

    def _pin(self, use: SessionUse, txn_id: bytes) -> None:
        """TX-4: the session keeps to the entity of its first transaction, unless a receiver was faster."""
        path = self.host.transactions.find(txn_id).top_path()
        if path is not None:
            use.took_place_at(path)

    def discharged(self, delivery: IncomingDelivery, error: BrokerError | None) -> None:
        if self._is_gone:
            return
        if error is None:
            self._flow.answered(1, [])
            self._settle(delivery, ACCEPTED)
        elif isinstance(error, StoreOutcomeUnknown):  # S-1: no outcome can be told
            self._flow.refused(error)
            self.host.end_link(self, amqp_error(error, self.host.tracking))
        else:
            self._refuse(delivery, error)
        self.host.output_waits()

    def _settle(self, delivery: IncomingDelivery, outcome: object) -> None:
        if not delivery.settled:
            self.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)

    def _top_up(self) -> None:
        if self._credit < CREDIT_MAX // 2 and not self._is_gone:
            self._credit = CREDIT_MAX
            self.link.grant_credit(CREDIT_MAX)


def _request_of(payload: bytes) -> object:
    """A declare or a discharge, or whatever else the message holds. Raises DecodeError."""
    if payload in _DECLARES:
        return _DECLARE
    size = len(payload)
    if size > 12 and payload[:7] == _DISCHARGE and payload[8] == 2 and payload[9] == 0xA0:
        id_end = 11 + payload[10]
        if size == 8 + payload[7] and id_end < size:
            fail = _FLAGS.get(payload[id_end:])
            if fail is not None:
                return Discharge(payload[11:id_end], fail)
    return compose(decode_message(payload).body)
