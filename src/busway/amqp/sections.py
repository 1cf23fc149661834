"""The parts of an encoded message: found, never decoded further than asked.

Theory of operation. A message is a run of described sections in a fixed order: header, delivery annotations,
message annotations, then the *bare* message: properties, application properties, body (any number of data
sections, any number of sequences, or one value; or nothing), footer. `scan` steps over them by their sizes and
notes where each one lies; what is inside stays opaque until one of the readers below walks it. So a message costs
the broker the same whatever its body holds, and nothing that a stranger nests inside can hurt. All readers raise
DecodeError and nothing else.

Messages whose sections stand in another order than the standard's are put in order (`in_order`). rhea writes the
footer before the body. Such a message says what it means, so it is taken; but what is stored and delivered is a
message as it should be, because other clients read it. Only the order is forgiven: a section that comes twice,
bodies of two kinds, and whatever is no section are refused as ever. Few messages come this way: the others are
scanned where they lie.
"""

from __future__ import annotations

from typing import Any, Final

from busway.amqp.byte_writer import i64
from busway.amqp.decode import DecodeError, ElementBudget, decode_value, skip_value
from busway.amqp.encode import append_value
from busway.amqp.performatives import TABLE, Header, Performative, Properties, encode_performative
from busway.amqp.types import Symbol, ULong

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

#: A message may be cut into this many body sections, and a batch may hold this many messages.
BODY_SECTIONS_MAX: Final = 32_768

#: Message format of a batch: one transfer that holds several messages, each in a data section of its own (S-20).
BATCH_FORMAT: Final = 0x8001_3700

_NULL: Final = 0x40
_LIST: Final = 1
_MAP: Final = 2
_BINARY: Final = 4
_ANYTHING: Final = 8
#: What the value of a section must be, by section code minus 0x70, and what each constructor makes. JavaScript's
#: client writes a body that is null as a data section without bytes to be one.
WANTED: Final = bytes((_LIST, _MAP, _MAP, _LIST, _MAP, _BINARY, _LIST, _ANYTHING, _MAP))
MADE: Final = bytes(
    _ANYTHING
    | (_LIST if code in b"\x45\xc0\xd0" else 0)
    | (_MAP if code in b"\xc1\xd1" else 0)
    | (_BINARY if code in b"\xa0\xb0\x40" else 0)
    for code in range(256)
)

_CODES_BY_NAME: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


class OutOfOrder(DecodeError):
    """Sections stand behind such as should follow them, or come twice; `in_order` can tell."""


class Sections:
    """Where the sections of one message lie. For each: `_start` of its descriptor, `_at` its value's constructor,
    `_end` behind it; all -1 when it is absent. The body spans all its sections; `body_kind` is DATA, SEQUENCE, VALUE
    or 0 for no body. The bare message lies from `bare_at` to `bare_end`: what lies around it belongs to the hop.

    The defaults stand on the class, so that only what a message has costs an assignment.
    """

    header_start: int = -1
    header_at: int = -1
    header_end: int = -1
    delivery_annotations_start: int = -1
    delivery_annotations_at: int = -1
    delivery_annotations_end: int = -1
    message_annotations_start: int = -1
    message_annotations_at: int = -1
    message_annotations_end: int = -1
    properties_start: int = -1
    properties_at: int = -1
    properties_end: int = -1
    application_properties_start: int = -1
    application_properties_at: int = -1
    application_properties_end: int = -1
    body_kind: int = 0
    body_start: int = -1
    body_at: int = -1
    body_end: int = -1
    footer_start: int = -1
    footer_at: int = -1
    footer_end: int = -1
    bare_at: int = 0
    bare_end: int = 0


