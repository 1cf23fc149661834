"""An event as it lies in a log and leaves it: one AMQP message with the broker's annotations already inside (H-16).

The sender's header belongs to the hop and is dropped; of its annotations, for the delivery and for the message,
everything is kept but the names that the broker owns. Properties, application properties, body and footer stay byte
for byte as they were sent.

Most events begin as the one before: what stands before the bare message is then known, and such an event is found
where it lies, in a read or a batch, by its sections' sizes, and copied once. Whatever is not so goes the long way,
which alone words refusals; both make the same event of the same bytes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from busway.amqp.byte_writer import BytesWriter, i16, i32, i64, write_i16_be, write_i32_be, write_i64_be
from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.sections import (
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    OutOfOrder,
    in_order,
    scan,
    section_at,
)
from busway.message.bare import map_start, text_bytes
from busway.message.event_chunk import BODY_ELSEWHERE

_SEQUENCE_KEY: Final = b"\xa3\x15x-opt-sequence-number\x81"
_OFFSET_KEY: Final = b"\xa3\x0cx-opt-offset\xa1"
_ENQUEUED_KEY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
#: What the broker's own annotations take, without the digits of the offset.
_OWN_ENTRIES_BYTES: Final = len(_SEQUENCE_KEY) + 8 + len(_OFFSET_KEY) + 1 + len(_ENQUEUED_KEY) + 8
_PARTITION_KEY: Final = b"x-opt-partition-key"
_PUBLISHER: Final = b"x-opt-publisher"
_PRODUCER_ID: Final = b"com.microsoft:producer-id"
_PRODUCER_EPOCH: Final = b"com.microsoft:producer-epoch"
_PRODUCER_NUMBER: Final = b"com.microsoft:producer-sequence-number"
_OWNED: Final = (b"x-opt-sequence-number", b"x-opt-offset", b"x-opt-enqueued-time", _PUBLISHER)
#: What readers are told about their partition, if they want (H-26): nobody else says it.
_METRIC: Final = (
    b"last_enqueued_sequence_number",
    b"last_enqueued_offset",
    b"last_enqueued_time_utc",
    b"runtime_info_retrieval_time_utc",
)
#: The entry of a partition key whose text has up to 255 bytes, up to the length.
_SHORT_KEY: Final = b"\xa3\x13" + _PARTITION_KEY + b"\xa1"
_PRODUCED: Final = (_PRODUCER_ID, _PRODUCER_EPOCH, _PRODUCER_NUMBER)
#: The head of the section with them: described, its code, a map with sizes of one byte or of four.
_SHORT_ANNOTATIONS: Final = 0x0053_72C1
_LONG_ANNOTATIONS: Final = 0x0053_72D1
_SHORT_MAP: Final = 0xC1
_NULL: Final = 0x40
_BINARIES: Final = b"\xa0\xb0"
_INTEGERS: Final[dict[int, int]] = {0x51: 1, 0x54: 1, 0x55: 1, 0x61: 2, 0x71: 4, 0x81: 8}
#: What stands before the bare message of so many events, each at most so long, and what an event is made of it.
_FRONT_BYTES_MAX: Final = 128
_FRONTS_MAX: Final = 512
_KNOWN_FRONTS: Final[dict[bytes, Event]] = {}


@mypyc_attr(acyclic=True)
class Event:
    """What somebody publishes."""

    __slots__ = (
        "annotation_count",
        "annotations",
        "bare",
        "body_at",
        "delivery_annotations",
        "partition_key",
        "producer_epoch",
        "producer_id",
        "producer_number",
    )

    def __init__(self, bare: bytes, body_at: int = BODY_ELSEWHERE) -> None:
        self.bare = bare
        #: Offset of the body's content in `bare` when it is one data section that ends the message.
        self.body_at = body_at
        #: Encoded entries that are kept, and the number of keys and values among them.
        self.annotations = b""
        self.annotation_count = 0
        #: The whole section, or nothing.
        self.delivery_annotations = b""
        self.partition_key: str | None = None
        #: H-18: what an idempotent producer says; -1 where it says nothing.
        self.producer_id = -1
        self.producer_epoch = -1
        self.producer_number = -1

    def size_bytes(self) -> int:
        return len(self.bare) + len(self.annotations) + len(self.delivery_annotations)

    def set_partition_key(self, key: str) -> None:
        """A key that the sender's path or envelope gives to an event without one."""
        self.partition_key = key
        self._annotate(_PARTITION_KEY, key)

    def set_publisher(self, name: str) -> None:
        """H-13: whose path it came by. Nobody can say so himself."""
        self._annotate(_PUBLISHER, name)

    def _annotate(self, name: bytes, value: str) -> None:
        raw = value.encode()
        form = b"\xa1" + bytes((len(raw),)) if len(raw) < 256 else b"\xb1" + len(raw).to_bytes(4, "big")
        self.annotations += b"\xa3" + bytes((len(name),)) + name + form + raw
        self.annotation_count += 2


