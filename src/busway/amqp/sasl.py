"""The exchange before the connection: who are you?

Server: header, mechanisms, the client's init, our outcome. The engine does not judge: it reports the init and
waits for `sasl_outcome`. Mechanisms are offered in the order of the service, and the outcome says "Welcome!" as the
service does. Client: ANONYMOUS or PLAIN. A client may leave all of it out and begin with AMQP (JavaScript's does
with a ready-made token): it is as anonymous as one that says so.

Nothing of AMQP may pass before the outcome and nothing of SASL after it; frame types are checked by the connection,
frame contents here. Other implementations let AMQP frames through that came dressed as SASL frames.
"""

from __future__ import annotations

from typing import Final

from busway.amqp.decode import SASL_HEADER, sasl_frame
from busway.amqp.engine_settings import ANONYMOUS
from busway.amqp.errors import Condition, ProtocolViolation, Scope
from busway.amqp.events import ConnectionEvent, SaslFinished, SaslInitArrived
from busway.amqp.performatives import (
    SASL_AUTH,
    SASL_OK,
    Performative,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    encode_performative,
)
from busway.amqp.states import SASL_TABLE, SaslInput, SaslState, advance

WELCOME: Final = b"Welcome!"


def plain_response(user: str, password: str) -> bytes:
    """The initial response of PLAIN (RFC 4616): no authorization identity, user, password."""
    return b"\x00" + user.encode() + b"\x00" + password.encode()


def read_plain(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response, None when it is malformed."""
    parts = response.split(b"\x00")
    if len(parts) != 3:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None


class Sasl:
    """Each method returns the bytes to write."""

    __slots__ = ("_hostname", "_mechanism", "_mechanisms", "_response", "is_server", "state")

    def __init__(
        self,
        is_server: bool,
        mechanisms: tuple[str, ...],
        mechanism: str,
        response: bytes,
        hostname: str | None,
    ) -> None:
        self.is_server = is_server
        self.state = SaslState.START
        #: Server: what is offered. Client: what is chosen, and with which response (a secret under PLAIN).
        self._mechanisms = mechanisms
        self._mechanism = mechanism
        self._response = response
        self._hostname = hostname

    def _move(self, given: SaslInput) -> None:
        self.state = advance(SASL_TABLE, self.state, given)

    def start(self) -> bytes:
        """The client speaks first."""
        if self.is_server:
            return b""
        self._move(SaslInput.SEND_HEADER)
        return SASL_HEADER

    def header_arrived(self) -> bytes:
        self._move(SaslInput.RECV_HEADER)
        if not self.is_server:
            return b""
        return SASL_HEADER + sasl_frame(encode_performative(SaslMechanisms(list(self._mechanisms))))

    def left_out(self) -> bool:
        """Server: the client begins with AMQP itself. True where ANONYMOUS is welcome: that is all it is."""
        if self.state is not SaslState.START or not self.is_server or ANONYMOUS not in self._mechanisms:
            return False
        self._move(SaslInput.LEFT_OUT)
        return True

    def frame_arrived(self, frame: Performative, events: list[ConnectionEvent]) -> bytes:
        if isinstance(frame, SaslInit):
            return self._init_arrived(frame, events)
        if isinstance(frame, SaslMechanisms):
            return self._mechanisms_arrived(frame)
        if isinstance(frame, SaslOutcome):
            ok = frame.code == SASL_OK
            self._move(SaslInput.RECV_OUTCOME_OK if ok else SaslInput.RECV_OUTCOME_REFUSED)
            events.append(SaslFinished(ok))
            return b""
        # Challenges and responses included: no mechanism offered here has a second round.
        raise ProtocolViolation(
            Scope.CONNECTION,
            Condition.NOT_ALLOWED,
            f"{type(frame).__name__} has no place in this SASL exchange.",
        )

    def _init_arrived(self, init: SaslInit, events: list[ConnectionEvent]) -> bytes:
        self._move(SaslInput.RECV_INIT)
        if init.mechanism not in self._mechanisms:
            return self.outcome(False)
        response = b"" if init.initial_response is None else init.initial_response
        events.append(SaslInitArrived(str(init.mechanism), response, init.hostname))
        return b""

    def _mechanisms_arrived(self, mechanisms: SaslMechanisms) -> bytes:
        self._move(SaslInput.RECV_MECHANISMS)
        if self._mechanism not in mechanisms.sasl_server_mechanisms:
            raise ProtocolViolation(
                Scope.CONNECTION,
                Condition.UNAUTHORIZED_ACCESS,
                f"The server does not offer the SASL mechanism {self._mechanism}.",
            )
        self._move(SaslInput.SEND_INIT)
        init = SaslInit(self._mechanism, self._response, self._hostname)
        self._response = b""
        return sasl_frame(encode_performative(init))

    def outcome(self, ok: bool) -> bytes:
        """Server: the owner's verdict."""
        self._move(SaslInput.SEND_OUTCOME_OK if ok else SaslInput.SEND_OUTCOME_REFUSED)
        verdict = SaslOutcome(SASL_OK, WELCOME) if ok else SaslOutcome(SASL_AUTH)
        return sasl_frame(encode_performative(verdict))

    def cut(self) -> None:
        """The exchange was given up."""
        self._move(SaslInput.CUT)
