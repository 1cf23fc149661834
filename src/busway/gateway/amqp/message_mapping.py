"""Between AMQP payloads and messages: what is kept of what a client sent, and what is added at delivery.

Theory of operation. A payload is cut once. The *bare* message (properties, application properties, body, footer)
is kept as it came. What stands before it is reduced to a `head`: the fields that must come back, in the compact
form of `busway.message.message` (M-27, M-28, M-29); the ttl is a field of the message. At delivery a new front is
built from the head and the broker's own values and laid before the bare bytes; the bare message itself is
rewritten only when settlement changed application properties (M-17, R-11, R-14).

Annotations that the broker owns are dropped when a client sends them: nobody can forge a sequence number.

The limits L-6…L-8 and M-34 are checked here, each only where it can be broken at all: a payload shorter than the
limit of a single property cannot break L-6 or L-7, and a short properties section cannot hold a long id.

The other gateway speaks of the same messages in HTTP's words; it is given a `PayloadCodec`.
"""

from struct import Struct
from typing import Final
from uuid import UUID

from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.encode import append_map, encode_value
from busway.amqp.sections import OutOfOrder, Sections, compound_start, in_order, is_simple_value, scan
from busway.clock import Entropy
from busway.message.bare import changed_bare, ensure_message_id, map_start, text_bytes
from busway.message.message import (
    DURABLE,
    DURABLE_SET,
    FIRST_ACQUIRER,
    FIRST_ACQUIRER_SET,
    FORWARDED,
    LAST_INSTANT_MS,
    PLACE_SCHEDULED,
    PRIORITY_SET,
    Head,
    Message,
    read_head,
)
from busway.model.errors import ArgumentOutOfRange, BadArgument
from busway.model.limits import Limits
from busway.store.contract import INDEX_SHIFT

DEFAULT_LIMITS: Final = Limits()

_NULL: Final = 0x40
#: Strings, and bytes that may be such.
_TEXTS: Final = b"\xa1\xb1\xa0\xb0"

#: JMS writes a delivery time as a long, in its short form too.
_MOMENTS: Final = b"\x81\x55\x83"


_KEPT: Final = 0
_OWNED: Final = 1
_PARTITION_KEY: Final = 2
_VIA_PARTITION_KEY: Final = 3
_SCHEDULED_TIME: Final = 4
_DELIVERY_TIME: Final = 5
_ANNOTATIONS: Final[dict[bytes, int]] = {
    b"x-opt-sequence-number": _OWNED,
    b"x-opt-enqueued-time": _OWNED,
    b"x-opt-locked-until": _OWNED,
    b"x-opt-enqueue-sequence-number": _OWNED,
    b"x-opt-message-state": _OWNED,
    b"x-opt-partition-id": _OWNED,
    b"x-opt-deadletter-source": _OWNED,
    b"x-opt-lock-token": _OWNED,
    b"x-opt-partition-key": _PARTITION_KEY,
    b"x-opt-via-partition-key": _VIA_PARTITION_KEY,
    b"x-opt-scheduled-enqueue-time": _SCHEDULED_TIME,
    b"x-opt-delivery-time": _DELIVERY_TIME,
}


class _Front:
    """What was found before the bare message."""

    __slots__ = ("delivery_at_ms", "head", "partition_key", "parts", "scheduled_at_ms", "ttl_ms")

    def __init__(self) -> None:
        #: `parts` encoded, once it has been read whole.
        self.head = b""
        self.parts = Head()
        self.ttl_ms = -1
        self.partition_key: str | None = None
        self.scheduled_at_ms = 0
        #: What JMS calls the same.
        self.delivery_at_ms = 0


# -- in


