"""A row as it lies in the log of a stage: what the broker works by, and the sender's bytes behind it, so that
publishing takes no message apart a second time. Rows are read where they lie in their chunk: what is copied out of
it is what the entity keeps.

Most rows of a task begin alike: same time to live, same head, no texts. Such a beginning is made once and read once
(`_Beginning`), for as long as the rows that follow have it too.

  1 byte     what there is: 1 session id, 2 partition key, 4 message id
  8 bytes    time to live, -1 for none; of an event the offset of its body
  8 bytes    when it is scheduled, 0 for now; of an event the number of its annotations' keys and values
  4 x 2      lengths: session id, partition key, message id, unused
  2 x 4      lengths: head, and what stands behind it; of an event annotations and delivery annotations
  …          these texts and bytes, then the bare message
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from busway.amqp.byte_writer import BytesWriter, write_i64_le
from busway.message.event_chunk import Chunk
from busway.message.event_record import Event
from busway.message.message import Message

_FRONT: Final = Struct("<BqqHHHHII")
_FRONT_BYTES: Final = _FRONT.size
#: Where the lengths of the three texts stand.
_LENGTHS_AT: Final = 17
_SESSION: Final = 1
_KEY: Final = 2
_ID: Final = 4


class _Beginning:
    """Of a row without texts: everything before the bare message."""

    __slots__ = ("bytes", "head", "scheduled_at_ms", "ttl_ms")

    def __init__(self, ttl_ms: int, scheduled_at_ms: int, head: bytes) -> None:
        self.ttl_ms = ttl_ms
        self.scheduled_at_ms = scheduled_at_ms
        self.head = head
        self.bytes = _FRONT.pack(0, ttl_ms, scheduled_at_ms, 0, 0, 0, 0, len(head), 0) + head


class MessageRecords:
    """Makes rows of messages."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = _Beginning(-1, 0, b"")

    def front(self, message: Message) -> bytes:
        """What stands before the bare message."""
        if (
            message.session_id is not None
            or message.partition_key is not None
            or message.message_id is not None
        ):
            return _front_with_texts(message)
        last = self._last
        ttl_ms, scheduled_at_ms, head = message.ttl_ms, message.scheduled_at_ms, message.head
        if ttl_ms != last.ttl_ms or scheduled_at_ms != last.scheduled_at_ms or head != last.head:
            last = self._last = _Beginning(ttl_ms, scheduled_at_ms, head)
        return last.bytes


def _front_with_texts(message: Message) -> bytes:
    session, key, name = message.session_id, message.partition_key, message.message_id
    texts = [b"" if text is None else text.encode() for text in (session, key, name)]
    flags = (0 if session is None else _SESSION) | (0 if key is None else _KEY) | (0 if name is None else _ID)
    lengths = map(len, texts)
    front = _FRONT.pack(flags, message.ttl_ms, message.scheduled_at_ms, *lengths, 0, len(message.head), 0)
    return b"".join((front, *texts, message.head))


def messages_in(chunk: Chunk, first: int, end: int) -> list[Message]:
    """The rows from one index to another."""
    messages: list[Message] = []
    data, at = chunk.data, chunk.start(first)
    last = _Beginning(-1, 0, b"")
    for index in range(first, end):
        after = chunk.end(index)
        bare_at = at + len(last.bytes)
        if bare_at > after or data[at:bare_at] != last.bytes:
            if data[at] != 0:
                messages.append(_message_with_texts(data, at, after))
                at = after
                continue
            last = _beginning(data, at)
            bare_at = at + len(last.bytes)
        messages.append(
            Message(last.head, data[bare_at:after], ttl_ms=last.ttl_ms, scheduled_at_ms=last.scheduled_at_ms)
        )
        at = after
    return messages


def _beginning(data: bytes, at: int) -> _Beginning:
    _, ttl_ms, scheduled_ms, _, _, _, _, head, _ = _FRONT.unpack_from(data, at)
    at += _FRONT_BYTES
    return _Beginning(ttl_ms, scheduled_ms, data[at : at + head])


def _message_with_texts(data: bytes, at: int, end: int) -> Message:
    flags, ttl_ms, scheduled_ms, session, key, name, _, head, _ = _FRONT.unpack_from(data, at)
    at += _FRONT_BYTES
    session_id = partition_key = message_id = None
    if flags & _SESSION:
        session_id = data[at : at + session].decode()
    at += session
    if flags & _KEY:
        partition_key = data[at : at + key].decode()
    at += key
    if flags & _ID:
        message_id = data[at : at + name].decode()
    at += name
    return Message(
        data[at : at + head],
        data[at + head : end],
        ttl_ms=ttl_ms,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        scheduled_at_ms=scheduled_ms,
    )


def sizes_in(chunk: Chunk, first: int, end: int) -> list[int]:
    """What counts of each row toward the entity's size."""
    sizes: list[int] = []
    data, at = chunk.data, chunk.start(first)
    for index in range(first, end):
        after = chunk.end(index)
        size = after - at - _FRONT_BYTES
        if data[at] != 0:
            for length_at in range(at + _LENGTHS_AT, at + _LENGTHS_AT + 6, 2):
                size -= _small(data, length_at)
        sizes.append(size)
        at = after
    return sizes


class EventRecords:
    """Makes rows of events."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = BytesWriter()

    def front(self, event: Event) -> bytes:
        """What stands before the bare message. Two lengths and two words make a number of eight bytes each."""
        out = self._out
        out.truncate(0)
        key = event.partition_key
        raw = b"" if key is None else key.encode()
        out.append(0 if key is None else _KEY)
        write_i64_le(out, event.body_at)
        write_i64_le(out, event.annotation_count)
        write_i64_le(out, len(raw) << 16)
        write_i64_le(out, len(event.annotations) | len(event.delivery_annotations) << 32)
        out.write(raw)
        out.write(event.annotations)
        out.write(event.delivery_annotations)
        return out.getvalue()


def events_in(chunk: Chunk, first: int, end: int) -> list[Event]:
    """The rows from one index to another."""
    events: list[Event] = []
    data, at = chunk.data, chunk.start(first)
    for index in range(first, end):
        after = chunk.end(index)
        events.append(_event_in(data, at, after))
        at = after
    return events


def _event_in(data: bytes, start: int, end: int) -> Event:
    """Its numbers byte by byte: compiled, that takes a fraction of the time that taking apart a `Struct` does. None
    of them is below zero or needs more than four bytes."""
    key_at = start + _FRONT_BYTES
    at = key_at + _small(data, start + _LENGTHS_AT + 2)
    delivery_at = at + _word(data, start + _FRONT_BYTES - 8)
    bare_at = delivery_at + _word(data, start + _FRONT_BYTES - 4)
    event = Event(data[bare_at:end], _word(data, start + 1))
    if data[start] & _KEY:  # it stands among the annotations already
        event.partition_key = data[key_at:at].decode()
    event.annotations = data[at:delivery_at]
    event.annotation_count = _word(data, start + 9)
    if delivery_at < bare_at:
        event.delivery_annotations = data[delivery_at:bare_at]
    return event


def _small(data: bytes, at: int) -> int:
    return data[at] | data[at + 1] << 8


def _word(data: bytes, at: int) -> int:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
