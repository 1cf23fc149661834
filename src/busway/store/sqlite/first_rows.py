"""Rows as schema 1 had them, for the migration to schema 2: their checksum proven, their columns packed.

The migration casts every column to the type it should have, because a damaged row must come through: it gets a
checksum that no row has, and stays damaged.
"""

from __future__ import annotations

from zlib import crc32

import apsw

from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import COUNTER_BITS, FragmentKey
from busway.store.sqlite.rows import (
    CHECKSUM_PRIME,
    NEVER_RIGHT,
    NUMBER_MASK,
    message_rows,
    more_of,
    unsealed,
)


def teach(connection: apsw.Connection) -> None:
    """Gives a connection the functions that the migration calls."""
    connection.create_scalar_function("row_1_more", _more, 8, deterministic=True)
    connection.create_scalar_function("row_1_checksum", _checksum, 13, deterministic=True)


def _more(*fields: apsw.SQLiteValue) -> bytes | None:
    try:
        return more_of(_message(b"", *fields))
    except (TypeError, ValueError):
        return None


def _checksum(*values: apsw.SQLiteValue) -> int:
    """The checksum by the rules of schema 2, if it was right by those of schema 1."""
    try:
        return _proven(*values)
    except (TypeError, ValueError):
        return NEVER_RIGHT


def _proven(
    checksum: apsw.SQLiteValue,
    key: apsw.SQLiteValue,
    enqueued_at_ms: apsw.SQLiteValue,
    expires_at_ms: apsw.SQLiteValue,
    bare: apsw.SQLiteValue,
    *fields: apsw.SQLiteValue,
) -> int:
    if not (isinstance(key, int) and isinstance(enqueued_at_ms, int) and isinstance(expires_at_ms, int)):
        raise TypeError("a number is missing")
    if not isinstance(bare, bytes):
        raise TypeError("the body is missing")
    message = _message(bare, *fields)
    check = crc32(bare, crc32(message.head, len(message.head)))
    for mark, text in ((b"s", message.session_id), (b"p", message.partition_key), (b"m", message.message_id)):
        if text is not None:
            check = crc32(mark + text.encode(), check)
    check += key + enqueued_at_ms + expires_at_ms
    check += message.delivery_count + message.ttl_ms + message.scheduled_at_ms
    if check % CHECKSUM_PRIME != checksum:
        return NEVER_RIGHT
    message.sequence_number = key & NUMBER_MASK
    message.enqueued_at_ms = enqueued_at_ms
    message.expires_at_ms = expires_at_ms
    rows = message_rows([(FragmentKey(key >> COUNTER_BITS), PLACE_ACTIVE, message)])
    return rows.active[0][3]


def _message(bare: bytes, *fields: apsw.SQLiteValue) -> Message:
    """TypeError or ValueError when a field is not what it should be."""
    delivery_count, ttl_ms, scheduled_at_ms, session_id, partition_key, message_id, head, changes = fields
    if not (isinstance(delivery_count, int) and isinstance(ttl_ms, int) and isinstance(scheduled_at_ms, int)):
        raise TypeError("a number is missing")
    if not isinstance(head, bytes):
        raise TypeError("the head is missing")
    message = Message(
        head,
        bare,
        ttl_ms=ttl_ms,
        message_id=_text(message_id),
        session_id=_text(session_id),
        partition_key=_text(partition_key),
        scheduled_at_ms=scheduled_at_ms,
    )
    message.delivery_count = delivery_count
    if isinstance(changes, bytes):
        message.changes = unsealed(changes)
    return message


def _text(value: apsw.SQLiteValue) -> str | None:
    return value.decode() if isinstance(value, bytes) else None
