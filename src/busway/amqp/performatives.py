"""Frame bodies read and written: any of them by the table, the hot three by hand.

Theory of operation. `decode_performative` and `encode_performative` serve every composite type (see `type_table`
for the types and the rules). Transfer, flow and disposition come by the hundred thousand each second and have
paths of their own. What varies from frame to frame (handles, ids, tags) stands first in those lists and is read
here; the tail behind it is one of a few byte strings for each client library, so its meaning is remembered under
those bytes, and a tail enters the memory only after the generic reader has accepted a frame that ends in it.
Whatever looks unusual goes to the generic reader, which also words the errors.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from busway.amqp.byte_writer import i64, read_i32_be
from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError, encode_value
from busway.amqp.type_table import (
    ACCEPTED,
    DELETE_ON_CLOSE,
    DELETE_ON_NO_LINKS,
    DELETE_ON_NO_LINKS_OR_MESSAGES,
    DELETE_ON_NO_MESSAGES,
    RECEIVER_FIRST,
    RECEIVER_SECOND,
    RELEASED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    SASL_AUTH,
    SASL_OK,
    SENDER_MIXED,
    SENDER_SETTLED,
    SENDER_UNSETTLED,
    TABLE,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    ErrorPerformative,
    Fields,
    Flow,
    Header,
    Modified,
    Open,
    Performative,
    Properties,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.types import Described

if TYPE_CHECKING:
    pass

__all__ = [
    "ACCEPTED",
    "DELETE_ON_CLOSE",
    "DELETE_ON_NO_LINKS",
    "DELETE_ON_NO_LINKS_OR_MESSAGES",
    "DELETE_ON_NO_MESSAGES",
    "RECEIVER_FIRST",
    "RECEIVER_SECOND",
    "RELEASED",
    "ROLE_RECEIVER",
    "ROLE_SENDER",
    "SASL_AUTH",
    "SASL_OK",
    "SENDER_MIXED",
    "SENDER_SETTLED",
    "SENDER_UNSETTLED",
    "TABLE",
    "Accepted",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "Declare",
    "Declared",
    "Detach",
    "Discharge",
    "Disposition",
    "End",
    "ErrorPerformative",
    "Fields",
    "Flow",
    "Header",
    "Modified",
    "Open",
    "Performative",
    "Properties",
    "Received",
    "Rejected",
    "Released",
    "SaslChallenge",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslResponse",
    "Source",
    "Target",
    "TransactionalState",
    "Transfer",
    "compose",
    "decode_disposition",
    "decode_flow",
    "decode_performative",
    "decode_transfer",
    "encode_disposition",
    "encode_flow",
    "encode_performative",
    "encode_transfer_prefix",
    "known_transfer",
]

_FRAMES: Final = frozenset((*range(0x10, 0x19), *range(0x40, 0x45)))


def decode_performative(data: bytes, offset: int, end: int) -> tuple[Performative, int]:
    """The frame body at `offset`, and where its payload begins."""
    value, payload_at = decode_value(data, offset, end)
    if not isinstance(value, Described):
        raise DecodeError("A frame does not begin with a described list")
    row = TABLE.definition(value.descriptor)
    if row is None or row.code not in _FRAMES:
        raise DecodeError("The descriptor names no frame")
    made = TABLE.make(row, value.value)
    assert isinstance(made, Performative)
    return made, payload_at


def compose(value: object) -> object:
    """A described value as the composite type that the table names for it; anything else as it is."""
    return TABLE.compose(value)


def encode_performative(value: object) -> bytes:
    """A composite value with all its fields, trailing nulls included."""
    out = bytearray()
    TABLE.append(out, value)
    return bytes(out)


_TAILS_MAX: Final = 256
_TAIL_BYTES_MAX: Final = 32

#: Bytes that a uint takes with its constructor; 0 for every other constructor.
_UINT_SIZES: Final = bytes({0x43: 1, 0x52: 2, 0x70: 5}.get(code, 0) for code in range(256))


_TRANSFER_LIST8: Final = 0x0053_14C0
_FLOW_LIST8: Final = 0x0053_13C0
_DISPOSITION_LIST8: Final = 0x0053_15C0
_TRANSACTIONAL: Final = b"\x00\x53\x34"


#: A list32 is so much longer than the same list8.
_NARROWER_BYTES: Final = 6
#: Stands in for what follows a transfer.
_PAYLOAD: Final = bytes(16)


class _TransferTail:
    """Message format and everything behind it, of a transfer with `count` fields. Its state is not to be used."""

    __slots__ = ("count", "frame")

    def __init__(self, count: int, frame: Transfer) -> None:
        self.count = count
        self.frame = frame


class _DispositionTail:
    """Settled, state and batchable, of a disposition with `count` fields."""

    __slots__ = ("count", "frame")

    def __init__(self, count: int, frame: Disposition) -> None:
        self.count = count
        self.frame = frame


# What stands behind the tag, or the delivery ids, of frames that were read field by field. Those that are part of a
# transaction are remembered without its id, which is another one each time.
_transfer_tails: Final[dict[bytes, _TransferTail]] = {}
_transfer_tails_in: Final[dict[bytes, _TransferTail]] = {}
_disposition_tails: Final[dict[bytes, _DispositionTail]] = {}
_disposition_tails_in: Final[dict[bytes, _DispositionTail]] = {}


def _uint(data: bytes, at: i64) -> i64:
    """The uint at `at`; -1 when something else stands there."""
    code = data[at]
    if code == 0x52:
        return data[at + 1]
    if code == 0x70:
        return i64(read_i32_be(data, at + 1)) & 0xFFFF_FFFF
    return 0 if code == 0x43 else -1


def _narrowed(data: bytes, offset: int, end: int) -> bytes:
    """The same frame body with its list32 as a list8, which some clients do not choose; empty if it cannot be one."""
    if end - offset < 16 or data[offset] != 0 or data[offset + 1] != 0x53 or data[offset + 3] != 0xD0:
        return b""
    size = int.from_bytes(data[offset + 4 : offset + 8], "big")
    count = int.from_bytes(data[offset + 8 : offset + 12], "big")
    stop = offset + 8 + size
    if not 4 <= size <= 255 or count > 255 or stop > end:
        return b""
    return bytes((0x00, 0x53, data[offset + 2], 0xC0, size - 3, count)) + data[offset + 12 : stop]


def decode_transfer(data: bytes, offset: int, end: int) -> tuple[Transfer, int]:
    """`decode_performative` for a frame whose descriptor says transfer."""
    if end - offset < 16 or read_i32_be(data, offset) != _TRANSFER_LIST8:
        return _wide_transfer(data, offset, end)
    stop = offset + 5 + data[offset + 4]
    if stop > end:
        return _any_transfer(data, offset, end)
    try:
        at = offset + 6
        handle = _uint(data, at)
        at += _UINT_SIZES[data[at]]
        delivery_id = _uint(data, at)
        at += _UINT_SIZES[data[at]]
        if handle < 0 or delivery_id < 0 or data[at] != 0xA0:
            return _any_transfer(data, offset, end)
        tag_at = at + 2
        at = tag_at + data[at + 1]
    except IndexError:
        return _any_transfer(data, offset, end)
    if at > stop:
        return _any_transfer(data, offset, end)
    tail = _transfer_tails.get(data[at:stop])
    state: TransactionalState | None = None
    if tail is None or tail.count != data[offset + 5]:
        id_at = _txn_id_at(data, _state_at(data, at, stop), stop)
        if id_at < 0:
            return _remembered_transfer(data, offset, end, at, stop)
        id_end = id_at + data[id_at - 1]
        tail = _transfer_tails_in.get(data[at:id_at] + data[id_end:stop])
        if tail is None or tail.count != data[offset + 5]:
            return _remembered_transfer_in(data, offset, end, at, id_at)
        state = TransactionalState(data[id_at:id_end])
    seen = tail.frame
    transfer = Transfer(
        handle,
        delivery_id,
        data[tag_at:at],
        seen.message_format,
        seen.settled,
        seen.more,
        seen.rcv_settle_mode,
        state,
        seen.resume,
        seen.aborted,
        seen.batchable,
    )
    return transfer, stop


def known_transfer(tail: bytes, count: int) -> Transfer | None:
    """A transfer of so many fields that ended so and was read whole; only what stands behind its tag counts."""
    seen = _transfer_tails.get(tail)
    return None if seen is None or seen.count != count else seen.frame


def _state_at(data: bytes, at: int, stop: int) -> int:
    """Where the state of a transfer begins, if its message format stands at `at` and all is as it should be."""
    if at < stop:
        at += _UINT_SIZES[data[at]] or 1
    for wide in (0x56, 0x56, 0x50):  # settled and more as a boolean with its own byte, a receiver's mode
        if at < stop:
            at += 2 if data[at] == wide else 1
    return at


def _txn_id_at(data: bytes, at: int, stop: int) -> int:
    """Where the id of the transactional state at `at` begins, of the form that everybody writes (a list of either
    width that begins with a binary8, whose size stands before the id); -1 when something else stands there."""
    if stop - at < 16 or data[at : at + 3] != _TRANSACTIONAL:
        return -1
    if data[at + 3] == 0xC0:
        id_at, list_end = at + 8, at + 5 + data[at + 4]
    elif data[at + 3] == 0xD0:
        id_at, list_end = at + 14, at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    else:
        return -1
    if data[id_at - 2] != 0xA0:
        return -1
    return id_at if id_at + data[id_at - 1] <= list_end <= stop else -1


def _wide_transfer(data: bytes, offset: int, end: int) -> tuple[Transfer, int]:
    narrow = _narrowed(data, offset, end)
    if not narrow:
        return _any_transfer(data, offset, end)
    narrow += _PAYLOAD  # a short list with nothing behind it would be read field by field each time
    made, at = decode_transfer(narrow, 0, len(narrow))
    return made, offset + at + _NARROWER_BYTES


def _any_transfer(data: bytes, offset: int, end: int) -> tuple[Transfer, int]:
    made, at = decode_performative(data, offset, end)
    if not isinstance(made, Transfer):
        raise DecodeError("This frame is no transfer")
    return made, at


def _remembered_transfer(data: bytes, offset: int, end: int, at: int, stop: int) -> tuple[Transfer, int]:
    made, payload_at = _any_transfer(data, offset, end)
    if made.state is None and stop - at <= _TAIL_BYTES_MAX:
        if len(_transfer_tails) >= _TAILS_MAX:
            _transfer_tails.clear()
        _transfer_tails[data[at:stop]] = _TransferTail(data[offset + 5], made)
    return made, payload_at


def _remembered_transfer_in(data: bytes, offset: int, end: int, at: int, id_at: int) -> tuple[Transfer, int]:
    """The same for one whose state names a transaction and no outcome."""
    made, payload_at = _any_transfer(data, offset, end)
    state = made.state
    id_end = id_at + data[id_at - 1]
    tail = data[at:id_at] + data[id_end:payload_at]
    if isinstance(state, TransactionalState) and state.outcome is None and len(tail) <= _TAIL_BYTES_MAX:
        if len(_transfer_tails_in) >= _TAILS_MAX:
            _transfer_tails_in.clear()
        _transfer_tails_in[tail] = _TransferTail(data[offset + 5], made)
    return made, payload_at


def decode_disposition(data: bytes, offset: int, end: int) -> Disposition:
    """`decode_performative` for a frame whose descriptor says disposition."""
    if end - offset < 8 or read_i32_be(data, offset) != _DISPOSITION_LIST8:
        return _wide_disposition(data, offset, end)
    if offset + 5 + data[offset + 4] != end:
        return _any_disposition(data, offset, end)
    try:
        at: i64 = offset + 7
        code: i64 = data[offset + 6]
        if code == 0x56:
            code = 0x42 - data[at]
            at += 1
        first = _uint(data, at)
        at += _UINT_SIZES[data[at]]
        last = _uint(data, at)
        at += _UINT_SIZES[data[at]] if last >= 0 else 1
        if first < 0 or at > end or (last < 0 and data[at - 1] != 0x40):
            return _any_disposition(data, offset, end)
    except IndexError:
        return _any_disposition(data, offset, end)
    tail = _disposition_tails.get(data[at:end])
    if tail is not None and tail.count == data[offset + 5] and (code == 0x41 or code == 0x42):
        seen = tail.frame
        return Disposition(
            code == 0x41, first, None if last < 0 else last, seen.settled, seen.state, seen.batchable
        )
    id_at = -1 if at >= end else _txn_id_at(data, at + (2 if data[at] == 0x56 else 1), end)
    if id_at < 0 or (code != 0x41 and code != 0x42):
        return _remembered_disposition(data, offset, end, at)
    id_end = id_at + data[id_at - 1]
    tail = _disposition_tails_in.get(data[at:id_at] + data[id_end:end])
    if tail is None or tail.count != data[offset + 5]:
        return _remembered_disposition_in(data, offset, end, at, id_at)
    seen = tail.frame
    assert isinstance(seen.state, TransactionalState)
    state = TransactionalState(data[id_at:id_end], seen.state.outcome)
    return Disposition(code == 0x41, first, None if last < 0 else last, seen.settled, state, seen.batchable)


def _wide_disposition(data: bytes, offset: int, end: int) -> Disposition:
    narrow = _narrowed(data, offset, end)
    if not narrow or offset + len(narrow) + _NARROWER_BYTES != end:
        return _any_disposition(data, offset, end)
    return decode_disposition(narrow, 0, len(narrow))


def _any_disposition(data: bytes, offset: int, end: int) -> Disposition:
    made, at = decode_performative(data, offset, end)
    if not isinstance(made, Disposition):
        raise DecodeError("This frame is no disposition")
    if at != end:
        raise DecodeError("Something follows a disposition in its frame")
    return made


def _remembered_disposition(data: bytes, offset: int, end: int, at: int) -> Disposition:
    made = _any_disposition(data, offset, end)
    if data[offset + 5] >= 3 and end - at <= _TAIL_BYTES_MAX:
        if len(_disposition_tails) >= _TAILS_MAX:
            _disposition_tails.clear()
        _disposition_tails[data[at:end]] = _DispositionTail(data[offset + 5], made)
    return made


def _remembered_disposition_in(data: bytes, offset: int, end: int, at: int, id_at: int) -> Disposition:
    """The same for one whose state names a transaction."""
    made = _any_disposition(data, offset, end)
    tail = data[at:id_at] + data[id_at + data[id_at - 1] : end]
    if isinstance(made.state, TransactionalState) and len(tail) <= _TAIL_BYTES_MAX:
        if len(_disposition_tails_in) >= _TAILS_MAX:
            _disposition_tails_in.clear()
        _disposition_tails_in[tail] = _DispositionTail(data[offset + 5], made)
    return made


def decode_flow(data: bytes, offset: int, end: int) -> Flow:
    """`decode_performative` for a frame whose descriptor says flow."""
    if end - offset < 17 or read_i32_be(data, offset) != _FLOW_LIST8 or data[offset + 5] != 11:
        return _any_flow(data, offset, end)
    if offset + 5 + data[offset + 4] != end:
        return _any_flow(data, offset, end)
    numbers: list[int] = []
    at = offset + 6
    try:
        for _ in range(8):
            number = _uint(data, at)
            if number < 0 and data[at] != 0x40:
                return _any_flow(data, offset, end)
            at += _UINT_SIZES[data[at]] if number >= 0 else 1
            numbers.append(number)
    except IndexError:
        return _any_flow(data, offset, end)
    if at > end:  # before the slice: compiled code cannot slice backwards
        return _any_flow(data, offset, end)
    flags = _FLOW_TAILS.get(data[at:end])
    if flags is None or numbers[1] < 0 or numbers[2] < 0 or numbers[3] < 0:
        return _any_flow(data, offset, end)
    return Flow(
        _optional(numbers[0]),
        numbers[1],
        numbers[2],
        numbers[3],
        _optional(numbers[4]),
        _optional(numbers[5]),
        _optional(numbers[6]),
        _optional(numbers[7]),
        flags >= 2,
        flags % 2 == 1,
    )


def _optional(number: int) -> int | None:
    return None if number < 0 else number


def _flow_tails() -> dict[bytes, int]:
    """Encoded drain, echo and absent properties, and the flags they mean: 2 for drain, 1 for echo."""
    forms = ((b"\x40", 0), (b"\x42", 0), (b"\x56\x00", 0), (b"\x41", 1), (b"\x56\x01", 1))
    return {drain + echo + b"\x40": 2 * drains + echoes for drain, drains in forms for echo, echoes in forms}


_FLOW_TAILS: Final = _flow_tails()


def _any_flow(data: bytes, offset: int, end: int) -> Flow:
    made, at = decode_performative(data, offset, end)
    if not isinstance(made, Flow):
        raise DecodeError("This frame is no flow")
    if at != end:
        raise DecodeError("Something follows a flow in its frame")
    return made


# Written are fixed widths: one call of a template for each, at the price of a few bytes over the smallest form.

_TRANSFER_HEAD: Final = Struct(">IBHIBIBB")
_DISPOSITION_HEAD: Final = Struct(">IBBBBIBIB")
_FLOW_HEAD: Final = Struct(">IBBBIBIBIBIBIBIBI")

#: Message format 0, settled, more, and six fields that are never set: by settled and more.
_TRANSFER_TAILS: Final[tuple[bytes, ...]] = tuple(
    bytes((0x43, settled, more, 0x40, 0x40, 0x42, 0x42, 0x42))
    for settled in (0x42, 0x41)
    for more in (0x42, 0x41)
)
_TAG_BYTES_MAX: Final = 32


def encode_transfer_prefix(
    handle: int,
    delivery_id: int | None,
    delivery_tag: bytes | None,
    message_format: int | None,
    settled: bool,
    more: bool,
    state: object = None,
    aborted: bool = False,
) -> bytes:
    """A transfer frame's body up to its payload. Id, tag and format may be None on frames after the first."""
    if delivery_id is None or delivery_tag is None or state is not None or aborted or message_format != 0:
        frame = Transfer(handle, delivery_id, delivery_tag, message_format, settled, more, None, state)
        frame.aborted = aborted
        return encode_performative(frame)
    size = len(delivery_tag)
    if size > _TAG_BYTES_MAX:
        raise EncodeError(f"A delivery tag has {size} bytes, at most {_TAG_BYTES_MAX} are allowed")
    tail = _TRANSFER_TAILS[(2 if settled else 0) + (1 if more else 0)]
    head = _TRANSFER_HEAD.pack(0x005314C0, 21 + size, 0x0B70, handle, 0x70, delivery_id, 0xA0, size)
    return head + delivery_tag + tail