def scan(payload: bytes) -> Sections:
    """Find the sections of a message. Sections that are unknown, repeated, out of order or of a wrong type raise.
    One exception: azure-servicebus for Python writes delivery annotations last, so there they are taken as well."""
    found = Sections()
    size: i64 = len(payload)
    found.bare_end = size
    start: i64 = 0
    previous: i64 = 0
    sections: i64 = 0
    while start < size:
        code, at = section_at(payload, start, size)
        end: i64 = skip_value(payload, at, size)
        if code <= previous:
            if (
                code == DELIVERY_ANNOTATIONS
                and previous >= DATA
                and found.delivery_annotations_at < 0
                and end == size
            ):
                _place_last(found, start, at, end)
                break
            if code != previous or (code != DATA and code != SEQUENCE):
                raise OutOfOrder(f"The section {code:#04x} stands behind {previous:#04x}")
            if code == DATA and (payload[at] == _NULL or payload[found.body_at] == _NULL):
                raise DecodeError("A body that is null has one section")
            sections += 1
            if sections >= BODY_SECTIONS_MAX:
                raise DecodeError("The message has too many sections")
            found.body_end = end
        elif code < DATA:
            _place_front(found, code, start, at, end)
        else:
            _place_back(found, code, start, at, end)
        previous = code
        start = end
    return found


def section_at(payload: bytes, start: i64, size: i64) -> tuple[i64, i64]:
    """(code of the section, offset of its value), its type checked."""
    at: i64 = start + 3
    code: i64 = 0
    if at < size and payload[start] == 0 and payload[start + 1] == 0x53:
        code = payload[start + 2]
        if code < HEADER or code > FOOTER:
            raise DecodeError(f"Unknown section {code:#04x}")
    else:
        code, at = _unusual_section(payload, start, size)
    if MADE[payload[at]] & WANTED[code - HEADER] == 0:
        raise DecodeError(f"The section {code:#04x} holds a value of another type")
    return code, at


def _unusual_section(payload: bytes, start: int, size: int) -> tuple[int, int]:
    """A descriptor in another form: a long ulong or the symbol."""
    if payload[start] != 0:
        raise DecodeError(f"No section begins at offset {start}")
    at = skip_value(payload, start + 1, size)
    descriptor, _ = decode_value(payload, start + 1, at)
    code: int | None = None
    if isinstance(descriptor, Symbol):
        code = _CODES_BY_NAME.get(descriptor)
    elif isinstance(descriptor, ULong) and HEADER <= descriptor <= FOOTER:
        code = int(descriptor)
    if code is None or at >= size:
        raise DecodeError(f"No known section begins at offset {start}")
    return code, at


def _place_front(found: Sections, code: int, start: int, at: int, end: int) -> None:
    if code == PROPERTIES:
        found.properties_start = start
        found.properties_at = at
        found.properties_end = end
        return
    if code == APPLICATION_PROPERTIES:
        found.application_properties_start = start
        found.application_properties_at = at
        found.application_properties_end = end
        return
    found.bare_at = end
    if code == HEADER:
        found.header_start = start
        found.header_at = at
        found.header_end = end
    elif code == MESSAGE_ANNOTATIONS:
        found.message_annotations_start = start
        found.message_annotations_at = at
        found.message_annotations_end = end
    else:
        found.delivery_annotations_start = start
        found.delivery_annotations_at = at
        found.delivery_annotations_end = end


def _place_last(found: Sections, start: int, at: int, end: int) -> None:
    """Delivery annotations behind everything else: the bare message ends before them."""
    found.delivery_annotations_start = start
    found.delivery_annotations_at = at
    found.delivery_annotations_end = end
    found.bare_end = start


def _place_back(found: Sections, code: int, start: int, at: int, end: int) -> None:
    if code == FOOTER:
        found.footer_start = start
        found.footer_at = at
        found.footer_end = end
    elif found.body_kind:
        raise DecodeError("The body mixes sections of different kinds")
    else:
        found.body_kind = code
        found.body_start = start
        found.body_at = at
        found.body_end = end


# ---- readers


def scan_header(payload: bytes, found: Sections) -> Header | None:
    """The header's fields (None where absent), or None without a header."""
    if found.header_at < 0:
        return None
    made = TABLE.compose(decode_value(payload, found.header_start, found.header_end)[0])
    assert isinstance(made, Header)
    return made


def scan_properties(payload: bytes, found: Sections) -> Properties | None:
    """All properties by name, or None without that section."""
    if found.properties_at < 0:
        return None
    made = TABLE.compose(decode_value(payload, found.properties_start, found.properties_end)[0])
    assert isinstance(made, Properties)
    return made


