"""A sequence of frames in both directions: windows, delivery numbers, handles, and who is settled.

Theory of operation. Two counters run per direction. Transfer ids count frames and belong to the windows; delivery
ids count deliveries and belong to settlement. Ours are `next_outgoing_id` and `next_delivery_id`. Of the peer's we
keep only `_next_incoming_id`, counted by ourselves: one SDK counts its own transfer ids per delivery instead of
per frame, so the peer's arithmetic is never checked, only its windows are obeyed and ours are refilled
(`_incoming_left`) before anybody can run dry.

All of them wrap around, and so do delivery counts: their arithmetic is that of serial numbers (RFC 1982) over 32
bits. Two numbers that lie exactly half the circle apart have no order; `less` and `compare` then call the first
one smaller, so that they stay total functions. Peers never come near: every window is far below 2**31.

A delivery that needs more frames than the peer's window admits is written as far as it goes; the rest waits in
`held`, and while it waits nothing else is sent on this session (`outgoing_room` is 0).

Which deliveries are settled is written down in `books` (`deliveries`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import FRAME_HEAD, FRAME_HEAD_BYTES, FRAME_TYPE_AMQP, frame
from busway.amqp.deliveries import DeliveryBooks, OutgoingDelivery
from busway.amqp.errors import AmqpError, Condition, ProtocolViolation, Scope
from busway.amqp.events import SessionBegun, SessionEnded, WindowOpened
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Detach,
    End,
    Fields,
    Flow,
    Received,
    Source,
    Target,
    decode_disposition,
    decode_flow,
    decode_transfer,
    encode_disposition,
    encode_flow,
)
from busway.amqp.states import SESSION_TABLE, SessionInput, SessionState, advance

if TYPE_CHECKING:
    from busway.amqp.connection import Connection

MODULUS: Final = 1 << 32
HALF: Final = 1 << 31
_SERIAL_MASK: Final = MODULUS - 1


def distance(start: int, end: int) -> int:
    """How many steps lead forward from `start` to `end`; negative when `end` lies behind."""
    steps = (end - start) & _SERIAL_MASK
    return steps if steps <= HALF else steps - MODULUS


def less(left: int, right: int) -> bool:
    """Whether `left` comes before `right`."""
    steps = (right - left) & _SERIAL_MASK
    return 0 < steps <= HALF


_MASK: Final = 0xFFFF_FFFF
# What these weigh in memory, roughly.
_SESSION_BYTES: Final = 2_048
_LINK_BYTES: Final = 2_048
_UNSETTLED_BYTES: Final = 256


class Session:
    """Made by the connection when a begin arrives, or by `Connection.begin` in the client role."""

    __slots__ = (
        "_incoming_left",
        "_incoming_window",
        "_names",
        "_next_incoming_id",
        "_outgoing_window",
        "_own_handles",
        "_peer_handle_max",
        "_taking",
        "_told",
        "_window_told",
        "books",
        "channel",
        "connection",
        "frame_bytes_max",
        "held",
        "held_bytes",
        "links",
        "next_delivery_id",
        "next_outgoing_id",
        "out",
        "owner",
        "peer_channel",
        "peer_window",
        "state",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        settings = connection.settings
        # Fixed for the life of the session.
        self.connection = connection
        #: Our channel, in the frames we write; the peer has its own.
        self.channel = channel
        self.peer_channel = -1
        self.out = connection.out
        self.frame_bytes_max = connection.outgoing_frame_bytes_max
        self._incoming_window = settings.incoming_window
        self._outgoing_window = settings.outgoing_window
        self._peer_handle_max = settings.handle_max
        #: Free for the gateway.
        self.owner: object | None = None
        # Changes with frames.
        self.state = SessionState.UNMAPPED
        self._taking = False
        self._told = False
        #: The turn in which the owner was last told that the window is open.
        self._window_told = -1
        #: Links by the peer's handle, from its attach to the end of the detach exchange.
        self.links: dict[int, Link] = {}
        self._own_handles: dict[int, Link] = {}
        #: Links by name and our role.
        self._names: dict[tuple[str, bool], Link] = {}
        self.next_outgoing_id = settings.first_transfer_id
        self.next_delivery_id = settings.first_delivery_id
        #: Transfer frames that the peer's incoming-window still admits.
        self.peer_window = 0
        #: Frames of unfinished deliveries that wait for the peer's window.
        self.held: deque[tuple[Link, bytes, bytes]] = deque()
        self.held_bytes = 0
        self._next_incoming_id = 0
        self._incoming_left = settings.incoming_window
        self.books = DeliveryBooks(connection)

    def __repr__(self) -> str:
        return f"<Session {self.channel} {self.state.name}>"

    def _move(self, given: SessionInput) -> None:
        self.state = advance(SESSION_TABLE, self.state, given)
        self._taking = self.state is SessionState.MAPPED

    # --- begin and end ------------------------------------------------------------------------------------------

    def begin_arrived(self, begin: Begin, peer_channel: int) -> None:
        """The peer's begin, first (answered here) or as an answer to ours."""
        self._move(SessionInput.RECV_BEGIN)
        self.peer_channel = peer_channel
        self._next_incoming_id = begin.next_outgoing_id
        self.peer_window = begin.incoming_window
        if begin.handle_max is not None and begin.handle_max < self._peer_handle_max:
            self._peer_handle_max = begin.handle_max
        if self.state is SessionState.BEGIN_RCVD:
            self.send_begin(peer_channel)

    def tell_begin(self) -> None:
        if self.state is SessionState.MAPPED:
            self.connection.events.append(SessionBegun(self))

    def send_begin(self, remote_channel: int | None) -> None:
        self._move(SessionInput.SEND_BEGIN)
        self.connection.write(
            self.channel,
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self._incoming_window,
                outgoing_window=self._outgoing_window,
                handle_max=self.connection.settings.handle_max,
            ),
        )

    def end(self, error: AmqpError | None = None) -> None:
        """End the session, and its links with it. SessionEnded follows when the peer has answered."""
        if (self.state, SessionInput.SEND_END) in SESSION_TABLE:
            self._write_end(SessionInput.SEND_END, error)
            self._cut_links(error)

    def fail(self, error: AmqpError) -> None:
        """The peer broke a rule of the session: end it, and tell the owner now."""
        if (self.state, SessionInput.SEND_END_ERROR) in SESSION_TABLE:
            self._write_end(SessionInput.SEND_END_ERROR, error)
        self._cut_links(error)
        self._tell_end(error)

    def refuse(self, error: AmqpError) -> None:
        """There are too many sessions: end it at once, and the owner never hears of it."""
        self._told = True
        self.fail(error)

    def end_arrived(self, end: End) -> None:
        self._move(SessionInput.RECV_END)
        if self.state is SessionState.END_RCVD:
            self._write_end(SessionInput.SEND_END, None)
        self._cut_links(end.error)
        self.connection.forget_session(self)
        self._tell_end(end.error)

    def cut(self, error: AmqpError | None) -> None:
        """The connection is gone."""
        self._move(SessionInput.CUT)
        self._cut_links(error)
        self._tell_end(error)

    def force_out(self, error: AmqpError) -> None:
        """The connection is about to be closed from our side: detach every link and end, all with the reason."""
        for link in list(self._own_handles.values()):
            link.detach(error)
        self.end(error)

    def _write_end(self, given: SessionInput, error: AmqpError | None) -> None:
        self._move(given)
        self._drop_held()
        self.connection.write_end(self.channel, End(error))

    def _cut_links(self, error: AmqpError | None) -> None:
        for link in list(self._own_handles.values()):
            link.cut(error)
            self.connection.allowance.release_attach(link.attach_bytes)
        self.connection.link_count -= len(self._own_handles)
        self._own_handles.clear()
        self.links.clear()
        self._names.clear()
        self.books.clear()
        self._drop_held()

    def _tell_end(self, error: AmqpError | None) -> None:
        if not self._told:
            self._told = True
            self.connection.events.append(SessionEnded(self, error))

    # --- links --------------------------------------------------------------------------------------------------

    def attach(
        self,
        name: str,
        *,
        is_sender: bool,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        max_message_size: int | None = None,
        properties: Fields | None = None,
        desired_capabilities: list[str] | None = None,
    ) -> Link:
        """Client role: begin a link. LinkAttached follows when the peer has answered."""
        if (self.state, SessionInput.SEND_FRAME) not in SESSION_TABLE:
            raise RuntimeError(f"{self!r} takes no new links")
        if (name, is_sender) in self._names:
            raise ValueError(f"A link named {name!r} exists already on this session")
        link = self._new_link(name, is_sender)
        link.send_attach(
            Attach(
                name=name,
                handle=link.handle,
                role=ROLE_SENDER if is_sender else ROLE_RECEIVER,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=self.connection.settings.first_delivery_count if is_sender else None,
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        return link

    def attach_arrived(self, attach: Attach, size: int) -> None:
        """`size`: of its frame's body."""
        if not self._admits_frame():
            return
        handle = attach.handle
        if handle > self.connection.settings.handle_max:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.CONNECTION_FRAMING_ERROR,
                f"Handle {handle} exceeds the handle-max of {self.connection.settings.handle_max}.",
            )
        if handle in self.links:
            raise ProtocolViolation(
                Scope.SESSION, Condition.SESSION_HANDLE_IN_USE, f"Handle {handle} is attached already."
            )
        is_sender = attach.role == ROLE_RECEIVER
        link = self._names.get((attach.name, is_sender))
        if link is not None and link.peer is None:
            # The answer to our own attach.
            self.links[handle] = link
            link.attach_arrived(attach)
            return
        self._attach_new(attach, size, is_sender, link)

    def _attach_new(self, attach: Attach, size: int, is_sender: bool, rival: Link | None) -> None:
        connection = self.connection
        allowance = connection.allowance
        if rival is not None and rival.is_live():
            # A link has one name per direction: the newer attach takes it over [2.6.1].
            rival.fail(Condition.LINK_STOLEN, f"Link '{attach.name[:64]}' was attached again.")
        if (
            connection.link_count >= allowance.links_max + connection.settings.handle_max
            or not allowance.count_attach()
        ):
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.RESOURCE_LIMIT_EXCEEDED,
                "The connection has more links than it may have, and refused ones are not detached.",
            )
        is_full = connection.link_count >= allowance.links_max
        link = self._new_link(attach.name, is_sender)
        self.links[attach.handle] = link
        if not is_full and allowance.keep_attach(size):
            link.attach_bytes = size
            link.attach_arrived(attach)
            return
        refusal = f"The connection has {allowance.links_max} links already."
        if not is_full:
            refusal = (
                "The links of this connection hold too much: shorten their names, addresses and properties."
            )
        # A refused link stays until the peer has answered, and so does its name.
        if not allowance.keep_attach(len(attach.name)):
            raise ProtocolViolation(Scope.CONNECTION, Condition.RESOURCE_LIMIT_EXCEEDED, refusal)
        link.attach_bytes = len(attach.name)
        # Attached, refused and told in one go: the owner never sees it.
        link.attach_refused(attach, AmqpError(Condition.RESOURCE_LIMIT_EXCEEDED, refusal))

    def _new_link(self, name: str, is_sender: bool) -> Link:
        handle = 0
        while handle in self._own_handles:
            handle += 1
        if handle > self._peer_handle_max:
            raise ProtocolViolation(
                Scope.SESSION,
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"The session admits {self._peer_handle_max + 1} links.",
            )
        link = Link(self, name, is_sender, handle)
        self._own_handles[handle] = link
        self._names[name, is_sender] = link
        self.connection.link_count += 1
        return link

    def detach_arrived(self, detach: Detach) -> None:
        if self._admits_frame():
            self._link_of(detach.handle).detach_arrived(detach)

    def forget_link(self, link: Link) -> None:
        """The link's detach exchange is complete: its handles and its name are free again."""
        self.links.pop(link.peer_handle, None)
        if self._own_handles.pop(link.handle, None) is not None:
            self.connection.link_count -= 1
            self.connection.allowance.release_attach(link.attach_bytes)
        if self._names.get((link.name, link.is_sender)) is link:
            del self._names[link.name, link.is_sender]
        self.books.forget(link)

    def _link_of(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise ProtocolViolation(
                Scope.SESSION, Condition.SESSION_UNATTACHED_HANDLE, f"Handle {handle} is not attached."
            )
        return link

    def _admits_frame(self) -> bool:
        """Whether a frame is to be worked on. False: it crossed our end and is dropped."""
        if self._taking:
            return True
        self._move(SessionInput.RECV_FRAME)
        return False

    # --- incoming transfers -------------------------------------------------------------------------------------

    def transfer_frame_arrived(self, data: bytes, body: int, end: int) -> None:
        if not self._taking:
            self._admits_frame()
            return
        transfer, payload_at = decode_transfer(data, body, end)
        self._next_incoming_id = (self._next_incoming_id + 1) & _MASK
        self._incoming_left -= 1
        if self._incoming_left * 2 <= self._incoming_window:
            self.write_flow()
        link = self.links.get(transfer.handle)
        if link is None:
            link = self._link_of(transfer.handle)
        link.transfer_arrived(transfer, data[payload_at:end])

    def quiet_room(self) -> int:
        """Transfers that can be taken before a flow is due."""
        return (2 * self._incoming_left - self._incoming_window - 1) // 2 if self._taking else 0

    def transfers_taken(self, count: int) -> None:
        self._next_incoming_id = (self._next_incoming_id + count) & _MASK
        self._incoming_left -= count

    # --- flows --------------------------------------------------------------------------------------------------

    def flow_frame_arrived(self, data: bytes, body: int, end: int) -> None:
        if not self._taking:
            self._admits_frame()
            return
        flow = decode_flow(data, body, end)
        link = None if flow.handle is None else self._link_of(flow.handle)
        self._window_arrived(flow)
        if link is not None:
            link.flow_arrived(flow)
        elif flow.echo:
            self.write_flow()

    def _window_arrived(self, flow: Flow) -> None:
        """What the peer can take is counted from the last frame it has seen [2.5.6]. Its count is taken with a grain
        of salt: never more than the window it names, never less than nothing."""
        window = flow.incoming_window
        if flow.next_incoming_id is not None:
            left = window + distance(self.next_outgoing_id, flow.next_incoming_id)
            window = 0 if left < 0 else min(left, window)
        was_shut = self.peer_window <= 0
        self.peer_window = window
        if was_shut and window > 0:
            self._write_held()
            # Once in a turn: whoever hears of it asks every link, and a read can shut and open it thousands of times.
            if self.peer_window > 0 and self._window_told != self.connection.turn:
                self._window_told = self.connection.turn
                self.connection.events.append(WindowOpened(self))

    def outgoing_room(self) -> int:
        """Transfers that the peer's incoming-window still admits."""
        return 0 if self.held else self.peer_window

    def write_transfer(self, link: Link, prefix: bytes, payload: bytes) -> None:
        """One frame of a delivery, now or when the peer's window admits it."""
        size = FRAME_HEAD_BYTES + len(prefix) + len(payload)
        head = FRAME_HEAD.pack(size, 2, FRAME_TYPE_AMQP, self.channel) + prefix
        self.held.append((link, head, payload))
        self._count_held(size)
        self._write_held()

    def _write_held(self) -> None:
        held = self.held
        while held and self.peer_window > 0:
            _, head, payload = held.popleft()
            self.next_outgoing_id = (self.next_outgoing_id + 1) & _MASK
            self.peer_window -= 1
            self._count_held(-len(head) - len(payload))
            self.out.append(head)
            self.out.append(payload)

    def drop_held_frames(self, link: Link) -> None:
        """The link is being detached: what is left of its delivery must not follow."""
        if self.held:
            self.held = deque(entry for entry in self.held if entry[0] is not link)
            self._count_held(
                sum([len(head) + len(payload) for _, head, payload in self.held]) - self.held_bytes
            )

    def _drop_held(self) -> None:
        self.held.clear()
        self._count_held(-self.held_bytes)

    def _count_held(self, size: int) -> None:
        self.held_bytes += size
        self.connection.allowance.waiting_bytes += size

    def is_full_of_unsettled(self) -> bool:
        """So many deliveries of all links of the connection are unsettled that none of them may send any more.
        Counted when somebody asks: so nothing has to be given back when a session or a link ends, however it does."""
        count = 0
        for session in self.connection.sessions.values():
            count += session.books.unsettled_count()
        return count >= self.connection.settings.unsettled_max

    def write_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Every flow opens our window anew: whoever sends to us must never stall on it."""
        self._incoming_left = self._incoming_window
        body = encode_flow(
            # There is none before the peer's begin (client role).
            None if self.peer_channel < 0 else self._next_incoming_id,
            self._incoming_window,
            self.next_outgoing_id,
            self._outgoing_window,
            handle,
            delivery_count,
            credit,
            drain=drain,
        )
        self.out.append(frame(self.channel, body))

    # --- settlement ---------------------------------------------------------------------------------------------

    def disposition_frame_arrived(self, data: bytes, body: int, end: int) -> None:
        if not self._taking:
            self._admits_frame()
            return
        disposition = decode_disposition(data, body, end)
        state = disposition.state
        if isinstance(state, Accepted):
            state = ACCEPTED
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if disposition.role == ROLE_SENDER:
            if disposition.settled:
                self.books.answers_arrived(first, last, state)
        elif disposition.settled:
            self.books.settled_arrived(first, last, state)
        elif state is not None and not isinstance(state, Received):
            self.books.outcomes_arrived(first, last, state)

    def answer(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Write our outcome for deliveries, one disposition per run of consecutive ids."""
        for first, last in self.books.answered(deliveries, settled):
            self.write_disposition(ROLE_SENDER, first, last, settled, state)

    def write_disposition(self, role: bool, first: int, last: int, settled: bool, state: object) -> None:
        body = encode_disposition(role, first, last, settled, state)
        if len(body) + FRAME_HEAD_BYTES > self.frame_bytes_max:
            self.connection.fail_too_large(len(body))
            return
        self.out.append(frame(self.channel, body))


def held_bytes(connection: Connection) -> int:
    """How much memory a peer makes a connection hold, added up from what is there: unfinished deliveries, attaches,
    links, sessions, what waits for windows or settlement."""
    allowance = connection.allowance
    held = allowance.partial_bytes() + allowance.attach_bytes() + allowance.waiting_bytes
    held += connection.link_count * _LINK_BYTES
    for session in connection.sessions.values():
        held += _SESSION_BYTES + session.books.unsettled_count() * _UNSETTLED_BYTES
    return held
