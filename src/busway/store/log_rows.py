"""Chunks of logs as rows and back, with the checksum that proves a row unchanged. It knows no database.

The checksum is made as that of a message (`rows`): the CRC-32 of the bytes plus the row's integers, modulo a prime
just below 2**32. The row's key is no part of it: it only tells where the row lies.

A thread that takes a CRC lets the interpreter go meanwhile and must wait until it gets it back, behind a busy
event loop each time. So a page of chunks is proven by one pass over all of its bytes, against the CRC that they
have together, reckoned from what each has alone (`joined_crc`). A CRC is a polynomial over GF(2), here with its
bits in reverse: the highest bit is the coefficient of 1. Putting n bytes behind a run multiplies its CRC by x^(8
n), modulo the polynomial of CRC-32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from zlib import crc32

from busway.message.event_chunk import ChunkBuilder
from busway.store.contract import ChunkHead
from busway.store.rows import CHECKSUM_PRIME

#: A row of `log_chunks` without its key: log, first_number, last_number, first_at, last_at, events, checksum, data.
ChunkTuple = tuple[int, int, int, int, int, int, int, bytes]

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
_X_TO_8: Final = 1 << 23


class ListedChunk:
    """A row without its bytes, as `read_chunk_list` tells of it."""

    __slots__ = ("crc", "fits", "indexed_number", "key", "last_number", "log", "size_bytes")

    def __init__(
        self,
        key: int,
        indexed_number: int,
        size_bytes: int,
        room_bytes: int,
        log: int,
        first_number: int,
        last_number: int,
        first_at_ms: int,
        last_at_ms: int,
        events: int,
        checksum: int,
    ) -> None:
        self.key = key
        #: The last number as the index has it.
        self.indexed_number = indexed_number
        self.size_bytes = size_bytes
        self.fits = size_bytes <= room_bytes
        self.log = log
        self.last_number = last_number
        #: What the bytes must have. (Five values cannot be told from five others: such a row is looked at alone.)
        self.crc = (checksum - head_sum(log, first_number, last_number, first_at_ms, last_at_ms, events)) % (
            CHECKSUM_PRIME
        )


def chunk_row(log: int, builder: ChunkBuilder) -> ChunkTuple:
    data = builder.data()
    first, last = builder.first_number, builder.last_number
    first_at_ms, last_at_ms, events = builder.first_at_ms, builder.last_at_ms, builder.count
    check = crc32(data) + head_sum(log, first, last, first_at_ms, last_at_ms, events)
    return log, first, last, first_at_ms, last_at_ms, events, check % CHECKSUM_PRIME, data


def head_sum(
    log: int, first_number: int, last_number: int, first_at_ms: int, last_at_ms: int, events: int
) -> int:
    """The part of a checksum that does not come from the bytes."""
    return log + first_number + last_number + first_at_ms + last_at_ms + events


def chunk_data(row: Any) -> bytes | None:
    """The bytes of a row's chunk; None when the row is damaged. A flipped bit can turn any column into another type,
    which shows as one of the errors below."""
    try:
        *head, checksum, data = row
        is_right = (crc32(data) + head_sum(*head)) % CHECKSUM_PRIME == checksum
        return data if is_right and isinstance(data, bytes) else None
    except (TypeError, ValueError):
        return None


def is_of(row: Any, log: int, last_number: int) -> bool:
    """Whether the index led to the right row."""
    return bool(row[0] == log and row[2] == last_number)


def damaged_head(row: Any, after: int, last_number: int, size_bytes: int) -> ChunkHead:
    """What can be said of a chunk whose row is damaged: it lies behind the number `after` and ends, by the index,
    with `last_number`. Of its own columns those are taken that can be true."""
    values = row[1:6] if isinstance(row, tuple) else (None,) * 5
    first, _, first_at_ms, last_at_ms, events = (value if isinstance(value, int) else -1 for value in values)
    if not after < first <= last_number:
        first = min(after + 1, last_number)
    return ChunkHead(first, last_number, first_at_ms, last_at_ms, events, size_bytes)


def joined_crc(parts: Iterable[tuple[int, int]]) -> int:
    """`parts`: (CRC-32, length in bytes) of each, in order."""
    crc = 0
    for part_crc, length in parts:
        crc = _times(_power(length), crc) ^ part_crc
    return crc


def _power(length: int) -> int:
    """x^(8 * length)."""
    product = _ONE
    for table in _powers():
        if length & 0xFF:
            product = _times(table[length & 0xFF], product)
        length >>= 8
    return product


def _times(left: int, right: int) -> int:
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return product


@cache  # made at the first page that is read: it takes milliseconds of every start otherwise
def _powers() -> list[list[int]]:
    """For each byte of a length: what it multiplies by, by its value."""
    tables = []
    step = _X_TO_8
    for _ in range(4):
        table = [_ONE]
        for _ in range(255):
            table.append(_times(step, table[-1]))
        tables.append(table)
        step = _times(step, table[-1])
    return tables
