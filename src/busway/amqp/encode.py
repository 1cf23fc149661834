"""AMQP values into bytes, each in its smallest form.

The Python type decides the AMQP type (see `types`); subclasses follow their nearest known ancestor. What does not
fit its AMQP type raises EncodeError: it is our own caller's mistake, never a peer's.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

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

DEPTH_MAX: Final = 64

_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")


class EncodeError(ValueError):
    """This value has no AMQP form."""


def encode_value(value: object) -> bytes:
    """The bytes of one value, constructor included."""
    out = bytearray()
    append_value(out, value)
    return bytes(out)


def append_value(out: bytearray, value: object) -> None:
    """Write one value, constructor included, at the end of `out`."""
    try:
        _append(out, value, 0)
    except (OverflowError, StructError, UnicodeEncodeError) as problem:
        raise EncodeError(f"A value of type {type(value).__name__} has no AMQP form: {problem}") from None


def append_list(out: bytearray, body: bytes | bytearray, count: int) -> None:
    """Write a list whose elements are encoded already: list8 or list32, never list0."""
    _append_sized(out, 0xC0, 0xD0, body, count)


def append_map(out: bytearray, body: bytes | bytearray, count: int) -> None:
    """Write a map whose `count` keys and values are encoded already."""
    _append_sized(out, 0xC1, 0xD1, body, count)


def _append(out: bytearray, value: object, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise EncodeError(f"Values are nested deeper than {DEPTH_MAX}")
    if value is None:
        out.append(0x40)
    elif value is True:
        out.append(0x41)
    elif value is False:
        out.append(0x42)
    else:
        writer = _WRITERS.get(type(value))
        if writer is None:
            writer = _writer_of_ancestor(value)
        writer(out, value, depth)


def _writer_of_ancestor(value: object) -> Callable[[bytearray, Any, int], None]:
    for ancestor in type(value).__mro__:
        writer = _WRITERS.get(ancestor)
        if writer is not None:
            return writer
    raise EncodeError(f"A value of type {type(value).__name__} has no AMQP form")


#: For each integer type: constructors for zero, for one byte and for full width (0 = no such form), width, signed.
_INTEGERS: Final[dict[type, tuple[int, int, int, int, bool]]] = {
    UByte: (0, 0, 0x50, 1, False),
    UShort: (0, 0, 0x60, 2, False),
    UInt: (0x43, 0x52, 0x70, 4, False),
    ULong: (0x44, 0x53, 0x80, 8, False),
    Byte: (0, 0, 0x51, 1, True),
    Short: (0, 0, 0x61, 2, True),
    Int: (0, 0x54, 0x71, 4, True),
    Long: (0, 0x55, 0x81, 8, True),
    Timestamp: (0, 0, 0x83, 8, True),
    int: (0, 0x55, 0x81, 8, True),
}


def _write_integer(out: bytearray, value: Any, _depth: int) -> None:
    """`value` is no plain int here: compiled code would forget its type."""
    kind: type = type(value)
    while kind not in _INTEGERS:
        kind = kind.__mro__[1]
    zero, small, full, width, signed = _INTEGERS[kind]
    if zero and value == 0:
        out.append(zero)
    elif small and (-128 <= value <= 127 if signed else 0 <= value <= 255):
        out.append(small)
        out += value.to_bytes(1, "big", signed=signed)
    else:
        out.append(full)
        out += value.to_bytes(width, "big", signed=signed)


def _write_float(out: bytearray, value: float, _depth: int) -> None:
    out.append(0x72)
    out += _FLOAT.pack(value)


def _write_double(out: bytearray, value: float, _depth: int) -> None:
    out.append(0x82)
    out += _DOUBLE.pack(value)


def _write_char(out: bytearray, value: str, _depth: int) -> None:
    out.append(0x73)
    out += _utf32(value)


def _write_uuid(out: bytearray, value: UUID, _depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _write_decimal(out: bytearray, value: bytes, _depth: int) -> None:
    code = _DECIMAL_CODES.get(len(value))
    if code is None:
        raise EncodeError(f"A decimal has {len(value)} bytes, not 4, 8 or 16")
    out.append(code)
    out += value


def _write_binary(out: bytearray, value: bytes, _depth: int) -> None:
    _append_variable(out, 0xA0, value)


def _write_string(out: bytearray, value: str, _depth: int) -> None:
    _append_variable(out, 0xA1, value.encode("utf-8"))


def _write_symbol(out: bytearray, value: str, _depth: int) -> None:
    _append_variable(out, 0xA3, value.encode("ascii"))


def _write_described(out: bytearray, value: Described, depth: int) -> None:
    out.append(0x00)
    _append(out, value.descriptor, depth + 1)
    _append(out, value.value, depth + 1)


def _write_list(out: bytearray, value: list[object], depth: int) -> None:
    if value:
        append_list(out, _list_body(value, depth), len(value))
    else:
        out.append(0x45)


def _write_map(out: bytearray, value: dict[object, object], depth: int) -> None:
    append_map(out, _map_body(value, depth), 2 * len(value))


def _write_array(out: bytearray, value: Array, depth: int) -> None:
    _append_sized(out, 0xE0, 0xF0, _array_body(value, depth), len(value.items))


def _list_body(value: list[object], depth: int) -> bytearray:
    body = bytearray()
    for item in value:
        _append(body, item, depth + 1)
    return body


def _map_body(value: dict[object, object], depth: int) -> bytearray:
    body = bytearray()
    for key, item in value.items():
        _append(body, key, depth + 1)
        _append(body, item, depth + 1)
    return body


def _array_body(value: Array, depth: int) -> bytearray:
    """The shared constructor, then the items without constructors of their own."""
    code = _shared_constructor(value.items) if value.code == Array.INFERRED else value.code
    body = bytearray()
    for descriptor in value.descriptors:
        body.append(0x00)
        _append(body, descriptor, depth + 1)
    body.append(code)
    for item in value.items:
        _append_payload(body, code, item, depth + 1)
    return body


def _append_variable(out: bytearray, small: int, raw: bytes) -> None:
    size = len(raw)
    if size <= 255:
        out.append(small)
        out.append(size)
    else:
        out.append(small + 0x10)
        out += size.to_bytes(4, "big")
    out += raw


def _append_sized(out: bytearray, small: int, large: int, body: bytes | bytearray, count: int) -> None:
    size = len(body)
    if size < 255 and count <= 255:
        out.append(small)
        out.append(size + 1)
        out.append(count)
    else:
        out.append(large)
        out += (size + 4).to_bytes(4, "big")
        out += count.to_bytes(4, "big")
    out += body


def _utf32(value: str) -> bytes:
    if len(value) != 1:
        raise EncodeError("A char is not exactly one character")
    return value.encode("utf-32-be")


#: Arrays: the constructor for each type when the caller names none; the widest, because all items must fit.
_WIDEST: Final[dict[type, int]] = {
    type(None): 0x40, bool: 0x56, Float: 0x72, float: 0x82, Char: 0x73, UUID: 0x98,
    bytes: 0xB0, str: 0xB1, Symbol: 0xB3, list: 0xD0, dict: 0xD1, Array: 0xF0,
}  # fmt: skip
_DECIMAL_CODES: Final[dict[int, int]] = {4: 0x74, 8: 0x84, 16: 0x94}


def _shared_constructor(items: list[object]) -> int:
    if not items:
        return 0x40
    first = items[0]
    kind = type(first)
    if kind in _INTEGERS:
        return _INTEGERS[kind][2]
    if isinstance(first, Decimal):
        return _DECIMAL_CODES.get(len(first), 0x74)
    code = _WIDEST.get(kind)
    if code is None:
        raise EncodeError(f"An array of {kind.__name__} needs its constructor named")
    if code in _TEXT_WIDTHS and all(isinstance(item, (str, bytes)) and len(item) < 64 for item in items):
        return code - 0x10
    return code


_TEXT_WIDTHS: Final = frozenset((0xB0, 0xB1, 0xB3))

#: Payload forms of integers by constructor: width and signed.
_INTEGER_PAYLOADS: Final[dict[int, tuple[int, bool]]] = {
    0x43: (0, False), 0x44: (0, False), 0x50: (1, False), 0x51: (1, True), 0x52: (1, False), 0x53: (1, False),
    0x54: (1, True), 0x55: (1, True), 0x60: (2, False), 0x61: (2, True), 0x70: (4, False), 0x71: (4, True),
    0x80: (8, False), 0x81: (8, True), 0x83: (8, True),
}  # fmt: skip


def _append_payload(out: bytearray, code: int, value: Any, depth: int) -> None:
    """One item of an array: its bytes behind the shared constructor `code`."""
    if depth > DEPTH_MAX:
        raise EncodeError(f"Values are nested deeper than {DEPTH_MAX}")
    integer = _INTEGER_PAYLOADS.get(code)
    try:
        if integer is not None:
            out += _checked(value, int).to_bytes(integer[0], "big", signed=integer[1])
        elif code in _CONSTANTS:
            if value is not _CONSTANTS[code] and not (code == 0x45 and value == []):
                raise EncodeError(f"An array of {code:#04x} holds another value")
        elif code & 0xF0 in (0xA0, 0xB0):
            _append_variable_payload(out, code, value)
        elif code >= 0xC0:
            _append_compound_payload(out, code, value, depth)
        else:
            out += _fixed_payload(code, value)
    except (AttributeError, TypeError):
        raise EncodeError(f"An array of {code:#04x} holds a {type(value).__name__}") from None


_CONSTANTS: Final[dict[int, object]] = {0x40: None, 0x41: True, 0x42: False, 0x45: ()}


def _checked(value: object, kind: type[int]) -> int:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise EncodeError(f"An array of integers holds a {type(value).__name__}")
    return value


def _fixed_payload(code: int, value: Any) -> bytes:
    if code == 0x56:
        return b"\x01" if value is True else b"\x00" if value is False else _misfit(code)
    if code == 0x72:
        return _FLOAT.pack(value)
    if code == 0x82:
        return _DOUBLE.pack(value)
    if code == 0x73:
        return _utf32(value)
    if code == 0x98:
        return bytes(value.bytes)
    if _DECIMAL_CODES.get(len(value)) == code:
        return bytes(value)
    return _misfit(code)


def _misfit(code: int) -> bytes:
    raise EncodeError(f"An array of {code:#04x} holds another value")


def _append_variable_payload(out: bytearray, code: int, value: Any) -> None:
    raw: bytes = value if code & 0x0F == 0 else value.encode("ascii" if code & 0x0F == 3 else "utf-8")
    out += len(raw).to_bytes(1 if code < 0xB0 else 4, "big")
    out += raw


def _append_compound_payload(out: bytearray, code: int, value: Any, depth: int) -> None:
    if code in (0xC0, 0xD0):
        body, count = _list_body(value, depth), len(value)
    elif code in (0xC1, 0xD1):
        body, count = _map_body(value, depth), 2 * len(value)
    else:
        body, count = _array_body(value, depth), len(value.items)
    width = 1 if code in (0xC0, 0xC1, 0xE0) else 4
    out += (len(body) + width).to_bytes(width, "big")
    out += count.to_bytes(width, "big")
    out += body


_WRITERS: Final[dict[type, Callable[[bytearray, Any, int], None]]] = {
    **dict.fromkeys(_INTEGERS, _write_integer),
    Float: _write_float,
    float: _write_double,
    Char: _write_char,
    UUID: _write_uuid,
    Decimal: _write_decimal,
    bytes: _write_binary,
    str: _write_string,
    Symbol: _write_symbol,
    Described: _write_described,
    list: _write_list,
    dict: _write_map,
    Array: _write_array,
}