def event_of(payload: bytes) -> Event:
    """Raises DecodeError for what is no message."""
    return event_in(payload, 0, len(payload))


def event_in(data: bytes, start: int, end: int) -> Event:
    """The event in a part of what was read. Raises DecodeError for what is no message."""
    try:
        usual = _usual_event(data, start, end)
    except DecodeError:
        usual = None  # the long way says it in the words for a payload of its own
    if usual is not None:
        return usual
    # Compiled, a slice that is all of it is a copy, too.
    return scanned_event(data if start == 0 and end == len(data) else data[start:end])


def _usual_event(data: bytes, start: i64, end: i64) -> Event | None:
    """None for one that does not begin as others did, or whose sections are to be looked at twice."""
    previous: i64 = 0
    at, bare_at, body_at, content_at = start, start, i64(-1), i64(-1)
    while at < end:
        code, value_at = section_at(data, at, end)
        after: i64 = skip_value(data, value_at, end)
        if code <= previous:
            return None
        if code <= MESSAGE_ANNOTATIONS:
            bare_at = after
        elif code >= DATA and code != FOOTER:
            if body_at >= 0:
                return None
            body_at = value_at
            if code == DATA and after == end and data[value_at] != _NULL:
                content_at = value_at + (2 if data[value_at] == 0xA0 else 5)
        previous = code
        at = after
    if bare_at - start > _FRONT_BYTES_MAX:
        return None
    known = _KNOWN_FRONTS.get(data[start:bare_at])
    if known is None:
        known = _keyed_front(data, start, bare_at)
        if known is None:
            return None
    is_whole = bare_at == 0 and end == len(data)
    bare = data if is_whole else data[bare_at:end]
    event = Event(bare, BODY_ELSEWHERE if content_at < 0 else content_at - bare_at)
    event.annotations = known.annotations
    event.annotation_count = known.annotation_count
    event.delivery_annotations = known.delivery_annotations
    event.partition_key = known.partition_key
    return event


def _keyed_front(data: bytes, start: i64, bare_at: i64) -> Event | None:
    """Of a beginning that is a partition key and nothing else, as of rows of which each has its own: it is read at
    sight and not worth remembering."""
    entry_at: i64 = start + 6
    text_at: i64 = entry_at + len(_SHORT_KEY) + 1
    if (
        text_at > bare_at
        or data[start + 2] != MESSAGE_ANNOTATIONS
        or data[start + 3] != _SHORT_MAP
        or data[start + 4] != bare_at - start - 5
        or data[start + 5] != 2
        or data[text_at - 1] != bare_at - text_at
        or data[entry_at : text_at - 1] != _SHORT_KEY
    ):
        return None
    try:
        key = data[text_at:bare_at].decode()
    except UnicodeDecodeError:
        return None
    front = Event(b"")
    front.partition_key = key
    front.annotations = data[entry_at:bare_at]
    front.annotation_count = 2
    return front


def scanned_event(payload: bytes) -> Event:
    """The long way. Raises DecodeError for what is no message."""
    try:
        cut = scan(payload)
    except OutOfOrder:
        payload = in_order(payload)
        cut = scan(payload)
    bare_at = cut.bare_at
    bare = payload if bare_at == 0 and cut.bare_end == len(payload) else payload[bare_at : cut.bare_end]
    body_at = BODY_ELSEWHERE
    at = cut.body_at
    if cut.body_kind == DATA and cut.body_end == cut.bare_end and payload[at] != _NULL:
        content = at + (2 if payload[at] == 0xA0 else 5)
        if skip_value(payload, at, cut.body_end) == cut.body_end:
            body_at = content - bare_at
    event = Event(bare, body_at)
    if cut.message_annotations_at >= 0:
        _read_annotations(event, payload, cut.message_annotations_at, cut.message_annotations_end)
    if cut.delivery_annotations_at >= 0:
        event.delivery_annotations = _kept_for_delivery(
            payload, cut.delivery_annotations_at, cut.delivery_annotations_end
        )
    if bare_at <= _FRONT_BYTES_MAX and cut.bare_end == len(payload):
        _remember_front(event, payload[:bare_at])
    return event


def _remember_front(event: Event, front: bytes) -> None:
    """What a producer says of itself is another thing each time."""
    if event.producer_id != -1 or event.producer_epoch != -1 or event.producer_number != -1:
        return
    known = Event(b"")
    known.annotations = event.annotations
    known.annotation_count = event.annotation_count
    known.delivery_annotations = event.delivery_annotations
    known.partition_key = event.partition_key
    if len(_KNOWN_FRONTS) >= _FRONTS_MAX:
        _KNOWN_FRONTS.clear()
    _KNOWN_FRONTS[front] = known