def message_of(payload: bytes, wants_message_id: bool, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message in a payload. Raises DecodeError for what is no message, BadArgument for what breaks L-6…L-8
    or M-34. The text of the message id is worked out only where the entity detects duplicates."""
    try:
        cut = scan(payload)
    except OutOfOrder:
        payload = in_order(payload)
        cut = scan(payload)
    bare_at = cut.bare_at
    message_id: str | None = None
    session_id: str | None = None
    if cut.properties_at >= 0:
        at, end = cut.properties_at, cut.properties_end
        count, first = compound_start(payload, at, end)
        if count > 10 or wants_message_id or end - at > limits.key_characters_max:
            message_id, session_id = ids_of(payload, first, end, count, limits.key_characters_max)
            if not wants_message_id:
                message_id = None
    if cut.application_properties_at >= 0:
        at, end = cut.application_properties_at, cut.application_properties_end
        if end - at > MEMORY_BYTES_MAX or payload[at:end] not in GOOD_PROPERTIES:
            check_application_properties(payload, at, end, limits)
    if len(payload) > limits.property_bytes_max and cut.body_at > limits.header_bytes_max:
        raise BadArgument(f"The properties of the message are larger than {limits.header_bytes_max} bytes.")
    bare_end = cut.bare_end
    if bare_at == 0 and bare_end == len(payload):
        return Message(b"", payload, message_id=message_id, session_id=session_id)
    known = None
    if bare_at <= MEMORY_BYTES_MAX and bare_end == len(payload):
        known = KNOWN_FRONTS.get(payload[:bare_at])
    front = known if known is not None else _front(payload, cut, limits)
    return Message(
        front.head,
        payload[bare_at:bare_end],
        ttl_ms=front.ttl_ms,
        message_id=message_id,
        session_id=session_id,
        partition_key=front.partition_key,
        scheduled_at_ms=front.scheduled_at_ms,
    )


#: Most programs send the same header, annotations and application properties again and again. What was read and
#: found good is remembered by its bytes; pieces this short break no limit of length (L-6…L-8), whatever the settings.
MEMORY_BYTES_MAX: Final = 96
_MEMORY_ENTRIES_MAX: Final = 512
KNOWN_FRONTS: Final[dict[bytes, _Front]] = {}
GOOD_PROPERTIES: Final[dict[bytes, bool]] = {}


def _front(payload: bytes, cut: Sections, limits: Limits) -> _Front:
    front = _read_front(payload, cut, limits)
    front.head = front.parts.encoded()
    at = cut.bare_at
    if at <= MEMORY_BYTES_MAX <= limits.key_characters_max and cut.bare_end == len(payload):
        if len(KNOWN_FRONTS) >= _MEMORY_ENTRIES_MAX:
            KNOWN_FRONTS.clear()
        KNOWN_FRONTS[payload[:at]] = front
    return front


def _read_front(payload: bytes, cut: Sections, limits: Limits) -> _Front:
    front = _Front()
    if cut.header_at >= 0:
        _read_header(front, payload, cut.header_at, cut.header_end)
    if cut.delivery_annotations_at >= 0:
        front.parts.delivery_annotations = _kept_annotations(
            front, payload, cut.delivery_annotations_at, cut.delivery_annotations_end, limits
        )
    if cut.message_annotations_at >= 0:
        front.parts.message_annotations = _kept_annotations(
            front, payload, cut.message_annotations_at, cut.message_annotations_end, limits
        )
    if front.scheduled_at_ms == 0:
        front.scheduled_at_ms = front.delivery_at_ms
    return front


def _read_header(front: _Front, data: bytes, at: int, end: int) -> None:
    """durable, priority, ttl, first-acquirer; the delivery count is the broker's (M-20)."""
    count, at = compound_start(data, at, end)
    for field in range(min(count, 4)):
        after = skip_value(data, at, end)
        code = data[at]
        if code == _NULL:
            pass
        elif field == 0:
            front.parts.flags |= DURABLE_SET | (DURABLE if _boolean(data, at) else 0)
        elif field == 1:
            front.parts.flags |= PRIORITY_SET
            front.parts.priority = _ubyte(data, at)
        elif field == 2:
            front.ttl_ms = _uint(data, at, after)
        else:
            front.parts.flags |= FIRST_ACQUIRER_SET | (FIRST_ACQUIRER if _boolean(data, at) else 0)
        at = after


def _boolean(data: bytes, at: int) -> bool:
    code = data[at]
    if code == 0x41:
        return True
    if code == 0x42:
        return False
    if code == 0x56:
        return data[at + 1] != 0
    raise DecodeError("a header field is not a boolean")


def _ubyte(data: bytes, at: int) -> int:
    if data[at] != 0x50:
        raise DecodeError("header.priority is not a ubyte")
    return data[at + 1]


def _uint(data: bytes, at: int, after: int) -> int:
    code = data[at]
    if code == 0x43:
        return 0
    if code == 0x52 or code == 0x70:
        return int.from_bytes(data[at + 1 : after], "big")
    raise DecodeError("header.ttl is not a uint")


def _kept_annotations(front: _Front, data: bytes, at: int, end: int, limits: Limits) -> tuple[int, bytes]:
    """(number of keys and values, entries) of what comes back; what the broker reads goes into `front`."""
    count, start = map_start(data, at, end)
    at = start
    kept = count
    pieces: list[bytes] = []
    for _ in range(count >> 1):
        value_at = skip_value(data, at, end)
        after = skip_value(data, value_at, end)
        key = text_bytes(data, at, value_at)
        kind = _KEPT if key is None else _ANNOTATIONS.get(key, _KEPT)
        if kind == _OWNED:
            pieces.append(data[start:at])
            start = after
            kept -= 2
        elif kind != _KEPT:
            _read_annotation(front, kind, data, value_at, after, limits)
            if data[value_at] == 0xA0 or data[value_at] == 0xB0:
                # Other clients insist on a string. Its short and its long form are as long as those of bytes.
                pieces.append(data[start:value_at] + bytes((data[value_at] + 1,)))
                start = value_at + 1
        at = after
    if at != end:
        raise DecodeError("an annotations section is longer than its entries")
    if not pieces:
        return kept, data[start:end]
    pieces.append(data[start:end])
    return kept, b"".join(pieces)


def _read_annotation(front: _Front, kind: int, data: bytes, at: int, after: int, limits: Limits) -> None:
    if data[at] == _NULL:
        return
    if kind == _PARTITION_KEY:
        front.partition_key = _key_text(data, at, after, "PartitionKey", limits.key_characters_max)
    elif kind == _VIA_PARTITION_KEY:
        _key_text(data, at, after, "ViaPartitionKey", limits.key_characters_max)
    elif kind == _DELIVERY_TIME:
        if data[at] not in _MOMENTS:
            raise BadArgument("The annotation x-opt-delivery-time must be a long: milliseconds since 1970.")
        front.delivery_at_ms = _moment(data, at, after, "The delivery time")
    else:
        if data[at] != 0x83:
            raise BadArgument("The annotation x-opt-scheduled-enqueue-time must be a timestamp.")
        front.scheduled_at_ms = _moment(data, at, after, "ScheduledEnqueueTimeUtc")


def _moment(data: bytes, at: int, after: int, name: str) -> int:
    """A time before 1970 is simply past (S-32)."""
    moment_ms = int.from_bytes(data[at + 1 : after], "big", signed=True)
    if moment_ms > LAST_INSTANT_MS:
        raise ArgumentOutOfRange(f"{name} is later than the year 9999.")
    return max(0, moment_ms)


def ids_of(data: bytes, at: int, end: int, count: int, characters_max: int) -> tuple[str | None, str | None]:
    """(text of message-id, group-id) out of the properties' fields; both and reply-to-group-id are measured."""
    message_id: str | None = None
    session_id: str | None = None
    for field in range(min(count, 13)):
        if at < end and data[at] == _NULL:
            at += 1
            continue
        after = skip_value(data, at, end)
        if field == 0:
            message_id = _message_id_text(data, at, after, characters_max)
        elif field == 10:
            session_id = _property_text(data, at, after, "SessionId", characters_max)
        elif field == 12:
            _property_text(data, at, after, "ReplyToSessionId", characters_max)
        at = after
    if at > end:
        raise DecodeError("the properties section is cut off")
    return message_id, session_id


def _message_id_text(data: bytes, at: int, after: int, characters_max: int) -> str:
    """M-1: ids of any AMQP type are compared by their text."""
    code = data[at]
    if code == 0xA1 or code == 0xB1:
        return _key_text(data, at, after, "MessageId", characters_max)
    if code == 0x98:
        return str(UUID(bytes=data[at + 1 : after]))
    if code == 0xA0 or code == 0xB0:
        content = data[at + (2 if code == 0xA0 else 5) : after]
        if len(content) > characters_max:
            raise BadArgument(f"MessageId is longer than {characters_max} bytes.")
        try:
            return content.decode()  # what was received as text comes back as bytes from Python's client
        except UnicodeDecodeError:
            return content.hex()
    if code == 0x80 or code == 0x53:
        return str(int.from_bytes(data[at + 1 : after], "big"))
    if code == 0x44:
        return "0"
    raise DecodeError("properties.message-id is of no type that it can have")


def _property_text(data: bytes, at: int, after: int, name: str, characters_max: int) -> str:
    """A string and nothing else: properties come back as they were sent, and receivers read them by their type."""
    if data[at] != 0xA1 and data[at] != 0xB1:
        raise BadArgument(f"{name} must be a string.")
    return _key_text(data, at, after, name, characters_max)


def _key_text(data: bytes, at: int, after: int, name: str, characters_max: int) -> str:
    """A string of limited length (L-8), or its bytes: as such Python's client sends back what it received as text."""
    code = data[at]
    if code not in _TEXTS:
        raise BadArgument(f"{name} must be a string.")
    try:
        text = data[at + (2 if code < 0xB0 else 5) : after].decode()
    except UnicodeDecodeError:
        raise DecodeError(f"{name} is not UTF-8") from None
    if len(text) > characters_max:
        raise BadArgument(f"{name} has {len(text)} characters; at most {characters_max} are allowed.")
    return text


def check_application_properties(data: bytes, at: int, end: int, limits: Limits) -> None:
    """Names are strings, values are simple (M-34) and of limited size (L-6)."""
    start = at
    count, at = map_start(data, at, end)
    property_bytes_max = limits.property_bytes_max
    for _ in range(count >> 1):
        value_at = skip_value(data, at, end)
        after = skip_value(data, value_at, end)
        if text_bytes(data, at, value_at) is None:
            raise BadArgument("The name of an application property must be a string.")
        if not is_simple_value(data, value_at, after):
            raise BadArgument("The value of an application property cannot be a map, a list or an array.")
        if after - at > property_bytes_max:
            raise BadArgument(f"An application property is larger than {property_bytes_max} bytes.")
        at = after
    if at != end:
        raise DecodeError("the application properties section is longer than its entries")
    if end - start <= MEMORY_BYTES_MAX <= property_bytes_max:
        if len(GOOD_PROPERTIES) >= _MEMORY_ENTRIES_MAX:
            GOOD_PROPERTIES.clear()
        GOOD_PROPERTIES[data[start:end]] = True


# -- out

_LOCK_TOKEN_KEY: Final = b"\xa3\x10x-opt-lock-token\x98"
_ENQUEUED_KEY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
SEQUENCE_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"
LOCKED_KEY: Final = b"\xa3\x12x-opt-locked-until\x83"
_FIRST_NUMBER_KEY: Final = b"\xa3\x1dx-opt-enqueue-sequence-number\x81"
_DEAD_LETTER_SOURCE_KEY: Final = b"\xa3\x17x-opt-deadletter-source"
_STATE_KEY: Final = b"\xa3\x13x-opt-message-state\x54"
_PARTITION_ID_KEY: Final = b"\xa3\x12x-opt-partition-id\x61"

#: Numbers of ours as they follow one another, under peek-lock and without.
_LOCKED_NUMBERS: Final = Struct(f">q{len(SEQUENCE_KEY)}sq{len(LOCKED_KEY)}sq")
_NUMBERS: Final = Struct(f">q{len(SEQUENCE_KEY)}sq")
LOCKED_NUMBERS_BYTES: Final = _LOCKED_NUMBERS.size
NUMBERS_BYTES: Final = _NUMBERS.size
#: A lock token as it lies in the delivery tag: .NET's order of a GUID's bytes.
_TOKEN: Final = Struct("<IHH8s")
_UUID: Final = Struct(">IHH8s")
_NO_TOKEN: Final = bytes(16)


class LockedFrame:
    """Everything of a first delivery that does not change from one message to the next with the same head and
    time to live: what lies before the lock token, and what lies between it and our numbers."""

    __slots__ = ("before_token", "behind_token")

    def __init__(self, before_token: bytes, behind_token: bytes) -> None:
        self.before_token = before_token
        self.behind_token = behind_token


_locked_frames: Final[dict[tuple[bytes, int, int], LockedFrame]] = {}
_deleted_fronts: Final[dict[tuple[bytes, int, int], bytes]] = {}


def delivery_payload(
    message: Message, token: bytes, locked_until_ms: int, is_partitioned: bool = False
) -> bytes:
    """The bytes of a delivery by a link: under peek-lock with the lock's token, else with an empty one (M-27b)."""
    partition = message.sequence_number >> INDEX_SHIFT if is_partitioned else -1
    if not is_usual_delivery(message):
        return _payload(message, token, locked_until_ms, -1, partition)
    if not token:
        numbers = _NUMBERS.pack(message.enqueued_at_ms, SEQUENCE_KEY, message.sequence_number)
        return deleted_front(message, partition) + numbers + message.bare
    frame = locked_frame(message, partition)
    first, second, third, rest = _TOKEN.unpack(token)
    return b"".join(
        (
            frame.before_token,
            _UUID.pack(first, second, third, rest),
            frame.behind_token,
            _LOCKED_NUMBERS.pack(
                message.enqueued_at_ms, SEQUENCE_KEY, message.sequence_number, LOCKED_KEY, locked_until_ms
            ),
            message.bare,
        )
    )


def is_usual_delivery(message: Message) -> bool:
    """The first one of an unchanged message, with a head that many messages share: what was forwarded has a number of
    its own in it."""
    head = message.head
    if message.delivery_count or message.changes is not None:
        return False
    return len(head) <= MEMORY_BYTES_MAX and (not head or head[0] < FORWARDED)


def locked_frame(message: Message, partition: int) -> LockedFrame:
    """Cut out of the general form, where the token and our numbers come last in their sections."""
    key = (message.head, message.ttl_ms, partition)
    frame = _locked_frames.get(key)
    if frame is None:
        annotations = _message_annotations(message, 0, -1, partition)
        frame = LockedFrame(
            _hop_sections(message, _NO_TOKEN, True)[: -len(_NO_TOKEN)], annotations[:-LOCKED_NUMBERS_BYTES]
        )
        if len(_locked_frames) >= _MEMORY_ENTRIES_MAX:
            _locked_frames.clear()
        _locked_frames[key] = frame
    return frame


def deleted_front(message: Message, partition: int) -> bytes:
    """What lies before our numbers in a delivery without a lock."""
    key = (message.head, message.ttl_ms, partition)
    front = _deleted_fronts.get(key)
    if front is None:
        annotations = _message_annotations(message, -1, -1, partition)
        front = _hop_sections(message, b"", True) + annotations[:-NUMBERS_BYTES]
        if len(_deleted_fronts) >= _MEMORY_ENTRIES_MAX:
            _deleted_fronts.clear()
        _deleted_fronts[key] = front
    return front


def fetched_payload(
    message: Message, token: bytes, locked_until_ms: int, is_partitioned: bool = False
) -> bytes:
    """The bytes of an answer to receive-by-sequence-number: as a delivery, and its state shown (M-23, M-27b)."""
    partition = message.sequence_number >> INDEX_SHIFT if is_partitioned else -1
    return _payload(message, token, locked_until_ms, message.state, partition)


def peeked_payload(message: Message, is_partitioned: bool = False) -> bytes:
    """The bytes of a peeked message: its state always, never a lock (R-62, M-27b)."""
    partition = message.sequence_number >> INDEX_SHIFT if is_partitioned else -1
    return _payload(message, b"", 0, message.state, partition)


def _payload(message: Message, token: bytes, locked_until_ms: int, state: int, partition: int) -> bytes:
    """The general form: whatever the sender set comes back, whatever is ours is added."""
    bare = message.bare if message.changes is None else changed_bare(message.bare, message.changes)
    annotations = _message_annotations(message, locked_until_ms if token else -1, state, partition)
    return _hop_sections(message, token, state < 0) + annotations + bare


def _hop_sections(message: Message, token: bytes, is_delivered: bool) -> bytes:
    """Header and delivery annotations; a token comes last. What a link delivers has both, if only an empty section of
    annotations; what is peeked or fetched has those that there are."""
    head = read_head(message.head)
    out = bytearray()
    _append_header(out, head.flags, head.priority, message.ttl_ms, message.delivery_count)
    count, entries = head.delivery_annotations
    if token:
        first, second, third, rest = _TOKEN.unpack(token)
        entries += _LOCK_TOKEN_KEY + _UUID.pack(first, second, third, rest)
        count += 2
    if count or is_delivered:
        out += b"\x00Sq"
        append_map(out, entries, count)
    return bytes(out)


def _message_annotations(message: Message, locked_until_ms: int, state: int, partition: int) -> bytes:
    """The sender's that are not ours to set, then ours; the numbers come last. -1: not shown."""
    head = read_head(message.head)
    count, entries = head.message_annotations
    count += 4
    if head.hops:
        count += 2
        entries += _FIRST_NUMBER_KEY + head.first_number.to_bytes(8, "big")
        if head.dead_letter_source:
            count += 2
            entries += _DEAD_LETTER_SOURCE_KEY + encode_value(head.dead_letter_source)
    if partition >= 0:  # M-25
        entries += _PARTITION_ID_KEY + partition.to_bytes(2, "big")
        count += 2
    if state < 0 and message.scheduled_at_ms:
        state = PLACE_SCHEDULED  # M-23: what had a time to wait for keeps that state in deliveries
    if state >= 0:
        entries += _STATE_KEY + bytes((state,))
        count += 2
    entries += _ENQUEUED_KEY
    if locked_until_ms >= 0:
        count += 2
        entries += _LOCKED_NUMBERS.pack(
            message.enqueued_at_ms, SEQUENCE_KEY, message.sequence_number, LOCKED_KEY, locked_until_ms
        )
    else:
        entries += _NUMBERS.pack(message.enqueued_at_ms, SEQUENCE_KEY, message.sequence_number)
    out = bytearray(b"\x00Sr")
    append_map(out, entries, count)
    return bytes(out)


def _append_header(out: bytearray, flags: int, priority: int, ttl_ms: int, delivery_count: int) -> None:
    """All five fields; those the sender left out stay null (M-27a)."""
    out += b"\x00Sp\xc0\x00\x05"
    size_at = len(out) - 2
    out.append((0x41 if flags & DURABLE else 0x42) if flags & DURABLE_SET else _NULL)
    if flags & PRIORITY_SET:
        out.append(0x50)
        out.append(priority)
    else:
        out.append(_NULL)
    if ttl_ms < 0:
        out.append(_NULL)
    else:
        _append_uint(out, ttl_ms)
    out.append((0x41 if flags & FIRST_ACQUIRER else 0x42) if flags & FIRST_ACQUIRER_SET else _NULL)
    _append_uint(out, delivery_count)
    out[size_at] = len(out) - size_at - 1


def _append_uint(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x43)
    elif value < 256:
        out.append(0x52)
        out.append(value)
    else:
        out.append(0x70)
        out += value.to_bytes(4, "big")


class PayloadCodec:
    """A `busway.gateway.http.messages.messages.MessageCodec`."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message:
        """As if a link had brought it. Raises DecodeError, BadArgument."""
        made = message_of(payload, wants_message_id, limits)
        ensure_message_id(made, self._entropy)
        return made

    def payload(self, message: Message, token: bytes, locked_until_ms: int) -> bytes:
        """As a link would deliver it."""
        return delivery_payload(message, token, locked_until_ms)
