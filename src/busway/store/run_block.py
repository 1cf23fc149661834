"""Messages that were put together, as one block of bytes. It knows no database.

Theory of operation. Active messages of one commit and one fragment with consecutive numbers become one *run*. Its
block is written once and never changed: which of its messages are gone stands beside it (`RunMarks`). Before the
bodies stand columns of fixed width, so that whoever wants some of the messages reads the head and those bodies:

  4 bytes       "BwR" and the layout's version, 1
  4 bytes       flags: 1 = a column of enqueued times, 2 = a column of expiry times; else one time for all
  4 bytes       count of messages
  4 bytes       count of different values of `more` (see rows.py)
  4 bytes       length of these values in bytes
  8 bytes       key of the first message
  8 bytes       enqueued time of the first, 8 bytes its expiry
  4 x count     where each body ends, counted from the first body
  8 x count     enqueued times, with flag 1 only; 8 x count expiry times, with flag 2 only
  2 x count     which value of `more` a message has, from 1, 0 for none; only when there is a value
  4 x values    where each value ends, counted from the first
  4 bytes       CRC-32 of everything before
  4 x count     CRC-32 of all bodies up to and with this one
  4 x values    CRC-32 of each value of `more`
  ...           the values of `more`, the bodies

All integers are little-endian. With sums that run on, any slice of bodies is proved by one call, which costs half of
one for each message. Where a slice does not fit, its messages are looked at one by one, so that a flipped bit
costs its own message only: a sum that is wrong itself is told by the next one, which fits all the same. A head that
is wrong costs all messages of the block.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from busway.message.message import Message
from busway.store.contract import COUNTER_BITS, COUNTER_MASK, FragmentKey
from busway.store.rows import RawPage, more_of, unpack

MAGIC: Final = b"BwR\x01"
_HAS_ENQUEUED: Final = 1
_HAS_EXPIRES: Final = 2
_FIXED: Final = Struct("<4sIIIIqqq")
FIXED_BYTES: Final = _FIXED.size
_SUM_BYTES: Final = 4
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"

#: A block holds no more than this. Larger ones are not cheaper, and the last message of one keeps all of it.
RUN_MESSAGES_MAX: Final = 4096
RUN_BYTES_MAX: Final = 256 * 1024
#: A message larger than this stands alone: nothing is gained by laying it beside others.
RUN_BODY_BYTES_MAX: Final = 32 * 1024


class RunDamaged(ValueError):
    """The bytes are no head of that run."""


class RunMarks:
    """Which messages of a run are gone, by index."""

    __slots__ = ("_bits", "gone")

    def __init__(self, gone: int = 0, bits: int = 0) -> None:
        #: So many at the beginning, at least.
        self.gone = gone
        #: Others: bit n is the message at `gone` + n.
        self._bits = bits

    def is_gone(self, index: int) -> bool:
        if index < self.gone:
            return True
        return self._bits != 0 and self._bits >> (index - self.gone) & 1 == 1

    def mark(self, start: int, stop: int) -> bool:
        """They go. False when one of them was gone before."""
        if start <= self.gone and self._bits == 0:  # the usual case: in order
            fits = start == self.gone
            self.gone = max(self.gone, stop)
            return fits
        fits = start >= self.gone
        start = max(start, self.gone)
        if stop <= start:
            return False
        mask = ((1 << (stop - start)) - 1) << (start - self.gone)
        fits = fits and self._bits & mask == 0
        bits = self._bits | mask
        prefix = (~bits & (bits + 1)).bit_length() - 1
        self.gone += prefix
        self._bits = bits >> prefix
        return fits

    def next_left(self, index: int, count: int) -> int:
        """The first that is not gone, from an index on; `count` when there is none."""
        index = max(index, self.gone)
        if self._bits != 0:
            bits = self._bits >> (index - self.gone)
            index += (~bits & (bits + 1)).bit_length() - 1
        return min(index, count)

    def has_holes(self) -> bool:
        """Others than those at the beginning are gone."""
        return self._bits != 0

    def is_all(self, count: int) -> bool:
        return self.gone >= count

    def stored(self) -> tuple[int, bytes | None]:
        bits = self._bits
        return self.gone, None if bits == 0 else bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def marks_of(key: int, gone: int, dead: bytes | None, checksum: int) -> RunMarks:
    """As they were stored. Where a bit was flipped it is flipped back; marks that are beyond repair hide nothing:
    messages that come again do less harm than messages that are lost."""
    if marks_checksum(key, gone, dead) == checksum:
        return _marks(gone, dead)
    for bit in range(32):
        if marks_checksum(key, gone, dead) == checksum ^ 1 << bit:
            return _marks(gone, dead)
    for bit in range(63):
        if marks_checksum(key, gone ^ 1 << bit, dead) == checksum:
            return _marks(gone ^ 1 << bit, dead)
    for bit in range(0 if dead is None else min(8 * len(dead), RUN_MESSAGES_MAX)):
        flipped = bytearray(b"" if dead is None else dead)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        if marks_checksum(key, gone, bytes(flipped)) == checksum:
            return _marks(gone, bytes(flipped))
    return RunMarks()


def _marks(gone: int, dead: bytes | None) -> RunMarks:
    return RunMarks(gone, 0 if dead is None else int.from_bytes(dead, "little"))


def marks_checksum(key: int, gone: int, dead: bytes | None) -> int:
    check = bounds_checksum(key, gone)
    return check if dead is None else crc32(dead, check)


def bounds_checksum(key: int, last: int) -> int:
    """Of what stands beside a block."""
    return crc32(key.to_bytes(8, "little", signed=True) + last.to_bytes(8, "little", signed=True))


# -- which puts become runs


class _OpenRun:
    __slots__ = ("messages", "next_number", "size")

    def __init__(self, message: Message, number: int) -> None:
        self.messages = [message]
        self.next_number = number + 1
        self.size = len(message.bare)


class Gathered:
    """The puts of a batch: those that become runs, and the others."""

    __slots__ = ("alone", "late", "runs")

    def __init__(self) -> None:
        #: (fragment, its messages).
        self.runs: list[tuple[FragmentKey, list[Message]]] = []
        self.alone: list[tuple[FragmentKey, int, Message]] = []
        #: Keys of active messages whose number is not higher than one before: they may be there already.
        self.late: list[int] = []


def gathered(
    puts: Sequence[tuple[FragmentKey, int, Message]],
    payload_of: dict[int, int] | None,
    with_sessions: set[FragmentKey],
    messages_min: int,
    last_numbers: dict[int, int],
) -> Gathered:
    """`with_sessions`: fragments whose messages are read by session, one here and one there: these stay rows.
    `last_numbers`: the highest number of each fragment in this batch so far."""
    found = Gathered()
    open_runs: dict[int, _OpenRun] = {}
    run: _OpenRun | None = None
    run_fragment = -1
    for put in puts:
        fragment, place, message = put
        if (
            place != 0
            or len(message.bare) > RUN_BODY_BYTES_MAX
            or fragment in with_sessions
            or (payload_of is not None and id(message.bare) in payload_of)
        ):
            found.alone.append(put)
            continue
        number = message.sequence_number & COUNTER_MASK
        if fragment != run_fragment:
            run = open_runs.get(fragment)
            run_fragment = fragment
        size = len(message.bare)
        if (
            run is not None
            and number == run.next_number
            and run.size + size <= RUN_BYTES_MAX
            and len(run.messages) < RUN_MESSAGES_MAX
        ):
            run.messages.append(message)
            run.next_number = number + 1
            run.size += size
            continue
        if run is not None:
            _close(found, fragment, run, messages_min, last_numbers)
        elif fragment not in last_numbers:
            last_numbers[fragment] = 0
        if number <= last_numbers[fragment]:
            found.late.append(fragment << COUNTER_BITS | number)
            found.alone.append(put)
            run = None
            open_runs.pop(fragment, None)
        else:
            run = open_runs[fragment] = _OpenRun(message, number)
    for run_fragment, left in open_runs.items():
        _close(found, FragmentKey(run_fragment), left, messages_min, last_numbers)
    return found


def _close(
    found: Gathered, fragment: FragmentKey, run: _OpenRun, messages_min: int, last_numbers: dict[int, int]
) -> None:
    last_numbers[fragment] = run.next_number - 1
    if len(run.messages) >= messages_min:
        found.runs.append((fragment, run.messages))
    else:
        found.alone.extend([(fragment, 0, message) for message in run.messages])


# -- the block


def encoded(key: int, messages: list[Message]) -> bytes:
    """The block of messages with consecutive numbers; `key` is that of the first."""
    ends: list[int] = []
    sums: list[int] = []
    parts: list[bytes] = [b""]
    end = check = flags = 0
    enqueued_at_ms, expires_at_ms = messages[0].enqueued_at_ms, messages[0].expires_at_ms
    values: dict[bytes, int] = {}
    value_of: list[int] = []
    for message in messages:
        bare = message.bare
        end += len(bare)
        check = crc32(bare, check)
        ends.append(end)
        sums.append(check)
        parts.append(bare)
        if message.enqueued_at_ms != enqueued_at_ms:
            flags |= _HAS_ENQUEUED
        if message.expires_at_ms != expires_at_ms:
            flags |= _HAS_EXPIRES
        more = more_of(message)
        if more is not None:
            if len(value_of) < len(ends) - 1:
                value_of.extend([0] * (len(ends) - 1 - len(value_of)))
            value_of.append(values.setdefault(more, len(values) + 1))
    more_bytes = sum([len(value) for value in values])
    front = [
        _FIXED.pack(MAGIC, flags, len(ends), len(values), more_bytes, key, enqueued_at_ms, expires_at_ms),
        _column("I", ends),
    ]
    if flags & _HAS_ENQUEUED:
        front.append(_column("q", [message.enqueued_at_ms for message in messages]))
    if flags & _HAS_EXPIRES:
        front.append(_column("q", [message.expires_at_ms for message in messages]))
    if values:
        value_of.extend([0] * (len(ends) - len(value_of)))
        front.append(_column("H", value_of))
        front.append(_column("I", _ends_of(list(values))))
    head = b"".join(front)
    head += crc32(head).to_bytes(_SUM_BYTES, "little") + _column("I", sums)
    if values:
        head += _column("I", [crc32(value) for value in values]) + b"".join(values)
    parts[0] = head
    return b"".join(parts)


def _ends_of(values: list[bytes]) -> list[int]:
    ends = []
    end = 0
    for value in values:
        end += len(value)
        ends.append(end)
    return ends


def _column(kind: str, values: list[int]) -> bytes:
    column = array(kind, values)
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column.tobytes()


def _values(kind: str, data: bytes) -> array[int]:
    column = array(kind)
    column.frombytes(data)
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column


def head_bytes(fixed: bytes) -> int:
    """How long the whole head is, by its first FIXED_BYTES."""
    if len(fixed) < FIXED_BYTES:
        raise RunDamaged("the block is cut short")
    _, flags, count, value_count, more_bytes, _, _, _ = _FIXED.unpack(fixed[:FIXED_BYTES])
    width: int = 4 + (8 if flags & _HAS_ENQUEUED else 0) + (8 if flags & _HAS_EXPIRES else 0)
    width += 2 if value_count else 0
    length: int = width * count + 4 * value_count + _SUM_BYTES + 4 * (count + value_count) + more_bytes
    return FIXED_BYTES + length


class RunHead:
    """A head that is read."""

    __slots__ = (
        "_ends",
        "_enqueued",
        "_enqueued_at_ms",
        "_expires",
        "_expires_at_ms",
        "_more",
        "_more_ends",
        "_more_sums",
        "_sums",
        "_value_of",
        "bytes",
        "count",
        "key",
    )

    def __init__(self, data: bytes, key: int) -> None:
        """Raises RunDamaged when the bytes are not the head of the run with this key."""
        self.bytes = head_bytes(data)
        magic, flags, count, value_count, more_bytes, first_key, enqueued_at_ms, expires_at_ms = (
            _FIXED.unpack(data[:FIXED_BYTES])
        )
        if magic != MAGIC or first_key != key or len(data) < self.bytes:
            raise RunDamaged("the head is that of another block, or none")
        self.key = key
        self.count: int = count
        self._enqueued_at_ms: int = enqueued_at_ms
        self._expires_at_ms: int = expires_at_ms
        at = FIXED_BYTES
        self._ends = _values("I", data[at : at + 4 * count])
        at += 4 * count
        self._enqueued: array[int] | None = None
        self._expires: array[int] | None = None
        self._value_of: array[int] | None = None
        if flags & _HAS_ENQUEUED:
            self._enqueued = _values("q", data[at : at + 8 * count])
            at += 8 * count
        if flags & _HAS_EXPIRES:
            self._expires = _values("q", data[at : at + 8 * count])
            at += 8 * count
        if value_count:
            self._value_of = _values("H", data[at : at + 2 * count])
            at += 2 * count
        self._more_ends = _values("I", data[at : at + 4 * value_count])
        at += 4 * value_count
        if crc32(data[:at]) != int.from_bytes(data[at : at + _SUM_BYTES], "little"):
            raise RunDamaged("the head was changed")
        at += _SUM_BYTES
        self._sums = _values("I", data[at : at + 4 * count])
        at += 4 * count
        self._more_sums = _values("I", data[at : at + 4 * value_count])
        at += 4 * value_count
        self._more = data[at : at + more_bytes]

    def body_start(self, index: int) -> int:
        """Where a body begins, or the bodies end, counted from the first."""
        if index == 0:
            return 0
        end: int = self._ends[index - 1]
        return end

    def size(self, index: int) -> int:
        """About how many bytes a message has in memory."""
        value = self._value(index)
        return self.body_start(index + 1) - self.body_start(index) + (0 if value is None else len(value))

    def stop_for(self, start: int, limit: int, bytes_max: int) -> int:
        """The end of a slice with at least so many messages or so many bytes of bodies; one message at least."""
        stop = min(start + max(limit, 1), self.count)
        if self.body_start(stop) - self.body_start(start) <= bytes_max:
            return stop
        bound = self.body_start(start) + bytes_max
        low, high = start, stop
        while low < high:  # the first body that ends behind the bound
            middle = (low + high) // 2
            if self._ends[middle] > bound:
                high = middle
            else:
                low = middle + 1
        return low + 1

    def _value(self, index: int) -> bytes | None:
        """What `more` of a message is, unproved."""
        if self._value_of is None:
            return None
        value: int = self._value_of[index]
        if value == 0:
            return None
        return self._more[0 if value == 1 else self._more_ends[value - 2] : self._more_ends[value - 1]]

    def slice(self, start: int, stop: int, bodies: bytes) -> RunSlice:
        """`bodies`: those of these messages, in a row."""
        return RunSlice(
            self,
            start,
            bodies,
            self._ends[start:stop].tolist(),
            0 if start == 0 else self._sums[start - 1],
            self._sums[start:stop].tolist(),
        )

    def has_good_more(self, value: int, more: bytes) -> bool:
        return crc32(more) == self._more_sums[value - 1]


class RunSlice:
    """Some messages of a run, with their bodies."""

    __slots__ = (
        "_base",
        "_bodies",
        "_damaged",
        "_ends",
        "_good_value",
        "_head",
        "_low",
        "_start",
        "is_damaged",
    )

    def __init__(
        self,
        head: RunHead,
        start: int,
        bodies: bytes,
        ends: list[int],
        before: int,
        sums: list[int],
    ) -> None:
        self._head = head
        self._start = start
        self._bodies = bodies
        self._ends = ends
        self._base = head.body_start(start)
        self._low = head.key & COUNTER_MASK
        #: A value of `more` that was proved.
        self._good_value = 0
        self._damaged: set[int] | None = None
        #: Which messages are damaged is told for sure by a slice that is the whole run: here a sum before it may be.
        self.is_damaged = False
        is_whole = len(bodies) == (ends[-1] - self._base if ends else 0)
        if sums and (not is_whole or crc32(bodies, before) != sums[-1]):
            self._damaged = self._look_closer(before, sums)
            self.is_damaged = True

    def _look_closer(self, before: int, sums: list[int]) -> set[int]:
        """Those that are damaged, one by one."""
        damaged = set()
        check = before
        for index in range(len(sums)):
            found = crc32(self._body(index), check)
            if found == sums[index]:
                check = found
            elif index + 1 < len(sums) and crc32(self._body(index + 1), found) == sums[index + 1]:
                check = found  # the body is right, its sum is not
            else:
                damaged.add(index)
                check = sums[index]
        return damaged

    def _body(self, index: int) -> bytes:
        start = self._base if index == 0 else self._ends[index - 1]
        return self._bodies[start - self._base : self._ends[index] - self._base]

    def number(self, index: int) -> int:
        return self._low + index

    def message(self, index: int) -> Message | None:
        """None when it is damaged. `index` counts from the first of the run."""
        at = index - self._start
        if self._damaged is not None and at in self._damaged:
            return None
        head = self._head
        message = Message(b"", self._body(at))
        value_of = head._value_of
        if value_of is not None:
            value: int = value_of[index]
            if value != 0:
                more = head._value(index)
                assert more is not None
                if value != self._good_value:
                    if not head.has_good_more(value, more):
                        return None
                    self._good_value = value
                try:
                    unpack(message, more)
                except (ValueError, IndexError):
                    return None
        message.sequence_number = self._low + index
        enqueued, expires = head._enqueued, head._expires
        message.enqueued_at_ms = head._enqueued_at_ms if enqueued is None else enqueued[index]
        message.expires_at_ms = head._expires_at_ms if expires is None else expires[index]
        return message


def take_slice(page: RawPage, part: RunSlice, start: int, stop: int, marks: RunMarks) -> bool:
    """Messages of a slice, as far as they are not gone. False when one does not fit any more."""
    all_left = marks.next_left(start, stop) == start and not marks.has_holes()
    for index in range(start, stop):
        if not all_left and marks.is_gone(index):
            continue
        if not page.take_message(part.message(index), part.number(index), 0):
            return False
    return True
