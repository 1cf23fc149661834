"""Stored chunks without what a reader does not want: their bodies, or their records altogether.

Whoever counts events, or looks for them by number, time or property, need not fetch what they say. The form stays
that of `event_chunk`, so a reader takes all of them in the same way:

  heads     each record ends before its data section, and its body is said to begin there: it is empty. A body that is
            no single data section stays, and is to be looked for as before
  numbers   every record is empty: what is left are the columns of numbers and times
"""

from __future__ import annotations

from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import Final

from busway.message.event_chunk import BODY_ELSEWHERE, HAS_NUMBERS, HEAD_BYTES, MAGIC, ChunkDamaged

ALL: Final = "all"
HEADS: Final = "heads"
NUMBERS: Final = "numbers"
PARTS: Final = (ALL, HEADS, NUMBERS)

_HEAD: Final = Struct("<4sIIIq")
#: A data section before its content, with a size of one byte and of four.
_SHORT: Final = b"\x00\x53\x75\xa0"
_LONG: Final = b"\x00\x53\x75\xb0"


def heads_of(chunk: bytes) -> bytes:
    """Raises ChunkDamaged. For all events in a few passes: it is done between the turns of others."""
    flags, count, first_number, records = _taken_apart(chunk)
    columns = unpack_from(f"<{2 * count}I", chunk, HEAD_BYTES)
    ends, bodies = columns[:count], columns[count:]
    starts = (0, *ends[:-1])
    cuts = [
        end
        if body == BODY_ELSEWHERE
        else body - 5
        if chunk[records + body - 5 : records + body - 1] == _SHORT
        else body - 8
        if chunk[records + body - 8 : records + body - 4] == _LONG
        else end
        for body, end in zip(bodies, ends, strict=True)
    ]
    kept = [chunk[records + start : records + cut] for start, cut in zip(starts, cuts, strict=True)]
    new_ends = list(accumulate(map(len, kept)))
    new_bodies = [
        BODY_ELSEWHERE if cut == end else new for cut, end, new in zip(cuts, ends, new_ends, strict=True)
    ]
    size = new_ends[-1] if new_ends else 0
    head = _HEAD.pack(MAGIC, flags, count, size, first_number)
    rest = chunk[HEAD_BYTES + 8 * count : records]
    return b"".join([head, pack(f"<{2 * count}I", *new_ends, *new_bodies), rest, *kept])


def numbers_of(chunk: bytes) -> bytes:
    """Raises ChunkDamaged."""
    flags, count, first_number, records = _taken_apart(chunk)
    head = _HEAD.pack(MAGIC, flags, count, 0, first_number)
    return head + bytes(8 * count) + chunk[HEAD_BYTES + 8 * count : records]


def _taken_apart(chunk: bytes) -> tuple[int, int, int, int]:
    """Flags, count, first number, and where the records begin."""
    if len(chunk) < HEAD_BYTES:
        raise ChunkDamaged("a chunk is shorter than its head")
    _, flags, count, _, first_number = _HEAD.unpack_from(chunk)
    return flags, count, first_number, HEAD_BYTES + (24 if flags & HAS_NUMBERS else 16) * count
