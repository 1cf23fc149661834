"""The CRC-32 that several runs of bytes have together, from what each has alone.

A thread that takes a CRC lets the interpreter go meanwhile and must wait until it gets it back, behind a busy event
loop each time. So a page of chunks is proven by one pass over all of its bytes, against this.

A CRC is a polynomial over GF(2), here with its bits in reverse: the highest bit is the coefficient of 1. Putting n
bytes behind a run multiplies its CRC by x^(8 n), modulo the polynomial of CRC-32.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
_X_TO_8: Final = 1 << 23


def joined_crc(parts: Iterable[tuple[int, int]]) -> int:
    """`parts`: (CRC-32, length in bytes) of each, in order."""
    crc = 0
    for part_crc, length in parts:
        crc = _times(_power(length), crc) ^ part_crc
    return crc


def _power(length: int) -> int:
    """x^(8 * length)."""
    product = _ONE
    for table in _POWERS:
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


_POWERS: Final = _powers()
