"""Which partition a key belongs to (H-10).

Clients choose the partition themselves when they gather events before sending, so ours must be the one that they
choose: Jenkins' lookup3 over the key in UTF-8 with two zero seeds, both results laid over each other, the low 16 bits
as a signed number, its remainder as C takes it, without its sign.
"""

from __future__ import annotations

from typing import Final, NewType

from busway.amqp.byte_writer import i64, read_i32_le

_SEED: Final = 0xDEADBEEF
_MASK: Final = 0xFFFFFFFF
_BLOCK_BYTES: Final = 12
_BLOCK: Final = bytes(12)

#: Where a partition stands in its hub. Not the number of an event, and not the index of a fragment.
PartitionIndex = NewType("PartitionIndex", int)


def partition_of_key(key: str, partition_count: int) -> PartitionIndex:
    """An empty key belongs to the first partition."""
    # A lone surrogate has no bytes; no client can send one.
    data = key.encode("utf-8", "replace")
    if not data:
        return PartitionIndex(0)
    b, c = _lookup3(data)
    low = (b ^ c) & 0xFFFF
    size = low if low < 0x8000 else 0x10000 - low
    return PartitionIndex(size % partition_count)


def _lookup3(data: bytes) -> tuple[i64, i64]:
    """The second and the third word."""
    size: i64 = len(data)
    a: i64 = (_SEED + size) & _MASK
    b: i64 = a
    c: i64 = a
    at: i64 = 0
    while size - at > _BLOCK_BYTES:
        a = (a + i64(read_i32_le(data, at))) & _MASK
        b = (b + i64(read_i32_le(data, at + 4))) & _MASK
        c = (c + i64(read_i32_le(data, at + 8))) & _MASK
        a, b, c = _mixed(a, b, c)
        at += _BLOCK_BYTES
    # What is missing in the last block counts as zeros.
    rest = data[at:] + _BLOCK
    a = (a + i64(read_i32_le(rest, 0))) & _MASK
    b = (b + i64(read_i32_le(rest, 4))) & _MASK
    c = (c + i64(read_i32_le(rest, 8))) & _MASK
    return _final(a, b, c)


def _rotated(word: i64, bits: i64) -> i64:
    return ((word << bits) | (word >> (32 - bits))) & _MASK


def _mixed(a: i64, b: i64, c: i64) -> tuple[i64, i64, i64]:
    a = ((a - c) & _MASK) ^ _rotated(c, 4)
    c = (c + b) & _MASK
    b = ((b - a) & _MASK) ^ _rotated(a, 6)
    a = (a + c) & _MASK
    c = ((c - b) & _MASK) ^ _rotated(b, 8)
    b = (b + a) & _MASK
    a = ((a - c) & _MASK) ^ _rotated(c, 16)
    c = (c + b) & _MASK
    b = ((b - a) & _MASK) ^ _rotated(a, 19)
    a = (a + c) & _MASK
    c = ((c - b) & _MASK) ^ _rotated(b, 4)
    b = (b + a) & _MASK
    return a, b, c


def _final(a: i64, b: i64, c: i64) -> tuple[i64, i64]:
    c = ((c ^ b) - _rotated(b, 14)) & _MASK
    a = ((a ^ c) - _rotated(c, 11)) & _MASK
    b = ((b ^ a) - _rotated(a, 25)) & _MASK
    c = ((c ^ b) - _rotated(b, 16)) & _MASK
    a = ((a ^ c) - _rotated(c, 4)) & _MASK
    b = ((b ^ a) - _rotated(a, 14)) & _MASK
    c = ((c ^ b) - _rotated(b, 24)) & _MASK
    return b, c
