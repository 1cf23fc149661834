"""Many sequence numbers as a short text, for offsets.

Theory of operation. Ascending numbers are told by their gaps. A gap has eight bytes, of which the upper ones are
mostly zero: so all lowest bytes come first, then all second ones, and so on, and the whole is deflated. Twenty
thousand numbers with gaps of some ten thousands come to two bytes each. The text is base 85, which JSON need not
escape.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

import numpy as np

#: Numbers of one claim: what a server gives at most, and one session more.
COUNT_MAX: Final = 101_000
_WIDTH: Final = 8


def packed(numbers: list[int]) -> str:
    """They ascend."""
    gaps = np.diff(np.array(numbers, np.int64), prepend=0).astype("<u8")
    planes = gaps.view(np.uint8).reshape(-1, _WIDTH).T
    return base64.b85encode(zlib.compress(planes.tobytes(), 9)).decode()


def unpacked(text: str) -> list[int]:
    """Raises ValueError for what `packed` has not made."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b85decode(text), COUNT_MAX * _WIDTH + 1)
    except zlib.error as error:
        raise ValueError("the numbers cannot be unpacked") from error
    if not unpacking.eof or not data or len(data) % _WIDTH or len(data) > COUNT_MAX * _WIDTH:
        raise ValueError("the numbers are cut off, or too many")
    planes = np.frombuffer(data, np.uint8).reshape(_WIDTH, -1)
    gaps = np.ascontiguousarray(planes.T).view("<u8").reshape(-1).astype(np.int64)
    if bool((gaps[1:] < 1).any()) or int(gaps[0]) < 0:
        raise ValueError("the numbers do not ascend")
    numbers = np.cumsum(gaps)
    if bool((np.diff(numbers) < 1).any()):
        raise ValueError("the numbers do not ascend")
    found: list[int] = numbers.tolist()
    return found
