"""One direction of messages between us and the peer.

Theory of operation. A link counts deliveries and credit. `_delivery_count` is the standard's delivery-count [2.6.7]:
on a sending link the number of deliveries sent so far, on a receiving link the number received, both starting at the
sender's initial-delivery-count and wrapping at 2**32. Credit is kept as what is left: on a sending link it is
recomputed from each flow (peer's delivery-count + link-credit − our delivery-count) and goes down with each send; on
a receiving link `grant_credit` sets it and each delivery takes one. Some SDK senders assume credit before they get
any, so a receiving link may go `overdraft_max` below zero before it is detached.

A delivery larger than a frame arrives in parts; at most one delivery per link is unfinished (`_partial`).

Complete deliveries of one read collect in `_arrived`, the list inside the DeliveriesArrived event of this turn, or in
`_run` while all are usual; equal outcomes collect in `outcomes` likewise. All are cleared when the turn ends.

Commands on a link that is over do nothing, because the owner may act on news that is older than the end of the link.
Only `send` insists: whoever sends has asked `room()` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.allowance import address_bytes
from busway.amqp.decode import FRAME_HEAD, FRAME_HEAD_BYTES, FRAME_TYPE_AMQP
from busway.amqp.deliveries import (
    IncomingDelivery,
    OutgoingDelivery,
    PartialDelivery,
    oversized,
    too_much_unfinished,
)
from busway.amqp.errors import AmqpError, Condition, ProtocolViolation, Scope
from busway.amqp.events import CreditArrived, CreditDrained, DeliveriesArrived, LinkAttached, LinkDetached
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Coordinator,
    Detach,
    Fields,
    Flow,
    Source,
    Target,
    Transfer,
    encode_transfer_prefix,
)
from busway.amqp.states import LINK_TABLE, LinkInput, LinkState, advance
from busway.amqp.transfer_runs import NO_FORM, ArrivedRun, TransferWriter

if TYPE_CHECKING:
    from busway.amqp.events import OutcomesArrived
    from busway.amqp.session import Session

#: The standard says 32.
TAG_BYTES_MAX: Final = 128
_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
#: Announced sizes from here on mean "no limit" and are not taken at their word.
_UNLIMITED: Final = 1 << 63


class Link:
    """Made by the session when an attach arrives, or by `Session.attach` in the client role."""

    __slots__ = (
        "_arrived", "_attach_sent", "_credit", "_credit_told", "_delivery_count", "_drain", "_drain_asked",
        "_end_told", "_initial_delivery_count", "_is_live", "_out", "_overdraft_floor", "_partial", "_run",
        "_unsettled_count", "_unsettled_max", "attach_bytes", "closes_late", "delivery_bytes_max", "form",
        "handle", "is_sender", "name", "outcomes", "owner", "peer", "peer_closed", "peer_handle", "properties",
        "rcv_settle_mode", "session", "snd_settle_mode", "source", "state", "takes_runs", "target",
    )  # fmt: skip

    def __init__(self, session: Session, name: str, is_sender: bool, handle: int) -> None:
        settings = session.connection.settings
        # Fixed for the life of the link.
        self.session: Session = session
        self.name = name
        #: Our role: True when we send.
        self.is_sender = is_sender
        #: Our handle, in the frames we write; the peer has its own.
        self.handle: int = handle
        self._out = session.out
        # Set when the peer's attach arrives. A server keeps its parts until it has answered.
        self.peer_handle = -1
        #: How much of the peer's attach is kept, in bytes of the wire.
        self.attach_bytes = 0
        self.peer: Attach | None = None
        self.peer_closed = False  # by its detach, not by the end of its session or connection
        self.closes_late = False  # when the peer closes it, the owner answers, by `detach`
        self.source: Source | None = None
        self.target: Target | Coordinator | None = None
        self.properties: Fields | None = None
        self.snd_settle_mode: int | None = None
        self.rcv_settle_mode: int | None = None
        #: Free for the gateway.
        self.owner: object | None = None
        #: The owner wants usual deliveries as runs.
        self.takes_runs = False
        #: How the peer ended its last usual transfer.
        self.form = NO_FORM
        # Changes with every frame.
        self.state = LinkState.DETACHED
        self._is_live = False
        self._attach_sent = False
        self._end_told = False
        self._credit = 0
        self._delivery_count = settings.first_delivery_count
        self._initial_delivery_count = settings.first_delivery_count
        #: Sending link: the peer waits for `drained`. Receiving link: we wait for the peer.
        self._drain = False
        self._drain_asked = False
        self._unsettled_count = 0
        self._unsettled_max = settings.unsettled_per_link_max
        self._overdraft_floor = -settings.overdraft_max
        self.delivery_bytes_max = settings.delivery_bytes_max
        self._partial: PartialDelivery | None = None
        # Only within one turn of the connection.
        self._arrived: list[IncomingDelivery] | None = None
        self._run: ArrivedRun | None = None
        self.outcomes: OutcomesArrived | None = None
        self._credit_told = False

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {'out' if self.is_sender else 'in'} {self.state.name}>"

    def _move(self, given: LinkInput) -> None:
        self.state = advance(LINK_TABLE, self.state, given)
        self._is_live = self.state is LinkState.ATTACHED or self.state is LinkState.ATTACH_RCVD

    def is_live(self) -> bool:
        """Attached, or waiting to be accepted."""
        return self._is_live

    # --- attaching ----------------------------------------------------------------------------------------------

    def attach_arrived(self, attach: Attach) -> None:
        """The peer's attach: a new link (server), or the answer to ours (client)."""
        self._take_attach(attach)
        if self.state is not LinkState.DETACH_SENT:
            self.session.connection.events.append(LinkAttached(self))

    def attach_refused(self, attach: Attach, error: AmqpError) -> None:
        """The peer's attach comes when there are too many links: the owner never hears of it."""
        self._take_attach(attach)
        self._end_told = True
        self.detach(error)

    def _take_attach(self, attach: Attach) -> None:
        self._move(LinkInput.RECV_ATTACH)
        self.peer = attach
        self.peer_handle = attach.handle
        self.source = attach.source
        self.target = attach.target
        self.properties = attach.properties
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        if not self.is_sender:
            # The sender counts; a receiver starts where it says.
            initial = attach.initial_delivery_count
            self._delivery_count = self._initial_delivery_count = 0 if initial is None else initial

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: Fields | None = None,
        max_message_size: int | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        initial_delivery_count: int | None = None,
        delivery_bytes_max: int | None = None,
    ) -> None:
        """Answer the peer's attach. Settle modes that are not given are the peer's own.

        `max_message_size` is announced on a receiving link; a delivery beyond `delivery_bytes_max` ends the link.
        When the latter is not given it is the announcement, or, when that is a formality (none, 0, or 2**64 − 1),
        the bound of the settings.
        """
        if self.state is not LinkState.ATTACH_RCVD:
            return
        if initial_delivery_count is not None and self.is_sender:
            self._delivery_count = self._initial_delivery_count = initial_delivery_count
        self._limit_deliveries(max_message_size, delivery_bytes_max)
        self._write_attach(
            Attach(
                name=self.name,
                handle=self.handle,
                role=ROLE_SENDER if self.is_sender else ROLE_RECEIVER,
                snd_settle_mode=self.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                rcv_settle_mode=self.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=self._initial_delivery_count if self.is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        self._shed()

    def _shed(self) -> None:
        """The peer's attach is answered: what it said is used, and a peer may say much. Names and addresses are what
        the owner may have kept."""
        allowance = self.session.connection.allowance
        kept = len(self.name) + address_bytes(self.source) + address_bytes(self.target)
        if kept < self.attach_bytes:
            allowance.release_attach(self.attach_bytes - kept)
            self.attach_bytes = kept
        self.source = None
        self.target = None
        self.properties = None
        peer = self.peer
        if peer is not None:
            self.peer = Attach(self.name, peer.handle, peer.role)

    def _limit_deliveries(self, max_message_size: int | None, delivery_bytes_max: int | None) -> None:
        if self.is_sender:
            return
        if delivery_bytes_max is not None:
            self.delivery_bytes_max = delivery_bytes_max
        elif max_message_size is not None and 0 < max_message_size < _UNLIMITED:
            self.delivery_bytes_max = max_message_size
        self.session.connection.allowance.expect_deliveries(self.delivery_bytes_max)

    def send_attach(self, attach: Attach) -> None:
        """Client role: begin the link."""
        if attach.initial_delivery_count is not None:
            self._delivery_count = self._initial_delivery_count = attach.initial_delivery_count
        self._limit_deliveries(attach.max_message_size, None)
        self._write_attach(attach)

    def _write_attach(self, attach: Attach) -> None:
        self._move(LinkInput.SEND_ATTACH)
        self._attach_sent = True
        self.session.connection.write(self.session.channel, attach)

    # --- detaching ----------------------------------------------------------------------------------------------

    def refuse(self, error: AmqpError, *, names_terminus: bool = True) -> None:
        """Answer the peer's attach with a refusal: an attach without the terminus it asked for, then a detach
        (SDKs close the whole connection over a detach without an attach before it). `names_terminus`: the peer's own
        terminus is echoed; the service leaves out both for event hubs, and for whoever has no right."""
        if self.state is LinkState.ATTACH_RCVD and not names_terminus:
            self._write_null_attach(names_terminus=False)
        self.detach(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """End the link. LinkDetached follows when the peer has answered."""
        if self.state is LinkState.ATTACH_RCVD:
            self._write_null_attach()
        if (self.state, LinkInput.SEND_DETACH) in LINK_TABLE:
            self._write_detach(error, closed)
            self._shed()  # a refused link stays until the peer has answered
            if self.state is LinkState.OVER:
                self.session.forget_link(self)
        self._drop_partial()

    def fail(self, condition: str, description: str) -> None:
        """The peer broke a rule of the link: detach, and tell the owner now."""
        error = AmqpError(condition, description)
        self.detach(error)
        self.tell_end(error, True)

    def detach_arrived(self, detach: Detach) -> None:
        """The peer's detach, first or as an answer to ours."""
        self._move(LinkInput.RECV_DETACH)
        if self.state is LinkState.DETACH_RCVD:
            if not self._attach_sent:
                self._write_null_attach()
            if not (self.closes_late and detach.closed):
                self._write_detach(None, detach.closed)
        self._drop_partial()
        self.peer_closed = detach.closed
        if self.state is LinkState.OVER:
            self.session.forget_link(self)
        self.tell_end(detach.error, detach.closed)

    def cut(self, error: AmqpError | None) -> None:
        """Session or connection are gone."""
        self._move(LinkInput.CUT)
        self._drop_partial()
        self.tell_end(error, True)

    def tell_end(self, error: AmqpError | None, closed: bool) -> None:
        if not self._end_told:
            self._end_told = True
            self.session.connection.events.append(LinkDetached(self, error, closed))

    def _write_null_attach(self, names_terminus: bool = True) -> None:
        peer = self.peer
        assert peer is not None
        source = None if self.is_sender or not names_terminus else peer.source
        target = peer.target if self.is_sender and names_terminus else None
        self._write_attach(
            Attach(
                name=self.name,
                handle=self.handle,
                role=ROLE_SENDER if self.is_sender else ROLE_RECEIVER,
                snd_settle_mode=peer.snd_settle_mode,
                rcv_settle_mode=peer.rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=self._initial_delivery_count if self.is_sender else None,
            )
        )

    def _write_detach(self, error: AmqpError | None, closed: bool) -> None:
        self._move(LinkInput.SEND_DETACH)
        if self.is_sender:
            self.session.drop_held_frames(self)
        self.session.connection.write_end(self.session.channel, Detach(self.handle, closed, error))

    # --- receiving ----------------------------------------------------------------------------------------------

    def transfer_arrived(self, transfer: Transfer, payload: bytes) -> None:
        if self.is_sender or not self._is_live:
            self._refuse_transfer()
            return
        tag = transfer.delivery_tag
        if tag is not None and len(tag) > TAG_BYTES_MAX:
            self.fail(Condition.INVALID_FIELD, f"A delivery-tag has more than {TAG_BYTES_MAX} bytes.")
            return
        delivery_id = transfer.delivery_id
        if transfer.more or self._partial is not None or transfer.aborted or delivery_id is None:
            self._part_arrived(transfer, payload)
            return
        if len(payload) > self.delivery_bytes_max:
            violation = oversized(delivery_id, len(payload), self.delivery_bytes_max)
            self.fail(violation.condition, violation.description)
            return
        message_format = transfer.message_format
        delivery = IncomingDelivery(
            delivery_id,
            b"" if tag is None else tag,
            0 if message_format is None else message_format,
            transfer.settled is True,
            payload,
            transfer.state,
        )
        self._delivery_count = (self._delivery_count + 1) & _MASK
        self._credit -= 1
        if self._credit < self._overdraft_floor:
            self._fail_overdrawn()
            return
        arrived = self._arrived
        if arrived is None:
            self._begin_list(delivery)
        else:
            arrived.append(delivery)

    def _begin_list(self, delivery: IncomingDelivery) -> None:
        if self._run is not None:
            self._arrived = self._run.spill()
            self._arrived.append(delivery)
            self._run = None
        else:
            self._arrived = [delivery]
            self._tell_arrived(DeliveriesArrived(self, self._arrived))

    def _tell_arrived(self, event: DeliveriesArrived) -> None:
        self.session.connection.events.append(event)
        self.session.connection.touched.append(self)

    def run_room(self) -> int:
        """How many usual deliveries can be taken before one must be looked at in every respect."""
        if self.is_sender or not self._is_live or self._partial is not None or self._arrived is not None:
            return 0
        return min(self._credit - self._overdraft_floor, self.session.quiet_room())

    def run_of(self, data: bytes) -> ArrivedRun:
        """What gathers the usual deliveries of this read."""
        run = self._run
        if run is None:
            run = self._run = ArrivedRun(data)
            self._tell_arrived(DeliveriesArrived(self, run.spilt, run))
        return run

    def run_taken(self, count: int) -> None:
        self._delivery_count = (self._delivery_count + count) & _MASK
        self._credit -= count
        self.session.transfers_taken(count)

    def end_turn(self) -> None:
        """The events of this read are complete: the next ones begin new runs."""
        self._arrived = None
        if self._run is not None:
            self._run.end_notes()
            self._run = None
        self.outcomes = None
        self._credit_told = False

    def _refuse_transfer(self) -> None:
        if self.is_sender:
            raise ProtocolViolation(
                Scope.SESSION,
                Condition.NOT_ALLOWED,
                f"A transfer came in on link '{self.name[:64]}', which only sends.",
            )
        # Legal only when it crossed our detach; then it is dropped.
        self._move(LinkInput.RECV_TRANSFER)

    def _part_arrived(self, transfer: Transfer, payload: bytes) -> None:
        """A frame of a delivery that takes several, or that is taken back."""
        try:
            self._take_part(transfer, payload)
        except ProtocolViolation as violation:
            self.fail(violation.condition, violation.description)

    def _take_part(self, transfer: Transfer, payload: bytes) -> None:
        partial = self._partial
        if partial is None:
            partial = self._begin_partial(transfer)
        elif not partial.matches(transfer):
            told = f"A delivery began before delivery {partial.delivery_id} was complete."
            raise ProtocolViolation(Scope.LINK, Condition.NOT_ALLOWED, told)
        if transfer.aborted:
            self._drop_partial()
            self._delivery_count = (self._delivery_count + 1) & _MASK
            self._credit -= 1
            return
        partial.add(transfer, payload, self.delivery_bytes_max)
        if not transfer.more:
            self._drop_partial()
            self.transfer_arrived(partial.whole(transfer.handle), b"".join(partial.parts))

    def _begin_partial(self, first: Transfer) -> PartialDelivery:
        if first.delivery_id is None:
            told = "The first transfer of a delivery has no delivery-id."
            raise ProtocolViolation(Scope.LINK, Condition.INVALID_FIELD, told)
        connection = self.session.connection
        if not connection.allowance.begin_partial():
            raise too_much_unfinished()
        partial = self._partial = PartialDelivery(connection, first.delivery_id, first)
        return partial

    def _drop_partial(self) -> None:
        partial = self._partial
        if partial is not None:
            self._partial = None
            partial.drop()

    def _fail_overdrawn(self) -> None:
        told = f"Link '{self.name[:64]}' received more deliveries than its credit allows."
        self.fail(Condition.LINK_TRANSFER_LIMIT_EXCEEDED, told)

    def grant_credit(self, count: int, drain: bool = False) -> None:
        """Let the peer send `count` more deliveries from now on (not in addition to what it may already send).
        With `drain` (client role) it sends what it has and gives the rest back: CreditDrained follows."""
        if self.is_sender or (self.state, LinkInput.SEND_FLOW) not in LINK_TABLE:
            return
        self._credit = count
        self._drain_asked = drain
        self._write_flow(drain)

    def settle(self, first_id: int, last_id: int, state: object, settled: bool = True) -> None:
        """Give one outcome to the deliveries first_id…last_id that came in on this link. With `settled=False`
        (client role) it is a proposal: the peer's answer comes as SettlementsAnswered."""
        if self.is_sender or not self.is_live():
            return
        session = self.session
        if not settled:
            session.books.propose(self, first_id, last_id)
        session.write_disposition(ROLE_RECEIVER, first_id, last_id, settled, state)

    # --- sending ------------------------------------------------------------------------------------------------

    def credit(self) -> int:
        """Deliveries that the peer's credit admits. On a receiving link: what the peer may still send."""
        return self._credit if self._credit > 0 else 0

    def room(self) -> int:
        """Deliveries that may be sent now: bounded by credit, session window and what is unsettled on this link.
        Grows with CreditArrived and WindowOpened, and when deliveries are settled."""
        if self.state is not LinkState.ATTACHED or not self.is_sender:
            return 0
        room = self.session.outgoing_room()
        if self._credit < room:
            room = self._credit
        unsettled_room = self._unsettled_max - self._unsettled_count
        if unsettled_room < room:
            room = unsettled_room
        return room if room > 0 and not self.session.is_full_of_unsettled() else 0

    def unsettled_count(self) -> int:
        return self._unsettled_count

    def send(
        self, tag: bytes, payload: bytes, *, settled: bool, message_format: int = 0, state: object = None
    ) -> OutgoingDelivery:
        """Write one delivery, in as many frames as it needs. `room()` must have been at least 1. `state`: a
        TransactionalState when it is part of a transaction."""
        session = self.session
        if self._credit <= 0 or session.outgoing_room() <= 0 or self.state is not LinkState.ATTACHED:
            raise RuntimeError(f"{self!r} has no room to send")
        delivery_id = session.next_delivery_id
        prefix = encode_transfer_prefix(self.handle, delivery_id, tag, message_format, settled, False, state)
        session.next_delivery_id = (delivery_id + 1) & _MASK
        self._delivery_count = (self._delivery_count + 1) & _MASK
        self._credit -= 1
        delivery = OutgoingDelivery(self, delivery_id, tag, settled)
        if not settled:
            session.books.unsettled[delivery_id] = delivery
            self._unsettled_count += 1
        size = len(payload) + len(prefix) + FRAME_HEAD_BYTES
        if size > session.frame_bytes_max:
            self._send_frames(delivery, prefix, payload, message_format, state)
            return delivery
        session.next_outgoing_id = (session.next_outgoing_id + 1) & _MASK
        session.peer_window -= 1
        out = self._out
        out.append(FRAME_HEAD.pack(size, 2, FRAME_TYPE_AMQP, session.channel) + prefix)
        out.append(payload)
        return delivery

    def begin_run(self, tag_bytes: int, settled: bool) -> TransferWriter:
        """For deliveries of one frame each, at most `room()`; nothing else is sent before `end_run` lets them go."""
        if self._credit <= 0 or self.session.outgoing_room() <= 0 or self.state is not LinkState.ATTACHED:
            raise RuntimeError(f"{self!r} has no room to send")
        return TransferWriter(self, tag_bytes, settled)

    def end_run(self, run: TransferWriter) -> None:
        session, count = self.session, run.count
        if count == 0:
            return
        if not run.settled:
            self._unsettled_count += count
        session.next_delivery_id = run.next_id
        session.next_outgoing_id = (session.next_outgoing_id + count) & _MASK
        session.peer_window -= count
        self._delivery_count = (self._delivery_count + count) & _MASK
        self._credit -= count
        self._out.append(run.out.getvalue())

    def send_settled_run(self, data: bytes, bounds: list[int], first: int, front: bytes) -> int:
        """Write a run of settled deliveries with empty tags, cut out of `data`: delivery n is `front` and the bytes
        from `bounds[n]` to `bounds[n + 1]`, for n from `first` on. Returns the n at which room ended, else the index
        of the last bound. Nothing is booked for them: nobody will ever speak of them again."""
        last = len(bounds) - 1
        at = first
        while at < last and self.room() > 0:
            at = self._send_short(data, bounds, at, front)
            if at < last and self.room() > 0:
                # It takes several frames, and may take the whole window.
                self.send(b"", front + data[bounds[at] : bounds[at + 1]], settled=True)
                at += 1
        return at

    def _send_short(self, data: bytes, bounds: list[int], first: int, front: bytes) -> int:
        """As `send_settled_run`, up to the first delivery that is larger than a frame."""
        end = min(len(bounds) - 1, first + self.room())
        run = self.begin_run(0, True)
        front_bytes = len(front)
        payload_max = self.session.frame_bytes_max - run.head_bytes - front_bytes
        at = first
        start = bounds[first]
        while at < end:
            stop = bounds[at + 1]
            if stop - start > payload_max:
                break
            run.begin(b"", front_bytes + stop - start)
            run.out.write(front)
            run.out.write(data[start:stop])
            start = stop
            at += 1
        self.end_run(run)
        return at

    def _send_frames(
        self,
        delivery: OutgoingDelivery,
        last_prefix: bytes,
        payload: bytes,
        message_format: int,
        state: object,
    ) -> None:
        """Each frame repeats id, tag, format and state: the standard allows it, and one SDK reads them from whichever
        frame comes last."""
        session = self.session
        more_prefix = encode_transfer_prefix(
            self.handle, delivery.delivery_id, delivery.tag, message_format, delivery.settled, True, state
        )
        # The two prefixes are equally long: they differ in one flag.
        room = session.frame_bytes_max - FRAME_HEAD_BYTES - len(more_prefix)
        at = 0
        while len(payload) - at > room:
            session.write_transfer(self, more_prefix, payload[at : at + room])
            at += room
        session.write_transfer(self, last_prefix, payload[at:])

    def answer(self, deliveries: list[OutgoingDelivery], state: object, settled: bool = True) -> None:
        """Give our outcome to deliveries of this link, as few ranges as their ids allow. Those that the peer has
        settled already are passed over."""
        if self.state is LinkState.ATTACHED:
            self.session.answer(deliveries, state, settled)

    def delivery_settled(self) -> None:
        """One delivery of this link left the session's books."""
        self._unsettled_count -= 1

    def drain_requested(self) -> bool:
        """The peer wants its credit used up: send what there is, then call `drained`."""
        return self._drain

    def drained(self) -> None:
        """Nothing more to send now: give the remaining credit back (R-9)."""
        if not self._drain:
            return
        self._drain = False
        if self.state is not LinkState.ATTACHED:
            return
        self._delivery_count = (self._delivery_count + self._credit) & _MASK
        self._credit = 0
        self._write_flow(True)

    # --- flows --------------------------------------------------------------------------------------------------

    def flow_arrived(self, flow: Flow) -> None:
        self._move(LinkInput.RECV_FLOW)
        if self.state is LinkState.DETACH_SENT:
            return
        if self.is_sender:
            self._credit_arrived(flow)
        elif self._drain_asked and flow.delivery_count is not None:
            self._give_back_arrived(flow)
        if flow.echo and not self._drain and (self.state, LinkInput.SEND_FLOW) in LINK_TABLE:
            self._write_flow(False)

    def _credit_arrived(self, flow: Flow) -> None:
        """link-credit counts from the receiver's delivery-count: what is under way is already spent [2.6.7]."""
        granted = flow.link_credit
        if granted is None:
            return
        base = flow.delivery_count
        if base is None or self.state is LinkState.ATTACH_RCVD:
            # The receiver has not seen our attach yet, so it cannot know our count.
            base = self._initial_delivery_count
        credit = (base + granted - self._delivery_count) & _MASK
        if credit >= _HALF:
            credit = 0
        self._credit = granted if credit > granted else credit
        self._drain = flow.drain
        if not self._credit_told:
            self._credit_told = True
            connection = self.session.connection
            connection.events.append(CreditArrived(self))
            connection.touched.append(self)

    def _give_back_arrived(self, flow: Flow) -> None:
        """The sender used up our credit without deliveries because we asked it to drain."""
        count = flow.delivery_count
        assert count is not None
        skipped = (count - self._delivery_count) & _MASK
        if skipped >= _HALF:
            return
        self._delivery_count = count
        self._credit -= skipped
        if self._credit <= 0:
            self._credit = 0
            self._drain_asked = False
            self.session.connection.events.append(CreditDrained(self))

    def _write_flow(self, drain: bool) -> None:
        self._move(LinkInput.SEND_FLOW)
        self.session.write_flow(self.handle, self._delivery_count, self.credit(), drain)
