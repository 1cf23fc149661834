"""What a peer's bytes say: the stream cut into frames, values read out of them, all of it under limits.

A frame:   size (4 bytes, the whole frame) | doff (1, header length in words) | type (1) | channel (2) | body
A header:  "AMQP" | protocol id (0 AMQP, 3 SASL) | 1 | 0 | 0

`FrameBuffer` keeps what one read left unfinished. It never copies complete frames: a read that holds whole frames
is cut in place, and only the unfinished rest at its end is kept. A declared size is compared with the cap of the
moment before a single byte is waited for, and nothing is ever allocated from it, so a peer pays for every byte it
makes us hold. `frame` and `sasl_frame` put frames together.

Values: everything that a peer may declare has a limit. A reader walks forward through `data` and never beyond
`end`; a compound value narrows `end` to its own extent while its elements are read. A declared size is only ever
compared with what is there, a declared count with the budget, so the memory used stays in proportion to the bytes
received. Depth is counted, so the recursion is bounded. Whatever the bytes are, the only exception is DecodeError.

`skip_value` finds where a value ends without building it; it is the foundation of `sections`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final
from uuid import UUID

from busway.amqp.byte_writer import i64, read_i32_be
from busway.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_BYTES: Final = 8

FRAME_TYPE_AMQP: Final = 0
FRAME_TYPE_SASL: Final = 1

#: size, doff, type, channel. The channel's two bytes mean nothing in a SASL frame.
FRAME_HEAD: Final = Struct(">IBBH")
FRAME_HEAD_BYTES: Final = 8

#: The smallest max-frame-size the standard allows a peer to announce [2.7.1], and the cap of SASL frames [5.3.1].
MIN_MAX_FRAME_BYTES: Final = 512
SASL_FRAME_BYTES_MAX: Final = 512
#: The cap until the peer's open has been read. Big enough for the longest open an SDK writes, small for strangers.
OPEN_FRAME_BYTES_MAX: Final = 8_192

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def frame(channel: int, body: bytes) -> bytes:
    """An AMQP frame around an encoded performative."""
    return FRAME_HEAD.pack(FRAME_HEAD_BYTES + len(body), 2, FRAME_TYPE_AMQP, channel) + body


def sasl_frame(body: bytes) -> bytes:
    return FRAME_HEAD.pack(FRAME_HEAD_BYTES + len(body), 2, FRAME_TYPE_SASL, 0) + body


def head_fault(size: int, doff: int, frame_bytes_max: int) -> str | None:
    """What is wrong with a frame head, as a sentence; None when it is sound."""
    if size > frame_bytes_max:
        return f"A frame of {size} bytes exceeds the allowed {frame_bytes_max} bytes."
    if size < FRAME_HEAD_BYTES:
        return f"A frame cannot be {size} bytes long."
    if doff < 2 or doff * 4 > size:
        return f"The data offset {doff} does not fit a frame of {size} bytes."
    return None


class FrameBuffer:
    """The unfinished end of the last read.

    `join` gives the bytes to cut next, or nothing while the frame at the front is known to be unfinished: then the
    new bytes are only appended, so a frame that trickles in byte by byte costs linear, not quadratic, work.
    """

    __slots__ = ("_needed", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        #: Bytes that `_rest` must reach before looking at it makes sense.
        self._needed = 0

    def join(self, data: bytes) -> bytes:
        rest = self._rest
        if not rest:
            return data
        if len(rest) + len(data) < self._needed:
            rest += data
            return b""
        self._rest = bytearray()
        return b"".join((rest, data))

    def keep(self, data: bytes, offset: int, needed: int) -> None:
        """Hold `data[offset:]`, which begins a frame (or header) of `needed` bytes."""
        self._rest = bytearray(data[offset:]) if offset else bytearray(data)
        self._needed = needed

    def wake(self) -> None:
        """What was kept may be looked at again, however little it is."""
        self._needed = 0

    def clear(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        return len(self._rest)


#: The same two limits as the official Python client, and one on their sum, because many small bombs are one too.
DEPTH_MAX: Final = 64
COUNT_MAX: Final = 65_536
ELEMENTS_MAX: Final = 65_536
#: Map keys whose hashes a stranger can choose (numbers, uuids): so few that colliding ones cannot burn time.
NUMERIC_KEYS_MAX: Final = 256

_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")

#: Constructors of integers: (type, width in bytes, signed). The types are written as Callable, because compiled code
#: keeps only the number of what it knows to be an int.
_INTEGERS: Final[dict[int, tuple[Callable[[int], object], int, bool]]] = {
    0x50: (UByte, 1, False),
    0x51: (Byte, 1, True),
    0x52: (UInt, 1, False),
    0x53: (ULong, 1, False),
    0x54: (Int, 1, True),
    0x55: (Long, 1, True),
    0x60: (UShort, 2, False),
    0x61: (Short, 2, True),
    0x70: (UInt, 4, False),
    0x71: (Int, 4, True),
    0x80: (ULong, 8, False),
    0x81: (Long, 8, True),
    0x83: (Timestamp, 8, True),
}
_CONSTANTS: Final[dict[int, object]] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}

_DECIMAL_WIDTHS: Final[dict[int, int]] = {0x74: 4, 0x84: 8, 0x94: 16}


class DecodeError(ValueError):
    """These bytes are not what AMQP allows, or more than we allow."""


class ElementBudget:
    """What one frame may still contain. Shared by all values of a frame, so that their sum is limited as well."""

    __slots__ = ("count_max", "depth_max", "elements_left", "numeric_keys_left")

    def __init__(
        self, depth_max: int = DEPTH_MAX, count_max: int = COUNT_MAX, elements_max: int = ELEMENTS_MAX
    ) -> None:
        self.depth_max = depth_max
        self.count_max = count_max
        self.elements_left = elements_max
        self.numeric_keys_left = NUMERIC_KEYS_MAX


def decode_value(
    data: bytes, offset: int = 0, end: int | None = None, budget: ElementBudget | None = None
) -> tuple[object, int]:
    """The value at `offset`, and the offset behind it."""
    reader = _Reader(
        data, offset, len(data) if end is None else end, ElementBudget() if budget is None else budget
    )
    return reader.value(0), reader.at


class _Reader:
    __slots__ = ("at", "budget", "data", "end")

    def __init__(self, data: bytes, at: int, end: int, budget: ElementBudget) -> None:
        if not 0 <= at <= end <= len(data):
            raise DecodeError(f"The range {at}…{end} lies outside of the {len(data)} bytes")
        self.data = data
        self.at = at
        self.end = end
        self.budget = budget

    def take(self, width: int) -> bytes:
        start = self.at
        stop = start + width
        if stop > self.end:
            raise DecodeError(f"A value at offset {start} needs {width} bytes, {self.end - start} are left")
        self.at = stop
        return self.data[start:stop]

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def value(self, depth: int) -> object:
        code = self.unsigned(1)
        if code != 0:
            return self.payload(code, depth)
        self._spend(1)
        depth = self._deeper(depth)
        descriptor = self.value(depth)
        return Described(descriptor, self.value(depth))

    def payload(self, code: int, depth: int) -> object:
        """The value behind a constructor that has been read already."""
        self._spend(1)
        integer = _INTEGERS.get(code)
        if integer is not None:
            return integer[0](int.from_bytes(self.take(integer[1]), "big", signed=integer[2]))
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        group = code & 0xF0
        if group == 0xA0:
            return self._variable(code, self.take(self.unsigned(1)))
        if group == 0xB0:
            return self._variable(code, self.take(self.unsigned(4)))
        if group >= 0xC0:
            return self._compound(code, self._deeper(depth))
        return self._fixed(code)

    def _fixed(self, code: int) -> object:
        if code == 0x45:
            return []
        if code == 0x56:
            return self._boolean()
        if code == 0x72:
            return Float(_FLOAT.unpack(self.take(4))[0])
        if code == 0x73:
            return self._char()
        if code == 0x82:
            return _DOUBLE.unpack(self.take(8))[0]
        if code == 0x98:
            return UUID(bytes=self.take(16))
        width = _DECIMAL_WIDTHS.get(code)
        if width is None:
            raise DecodeError(f"Unknown constructor {code:#04x} before offset {self.at}")
        return Decimal(self.take(width))

    def _boolean(self) -> bool:
        number = self.unsigned(1)
        if number > 1:
            raise DecodeError(f"A boolean is {number}")
        return number == 1

    def _char(self) -> Char:
        number = self.unsigned(4)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise DecodeError(f"{number:#x} is no Unicode character")
        return Char(chr(number))

    def _variable(self, code: int, raw: bytes) -> object:
        kind = code & 0x0F
        if kind == 0:
            return raw
        try:
            if kind == 1:
                return raw.decode("utf-8")
            if kind == 3:
                return Symbol(raw.decode("ascii"))
        except UnicodeDecodeError:
            raise DecodeError(f"A text before offset {self.at} is not in its encoding") from None
        raise DecodeError(f"Unknown constructor {code:#04x} before offset {self.at}")

    def _compound(self, code: int, depth: int) -> object:
        if code not in _COMPOUNDS:
            raise DecodeError(f"Unknown constructor {code:#04x} before offset {self.at}")
        width = 1 if code in _COMPOUNDS_OF_ONE_BYTE else 4
        outer_end = self.end
        size = self.unsigned(width)
        if size > outer_end - self.at:
            raise DecodeError(f"A compound value declares {size} bytes, {outer_end - self.at} are left")
        self.end = self.at + size
        count = self.unsigned(width)
        if count > self.budget.count_max:
            raise DecodeError(f"A compound value declares {count} elements")
        value = self._elements(code & 0x0F if code < 0xE0 else 2, count, depth)
        if self.at != self.end:
            raise DecodeError(f"{self.end - self.at} bytes are left over at the end of a compound value")
        self.end = outer_end
        return value

    def _elements(self, kind: int, count: int, depth: int) -> object:
        if kind == 2:
            return self._array(count, depth)
        if count > self.end - self.at:
            raise DecodeError(f"A compound value declares {count} elements in {self.end - self.at} bytes")
        if kind == 0:
            return [self.value(depth) for _ in range(count)]
        return self._map(count, depth)

    def _map(self, count: int, depth: int) -> dict[object, object]:
        if count % 2:
            raise DecodeError("A map has a key without a value")
        found: dict[object, object] = {}
        for _ in range(count // 2):
            key = self.value(depth)
            self._check_key(key)
            if key in found:
                raise DecodeError("A map holds a key twice")
            found[key] = self.value(depth)
        return found

    def _check_key(self, key: object) -> None:
        if isinstance(key, (str, bytes)):
            return
        if isinstance(key, (list, dict, Described, Array)):
            raise DecodeError("A compound or described value is a key of a map")
        self.budget.numeric_keys_left -= 1
        if self.budget.numeric_keys_left < 0:
            raise DecodeError(f"More than {NUMERIC_KEYS_MAX} keys of maps are no texts")

    def _array(self, count: int, depth: int) -> Array:
        if count > self.budget.elements_left:
            raise DecodeError("The frame holds too many values")
        descriptors: list[object] = []
        code = self.unsigned(1)
        while code == 0:
            depth = self._deeper(depth)
            descriptors.append(self.value(depth))
            code = self.unsigned(1)
        if count == 0 and SKIP_WIDTHS[code] == INVALID_WIDTH:
            raise DecodeError(f"Unknown constructor {code:#04x} before offset {self.at}")
        return Array([self.payload(code, depth) for _ in range(count)], code, tuple(descriptors))

    def _spend(self, elements: int) -> None:
        self.budget.elements_left -= elements
        if self.budget.elements_left < 0:
            raise DecodeError("The frame holds too many values")

    def _deeper(self, depth: int) -> int:
        if depth >= self.budget.depth_max:
            raise DecodeError(f"Values are nested deeper than {self.budget.depth_max}")
        return depth + 1


_COMPOUNDS: Final = frozenset((0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))
_COMPOUNDS_OF_ONE_BYTE: Final = frozenset((0xC0, 0xC1, 0xE0))

INVALID_WIDTH: Final = 255
SIZE_OF_ONE_BYTE: Final = 254
SIZE_OF_FOUR_BYTES: Final = 253
DESCRIBED: Final = 252


def _skip_widths() -> bytes:
    """For each constructor how many bytes follow it, or one of the marks above."""
    widths = bytearray([INVALID_WIDTH] * 256)
    groups = (
        (0, (0x40, 0x41, 0x42, 0x43, 0x44, 0x45)),
        (1, (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56)),
        (2, (0x60, 0x61)),
        (4, (0x70, 0x71, 0x72, 0x73, 0x74)),
        (8, (0x80, 0x81, 0x82, 0x83, 0x84)),
        (16, (0x94, 0x98)),
        (SIZE_OF_ONE_BYTE, (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0)),
        (SIZE_OF_FOUR_BYTES, (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0)),
        (DESCRIBED, (0x00,)),
    )
    for width, codes in groups:
        for code in codes:
            widths[code] = width
    return bytes(widths)


SKIP_WIDTHS: Final = _skip_widths()


def skip_value(data: bytes, offset: int, end: int) -> int:
    """The offset behind the value at `offset`. Looks at constructors and sizes only, and never past `end`."""
    at: i64 = offset
    stop: i64 = end
    pending: i64 = 1
    while pending:
        if at >= stop:
            raise DecodeError(f"The value at offset {offset} is cut off")
        width: i64 = SKIP_WIDTHS[data[at]]
        at += 1
        if width < DESCRIBED:
            at += width
        elif width == SIZE_OF_ONE_BYTE and at < stop:
            at += 1 + data[at]
        elif width == SIZE_OF_FOUR_BYTES:
            # Beyond the end when even the size is cut off.
            at += 4 + (i64(read_i32_be(data, at)) & 0xFFFF_FFFF if at + 4 <= stop else 0)
        elif width == DESCRIBED:
            pending += 2
        else:
            raise DecodeError(f"Unknown or cut-off constructor {data[at - 1]:#04x} at offset {at - 1}")
        pending -= 1
    if at > stop:
        raise DecodeError(f"The value at offset {offset} is cut off")
    return at
