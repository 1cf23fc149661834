"""JSON bodies as columns of a schema.

Theory of operation. Bodies are joined by line ends and read by Arrow's JSON reader, a whole batch in one call: two to
four times faster than reading them in Python. It must not matter to a body what its neighbours are, though. The
reader takes a sequence of objects wherever they begin, so the batch is read this way only when every body is UTF-8
without a zero byte, begins with a brace and ends with one. No object can then reach into the next body: within an
object, or in an array, `}` is never followed by `{`, and a text holds no line end. So every body gives one object or
more, and when there are as many rows as bodies, each gave exactly one.

Where this fails, in pieces of the batch and then body by body, Python's reader decides, by the same rules
(`converter_of`); a body that only Python cannot read (it is nested too deep) is offered to Arrow's reader alone.

One value is checked against the type that the schema gives it and turned into what Arrow takes for that type.
Strict on purpose: a number is no text and a text no number, so that what a sender changed is seen and not bent. Times
and dates are ISO 8601 texts (without a zone: UTC), decimals are numbers or texts of digits, binary is base64. A field
that is missing is null, a field that the schema does not know is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from busway_spark.bodies.decoded import BadBody, Decoded, decode_each
from busway_spark.bodies.variant_bodies import variant_parts

Convert = Callable[[Any], Any]
_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
#: A batch that cannot be read together is cut in so many pieces, and each in as many, until so few bodies are left.
_PIECES: Final = 16
_PIECE_MIN: Final = 64
_BLANKS: Final = " \t\r\n"
_TEXT: Final = pa.string()


def converter_of(data_type: DataType) -> Convert:
    """Of values that are not null. What it returns raises BadBody."""
    if isinstance(data_type, StructType):
        return struct_converter({field.name: converter_of(field.dataType) for field in data_type.fields})
    if isinstance(data_type, ArrayType):
        return array_converter(converter_of(data_type.elementType))
    if isinstance(data_type, MapType):
        return map_converter(converter_of(data_type.valueType))
    if isinstance(data_type, DecimalType):
        return decimal_converter(data_type.precision, data_type.scale)
    bits = _BITS.get(type(data_type))
    return _LEAVES[type(data_type)] if bits is None else whole_converter(bits)


# -- what holds others


def struct_converter(fields: dict[str, Convert]) -> Convert:
    converters = list(fields.items())

    def struct(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise BadBody("it is no object")
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, convert in converters:
                given = value.get(name)
                found[name] = None if given is None else convert(given)
        except BadBody as error:
            raise BadBody(_inside(name, error)) from None
        return found

    return struct


def array_converter(convert: Convert) -> Convert:
    def array(value: Any) -> list[Any]:
        if type(value) is not list:
            raise BadBody("it is no array")
        return [None if each is None else convert(each) for each in value]

    return array


def map_converter(convert: Convert) -> Convert:
    def pairs(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise BadBody("it is no object")
        return [(text(name), None if each is None else convert(each)) for name, each in value.items()]

    return pairs


def _inside(name: str, error: BadBody) -> str:
    """`field 'a': it is no number`, and `field 'b.a'` one level up."""
    head, found, tail = str(error).partition("field '")
    return f"field '{name}.{tail}" if found and not head else f"field '{name}': {error}"


# -- leaves


def whole_converter(bits: int) -> Convert:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def whole(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise BadBody(f"it is no whole number of {bits} bits")
        return value

    return whole


def decimal_converter(digits: int, scale: int) -> Convert:
    context = Context(prec=digits, rounding=ROUND_HALF_UP)
    unit = Decimal(1).scaleb(-scale)

    def decimal(value: Any) -> Decimal:
        if type(value) not in (int, float, str, Decimal) or (type(value) is str and len(value) > 100):
            raise BadBody("it is no number")
        try:
            return Decimal(str(value) if type(value) is float else value).quantize(unit, context=context)
        except (DecimalException, ValueError):
            raise BadBody(f"it is no decimal of {digits} digits, {scale} behind the point") from None

    return decimal


def truth(value: Any) -> bool:
    if type(value) is not bool:
        raise BadBody("it is neither true nor false")
    return value


def real(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int and type(value) is not Decimal:
        raise BadBody("it is no number")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def text(value: Any) -> str:
    if type(value) is not str:
        raise BadBody("it is no text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadBody("it is a text with half a character") from None
    return value


def _raw(value: Any) -> bytes:
    try:
        return base64.b64decode(text(value), validate=True)
    except (binascii.Error, ValueError):
        raise BadBody("it is no base64") from None


def _instant(value: Any) -> datetime:
    found = _time(value)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        raise BadBody("it is no time of the years 1 to 9999") from None


def _local(value: Any) -> datetime:
    found = _time(value)
    if found.tzinfo is not None:
        raise BadBody("it is a time with a zone")
    return found


def _time(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(text(value))
    except ValueError:
        raise BadBody("it is no time in ISO 8601") from None


def _day(value: Any) -> date:
    try:
        return date.fromisoformat(text(value))
    except ValueError:
        raise BadBody("it is no date in ISO 8601") from None


def _variant(value: Any) -> dict[str, bytes]:
    data, metadata = variant_parts(value)
    return {"value": data, "metadata": metadata}


_LEAVES: Final[dict[type[DataType], Convert]] = {
    BooleanType: truth,
    FloatType: real,
    DoubleType: real,
    StringType: text,
    BinaryType: _raw,
    TimestampType: _instant,
    TimestampNTZType: _local,
    DateType: _day,
    VariantType: _variant,
}


class JsonBodies:
    def __init__(self, data_type: DataType) -> None:
        self._type: pa.DataType = to_arrow_type(data_type, timezone="UTC")
        self._convert = converter_of(data_type)
        self._options = _parse_options(self._type)
        #: Digits behind a point are kept as they are where a decimal may want them.
        self._parse_float = Decimal if _has_decimal(self._type) else float

    def decode(self, bodies: pa.Array[Any]) -> Decoded:
        together = self._together(bodies)
        if together is not None:
            return Decoded(together)
        if len(bodies) <= _PIECE_MIN or self._options is None:
            values, faults = decode_each(bodies.to_pylist(), self._one)
            return Decoded(pa.array(values, self._type), faults)
        return self._in_pieces(bodies, max(_PIECE_MIN, len(bodies) // _PIECES))

    def _in_pieces(self, bodies: pa.Array[Any], size: int) -> Decoded:
        arrays: list[pa.Array[Any]] = []
        faults: dict[int, str] = {}
        for at in range(0, len(bodies), size):
            piece = self.decode(bodies.slice(at, size))
            arrays.append(piece.values)
            faults.update({at + row: reason for row, reason in piece.faults.items()})
        return Decoded(pa.concat_arrays(arrays), faults)

    # -- by Arrow

    def _together(self, bodies: pa.Array[Any]) -> pa.Array[Any] | None:
        """None when not every body can be read this way."""
        if self._options is None or not len(bodies):
            return None
        try:
            return self._read(bodies.cast(_TEXT))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _read(self, texts: pa.Array[Any]) -> pa.Array[Any] | None:
        if not _are_braced(texts):
            texts = pc.ascii_trim(texts, _BLANKS)
            if not _are_braced(texts):
                return None
        bounds: Any = pa.array([0, len(texts)], pa.int32())
        lines: Any = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), "\n")
        joined: bytes = lines[0].as_py().encode()
        if b"\0" in joined:
            return None
        block = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        table = pj.read_json(BytesIO(joined), block, self._options)
        if table.num_rows != len(texts):
            return None
        chunks: Any = table.to_struct_array()
        found: pa.Array[Any] = chunks.combine_chunks().cast(self._type)
        return found

    # -- by Python

    def _one(self, body: bytes) -> object:
        try:
            value = json.loads(body.decode("utf-8-sig"), parse_float=self._parse_float)
        except UnicodeDecodeError as error:
            raise BadBody(f"it is not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError):
            return self._alone(body)
        if value is None:
            raise BadBody("it is null")
        return self._convert(value)

    def _alone(self, body: bytes) -> object:
        found = self._together(pa.array([body], pa.binary()))
        if found is None:
            raise BadBody("it is no JSON")
        return found[0].as_py()


def _are_braced(texts: pa.Array[Any]) -> bool:
    return bool(pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py())


def _parse_options(wanted: pa.DataType) -> pj.ParseOptions | None:
    """None where the reader has no form for a type."""
    if not pa.types.is_struct(wanted):
        return None
    fields = [_readable(field) for field in _fields(wanted)]
    if any(field is None for field in fields):
        return None
    return pj.ParseOptions(
        explicit_schema=pa.schema([field for field in fields if field is not None]),
        unexpected_field_behavior="ignore",
    )


def _readable(field: pa.Field[Any]) -> pa.Field[Any] | None:
    """How the reader must read a field. Times and dates are texts, which are cast afterwards."""
    kind = field.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return field.with_type(_TEXT)
    if pa.types.is_struct(kind):
        inner = [_readable(each) for each in _fields(kind)]
        found = [each for each in inner if each is not None]
        return field.with_type(pa.struct(found)) if len(found) == len(inner) else None
    if pa.types.is_list(kind):
        element: Any = _readable(kind.value_field)
        return None if element is None else field.with_type(pa.list_(element))
    is_read = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return field if is_read or pa.types.is_float32(kind) or pa.types.is_float64(kind) else None


def _fields(kind: Any) -> list[pa.Field[Any]]:
    return [kind.field(at) for at in range(kind.num_fields)]


def _has_decimal(kind: Any) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimal(field.type) for field in _fields(kind)) if kind.num_fields else False
