"""A connection without a socket and without a clock: bytes and the time go in, events and bytes come out.

Theory of operation. `receive` cuts what arrived into frames and works them off one by one; whatever the owner should
know collects in `events`, whatever the peer should get collects in `out` (a list of byte strings, shared with all
sessions and links, joined once in `bytes_to_send`). One call of `receive` is a turn: runs of deliveries and outcomes
are gathered per link within a turn.

Layers come one after the other: SASL header, SASL frames, AMQP header, AMQP frames. `_expected_header` is the header
that must come next, if any; `_reading` is False while the owner owes the SASL outcome (then what follows waits in the
buffer) and when the connection is over (then it is dropped). Until the peer's open has been worked on, frames are
capped far below our max-frame-size.

SDKs pipeline begin and attach behind their open. The engine answers begins at once, while our own open waits for the
owner, so everything written after the peer's open is held back (`_held_from`) until our open has gone in front.

Violations have a scope and end just that: a link, a session, or the connection. They are raised below and caught in
one place, `_dispatch`. A connection-wide one is answered with close(error); the connection is then `over`: the owner
sends what is left and closes the transport.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from busway.amqp.allowance import Allowance
from busway.amqp.byte_writer import read_i64_be
from busway.amqp.decode import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_HEAD_BYTES,
    FRAME_TYPE_AMQP,
    FRAME_TYPE_SASL,
    HEADER_BYTES,
    MIN_MAX_FRAME_BYTES,
    OPEN_FRAME_BYTES_MAX,
    SASL_FRAME_BYTES_MAX,
    SASL_HEADER,
    DecodeError,
    FrameBuffer,
    frame,
    head_fault,
)
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError, Condition, ProtocolViolation, Scope
from busway.amqp.events import ConnectionClosed, ConnectionEvent, ConnectionOpened
from busway.amqp.link import Link
from busway.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Fields,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_performative,
    encode_performative,
)
from busway.amqp.sasl import Sasl
from busway.amqp.session import Session
from busway.amqp.states import (
    CONNECTION_TABLE,
    ConnectionInput,
    ConnectionState,
    IllegalMove,
    SaslState,
    advance,
)
from busway.amqp.transfer_runs import RUN_BYTES_MIN, take_usual

_FLOW_CODE: Final = 0x13
_TRANSFER_CODE: Final = 0x14
_DISPOSITION_CODE: Final = 0x15
_FOREVER_S: Final = 1e18


class Role(IntEnum):
    SERVER = 0
    CLIENT = 1


class Connection:
    """See the head of this file. `sessions` maps the peer's channels to live sessions."""

    __slots__ = (
        "_buffer", "_close_deadline", "_closed_told", "_expected_header", "_frame_bytes_max",
        "_handshake_deadline", "_heard_at", "_heartbeat_at", "_heartbeat_interval_s", "_held_from",
        "_in_sessions", "_now", "_own_channels", "_peer_channel_max", "_reading", "_sasl", "allowance",
        "events", "link_count", "out", "outgoing_frame_bytes_max", "over", "owner", "peer", "role",
        "sessions", "settings", "state", "touched", "turn",
    )  # fmt: skip

    def __init__(self, role: Role, settings: EngineSettings, now: float) -> None:
        self.role = role
        self.settings = settings
        #: Free for the gateway.
        self.owner: object | None = None
        #: Over: send what is left, then close the transport. Nothing else will happen.
        self.over = False
        self.state = ConnectionState.START
        #: The peer's open.
        self.peer: Open | None = None
        #: Live sessions by the peer's channel.
        self.sessions: dict[int, Session] = {}
        self._own_channels: dict[int, Session] = {}
        # For sessions and links only: what they write, report, and count.
        self.out: list[bytes] = []
        self.events: list[ConnectionEvent] = []
        self.touched: list[Link] = []
        self.turn = 0
        self.link_count = 0
        self.outgoing_frame_bytes_max = MIN_MAX_FRAME_BYTES
        self.allowance = Allowance(settings)
        # Reading.
        self._buffer = FrameBuffer()
        self._reading = True
        self._in_sessions = False
        self._frame_bytes_max = SASL_FRAME_BYTES_MAX
        self._expected_header: bytes | None = SASL_HEADER
        #: Index in `out` behind which everything waits for our open; -1 when nothing waits.
        self._held_from = -1
        # Time.
        self._now = now
        self._heard_at = now
        self._handshake_deadline = now + settings.handshake_max_s
        self._close_deadline = _FOREVER_S
        self._heartbeat_at = _FOREVER_S
        self._heartbeat_interval_s = 0.0
        self._peer_channel_max = 65_535
        self._closed_told = False
        self._sasl = Sasl(
            role is Role.SERVER,
            settings.sasl_mechanisms,
            settings.sasl_mechanism,
            settings.sasl_response,
            settings.hostname,
        )
        self._write_raw(self._sasl.start())

    def __repr__(self) -> str:
        return f"<Connection {self.role.name} {self.state.name}>"

    def _move(self, given: ConnectionInput) -> None:
        self.state = advance(CONNECTION_TABLE, self.state, given)
        self._in_sessions = self.state is ConnectionState.OPENED or self.state is ConnectionState.OPEN_RCVD

    # --- bytes in -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[ConnectionEvent]:
        """Work on what arrived. Never raises for anything a peer does."""
        self._now = now
        if not self.over:
            joined = self._buffer.join(data)
            if joined:
                self._cut(joined)
        return self._end_turn()

    def _cut(self, data: bytes) -> None:
        offset = 0
        needed = FRAME_HEAD_BYTES
        end = len(data)
        while self._reading and end - offset >= FRAME_HEAD_BYTES:
            if self._expected_header is not None:
                self._header_arrived(data[offset : offset + HEADER_BYTES], self._expected_header)
                offset += HEADER_BYTES
                continue
            if self._in_sessions and end - offset >= RUN_BYTES_MIN and data[offset + 10] == _TRANSFER_CODE:
                taken = take_usual(self.sessions, data, offset, end, self._frame_bytes_max)
                if taken > offset:
                    offset = taken
                    continue
            head = read_i64_be(data, offset)  # size, doff, type and channel, in 4, 1, 1 and 2 bytes
            size, doff = head >> 32 & 0xFFFF_FFFF, head >> 24 & 0xFF
            if size > self._frame_bytes_max or size < FRAME_HEAD_BYTES or doff < 2 or doff * 4 > size:
                fault = head_fault(size, doff, self._frame_bytes_max)
                self._fail(Condition.CONNECTION_FRAMING_ERROR, fault or "The frame head is malformed.")
                return
            stop = offset + size
            if stop > end:
                needed = size
                break
            self._dispatch(head >> 16 & 0xFF, head & 0xFFFF, data, offset + doff * 4, stop)
            offset = stop
        if offset > 0:
            self._heard_at = self._now
        if offset < end and not self.over:
            self._keep(data, offset, needed)

    def _keep(self, data: bytes, offset: int, needed: int) -> None:
        if self._reading:
            self._buffer.keep(data, offset, needed)
            return
        # Nothing is looked at before the outcome, except that it becomes too much.
        allowed = self.settings.pipelined_bytes_max
        self._buffer.keep(data, offset, allowed + 1)
        if len(self._buffer) > allowed:
            self._fail(Condition.RESOURCE_LIMIT_EXCEEDED, "Too much was sent before the SASL outcome.")

    def _end_turn(self) -> list[ConnectionEvent]:
        touched = self.touched
        if touched:
            for link in touched:
                link.end_turn()
            touched.clear()
        events = self.events
        self.events = []
        self.turn += 1
        return events

    def _dispatch(self, kind: int, channel: int, data: bytes, body: int, stop: int) -> None:
        """One frame. The only place where violations are caught."""
        try:
            if (
                self._in_sessions
                and kind == FRAME_TYPE_AMQP
                and stop - body > 3
                and data[body] == 0x00
                and data[body + 1] == 0x53
            ):
                session = self.sessions.get(channel)
                if session is not None:
                    code = data[body + 2]
                    if code == _TRANSFER_CODE:
                        session.transfer_frame_arrived(data, body, stop)
                        return
                    if code == _DISPOSITION_CODE:
                        session.disposition_frame_arrived(data, body, stop)
                        return
                    if code == _FLOW_CODE:
                        session.flow_frame_arrived(data, body, stop)
                        return
            self._frame_arrived(kind, channel, data, body, stop)
        except ProtocolViolation as violation:
            self._end_violated(violation, channel)
        except DecodeError as error:
            self._fail(Condition.DECODE_ERROR, str(error))
        except IllegalMove as move:
            self._fail(Condition.NOT_ALLOWED, f"{move}.")

    def _end_violated(self, violation: ProtocolViolation, channel: int) -> None:
        session = self.sessions.get(channel)
        if violation.scope == Scope.CONNECTION or session is None:
            self._fail(violation.condition, violation.description)
        else:
            session.fail(violation.error())

    # --- headers and SASL ---------------------------------------------------------------------------------------

    def _header_arrived(self, header: bytes, expected: bytes) -> None:
        if header == AMQP_HEADER and self._sasl.left_out():
            expected = AMQP_HEADER
        if header != expected:
            # The standard's answer to a header one cannot serve: the header one can, then good-bye [2.2].
            if self.role is Role.SERVER:
                self._write_raw(expected)
            told = "The protocol header is not the one expected here."
            self._give_up(AmqpError(Condition.CONNECTION_FRAMING_ERROR, told))
            return
        self._expected_header = None
        if expected == SASL_HEADER:
            self._write_raw(self._sasl.header_arrived())
            return
        self._frame_bytes_max = OPEN_FRAME_BYTES_MAX
        self._move(ConnectionInput.RECV_HEADER)
        if self.state is ConnectionState.HDR_RCVD:
            self._move(ConnectionInput.SEND_HEADER)
            self._write_raw(AMQP_HEADER)

    def _sasl_frame_arrived(self, performative: Performative) -> None:
        self._write_raw(self._sasl.frame_arrived(performative, self.events))
        state = self._sasl.state
        if state is SaslState.OUTCOME_OWED:
            self._reading = False
        elif state is SaslState.PASSED:
            self._expected_header = AMQP_HEADER
            self._move(ConnectionInput.SEND_HEADER)
            self._write_raw(AMQP_HEADER)
        elif state is SaslState.FAILED:
            self._give_up(AmqpError(Condition.UNAUTHORIZED_ACCESS, "The SASL exchange failed."))

    def sasl_outcome(self, ok: bool) -> list[ConnectionEvent]:
        """Server: the verdict on SaslInitArrived. Returns the events of what the client has pipelined behind its
        init (usually none); after a refusal, ConnectionClosed."""
        if self._sasl.state is not SaslState.OUTCOME_OWED:
            return []
        self._write_raw(self._sasl.outcome(ok))
        if not ok:
            self._give_up(AmqpError(Condition.UNAUTHORIZED_ACCESS, "The SASL exchange failed."))
            return self._end_turn()
        self._expected_header = AMQP_HEADER
        self._reading = True
        self._buffer.wake()
        return self.receive(b"", self._now)

    # --- frames -------------------------------------------------------------------------------------------------

    def _frame_arrived(self, kind: int, channel: int, data: bytes, body: int, stop: int) -> None:
        in_sasl = self._sasl.state is not SaslState.PASSED
        if kind != (FRAME_TYPE_SASL if in_sasl else FRAME_TYPE_AMQP):
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.CONNECTION_FRAMING_ERROR,
                f"A frame of type {kind} has no place {'before' if in_sasl else 'after'} the end of SASL.",
            )
        if body == stop and not in_sasl:
            return  # A heartbeat.
        performative, payload_at = decode_performative(data, body, stop)
        if payload_at != stop and not isinstance(performative, Transfer):
            raise DecodeError("Only a transfer has a payload")
        if in_sasl:
            self._sasl_frame_arrived(performative)
        elif isinstance(performative, Open):
            self._open_arrived(performative)
        elif isinstance(performative, Close):
            self._close_arrived(performative)
        else:
            self._session_frame_arrived(performative, channel, data, body, stop)

    def _session_frame_arrived(
        self, performative: Performative, channel: int, data: bytes, body: int, stop: int
    ) -> None:
        self._move(ConnectionInput.RECV_FRAME)
        if not self._in_sessions:
            return  # It crossed our close.
        if isinstance(performative, Begin):
            self._begin_arrived(performative, channel)
            return
        session = self.sessions.get(channel)
        if session is None:
            if isinstance(performative, Detach):
                return  # Its session took the link along; some clients say so once more.
            raise ProtocolViolation(
                Scope.CONNECTION, Condition.NOT_ALLOWED, f"Channel {channel} has no session."
            )
        if isinstance(performative, Attach):
            session.attach_arrived(performative, stop - body)
        elif isinstance(performative, Detach):
            session.detach_arrived(performative)
        elif isinstance(performative, End):
            session.end_arrived(performative)
        # The frequent ones come this way only with an unusual spelling of their descriptor.
        elif isinstance(performative, Transfer):
            session.transfer_frame_arrived(data, body, stop)
        elif isinstance(performative, Flow):
            session.flow_frame_arrived(data, body, stop)
        elif isinstance(performative, Disposition):
            session.disposition_frame_arrived(data, body, stop)
        else:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.NOT_ALLOWED,
                f"{type(performative).__name__} has no place after the end of SASL.",
            )

    # --- open ---------------------------------------------------------------------------------------------------

    def _open_arrived(self, peer: Open) -> None:
        self._move(ConnectionInput.RECV_OPEN)
        self.peer = peer
        self.fit_frames()
        if peer.channel_max is not None:
            self._peer_channel_max = peer.channel_max
        if self.state is ConnectionState.OPEN_RCVD:
            self._held_from = len(self.out)
        self._take_peer_frame_size(peer.max_frame_size)
        self._take_peer_idle_timeout(peer.idle_time_out)
        if self.state is ConnectionState.OPENED:
            self._handshake_deadline = _FOREVER_S
        if self.role is Role.SERVER:
            # Nobody asks for the rest, and it may be large once it is decoded.
            self.peer = Open(peer.container_id, peer.hostname, peer.max_frame_size, peer.channel_max)
        self.events.append(ConnectionOpened(peer))

    def trust(self) -> None:
        """Server: the owner knows who the peer is. It is a stranger no longer (`settings.stranger`)."""
        self.allowance.trust()
        if self.peer is not None:
            self.fit_frames()

    def fit_frames(self) -> None:
        """For links, when there is more or less of unfinished deliveries: a stranger's frames come out of the same
        room."""
        self._frame_bytes_max = self.allowance.frame_bytes_max()

    def _take_peer_frame_size(self, size: int | None) -> None:
        if size is not None and size < MIN_MAX_FRAME_BYTES:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.INVALID_FIELD,
                f"A max-frame-size of {size} is below the minimum of {MIN_MAX_FRAME_BYTES} bytes.",
            )
        largest = self.settings.max_frame_size
        self.outgoing_frame_bytes_max = largest if size is None or size > largest else size
        for session in self._own_channels.values():
            session.frame_bytes_max = self.outgoing_frame_bytes_max

    def _take_peer_idle_timeout(self, timeout_ms: int | None) -> None:
        """Heartbeats leave at less than half of what the peer bears. 0 is read as "none", as many peers mean it."""
        if timeout_ms is None or timeout_ms == 0:
            return
        if timeout_ms < self.settings.peer_idle_timeout_ms_min:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.NOT_ALLOWED,
                f"An idle-time-out of {timeout_ms} ms is below the supported minimum of"
                f" {self.settings.peer_idle_timeout_ms_min} ms.",
            )
        self._heartbeat_interval_s = timeout_ms / 2_000 * 0.9
        self._heartbeat_at = self._now + self._heartbeat_interval_s

    def open(self, properties: Fields | None = None, capabilities: list[str] | None = None) -> None:
        """Server: answer ConnectionOpened, offering these. Client: open, once SaslFinished(ok) has arrived."""
        if (self.state, ConnectionInput.SEND_OPEN) not in CONNECTION_TABLE:
            return
        self._move(ConnectionInput.SEND_OPEN)
        settings = self.settings
        ours = Open(
            container_id=settings.container_id,
            hostname=settings.hostname,
            max_frame_size=settings.max_frame_size,
            channel_max=settings.channel_max,
            idle_time_out=settings.idle_timeout_ms,
            offered_capabilities=capabilities if self.role is Role.SERVER else None,
            desired_capabilities=capabilities if self.role is Role.CLIENT else None,
            properties=properties,
        )
        at = len(self.out) if self._held_from < 0 else self._held_from
        self.out.insert(at, frame(0, encode_performative(ours)))
        self._held_from = -1
        if self.state is ConnectionState.OPENED:
            self._handshake_deadline = _FOREVER_S

    # --- sessions -----------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        """Client role: begin a session. SessionBegun follows when the peer has answered."""
        if (self.state, ConnectionInput.SEND_FRAME) not in CONNECTION_TABLE:
            raise RuntimeError(f"{self!r} takes no new sessions")
        session = self._new_session(0)
        session.send_begin(None)
        return session

    def _new_session(self, channel: int) -> Session:
        if channel in self._own_channels or channel > self._peer_channel_max:
            channel = 0
            while channel in self._own_channels:
                channel += 1
        if channel > self._peer_channel_max:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"The peer admits {self._peer_channel_max + 1} sessions.",
            )
        session = Session(self, channel)
        self._own_channels[channel] = session
        return session

    def _begin_arrived(self, begin: Begin, channel: int) -> None:
        settings = self.settings
        if channel > settings.channel_max:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.CONNECTION_FRAMING_ERROR,
                f"Channel {channel} exceeds the channel-max of {settings.channel_max}.",
            )
        if channel in self.sessions:
            raise ProtocolViolation(
                Scope.CONNECTION, Condition.NOT_ALLOWED, f"Channel {channel} has a session already."
            )
        if begin.remote_channel is not None:
            self._begin_answered(begin, channel, begin.remote_channel)
            return
        sessions_max = self.allowance.sessions_max
        if len(self.sessions) >= 2 * sessions_max:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.RESOURCE_LIMIT_EXCEEDED,
                "The connection has more sessions than it may have, and refused ones are not ended.",
            )
        refused = len(self.sessions) >= sessions_max
        session = self._new_session(channel)
        self.sessions[channel] = session
        session.begin_arrived(begin, channel)
        if not refused:
            session.tell_begin()
        else:
            session.refuse(
                AmqpError(
                    Condition.RESOURCE_LIMIT_EXCEEDED,
                    f"The connection has {sessions_max} sessions already.",
                )
            )

    def _begin_answered(self, begin: Begin, channel: int, remote_channel: int) -> None:
        session = self._own_channels.get(remote_channel)
        if session is None or session.peer_channel >= 0:
            raise ProtocolViolation(
                Scope.CONNECTION, Condition.NOT_ALLOWED, f"No begin was sent on channel {remote_channel}."
            )
        self.sessions[channel] = session
        session.begin_arrived(begin, channel)
        session.tell_begin()

    def forget_session(self, session: Session) -> None:
        """Both ends have been exchanged: the channels are free again."""
        self.sessions.pop(session.peer_channel, None)
        self._own_channels.pop(session.channel, None)

    # --- close --------------------------------------------------------------------------------------------------

    def close(self, error: AmqpError | None = None) -> None:
        """End the connection; with an error every link is detached and every session ended with it, too.
        ConnectionClosed follows when the peer has answered or `close_wait_s` have passed."""
        self._open_before_closing()
        if (self.state, ConnectionInput.SEND_CLOSE) not in CONNECTION_TABLE:
            if not self.over:
                self._give_up(error)
            return
        self._force_out(error)
        self._move(ConnectionInput.SEND_CLOSE)
        self.write_end(0, Close(error))
        self._cut_sessions(error)
        self._close_deadline = self._now + self.settings.close_wait_s

    def _close_arrived(self, close: Close) -> None:
        self._open_before_closing()
        self._move(ConnectionInput.RECV_CLOSE)
        if self.state is ConnectionState.CLOSE_RCVD:
            self._move(ConnectionInput.SEND_CLOSE)
            self.write_end(0, Close())
        self._finish(close.error)

    def _fail(self, condition: str, description: str) -> None:
        """The peer broke the protocol: close with the reason, if it can still be told."""
        self._close_at_once(AmqpError(condition, description))

    def _close_at_once(self, error: AmqpError) -> None:
        if self.over:
            return
        self._open_before_closing()
        if (self.state, ConnectionInput.SEND_CLOSE_ERROR) not in CONNECTION_TABLE:
            self._give_up(error)
            return
        was_told = self.state is ConnectionState.CLOSE_SENT
        self._move(ConnectionInput.SEND_CLOSE_ERROR)
        if not was_told:
            self.write_end(0, Close(error))
        self._finish(error)

    def _open_before_closing(self) -> None:
        """A close may not be the first thing said on a connection [2.4.3]."""
        if self.state is ConnectionState.HDR_EXCH or self.state is ConnectionState.OPEN_RCVD:
            self.open()

    def _force_out(self, error: AmqpError | None) -> None:
        if error is not None:
            for session in list(self._own_channels.values()):
                session.force_out(error)

    def _give_up(self, error: AmqpError | None) -> None:
        """There is nothing left to say, or no language to say it in."""
        self._move(ConnectionInput.CUT)
        self._sasl.cut()
        self._finish(error)

    def _finish(self, error: AmqpError | None) -> None:
        self.over = True
        self._reading = False
        self._held_from = -1
        self._buffer.clear()
        self._cut_sessions(error)
        if not self._closed_told:
            self._closed_told = True
            self.events.append(ConnectionClosed(error))

    def _cut_sessions(self, error: AmqpError | None) -> None:
        for session in list(self._own_channels.values()):
            session.cut(error)
        self._own_channels.clear()
        self.sessions.clear()

    def transport_lost(self) -> list[ConnectionEvent]:
        """The socket is gone: nothing more can be read or written."""
        if not self.over:
            self._give_up(None)
        self.out.clear()
        return self._end_turn()

    # --- bytes out ----------------------------------------------------------------------------------------------

    def bytes_to_send(self) -> bytes:
        """Everything written since the last call."""
        out = self.out
        if self._held_from < 0:
            data = b"".join(out)
            out.clear()
            return data
        data = b"".join(out[: self._held_from])
        del out[: self._held_from]
        self._held_from = 0
        return data

    def has_bytes(self) -> bool:
        return bool(self.out) if self._held_from < 0 else self._held_from > 0

    def _write_raw(self, data: bytes) -> None:
        if data:
            self.out.append(data)

    def write(self, channel: int, performative: Performative) -> None:
        """For sessions and links: one frame. A frame that the peer's max-frame-size cannot hold ends the connection,
        because leaving it out would leave the peer waiting."""
        body = encode_performative(performative)
        if len(body) + FRAME_HEAD_BYTES > self.outgoing_frame_bytes_max:
            self.fail_too_large(len(body))
        else:
            self.out.append(frame(channel, body))

    def fail_too_large(self, body_bytes: int) -> None:
        self._fail(
            Condition.FRAME_SIZE_TOO_SMALL,
            f"A frame of {body_bytes + FRAME_HEAD_BYTES} bytes exceeds the peer's max-frame-size.",
        )

    def write_end(self, channel: int, farewell: Detach | End | Close) -> None:
        """For sessions and links: a frame that ends something. Its error is shortened when it does not fit."""
        body = encode_performative(farewell)
        error = farewell.error
        if error is not None and len(body) + FRAME_HEAD_BYTES > self.outgoing_frame_bytes_max:
            text = None if error.description is None else error.description[:80]
            farewell.error = AmqpError(error.condition[:64], text)
            body = encode_performative(farewell)
        self.out.append(frame(channel, body))

    # --- time ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `tick` has something to do; in the past when events wait already. None when the connection is over."""
        if self.events:
            return self._now
        if self.over:
            return None
        return min(
            self._handshake_deadline,
            self._close_deadline,
            self._heartbeat_at,
            self._heard_at + self.settings.silence_max_s,
        )

    def tick(self, now: float) -> list[ConnectionEvent]:
        """Heartbeats and patience. May be called at any time."""
        self._now = now
        if not self.over:
            self._check_patience(now)
        if not self.over and now >= self._heartbeat_at:
            self._heartbeat_at = now + self._heartbeat_interval_s
            if self.state is ConnectionState.OPENED:
                self.out.append(EMPTY_FRAME)
        return self._end_turn()

    def _check_patience(self, now: float) -> None:
        settings = self.settings
        if now >= self._close_deadline:
            self._give_up(None)
        elif now >= self._handshake_deadline:
            self._fail(
                Condition.CONNECTION_FORCED,
                f"The connection was not opened within {round(settings.handshake_max_s * 1000)} milliseconds.",
            )
        elif now >= self._heard_at + settings.silence_max_s:
            error = AmqpError(
                Condition.CONNECTION_FORCED,
                "The connection was inactive for more than the allowed"
                f" {round(settings.silence_max_s * 1000)} milliseconds and is closed by container"
                f" '{settings.container_id}'.",
            )
            self._force_out(error)
            self._close_at_once(error)