def encode_disposition(role: bool, first: int, last: int, settled: bool, state: object = None) -> bytes:
    """A disposition frame's body for one range of deliveries."""
    body = _encoded_state(state)
    size = len(body) + 14
    if size > 255:
        return encode_performative(Disposition(role, first, last, settled, state))
    head = _DISPOSITION_HEAD.pack(
        0x005315C0, size, 6, 0x41 if role else 0x42, 0x70, first, 0x70, last, 0x41 if settled else 0x42
    )
    return head + body + b"\x42"


_ACCEPTED_BYTES: Final = encode_performative(ACCEPTED)
_TXN_ID_BYTES_MAX: Final = 32


#: Of a transactional state with an outcome, and of one that tells the id of a new transaction: descriptor, sizes.
_TRANSACTIONAL_HEAD: Final = Struct(">IBBBB")


def _encoded_state(state: object) -> bytes:
    if state is None:
        return b"\x40"
    if isinstance(state, Accepted):
        return _ACCEPTED_BYTES
    if isinstance(state, TransactionalState) and isinstance(state.outcome, Accepted):
        size = len(state.txn_id)
        if size <= _TXN_ID_BYTES_MAX:
            head = _TRANSACTIONAL_HEAD.pack(0x005334C0, 3 + size + len(_ACCEPTED_BYTES), 2, 0xA0, size)
            return head + state.txn_id + _ACCEPTED_BYTES
    elif isinstance(state, Declared) and len(state.txn_id) <= _TXN_ID_BYTES_MAX:
        size = len(state.txn_id)
        return _TRANSACTIONAL_HEAD.pack(0x005333C0, 3 + size, 1, 0xA0, size) + state.txn_id
    return encode_value(state) if isinstance(state, Described) else encode_performative(state)


def encode_flow(
    next_incoming_id: int | None,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    handle: int | None = None,
    delivery_count: int | None = None,
    link_credit: int | None = None,
    available: int | None = None,
    drain: bool = False,
    echo: bool = False,
) -> bytes:
    """A flow frame's body, for a link when `handle` is given, else for the session."""
    if (
        next_incoming_id is None
        or handle is None
        or delivery_count is None
        or link_credit is None
        or available is not None
    ):
        window = (next_incoming_id, incoming_window, next_outgoing_id, outgoing_window)
        return encode_performative(Flow(*window, handle, delivery_count, link_credit, available, drain, echo))
    head = _FLOW_HEAD.pack(
        0x005313C0, 40, 11, 0x70, next_incoming_id, 0x70, incoming_window, 0x70, next_outgoing_id,
        0x70, outgoing_window, 0x70, handle, 0x70, delivery_count, 0x70, link_credit,
    )  # fmt: skip
    return head + bytes((0x40, 0x41 if drain else 0x42, 0x41 if echo else 0x42, 0x40))
