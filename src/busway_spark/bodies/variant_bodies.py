"""JSON bodies of any shape as VARIANT: two byte strings, the value, and the metadata with the names of fields.

As Spark's `parse_json` writes them: whole numbers in the narrowest integer, numbers with a point and no exponent as
decimals, other numbers as doubles. An object lists its fields in the order of their names; ids are given in the order
in which names turn up, so bodies of one shape have the same metadata, which is built once. Of a name that stands
twice in an object the last value counts.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import VariantType

from busway_spark.bodies.decoded import BadBody, Decoded, decode_each

_NULL: Final = b"\x00"
_TRUE: Final = b"\x04"
_FALSE: Final = b"\x08"
_SHORT_TEXT_MAX: Final = 0x3F
_LONG_TEXT: Final = bytes([16 << 2])
_DOUBLE: Final = struct.Struct("<Bd")
_DOUBLE_HEAD: Final = 7 << 2
_INT8: Final = struct.Struct("<Bb")
_INT16: Final = struct.Struct("<Bh")
_INT32: Final = struct.Struct("<Bi")
_INT64: Final = struct.Struct("<Bq")
#: Digits that fit, bytes, and the head.
_DECIMALS: Final = ((9, 4, 8 << 2), (18, 8, 9 << 2), (38, 16, 10 << 2))
_DIGITS_MAX: Final = 38
_VERSION: Final = 0x01
#: Of a value and of its metadata; Spark refuses more.
SIZE_MAX: Final = 128 * 1024 * 1024
_SHAPES_MAX: Final = 4_096

#: Metadata by the names in it, in the order of their ids.
_metadata_of: dict[tuple[str, ...], bytes] = {}
#: How an object of these names and ids is laid out.
_layouts: dict[tuple[tuple[str, ...], tuple[int, ...]], tuple[list[int], int, bytes]] = {}


class Encoded(bytes):
    """A value that is encoded already."""


def number_literal(literal: str) -> Encoded:
    """For `parse_float` of `json.loads`: a number with a point or an exponent."""
    if len(literal) <= _DIGITS_MAX + 2 and "e" not in literal and "E" not in literal:
        digits = literal.replace(".", "").lstrip("-").lstrip("0")
        scale = len(literal) - literal.index(".") - 1
        if len(digits) <= _DIGITS_MAX and scale <= _DIGITS_MAX:
            return Encoded(_decimal(int(literal.replace(".", "")), len(digits), scale))
    return Encoded(_DOUBLE.pack(_DOUBLE_HEAD, float(literal)))


def parse_variant(text: str) -> tuple[bytes, bytes]:
    """A JSON text as value and metadata. Raises BadBody."""
    try:
        return variant_parts(json.loads(text, parse_float=number_literal, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, BadBody) else BadBody("it is no JSON") from None


def _no_number(_: str) -> object:
    raise BadBody("it has a number that JSON has not")


def variant_parts(value: object) -> tuple[bytes, bytes]:
    """Value and metadata. Raises BadBody."""
    ids: dict[str, int] = {}
    try:
        data = _encoded(value, ids)
        metadata = _metadata(tuple(ids))
    except RecursionError:
        raise BadBody("it is nested too deep") from None
    except UnicodeEncodeError:
        raise BadBody("it has a text with half a character") from None
    if len(data) > SIZE_MAX or len(metadata) > SIZE_MAX:
        raise BadBody("it is too large for a VARIANT")
    return data, metadata


def _encoded(value: Any, ids: dict[str, int]) -> bytes:
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is dict:
        return _object(value, ids)
    if kind is Encoded:
        return bytes(value)
    if kind is int:
        return _whole(value)
    if value is None:
        return _NULL
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is list:
        return _array([_encoded(each, ids) for each in value])
    if kind is Decimal:
        return number_literal(format(value, "f") if value.is_finite() else str(value))
    return _DOUBLE.pack(_DOUBLE_HEAD, value)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT_TEXT_MAX:
        return bytes((len(data) << 2 | 1,)) + data
    return _LONG_TEXT + len(data).to_bytes(4, "little") + data


def _whole(value: int) -> bytes:
    if -128 <= value <= 127:
        return _INT8.pack(3 << 2, value)
    if -32_768 <= value <= 32_767:
        return _INT16.pack(4 << 2, value)
    if -(1 << 31) <= value < 1 << 31:
        return _INT32.pack(5 << 2, value)
    if -(1 << 63) <= value < 1 << 63:
        return _INT64.pack(6 << 2, value)
    digits = len(str(abs(value)))
    if digits <= _DIGITS_MAX:
        return _decimal(value, digits, 0)
    try:
        return _DOUBLE.pack(_DOUBLE_HEAD, float(value))
    except OverflowError:
        return _DOUBLE.pack(_DOUBLE_HEAD, float("inf") if value > 0 else float("-inf"))


def _decimal(unscaled: int, digits: int, scale: int) -> bytes:
    for most, width, head in _DECIMALS:
        if digits <= most and scale <= most:
            return bytes((head, scale)) + unscaled.to_bytes(width, "little", signed=True)
    raise BadBody("it has a number of too many digits")


def _object(value: dict[str, Any], ids: dict[str, int]) -> bytes:
    numbers: list[int] = []
    parts: list[bytes] = []
    for name, each in value.items():
        numbers.append(ids.setdefault(name, len(ids)))
        parts.append(_encoded(each, ids))
    order, id_width, packed_ids = _layout(tuple(value), tuple(numbers))
    starts = [0, *accumulate(map(len, parts))]
    offset_width = _width(starts[-1])
    offsets = [*[starts[at] for at in order], starts[-1]]
    is_large = len(parts) > 0xFF
    head = (is_large << 4 | (id_width - 1) << 2 | (offset_width - 1)) << 2 | 2
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    return b"".join((bytes((head,)), count, packed_ids, _packed(offsets, offset_width), *parts))


def _layout(names: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[list[int], int, bytes]:
    """The order of an object's fields, the width of their ids, and the ids."""
    known = _layouts.get((names, numbers))
    if known is None:
        if len(_layouts) >= _SHAPES_MAX:
            _layouts.clear()
        order = sorted(range(len(names)), key=lambda at: _order(names[at]))
        width = _width(max(numbers, default=0))
        known = order, width, _packed([numbers[at] for at in order], width)
        _layouts[names, numbers] = known
    return known


