"""A run of events of one partition, in the form in which it is stored, sent to tools and read back.

Theory of operation. Events that join one commit batch for one partition become one chunk. Each event is a *record*:
the whole AMQP message as readers will get it, its number and time already inside (`event_record`), so reading is
cutting bytes out and nothing else. Before the records stand columns of fixed width, little-endian, so that whoever
reads a chunk with array tools touches no single event:

  4 bytes       "BwC" and the layout's version, 1
  4 bytes       flags: 1 = the chunk has a column of numbers (events between were compacted away)
  4 bytes       count of events
  4 bytes       length of the records in bytes
  8 bytes       number of the first event
  4 x count     where each record ends, counted from the first record
  4 x count     where each event's body begins, counted likewise, when the body is one data section and the record
                ends with it; else 0xFFFFFFFF
  8 x count     enqueued times in milliseconds
  8 x count     numbers, with flag 1 only; else an event's number is the first number plus its index
  …             the records

All of it is covered by one checksum, which the store keeps beside it.

A chunk can be handed on without what a reader does not want. Whoever counts events, or looks for them by number, time
or property, need not fetch what they say. The form stays the same, so a reader takes all of them in the same way:

  heads     each record ends before its data section, and its body is said to begin there: it is empty. A body that is
            no single data section stays, and is to be looked for as before
  numbers   every record is empty: what is left are the columns of numbers and times
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import Final

from busway.amqp.byte_writer import BytesWriter, i32, i64, write_i32_le, write_i64_le

MAGIC: Final = b"BwC\x01"
HAS_NUMBERS: Final = 1
#: The body is no single data section at the record's end: it must be looked for.
BODY_ELSEWHERE: Final = 0xFFFFFFFF

_HEAD: Final = Struct("<4sIIIq")
HEAD_BYTES: Final = _HEAD.size
#: Columns of one event, without its number.
_COLUMN_BYTES: Final = 4 + 4 + 8
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"
ALL: Final = "all"
HEADS: Final = "heads"
NUMBERS: Final = "numbers"
PARTS: Final = (ALL, HEADS, NUMBERS)
#: A data section before its content, with a size of one byte and of four.
_SHORT: Final = b"\x00\x53\x75\xa0"
_LONG: Final = b"\x00\x53\x75\xb0"


class ChunkDamaged(ValueError):
    """The bytes are no chunk: they were written by something else, or cut."""


class ChunkBuilder:
    """A chunk that is gathering. Events come with growing numbers."""

    __slots__ = (
        "_bodies",
        "_data",
        "_ends",
        "_is_gapless",
        "_numbers",
        "_pieces",
        "_times",
        "count",
        "first_at_ms",
        "first_number",
        "last_at_ms",
        "last_number",
        "record_bytes",
    )

    def __init__(self) -> None:
        #: The records in one or two pieces each.
        self._pieces: list[bytes] = []
        self._ends = BytesWriter()
        self._bodies = BytesWriter()
        self._times = BytesWriter()
        self._numbers = BytesWriter()  # only once there is a gap
        self._is_gapless = True
        #: What `data` has made of it, until more is added.
        self._data: bytes | None = None
        self.count = 0
        self.record_bytes = 0
        self.first_number = -1
        self.last_number = -1
        self.first_at_ms = 0
        self.last_at_ms = 0

    def add(self, number: int, at_ms: int, record: bytes, body_at: int) -> None:
        """`body_at`: offset of the body's content in the record, or BODY_ELSEWHERE."""
        self._note(number, at_ms, len(record), body_at)
        self._pieces.append(record)

    def add_event(self, number: int, at_ms: int, front: bytes, bare: bytes, body_at: int) -> None:
        """A record in two pieces. `body_at`: offset of the body's content in the second one, or BODY_ELSEWHERE."""
        front_bytes = len(front)
        in_record = body_at if body_at == BODY_ELSEWHERE else front_bytes + body_at
        self._note(number, at_ms, front_bytes + len(bare), in_record)
        self._pieces.append(front)
        self._pieces.append(bare)

    def _note(self, number: i64, at_ms: i64, record_bytes: i64, body_at: i64) -> None:
        if self.count == 0:
            self.first_number = number
            self.first_at_ms = at_ms
        elif number != self.last_number + 1 and self._is_gapless:
            self._is_gapless = False
            for before in range(self.first_number, self.last_number + 1):
                write_i64_le(self._numbers, before)
        start: i64 = self.record_bytes
        end = start + record_bytes
        write_i32_le(self._ends, i32(end))
        write_i32_le(self._bodies, i32(body_at if body_at == BODY_ELSEWHERE else start + body_at))
        write_i64_le(self._times, at_ms)
        if not self._is_gapless:
            write_i64_le(self._numbers, number)
        self._data = None
        self.count += 1
        self.record_bytes = end
        self.last_number = number
        self.last_at_ms = at_ms

    def data(self) -> bytes:
        """The chunk as it stands now."""
        data = self._data
        if data is None:
            flags = 0 if self._is_gapless else HAS_NUMBERS
            head = _HEAD.pack(MAGIC, flags, self.count, self.record_bytes, self.first_number)
            columns = [self._ends, self._bodies, self._times, self._numbers]
            data = b"".join([head, *[column.getvalue() for column in columns], *self._pieces])
            self._data = data
        return data

    def size_bytes(self) -> int:
        per_event = _COLUMN_BYTES if self._is_gapless else _COLUMN_BYTES + 8
        return HEAD_BYTES + per_event * self.count + self.record_bytes


