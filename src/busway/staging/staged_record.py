"""A row as it lies in the log of a stage: what the broker works by, and the sender's bytes behind it, so that
publishing takes no message apart a second time.

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

from busway.event_record import Event
from busway.message import Message

_FRONT: Final = Struct("<BqqHHHHII")
_LENGTHS: Final = Struct("<HHH")
_LENGTHS_AT: Final = 17
_SESSION: Final = 1
_KEY: Final = 2
_ID: Final = 4


def message_record(message: Message) -> bytes:
    session, key, name = message.session_id, message.partition_key, message.message_id
    if session is None and key is None and name is None:
        front = _FRONT.pack(0, message.ttl_ms, message.scheduled_at_ms, 0, 0, 0, 0, len(message.head), 0)
        return b"".join((front, message.head, message.bare))
    texts = [b"" if text is None else text.encode() for text in (session, key, name)]
    flags = (0 if session is None else _SESSION) | (0 if key is None else _KEY) | (0 if name is None else _ID)
    lengths = map(len, texts)
    front = _FRONT.pack(flags, message.ttl_ms, message.scheduled_at_ms, *lengths, 0, len(message.head), 0)
    return b"".join((front, *texts, message.head, message.bare))


def message_in(record: bytes) -> Message:
    flags, ttl_ms, scheduled_ms, session, key, name, _, head, _ = _FRONT.unpack_from(record)
    at = _FRONT.size
    session_id = partition_key = message_id = None
    if flags:
        if flags & _SESSION:
            session_id = record[at : at + session].decode()
        at += session
        if flags & _KEY:
            partition_key = record[at : at + key].decode()
        at += key
        if flags & _ID:
            message_id = record[at : at + name].decode()
        at += name
    return Message(
        record[at : at + head],
        record[at + head :],
        ttl_ms=ttl_ms,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        scheduled_at_ms=scheduled_ms,
    )


def messages_in(records: list[bytes]) -> list[Message]:
    return [message_in(record) for record in records]


def sizes_in(records: list[bytes]) -> list[int]:
    """What counts of each toward the entity's size."""
    sizes: list[int] = []
    for record in records:
        session, key, name = _LENGTHS.unpack_from(record, _LENGTHS_AT)
        sizes.append(len(record) - _FRONT.size - int(session) - int(key) - int(name))
    return sizes


def event_record(event: Event) -> bytes:
    key = b"" if event.partition_key is None else event.partition_key.encode()
    front = _FRONT.pack(
        0 if event.partition_key is None else _KEY,
        event.body_at,
        event.annotation_count,
        0,
        len(key),
        0,
        0,
        len(event.annotations),
        len(event.delivery_annotations),
    )
    return b"".join((front, key, event.annotations, event.delivery_annotations, event.bare))


def events_in(records: list[bytes]) -> list[Event]:
    return [event_in(record) for record in records]


def event_in(record: bytes) -> Event:
    flags, body_at, count, _, key, _, _, annotations, delivery = _FRONT.unpack_from(record)
    at = _FRONT.size + key
    event = Event(record[at + annotations + delivery :], body_at)
    if flags & _KEY:  # it stands among the annotations already
        event.partition_key = record[_FRONT.size : at].decode()
    event.annotations = record[at : at + annotations]
    event.annotation_count = count
    event.delivery_annotations = record[at + annotations : at + annotations + delivery]
    return event