def _array(parts: list[bytes]) -> bytes:
    offsets = [0, *accumulate(map(len, parts))]
    width = _width(offsets[-1])
    is_large = len(parts) > 0xFF
    head = (is_large << 2 | (width - 1)) << 2 | 3
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    return b"".join((bytes((head,)), count, _packed(offsets, width), *parts))


def _order(name: str) -> bytes:
    """Spark compares names as Java does, by units of UTF-16; of characters that have one unit that is their order."""
    return name.encode("utf-16-be", "surrogatepass")


def _width(most: int) -> int:
    return 1 if most <= 0xFF else 2 if most <= 0xFFFF else 3 if most <= 0xFFFFFF else 4


def _packed(numbers: list[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])


def _metadata(names: tuple[str, ...]) -> bytes:
    known = _metadata_of.get(names)
    if known is None:
        if len(_metadata_of) >= _SHAPES_MAX:
            _metadata_of.clear()
        known = _metadata_of[names] = _new_metadata(names)
    return known


def _new_metadata(names: tuple[str, ...]) -> bytes:
    parts = [name.encode() for name in names]
    offsets = [0, *accumulate(map(len, parts))]
    width = _width(max(offsets[-1], len(parts)))
    head = (width - 1) << 6 | _VERSION
    return b"".join((bytes((head,)), len(parts).to_bytes(width, "little"), _packed(offsets, width), *parts))


class VariantBodies:
    def __init__(self) -> None:
        kind: Any = to_arrow_type(VariantType())
        self._fields: list[pa.Field[Any]] = list(kind)

    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        values, faults = decode_each(bodies.to_pylist(), _parts)
        is_null = pa.array([value is None for value in values], pa.bool_()) if faults else None
        data, metadata = zip(*[value or (b"", b"") for value in values], strict=True) if values else ((), ())
        arrays: list[pa.Array[Any]] = [pa.array(data, pa.binary()), pa.array(metadata, pa.binary())]
        found: Any = pa.StructArray.from_arrays(arrays, fields=self._fields, mask=is_null)
        return Decoded(found, faults)


def _parts(body: bytes) -> tuple[bytes, bytes]:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadBody(f"it is not UTF-8 at byte {error.start}") from None
    return parse_variant(text)
