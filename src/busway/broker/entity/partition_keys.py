"""Which fragment of a partitioned entity a message belongs to (P-20…P-26).

The hash is CRC-32 of the key's UTF-8 bytes, modulo the number of fragments. It is part of the data format: a key must
find its fragment again over restarts and versions (P-24), so it never changes.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from busway.message.message import Message
from busway.store.contract import COUNTER_MASK, INDEX_SHIFT

#: P-30: keyless messages that came together go round in slices of so many.
SLICE_MESSAGES_MAX: Final = 16


def fragment_of_key(key: str, count: int) -> int:
    return crc32(key.encode()) % count


def key_of(message: Message, detects_duplicates: bool) -> str | None:
    """P-20…P-22: the session, else the partition key, else the message id where duplicates are detected. None:
    any fragment will do."""
    if message.session_id is not None:
        return message.session_id
    if message.partition_key is not None:
        return message.partition_key
    return message.message_id if detects_duplicates else None


def fragment_of_forwarded(message: Message, source_number: int, detects_duplicates: bool, count: int) -> int:
    """F-9: by its key like any other, else by its number at its source, so that a move that is repeated after a crash
    finds its first try."""
    key = key_of(message, detects_duplicates)
    if key is not None:
        return fragment_of_key(key, count)
    return (source_number & COUNTER_MASK) % count


def index_of_number(number: int) -> int:
    """M-36. Negative for a number that nobody gave out."""
    return number >> INDEX_SHIFT


def index_of_token(token: bytes) -> int:
    """A lock token begins with its fragment's index."""
    return token[0] << 8 | token[1] if len(token) > 1 else int.from_bytes(token, "big")
