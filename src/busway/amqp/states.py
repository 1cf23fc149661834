"""When a frame is legal: connection, SASL, session and link states as tables. Nothing else changes a state.

Each machine is two enums and one dict `(state, input) -> state`. A pair that is absent is a violation: of the peer
when the input is RECV_…, a mistake of ours when it is SEND_…. The names of the connection and session states are
those of the standard [2.4.6, 2.5.5]; link states have no names there, ours follow the same pattern.

Reading the tables: RECV_FRAME on a connection is any frame that belongs to a session; RECV_FRAME on a session is
any frame that belongs to the session or to one of its links. After we have sent close, end or detach the peer may
still have frames on their way: they are legal, stay in the state, and are dropped by the caller. CUT is the
end of what carries the machine (the transport for a connection, the connection for a session, the session for a link)
and is legal everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

State = TypeVar("State", bound=IntEnum)
Input = TypeVar("Input", bound=IntEnum)


class IllegalMove(Exception):
    """The table has no row for this input in this state."""

    def __init__(self, state: IntEnum, given: IntEnum) -> None:
        super().__init__(f"{given.name} is not allowed in state {state.name}")
        self.state = state
        self.given = given


def advance(table: Mapping[tuple[State, Input], State], state: State, given: Input) -> State:
    following = table.get((state, given))
    if following is None:
        raise IllegalMove(state, given)
    return following


# --- SASL: the layer before the connection ------------------------------------------------------------------


class SaslState(IntEnum):
    START = 0
    #: Client: header sent. The server answers with its own header and its mechanisms in one go.
    HEADER_SENT = 1
    #: Server: mechanisms offered, the client must choose.
    INIT_AWAITED = 2
    #: Server: the owner must decide. Whatever the client pipelined waits.
    OUTCOME_OWED = 3
    #: Client: both headers exchanged, mechanisms must come.
    MECHANISMS_AWAITED = 4
    #: Client: init sent.
    OUTCOME_AWAITED = 5
    PASSED = 6
    FAILED = 7


class SaslInput(IntEnum):
    SEND_HEADER = 0
    RECV_HEADER = 1
    RECV_MECHANISMS = 2
    SEND_INIT = 3
    RECV_INIT = 4
    SEND_OUTCOME_OK = 5
    SEND_OUTCOME_REFUSED = 6
    RECV_OUTCOME_OK = 7
    RECV_OUTCOME_REFUSED = 8
    CUT = 9
    #: Server: the client begins without SASL.
    LEFT_OUT = 10


SASL_TABLE: Final[dict[tuple[SaslState, SaslInput], SaslState]] = {
    (SaslState.START, SaslInput.RECV_HEADER): SaslState.INIT_AWAITED,
    (SaslState.START, SaslInput.LEFT_OUT): SaslState.PASSED,
    (SaslState.INIT_AWAITED, SaslInput.RECV_INIT): SaslState.OUTCOME_OWED,
    (SaslState.OUTCOME_OWED, SaslInput.SEND_OUTCOME_OK): SaslState.PASSED,
    (SaslState.OUTCOME_OWED, SaslInput.SEND_OUTCOME_REFUSED): SaslState.FAILED,
    (SaslState.START, SaslInput.SEND_HEADER): SaslState.HEADER_SENT,
    (SaslState.HEADER_SENT, SaslInput.RECV_HEADER): SaslState.MECHANISMS_AWAITED,
    (SaslState.MECHANISMS_AWAITED, SaslInput.RECV_MECHANISMS): SaslState.MECHANISMS_AWAITED,
    (SaslState.MECHANISMS_AWAITED, SaslInput.SEND_INIT): SaslState.OUTCOME_AWAITED,
    (SaslState.OUTCOME_AWAITED, SaslInput.RECV_OUTCOME_OK): SaslState.PASSED,
    (SaslState.OUTCOME_AWAITED, SaslInput.RECV_OUTCOME_REFUSED): SaslState.FAILED,
}
SASL_TABLE.update({(state, SaslInput.CUT): SaslState.FAILED for state in SaslState})


# --- Connection [2.4.6] ---------------------------------------------------------------------------------------


class ConnectionState(IntEnum):
    START = 0
    HDR_RCVD = 1
    HDR_SENT = 2
    HDR_EXCH = 3
    #: We sent header and open; the peer's header is still to come.
    OPEN_PIPE = 4
    #: As OPEN_PIPE, and we sent close already.
    OC_PIPE = 5
    OPEN_RCVD = 6
    OPEN_SENT = 7
    #: We sent open and close; the peer's open is still to come.
    CLOSE_PIPE = 8
    OPENED = 9
    CLOSE_RCVD = 10
    CLOSE_SENT = 11
    #: We sent close with an error: everything that follows is dropped unread.
    DISCARDING = 12
    END = 13


class ConnectionInput(IntEnum):
    SEND_HEADER = 0
    RECV_HEADER = 1
    SEND_OPEN = 2
    RECV_OPEN = 3
    SEND_FRAME = 4
    RECV_FRAME = 5
    SEND_CLOSE = 6
    #: Close because the peer broke the protocol or fell silent.
    SEND_CLOSE_ERROR = 7
    RECV_CLOSE = 8
    CUT = 9


_C = ConnectionState
_CI = ConnectionInput
CONNECTION_TABLE: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (_C.START, _CI.SEND_HEADER): _C.HDR_SENT,
    (_C.START, _CI.RECV_HEADER): _C.HDR_RCVD,
    (_C.HDR_RCVD, _CI.SEND_HEADER): _C.HDR_EXCH,
    (_C.HDR_SENT, _CI.RECV_HEADER): _C.HDR_EXCH,
    (_C.HDR_SENT, _CI.SEND_OPEN): _C.OPEN_PIPE,
    (_C.HDR_EXCH, _CI.SEND_OPEN): _C.OPEN_SENT,
    (_C.HDR_EXCH, _CI.RECV_OPEN): _C.OPEN_RCVD,
    (_C.OPEN_PIPE, _CI.RECV_HEADER): _C.OPEN_SENT,
    (_C.OPEN_PIPE, _CI.SEND_FRAME): _C.OPEN_PIPE,
    (_C.OPEN_PIPE, _CI.SEND_CLOSE): _C.OC_PIPE,
    (_C.OC_PIPE, _CI.RECV_HEADER): _C.CLOSE_PIPE,
    # SDKs pipeline begin and attach behind their open, before they have read ours.
    (_C.OPEN_RCVD, _CI.RECV_FRAME): _C.OPEN_RCVD,
    (_C.OPEN_RCVD, _CI.SEND_FRAME): _C.OPEN_RCVD,
    (_C.OPEN_RCVD, _CI.SEND_OPEN): _C.OPENED,
    (_C.OPEN_SENT, _CI.SEND_FRAME): _C.OPEN_SENT,
    (_C.OPEN_SENT, _CI.RECV_OPEN): _C.OPENED,
    (_C.OPEN_SENT, _CI.SEND_CLOSE): _C.CLOSE_PIPE,
    (_C.OPEN_SENT, _CI.SEND_CLOSE_ERROR): _C.DISCARDING,
    (_C.CLOSE_PIPE, _CI.RECV_OPEN): _C.CLOSE_SENT,
    (_C.OPENED, _CI.SEND_FRAME): _C.OPENED,
    (_C.OPENED, _CI.RECV_FRAME): _C.OPENED,
    (_C.OPENED, _CI.SEND_CLOSE): _C.CLOSE_SENT,
    (_C.OPENED, _CI.SEND_CLOSE_ERROR): _C.DISCARDING,
    (_C.OPENED, _CI.RECV_CLOSE): _C.CLOSE_RCVD,
    (_C.CLOSE_RCVD, _CI.SEND_CLOSE): _C.END,
    (_C.CLOSE_SENT, _CI.RECV_FRAME): _C.CLOSE_SENT,
    (_C.CLOSE_SENT, _CI.RECV_CLOSE): _C.END,
    (_C.CLOSE_SENT, _CI.SEND_CLOSE_ERROR): _C.DISCARDING,
    (_C.DISCARDING, _CI.RECV_FRAME): _C.DISCARDING,
    (_C.DISCARDING, _CI.RECV_CLOSE): _C.END,
}
CONNECTION_TABLE.update({(state, _CI.CUT): _C.END for state in _C})


# --- Session [2.5.5] ------------------------------------------------------------------------------------------


class SessionState(IntEnum):
    UNMAPPED = 0
    BEGIN_SENT = 1
    BEGIN_RCVD = 2
    MAPPED = 3
    END_SENT = 4
    END_RCVD = 5
    #: We sent end with an error: everything until the peer's end is dropped.
    DISCARDING = 6
    #: The standard calls this UNMAPPED again; a session object is never used twice.
    ENDED = 7


class SessionInput(IntEnum):
    SEND_BEGIN = 0
    RECV_BEGIN = 1
    SEND_FRAME = 2
    RECV_FRAME = 3
    SEND_END = 4
    SEND_END_ERROR = 5
    RECV_END = 6
    CUT = 7


_S = SessionState
_SI = SessionInput
SESSION_TABLE: Final[dict[tuple[SessionState, SessionInput], SessionState]] = {
    (_S.UNMAPPED, _SI.SEND_BEGIN): _S.BEGIN_SENT,
    (_S.UNMAPPED, _SI.RECV_BEGIN): _S.BEGIN_RCVD,
    # Our own client attaches behind its begin without waiting.
    (_S.BEGIN_SENT, _SI.SEND_FRAME): _S.BEGIN_SENT,
    (_S.BEGIN_SENT, _SI.RECV_BEGIN): _S.MAPPED,
    (_S.BEGIN_SENT, _SI.SEND_END): _S.END_SENT,
    (_S.BEGIN_RCVD, _SI.SEND_BEGIN): _S.MAPPED,
    (_S.MAPPED, _SI.SEND_FRAME): _S.MAPPED,
    (_S.MAPPED, _SI.RECV_FRAME): _S.MAPPED,
    (_S.MAPPED, _SI.SEND_END): _S.END_SENT,
    (_S.MAPPED, _SI.SEND_END_ERROR): _S.DISCARDING,
    (_S.MAPPED, _SI.RECV_END): _S.END_RCVD,
    (_S.END_RCVD, _SI.SEND_END): _S.ENDED,
    (_S.END_SENT, _SI.RECV_BEGIN): _S.END_SENT,
    (_S.END_SENT, _SI.RECV_FRAME): _S.END_SENT,
    (_S.END_SENT, _SI.RECV_END): _S.ENDED,
    (_S.DISCARDING, _SI.RECV_FRAME): _S.DISCARDING,
    (_S.DISCARDING, _SI.RECV_END): _S.ENDED,
}
SESSION_TABLE.update({(state, _SI.CUT): _S.ENDED for state in _S})


# --- Link -------------------------------------------------------------------------------------------------------


class LinkState(IntEnum):
    DETACHED = 0
    ATTACH_SENT = 1
    #: The peer attached; the owner has not answered yet (it may wait for a message session to become free).
    ATTACH_RCVD = 2
    ATTACHED = 3
    DETACH_SENT = 4
    DETACH_RCVD = 5
    OVER = 6


class LinkInput(IntEnum):
    SEND_ATTACH = 0
    RECV_ATTACH = 1
    SEND_FLOW = 2
    RECV_FLOW = 3
    SEND_TRANSFER = 4
    RECV_TRANSFER = 5
    SEND_DETACH = 6
    RECV_DETACH = 7
    CUT = 8


_L = LinkState
_LI = LinkInput
LINK_TABLE: Final[dict[tuple[LinkState, LinkInput], LinkState]] = {
    (_L.DETACHED, _LI.SEND_ATTACH): _L.ATTACH_SENT,
    (_L.DETACHED, _LI.RECV_ATTACH): _L.ATTACH_RCVD,
    (_L.ATTACH_SENT, _LI.RECV_ATTACH): _L.ATTACHED,
    (_L.ATTACH_SENT, _LI.SEND_FLOW): _L.ATTACH_SENT,
    (_L.ATTACH_SENT, _LI.RECV_FLOW): _L.ATTACH_SENT,
    (_L.ATTACH_SENT, _LI.SEND_DETACH): _L.DETACH_SENT,
    (_L.ATTACH_RCVD, _LI.SEND_ATTACH): _L.ATTACHED,
    # SDKs write credit, and some write transfers, right behind their attach.
    (_L.ATTACH_RCVD, _LI.RECV_FLOW): _L.ATTACH_RCVD,
    (_L.ATTACH_RCVD, _LI.RECV_TRANSFER): _L.ATTACH_RCVD,
    # The peer gives up before it was answered: it still gets an attach, then the detach (SDKs stumble otherwise).
    (_L.ATTACH_RCVD, _LI.RECV_DETACH): _L.DETACH_RCVD,
    (_L.DETACH_RCVD, _LI.SEND_ATTACH): _L.DETACH_RCVD,
    (_L.ATTACHED, _LI.SEND_FLOW): _L.ATTACHED,
    (_L.ATTACHED, _LI.RECV_FLOW): _L.ATTACHED,
    (_L.ATTACHED, _LI.SEND_TRANSFER): _L.ATTACHED,
    (_L.ATTACHED, _LI.RECV_TRANSFER): _L.ATTACHED,
    (_L.ATTACHED, _LI.SEND_DETACH): _L.DETACH_SENT,
    (_L.ATTACHED, _LI.RECV_DETACH): _L.DETACH_RCVD,
    (_L.DETACH_RCVD, _LI.SEND_DETACH): _L.OVER,
    (_L.DETACH_SENT, _LI.RECV_ATTACH): _L.DETACH_SENT,
    (_L.DETACH_SENT, _LI.RECV_FLOW): _L.DETACH_SENT,
    (_L.DETACH_SENT, _LI.RECV_TRANSFER): _L.DETACH_SENT,
    (_L.DETACH_SENT, _LI.RECV_DETACH): _L.OVER,
}
LINK_TABLE.update({(state, _LI.CUT): _L.OVER for state in _L})