def whole_chunk(data: bytes, count: int, numbers: tuple[int, int], times_ms: tuple[int, int]) -> ChunkBuilder:
    """One that was gathered before, as a store has it: nothing is added any more. `numbers` and `times_ms`: of its
    first and its last event."""
    chunk = ChunkBuilder()
    chunk._data = data
    chunk.count = count
    chunk.first_number, chunk.last_number = numbers
    chunk.first_at_ms, chunk.last_at_ms = times_ms
    return chunk


class Chunk:
    """A chunk that is read. Raises ChunkDamaged when the bytes do not fit together."""

    __slots__ = (
        "_bodies",
        "_ends",
        "_numbers",
        "_times",
        "count",
        "data",
        "first_number",
        "last_number",
        "records_at",
    )

    def __init__(self, data: bytes) -> None:
        if len(data) < HEAD_BYTES:
            raise ChunkDamaged("a chunk is shorter than its head")
        head: tuple[bytes, int, int, int, int] = _HEAD.unpack_from(data)
        magic, flags, count, record_bytes, first_number = head
        width = _COLUMN_BYTES + 8 if flags & HAS_NUMBERS else _COLUMN_BYTES
        records_at = HEAD_BYTES + width * count
        if magic != MAGIC or flags & ~HAS_NUMBERS or count == 0 or records_at + record_bytes != len(data):
            raise ChunkDamaged("the head of a chunk does not fit its length")
        self.data = data
        self.count = count
        self.first_number = first_number
        self.records_at = records_at
        at = HEAD_BYTES
        self._ends = _column("I", data, at, count)
        self._bodies = _column("I", data, at + 4 * count, count)
        self._times = _column("q", data, at + 8 * count, count)
        self._numbers: array[int] | None = None
        if flags & HAS_NUMBERS:
            self._numbers = _column("q", data, at + 16 * count, count)
            _check_numbers(self._numbers, first_number)
        self.last_number = self.number(count - 1)
        _check_ends(self._ends, record_bytes)

    def number(self, index: int) -> int:
        return self.first_number + index if self._numbers is None else self._numbers[index]

    def at_ms(self, index: int) -> int:
        return self._times[index]

    def start(self, index: int) -> int:
        """Offset of a record in `data`; also of the end, for `count`."""
        return self.records_at if index == 0 else self.records_at + self._ends[index - 1]

    def end(self, index: int) -> int:
        return self.records_at + self._ends[index]

    def record(self, index: int) -> bytes:
        return self.data[self.start(index) : self.end(index)]

    def body_at(self, index: int) -> int:
        """Offset of the body's content in `data`; -1 when the record must be taken apart. It ends with the record."""
        at = self._bodies[index]
        if at == BODY_ELSEWHERE:
            return -1
        at += self.records_at
        if not self.start(index) <= at <= self.end(index):
            raise ChunkDamaged("a body of a chunk lies outside of its record")
        return at

    def body_in_record(self, index: int) -> int:
        """As `ChunkBuilder.add` wants it."""
        at = self.body_at(index)
        return BODY_ELSEWHERE if at < 0 else at - self.start(index)

    def index_of(self, number: int) -> int:
        """The first event with this number or a later one; `count` when there is none."""
        if self._numbers is not None:
            return bisect_left(self._numbers, number)
        return min(max(number - self.first_number, 0), self.count)

    def index_ending(self, offset: int) -> int:
        """The first event whose record ends at that offset in `data` or later; `count` when there is none."""
        return bisect_left(self._ends, offset - self.records_at)

    def index_since(self, at_ms: int) -> int:
        """The first event enqueued at that time or later; `count` when there is none."""
        return bisect_left(self._times, at_ms)


def _check_ends(ends: array[int], record_bytes: int) -> None:
    """Whoever cuts records out relies on their order."""
    last = 0
    for end in ends:
        if end < last:
            raise ChunkDamaged("the records of a chunk overlap")
        last = end
    if last != record_bytes:
        raise ChunkDamaged("the last record of a chunk does not end with it")


def _check_numbers(numbers: array[int], first_number: int) -> None:
    last = first_number - 1
    for number in numbers:
        if number <= last:
            raise ChunkDamaged("the numbers of a chunk do not grow")
        last = number
    if numbers[0] != first_number:
        raise ChunkDamaged("the numbers of a chunk do not begin with its first")


def span(data: bytes) -> tuple[int, int]:
    """First and last number of a chunk whose checksum fits, without a look at its columns."""
    head: tuple[bytes, int, int, int, int] = _HEAD.unpack_from(data)
    _, flags, count, _, first_number = head
    if not flags & HAS_NUMBERS:
        return first_number, first_number + count - 1
    last_at = HEAD_BYTES + _COLUMN_BYTES * count + 8 * (count - 1)
    return first_number, int.from_bytes(data[last_at : last_at + 8], "little")


def _column(code: str, data: bytes, at: int, count: int) -> array[int]:
    column = array(code)
    column.frombytes(data[at : at + column.itemsize * count])
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column


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
