"""Some thousand rows of the journal in packed form, on their way from the server to the writer on the same machine.

Numbers are of the machine's own byte order; everything begins at a multiple of eight bytes.

  4 bytes   "BwJ" and the layout's version, 1
  4 bytes   length of all that follows these eight bytes
  4 bytes   rows
  4 bytes   0
  8 bytes   the hour of all rows, counted from 1970
  then for each column, in the order of `files.COLUMNS`
    8 bytes      number of runs
    8 x runs     their values
    4 x runs     the row that each begins with, filled up to eight bytes
  then two tables of texts: paths of entities, all others
    8 bytes      number of texts
    4 x (n + 1)  where each begins, and where the last ends, filled up
    …            their UTF-8 bytes, filled up

A run holds until the next one's first row. Values are integers: times in milliseconds, operations by their place in
`files.OPERATIONS`, texts by their place in the table, numbers by their distance to the row's place.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from busway.journal.files import COLUMNS

MAGIC: Final = b"BwJ\x01"
#: In the column of numbers: there is none. In columns of texts, and in others that cannot be negative: null.
NO_NUMBER: Final = -(1 << 60)
NO_TEXT: Final = -1
COLUMN_COUNT: Final = len(COLUMNS)
#: What a writer takes at most: far beyond what a recorder seals.
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024

_HEAD: Final = Struct("=4sIIIq")
HEAD_BYTES: Final = 8
_COUNT: Final = Struct("=q")
_ORDER: Final = sys.byteorder

Runs = tuple[Sequence[int], Sequence[int]]


class FrameDamaged(ValueError):
    """The bytes are no frame."""


def packed(
    hour: int, rows: int, columns: Sequence[Runs], paths: Sequence[str], texts: Sequence[str]
) -> bytes:
    """`columns`: for each (first rows, values)."""
    parts: list[bytes] = []
    for starts, values in columns:
        parts.append(_COUNT.pack(len(starts)))
        parts.append(array("q", values).tobytes())
        parts.append(_filled(array("I", starts).tobytes()))
    for table in (paths, texts):
        encoded = [text.encode("utf-8", "replace") for text in table]
        ends = accumulate((len(text) for text in encoded), initial=0)
        parts.append(_COUNT.pack(len(encoded)))
        parts.append(_filled(array("I", ends).tobytes()))
        parts.append(_filled(b"".join(encoded)))
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, _HEAD.size - HEAD_BYTES + len(body), rows, 0, hour) + body


def length_of(head: bytes) -> int:
    """Of the whole frame, by its first HEAD_BYTES bytes. Raises FrameDamaged."""
    length = int.from_bytes(head[4:8], _ORDER) + HEAD_BYTES
    if head[:4] != MAGIC or not _HEAD.size <= length <= FRAME_BYTES_MAX:
        raise FrameDamaged("a frame does not begin as frames do")
    return length


class TextTable(NamedTuple):
    length: int
    #: 4 x (length + 1) bytes.
    ends: memoryview
    data: memoryview


class RunsOfColumn(NamedTuple):
    length: int
    #: 8 bytes each.
    values: memoryview
    #: 4 bytes each.
    starts: memoryview


class Frame:
    """A frame that is read. Raises FrameDamaged."""

    __slots__ = ("columns", "hour", "paths", "rows", "size_bytes", "texts")

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEAD.size or length_of(data[:HEAD_BYTES]) != len(data):
            raise FrameDamaged("a frame is shorter or longer than it says")
        head: tuple[bytes, int, int, int, int] = _HEAD.unpack_from(data)
        self.rows = head[2]
        self.hour = head[4]
        self.size_bytes = len(data)
        reader = _Reader(memoryview(data), _HEAD.size)
        self.columns = [reader.runs() for _ in range(COLUMN_COUNT)]
        self.paths = reader.table()
        self.texts = reader.table()


class _Reader:
    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at

    def runs(self) -> RunsOfColumn:
        count = self._count()
        return RunsOfColumn(count, self._take(8 * count), self._take(4 * count))

    def table(self) -> TextTable:
        count = self._count()
        ends = self._take(4 * (count + 1))
        return TextTable(count, ends, self._take(int.from_bytes(ends[-4:], _ORDER)))

    def _count(self) -> int:
        count = int.from_bytes(self._take(8), _ORDER, signed=True)
        if not 0 <= count <= len(self._data):
            raise FrameDamaged("a count in a frame is impossible")
        return count

    def _take(self, length: int) -> memoryview:
        end = self._at + length
        if end > len(self._data):
            raise FrameDamaged("a frame ends too early")
        taken = self._data[self._at : end]
        self._at = end + -length % 8
        return taken


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
