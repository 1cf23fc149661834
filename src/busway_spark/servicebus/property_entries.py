"""The column `properties` as encoded application properties: entries of all rows at once where their type is simple.

A map's values are encoded by their type, all of them together; variants whose kind is text or a whole number too.
What is left, rare types and JSON texts, is encoded value by value; equal ones once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.encode import encode_value
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags
from busway_spark.amqp_arrays.value_arrays import Pieces, slices
from busway_spark.servicebus.message_columns import WrongRow, property_value, read_properties

#: Kinds of variants: the first byte of a value.
_VARIANT_WHOLE: Final = {3 << 2: 1, 4 << 2: 2, 5 << 2: 4, 6 << 2: 8}
_SHORT_TEXT: Final = 1


def property_sections(column: Column, types: Column | None = None) -> Column:
    """An element for each row, empty for a row without properties; with the types that are told beside them. Raises
    NotEncodable."""
    if types is not None and types.null_count < len(types):
        return pa.array(
            [_section(*each) for each in zip(column.to_pylist(), types.to_pylist(), strict=True)],
            encoding.BINARY,
        )
    if pa.types.is_map(column.type):
        return encoding.map_sections(encoding.APPLICATION_PROPERTIES, column, _values)
    return _of_each(column)


def _values(items: Column) -> Column:
    """Null stays null."""
    kind = items.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return encoding.variable(items, encoding.TEXT_FORM)
    if pa.types.is_signed_integer(kind):
        return encoding.whole(items)
    if pa.types.is_boolean(kind):
        return arrow.chosen(items, b"\x41", b"\x42").cast(encoding.BINARY)
    if pa.types.is_float64(kind):
        return encoding.fixed(items, arrow.doubles(items).astype(">f8"), b"\x82")
    if pa.types.is_struct(kind) and {"value", "metadata"} == {
        each.name for each in arrow.struct_fields(kind)
    }:
        return _variants(items)
    return _each_value(items)


def _variants(items: Column) -> Column:
    values = arrow.struct_field(items, "value")
    if items.null_count or values.null_count:
        return _each_value(items)
    data, bounds = encoding.bounds_of(encoding.as_binary(values))
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    raw = np.frombuffer(data, np.uint8)
    if bool((starts >= ends).any()):
        return _each_value(items)
    kind = raw.take(starts)
    pieces = Pieces(len(items))
    buffer = pa.py_buffer(data)
    is_text: Flags = (kind & 3 == _SHORT_TEXT) & (ends - starts == (kind >> 2).astype(np.int64) + 1)
    if is_text.any():
        found = slices(buffer, starts[is_text] + 1, ends[is_text])
        pieces.add(is_text, encoding.variable(found, encoding.TEXT_FORM))
    for code, width in _VARIANT_WHOLE.items():
        has: Flags = (kind == code) & (ends - starts == width + 1)
        if has.any():
            places = starts[has][:, None] + np.arange(1, width + 1)
            numbers = np.ascontiguousarray(raw[places]).view(f"<i{width}").reshape(-1)
            pieces.add(has, encoding.whole(pa.array(numbers.astype(np.int64))))
    rest = pieces.missing()
    if rest.any():
        pieces.add(rest, _each_value(items.filter(pa.array(rest))))
    return pieces.array(encoding.BINARY)


def _each_value(items: Column) -> Column:
    try:
        return pa.array([encode_value(property_value(each)) for each in items.to_pylist()], encoding.BINARY)
    except (TypeError, ValueError) as error:
        raise encoding.NotEncodable(str(error)) from error


def _of_each(column: Column) -> Column:
    """JSON texts."""
    known: dict[str | None, bytes] = {None: b""}
    found: list[bytes] = []
    for text in column.to_pylist():
        section = known.get(text)
        if section is None:
            section = known[text] = _section(str(text))
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _section(given: object, types: str | None = None) -> bytes:
    try:
        properties = read_properties(given, types)
        return (
            bytes((0, 0x53, encoding.APPLICATION_PROPERTIES)) + encode_value(properties)
            if properties
            else b""
        )
    except (WrongRow, ValueError) as error:
        raise encoding.NotEncodable(str(error)) from error
