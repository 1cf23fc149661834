"""Messages as rows and back, with the checksum that proves a row unchanged.

SQLite finds a damaged page structure, but not a flipped bit in a body, a date or a number. So a row's checksum is
a CRC-32 over payload and texts plus the sum of all its integers (its key included, so a row under a wrong number
is damaged too), modulo a prime just below 2**32. A sum, because a row that moves or counts a delivery is updated
inside the database, without its payload: the statement just adds the difference. Modulo a prime, because then no
single bit of a 64-bit integer can change unnoticed. `changes` comes and goes by itself and carries its own CRC.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

from busway.message import Message
from busway.store.contract import COUNTER_BITS, FragmentKey

#: A row of messages, deferred or scheduled, in the order of its columns.
MessageTuple = tuple[
    int, int, int, int, int, int, int, str | None, str | None, str | None, bytes, bytes | None, bytes
]

#: The largest prime below 2**32; queries.sql names it too.
CHECKSUM_PRIME: Final = 4294967291
NUMBER_MASK: Final = (1 << COUNTER_BITS) - 1


def message_tuples(
    puts: Iterable[tuple[FragmentKey, int, Message]],
) -> tuple[list[MessageTuple], list[MessageTuple], list[MessageTuple]]:
    """Rows to insert, by place."""
    places: tuple[list[MessageTuple], list[MessageTuple], list[MessageTuple]] = ([], [], [])
    for fragment, place, message in puts:
        key = fragment << COUNTER_BITS | message.sequence_number
        enqueued_at_ms = message.enqueued_at_ms
        expires_at_ms = message.expires_at_ms
        delivery_count = message.delivery_count
        ttl_ms = message.ttl_ms
        scheduled_at_ms = message.scheduled_at_ms
        session_id = message.session_id
        partition_key = message.partition_key
        message_id = message.message_id
        head = message.head
        bare = message.bare
        changes = message.changes
        check = crc32(bare, crc32(head, len(head)))
        if session_id is not None or partition_key is not None or message_id is not None:
            check = _with_texts(check, session_id, partition_key, message_id)
        check += key + enqueued_at_ms + expires_at_ms + delivery_count + ttl_ms + scheduled_at_ms
        places[place].append(
            (
                key,
                enqueued_at_ms,
                expires_at_ms,
                delivery_count,
                check % CHECKSUM_PRIME,
                ttl_ms,
                scheduled_at_ms,
                session_id,
                partition_key,
                message_id,
                head,
                None if changes is None else sealed(changes),
                bare,
            )
        )
    return places


def message_of(row: Any, place: int) -> Message | None:
    """The message of a row; None when the row is damaged. A flipped bit can turn any column into another type,
    which shows as one of the errors below."""
    try:
        return _message_of(row, place)
    except (TypeError, ValueError, AttributeError):
        return None


def _message_of(row: MessageTuple, place: int) -> Message | None:
    (
        key,
        enqueued_at_ms,
        expires_at_ms,
        delivery_count,
        checksum,
        ttl_ms,
        scheduled_at_ms,
        session_id,
        partition_key,
        message_id,
        head,
        changes,
        bare,
    ) = row
    check = crc32(bare, crc32(head, len(head)))
    if session_id is not None or partition_key is not None or message_id is not None:
        check = _with_texts(check, session_id, partition_key, message_id)
    check += key + enqueued_at_ms + expires_at_ms + delivery_count + ttl_ms + scheduled_at_ms
    if check % CHECKSUM_PRIME != checksum:
        return None
    message = Message(
        head,
        bare,
        ttl_ms=ttl_ms,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        scheduled_at_ms=scheduled_at_ms,
    )
    message.changes = None if changes is None else unsealed(changes)
    message.sequence_number = key & NUMBER_MASK
    message.enqueued_at_ms = enqueued_at_ms
    message.expires_at_ms = expires_at_ms
    message.delivery_count = delivery_count
    message.state = place
    return message


def sealed(data: bytes) -> bytes:
    """Bytes that prove themselves: changed properties, session states."""
    return crc32(data).to_bytes(4, "big") + data


def unsealed(data: bytes) -> bytes:
    """The bytes again; ValueError when they are not what was sealed."""
    content = data[4:]
    if len(data) < 4 or crc32(content) != int.from_bytes(data[:4], "big"):
        raise ValueError("the bytes were changed")
    return content


def _with_texts(check: int, session_id: str | None, partition_key: str | None, message_id: str | None) -> int:
    """Each text under a mark of its own, so that none can take another's column."""
    if session_id is not None:
        check = crc32(b"s" + session_id.encode(), check)
    if partition_key is not None:
        check = crc32(b"p" + partition_key.encode(), check)
    if message_id is not None:
        check = crc32(b"m" + message_id.encode(), check)
    return check


def deleted_keys(deletes: list[tuple[FragmentKey, int, int]]) -> tuple[list[int], list[int], list[int]]:
    """The keys of rows to delete, by place."""
    places: tuple[list[int], list[int], list[int]] = ([], [], [])
    for fragment, place, number in deletes:
        places[place].append(fragment << COUNTER_BITS | number)
    return places


def runs(keys: list[int]) -> list[tuple[int, int]]:
    """Keys as inclusive ranges of consecutive ones. Most deletes come in such runs, and one range is one step."""
    if not keys:
        return []
    keys.sort()
    ranges = []
    first = last = keys[0]
    for key in keys:
        if key > last + 1:
            ranges.append((first, last))
            first = key
        last = key
    ranges.append((first, last))
    return ranges


def key_bounds(fragment: FragmentKey) -> tuple[int, int]:
    """The smallest and the largest key a fragment's rows can have."""
    low = fragment << COUNTER_BITS
    return low, low | NUMBER_MASK