def compound_start(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """(number of elements, offset of the first) of the list or map at `at`, which must fill the range to `end`."""
    code = payload[at] if at < end else -1
    if code in (0xC0, 0xC1) and at + 3 <= end:
        size, count, first = 2 + payload[at + 1], payload[at + 2], at + 3
    elif code in (0xD0, 0xD1) and at + 9 <= end:
        size = 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        count, first = int.from_bytes(payload[at + 5 : at + 9], "big"), at + 9
    elif code == 0x45:
        size, count, first = 1, 0, at + 1
    else:
        raise DecodeError("A section holds no list or map")
    if at + size != end or count > end - first:
        raise DecodeError("The size of a list or map does not fit")
    return count, first


#: Described values that application properties may have: .NET types without an AMQP form (M-32).
PROPERTY_DESCRIPTORS: Final = frozenset(
    ("com.microsoft:uri", "com.microsoft:timespan", "com.microsoft:datetime-offset")
)


def is_simple_value(payload: bytes, at: int, end: int) -> bool:
    """Whether an application property may have the value at `at` (M-31, M-34): no list, map or array, and described
    only by the names above."""
    if at < end and payload[at] == 0:
        value_at = skip_value(payload, at + 1, end)
        descriptor, _ = decode_value(payload, at + 1, value_at)
        if not isinstance(descriptor, Symbol) or descriptor not in PROPERTY_DESCRIPTORS:
            return False
        at = value_at
    if at >= end:
        raise DecodeError("A value is cut off")
    code = payload[at]
    return 0x40 <= code < 0xC0 and code != 0x45


def has_null_body(payload: bytes, found: Sections) -> bool:
    """Whether the body is a data section that holds null instead of bytes."""
    return found.body_kind == DATA and payload[found.body_at] == _NULL


def batch_contents(payload: bytes, found: Sections) -> list[bytes]:
    """The content of each data section of a message that was scanned."""
    if has_null_body(payload, found):
        raise DecodeError("A data section holds null, not bytes")
    contents: list[bytes] = []
    start = found.body_start
    while start < found.body_end:
        _, at = section_at(payload, start, found.body_end)
        start = skip_value(payload, at, found.body_end)
        contents.append(payload[at + (2 if payload[at] == 0xA0 else 5) : start])
    return contents


# ---- whole messages


class AmqpMessage:
    """A decoded message, for requests, answers and tools; what queues carry stays encoded.

    `body` is a list of bytes for DATA (None where it holds null), a list of lists for SEQUENCE, any value for VALUE,
    None for no body (0).
    """

    __slots__ = (
        "application_properties",
        "body",
        "body_kind",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(
        self,
        body: Any = None,
        body_kind: int = VALUE,
        *,
        properties: Properties | None = None,
        application_properties: dict[Any, Any] | None = None,
        message_annotations: dict[Any, Any] | None = None,
        delivery_annotations: dict[Any, Any] | None = None,
        header: Header | None = None,
        footer: dict[Any, Any] | None = None,
    ) -> None:
        self.body = body
        self.body_kind = body_kind
        self.properties = properties
        self.application_properties = application_properties
        self.message_annotations = message_annotations
        self.delivery_annotations = delivery_annotations
        self.header = header
        self.footer = footer


def decode_message(payload: bytes) -> AmqpMessage:
    """Decode every section. One budget holds for the whole message."""
    found = scan(payload)
    budget = ElementBudget()
    return AmqpMessage(
        _read_body(payload, found, budget),
        found.body_kind,
        properties=scan_properties(payload, found),
        application_properties=_read_map(payload, found.application_properties_at, budget),
        message_annotations=_read_map(payload, found.message_annotations_at, budget),
        delivery_annotations=_read_map(payload, found.delivery_annotations_at, budget),
        header=scan_header(payload, found),
        footer=_read_map(payload, found.footer_at, budget),
    )


def _read_map(payload: bytes, at: int, budget: ElementBudget) -> dict[Any, Any] | None:
    if at < 0:
        return None
    value, _ = decode_value(payload, at, None, budget)
    assert isinstance(value, dict)
    return value


def _read_body(payload: bytes, found: Sections, budget: ElementBudget) -> object:
    kind = found.body_kind
    if kind == DATA:
        return None if has_null_body(payload, found) else batch_contents(payload, found)
    if kind == VALUE:
        return decode_value(payload, found.body_at, found.body_end, budget)[0]
    sequences: list[object] = []
    start = found.body_start
    while kind == SEQUENCE and start < found.body_end:
        _, at = section_at(payload, start, found.body_end)
        value, start = decode_value(payload, at, found.body_end, budget)
        sequences.append(value)
    return sequences if kind == SEQUENCE else None


def encode_message(message: AmqpMessage) -> bytes:
    """The bytes of a message, its sections in the order of the standard. Text keys of annotations become symbols."""
    out = bytearray()
    if message.header is not None:
        TABLE.append(out, message.header)
    _append_annotations(out, DELIVERY_ANNOTATIONS, message.delivery_annotations)
    _append_annotations(out, MESSAGE_ANNOTATIONS, message.message_annotations)
    if message.properties is not None:
        TABLE.append(out, message.properties)
    if message.application_properties is not None:
        _append_section(out, APPLICATION_PROPERTIES, message.application_properties)
    _append_body(out, message)
    _append_annotations(out, FOOTER, message.footer)
    return bytes(out)


def encode_composite(value: Performative) -> bytes:
    """A message that is nothing but a composite value, such as those for a transaction coordinator."""
    return bytes((0, 0x53, VALUE)) + encode_performative(value)


def _append_annotations(out: bytearray, code: int, annotations: dict[Any, Any] | None) -> None:
    if annotations is not None:
        named = {Symbol(key) if type(key) is str else key: value for key, value in annotations.items()}
        _append_section(out, code, named)


def _append_body(out: bytearray, message: AmqpMessage) -> None:
    kind = message.body_kind
    if kind == VALUE:
        _append_section(out, VALUE, message.body)
    elif kind == DATA and message.body is None:
        _append_section(out, DATA, None)
    elif kind == DATA:
        for content in message.body:
            _append_section(out, DATA, bytes(content))
    elif kind == SEQUENCE:
        for sequence in message.body:
            _append_section(out, SEQUENCE, sequence)


def _append_section(out: bytearray, code: int, value: object) -> None:
    out += bytes((0x00, 0x53, code))
    append_value(out, value)


def in_order(payload: bytes) -> bytes:
    """The same sections in the order of the standard; those of a body keep theirs. Raises DecodeError."""
    places: list[list[bytes]] = [[] for _ in range(HEADER, FOOTER + 1)]
    start = 0
    size = len(payload)
    body_kind = 0
    while start < size:
        code, at = section_at(payload, start, size)
        end = skip_value(payload, at, size)
        place = places[code - HEADER]
        if place and code != DATA and code != SEQUENCE:
            raise DecodeError(f"The section {code:#04x} comes twice")
        if len(place) >= BODY_SECTIONS_MAX:
            raise DecodeError("The message has too many sections")
        if DATA <= code < FOOTER:
            if body_kind != 0 and code != body_kind:
                raise DecodeError("The body mixes sections of different kinds")
            body_kind = code
        place.append(payload[start:end])
        start = end
    return b"".join([section for place in places for section in place])


def scan_in_order(payload: bytes) -> tuple[bytes, Sections]:
    """The sections of a message and where they lie, in the payload itself or in one that was put in order."""
    try:
        return payload, scan(payload)
    except OutOfOrder:
        ordered = in_order(payload)
        return ordered, scan(ordered)


def split_batch(payload: bytes) -> list[bytes]:
    """The encoded messages in a batch (BATCH_FORMAT): the content of each data section. Everything else of the
    envelope is ignored. A batch without messages is malformed."""
    ordered, found = scan_in_order(payload)
    if found.body_kind != DATA:
        raise DecodeError("A batch holds no data sections")
    return batch_contents(ordered, found)