def _kept_for_delivery(data: bytes, at: int, end: int) -> bytes:
    """The sender's delivery annotations as a section; nothing when there are none."""
    count, at = map_start(data, at, end)
    kept: list[bytes] = []
    for _ in range(count >> 1):
        value_at = skip_value(data, at, end)
        after = skip_value(data, value_at, end)
        if text_bytes(data, at, value_at) not in _METRIC:
            kept.append(data[at:after])
        at = after
    if at != end:
        raise DecodeError("an annotations section is longer than its entries")
    if not kept:
        return b""
    entries = b"".join(kept)
    return _section_head(DELIVERY_ANNOTATIONS, len(entries), 2 * len(kept)) + entries


def _section_head(code: int, size: int, count: int) -> bytes:
    """What stands before a map of so many keys and values with so many bytes."""
    if size < 255 and count < 256:
        return bytes((0, 0x53, code, 0xC1, size + 1, count))
    return bytes((0, 0x53, code, 0xD1)) + (size + 4).to_bytes(4, "big") + count.to_bytes(4, "big")


def _read_annotations(event: Event, data: bytes, at: int, end: int) -> None:
    count, at = map_start(data, at, end)
    kept: list[bytes] = []
    for _ in range(count >> 1):
        value_at = skip_value(data, at, end)
        after = skip_value(data, value_at, end)
        name = text_bytes(data, at, value_at)
        if name is None or (name not in _OWNED and not _take(event, name, data, value_at, after)):
            kept.append(data[at:after])
            if name == _PARTITION_KEY and data[value_at] in _BINARIES:
                # Other clients insist on a string. Its short and its long form are as long as those of bytes.
                kept[-1] = data[at:value_at] + bytes((data[value_at] + 1,)) + data[value_at + 1 : after]
        at = after
    if at != end:
        raise DecodeError("an annotations section is longer than its entries")
    event.annotations = b"".join(kept)
    event.annotation_count = 2 * len(kept)


def _take(event: Event, name: bytes, data: bytes, at: int, after: int) -> bool:
    """Reads what the broker works by. True when the annotation is not handed on."""
    if name == _PARTITION_KEY:
        if data[at] == _NULL:
            return True
        event.partition_key = _text(data, at, after)
        return False
    if name not in _PRODUCED:
        return False
    if data[at] != _NULL:
        number = _integer(data, at, after)
        if name == _PRODUCER_ID:
            event.producer_id = number
        elif name == _PRODUCER_EPOCH:
            event.producer_epoch = number
        else:
            event.producer_number = number
    return True


def _text(data: bytes, at: int, after: int) -> str:
    raw = text_bytes(data, at, after)
    if data[at] in _BINARIES:  # Python's client sends back as bytes what it received as text
        raw = data[at + (2 if data[at] == 0xA0 else 5) : after]
    if raw is None:
        raise DecodeError("x-opt-partition-key is not a string")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DecodeError("x-opt-partition-key is not UTF-8") from None


def _integer(data: bytes, at: int, after: int) -> int:
    width = _INTEGERS.get(data[at], 0)
    if width == 0 or after - at - 1 != width:
        raise DecodeError("A producer's id, epoch or sequence number is not a signed integer")
    return int.from_bytes(data[at + 1 : after], "big", signed=True)


class FrontWriter:
    """Makes what stands before the bare message in a record."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = BytesWriter()

    def front(self, event: Event, number: i64, at_ms: i64) -> bytes:
        """Of the event under its number, which is its offset too (H-16: a position that grows, opaque to clients)."""
        out = self._out
        out.truncate(0)
        digits = _digits_of(number)
        annotations = event.annotations
        size: i64 = _OWN_ENTRIES_BYTES + digits + len(annotations)
        count: i64 = 6 + event.annotation_count
        if event.delivery_annotations:
            out.write(event.delivery_annotations)
        if size < 255 and count < 256:
            write_i32_be(out, _SHORT_ANNOTATIONS)
            write_i16_be(out, i16((size + 1) << 8 | count))
        else:
            write_i32_be(out, _LONG_ANNOTATIONS)
            write_i32_be(out, i32(size + 4))
            write_i32_be(out, i32(count))
        out.write(_SEQUENCE_KEY)
        write_i64_be(out, number)
        out.write(_OFFSET_KEY)
        out.append(digits)
        divisor: i64 = 1
        for _ in range(digits - 1):
            divisor *= 10
        for _ in range(digits):
            out.append(0x30 + number // divisor % 10)
            divisor //= 10
        out.write(_ENQUEUED_KEY)
        write_i64_be(out, at_ms)
        if annotations:
            out.write(annotations)
        return out.getvalue()


def _digits_of(number: i64) -> i64:
    digits: i64 = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits
