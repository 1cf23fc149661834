"""Application properties as Spark's VARIANT, and as JSON: of one value, and of many messages all at once.

A variant is two byte strings: metadata (names of fields; scalars need none) and the value, which begins with a
byte that tells its type. Properties are scalars, so they are written here directly, each with its own type:
a timestamp stays one, as do bytes. A list or map, which no client sends but a wire could bring, becomes its text.

What is made of many messages agrees with what is made of one value; rare kinds go through that.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from busway.amqp.types import Described, Timestamp, ULong
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs, MessageCut, Values
from busway_spark.amqp_arrays.value_arrays import (
    Pieces,
    decoded,
    forms,
    is_text,
    is_whole,
    json_texts,
    texts,
    whole_numbers,
)

#: Version 1, no names.
SCALAR_METADATA: Final = b"\x01\x00\x00"
_NULL: Final = b"\x00"
_TRUE: Final = b"\x04"
_FALSE: Final = b"\x08"
_SHORT_TEXT_MAX: Final = 0x3F
_DOUBLE: Final = bytes([7 << 2])
_DECIMAL16: Final = bytes([10 << 2, 0])
_TIMESTAMP: Final = bytes([12 << 2])
_BINARY: Final = bytes([15 << 2])
_LONG_TEXT: Final = bytes([16 << 2])
_INTEGERS: Final = ((1, bytes([3 << 2])), (2, bytes([4 << 2])), (4, bytes([5 << 2])), (8, bytes([6 << 2])))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_FORM: Final = 0x83
_ULONG_FORM: Final = 0x80
_WORDS: Final = ((0x40, b"\x00"), (0x41, b"\x04"), (0x42, b"\x08"))
_LONG_TEXT_KIND: Final = 16 << 2
#: Width in bytes and first byte of whole numbers.
_WHOLE: Final = ((1, 3 << 2), (2, 4 << 2), (4, 5 << 2), (8, 6 << 2))


def variant_of(value: object) -> bytes:
    """The value part; the metadata is always SCALAR_METADATA."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, Timestamp):
        return _TIMESTAMP + (value * 1000).to_bytes(8, "little", signed=True)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _DOUBLE + struct.pack("<d", value)
    if isinstance(value, bytes):
        return _BINARY + len(value).to_bytes(4, "little") + value
    return _text(str(value))


def json_of(properties: Mapping[str, object]) -> str:
    """One object; bytes in base64, times in ISO 8601."""
    return json.dumps({name: _json_value(value) for name, value in properties.items()}, ensure_ascii=False)


def json_value_text(value: object) -> str:
    """One value as `json_of` writes it."""
    return json.dumps(_json_value(value), ensure_ascii=False)


def amqp_value(value: object) -> object:
    """A value out of a column as AMQP has it. Raises TypeError where it has no word for it."""
    if value is None or isinstance(value, (str, bool, int, float, bytes, UUID)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return Timestamp((value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, Decimal):
        return _number(value)
    raise TypeError(f"a property cannot hold a {type(value).__name__}")


def _number(value: Decimal) -> object:
    """A whole number as such, as long as AMQP has one that is wide enough."""
    if value != value.to_integral_value() or not -(1 << 63) <= value < 1 << 64:
        return float(value)
    return int(value) if value < 1 << 63 else ULong(value)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT_TEXT_MAX:
        return bytes([len(data) << 2 | 1]) + data
    return _LONG_TEXT + len(data).to_bytes(4, "little") + data


def _integer(value: int) -> bytes:
    for width, head in _INTEGERS:
        if -(1 << width * 8 - 1) <= value < 1 << width * 8 - 1:
            return head + value.to_bytes(width, "little", signed=True)
    return _DECIMAL16 + value.to_bytes(16, "little", signed=True)


def _json_value(value: object) -> object:
    if isinstance(value, Timestamp):
        return (_EPOCH + timedelta(milliseconds=value)).isoformat()
    if isinstance(value, Described):
        return _json_value(value.value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON knows neither infinity nor NaN
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def variants(cut: MessageCut, values: Values) -> Column:
    """The value parts."""
    form = forms(cut, values)
    pieces = Pieces(len(values))
    has = is_text(cut, values)
    if has.any():
        pieces.add(has, _texts(encoding.as_binary(texts(cut, values.where(has)))))
    has = is_whole(cut, values) & (form != _TIMESTAMP_FORM) & (form != _ULONG_FORM)
    if has.any():
        _add_whole(pieces, has, whole_numbers(cut, values.where(has)))
    for code, word in _WORDS:
        has = form == code
        if has.any():
            pieces.add(has, arrow.repeated(word, encoding.BINARY, int(has.sum())))
    has = pieces.missing()
    if has.any():
        found = [variant_of(each) for each in decoded(cut, values.where(has))]
        pieces.add(has, pa.array(found, encoding.BINARY))
    return pieces.array(encoding.BINARY)


def json_values(cut: MessageCut, values: Values) -> Column:
    return json_texts(cut, values, json_value_text, times_are_numbers=False)


def _texts(contents: Column) -> Column:
    sizes = encoding.lengths(contents)
    is_short: Flags = sizes <= _SHORT_TEXT_MAX
    widths = np.where(is_short, 1, 5)
    ends = np.cumsum(widths)
    starts = ends - widths
    data = np.empty(int(ends[-1]), np.uint8)
    data[starts] = np.where(is_short, sizes << 2 | 1, _LONG_TEXT_KIND)
    for place in range(4):
        data[starts[~is_short] + 1 + place] = (sizes[~is_short] >> (8 * place)) & 0xFF
    return arrow.joined(encoding.pieces_of(ends, data), contents)


def _add_whole(pieces: Pieces, has: Flags, numbers: Longs) -> None:
    """Each in the least width that holds it."""
    rows = np.flatnonzero(has)
    left: Flags = np.ones(len(numbers), np.bool_)
    for width, first_byte in _WHOLE:
        limit = 1 << (8 * width - 1)
        fits = left if width == 8 else left & (numbers >= -limit) & (numbers < limit)
        if fits.any():
            raw = numbers[fits].astype(f"<i{width}").view(np.uint8).reshape(-1, width)
            both = np.empty((len(raw), width + 1), np.uint8)
            both[:, 0], both[:, 1:] = first_byte, raw
            ends = np.arange(1, len(raw) + 1) * (width + 1)
            pieces.add(rows[fits], encoding.pieces_of(ends, both.reshape(-1)))
        left &= ~fits
