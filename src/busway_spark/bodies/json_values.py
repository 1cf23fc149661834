"""One JSON value, checked against the type that the schema gives it and turned into what Arrow takes for that type.

Strict on purpose: a number is no text and a text no number, so that what a sender changed is seen and not bent. Times
and dates are ISO 8601 texts (without a zone: UTC), decimals are numbers or texts of digits, binary is base64. A field
that is missing is null, a field that the schema does not know is left out.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, Final

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

from busway_spark.bodies.decoded import BadBody
from busway_spark.bodies.variant_encoding import variant_parts

Convert = Callable[[Any], Any]
_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


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
