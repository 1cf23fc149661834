"""Rows as encoded messages, all rows of a piece at once.

Theory of operation. Each column becomes its part of the messages (`amqp_arrays.encoding`), and the parts are joined
row by row. Values of the column `properties` are encoded by their type, all of them together; variants whose kind is
text or a whole number too. What is left, rare types and JSON texts, is encoded value by value; equal ones once.

Columns that cannot be encoded together, because some row holds a value that needs a closer look, are encoded row by
row: then the row at fault is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.encode import encode_value
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs
from busway_spark.amqp_arrays.value_arrays import Pieces, slices
from busway_spark.servicebus.columns import RARE_FIELDS, encoded_field
from busway_spark.servicebus.message_columns import WrongRow, message_of, property_value, read_properties

#: Kinds of variants: the first byte of a value.
_VARIANT_WHOLE: Final = {3 << 2: 1, 4 << 2: 2, 5 << 2: 4, 6 << 2: 8}
_SHORT_TEXT: Final = 1
_TTL_MS_MAX: Final = (1 << 32) - 1
#: Columns by their place in the properties of a message.
_FIELDS: Final = (
    "messageId", "userId", "to", "subject", "replyTo", "correlationId", "contentType", "contentEncoding",
    "absoluteExpiryTime", "creationTime", "sessionId", "groupSequence", "replyToSessionId",
)  # fmt: skip
_HEADER: Final = b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70"
_KEY_ENTRY: Final = b"\xa3\x13x-opt-partition-key"
_TIME_ENTRY: Final = b"\xa3\x1cx-opt-scheduled-enqueue-time\x83"


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


class UnsendableRow(ValueError):
    """A row that cannot be encoded: its place in the piece, and why."""

    def __init__(self, at: int, reason: WrongRow) -> None:
        super().__init__(str(reason))
        self.at = at


def encode_rows(piece: pa.RecordBatch, place: str, first_row: int) -> Column:
    """The messages; rows without an id get `place` and their number as one. Raises UnsendableRow."""
    try:
        return _encode(piece, place, first_row)
    except (encoding.NotEncodable, pa.ArrowInvalid):
        return pa.array(list(_encode_each(piece, place, first_row)), encoding.BINARY)


def _encode_each(piece: pa.RecordBatch, place: str, first_row: int) -> Iterator[bytes]:
    for at, row in enumerate(piece.to_pylist()):
        try:
            yield message_of(row, f"{place}/{first_row + at}")
        except WrongRow as error:
            raise UnsendableRow(at, error) from error


def _encode(piece: pa.RecordBatch, place: str, first_row: int) -> Column:
    names = set(piece.schema.names)
    parts: list[Column] = []
    if "timeToLive" in names:
        parts.append(_headers(piece.column("timeToLive")))
    if names & {"partitionKey", "scheduledEnqueueTime"}:
        parts.append(_annotations(piece, names))
    parts.append(_properties(piece, names, _ids(piece, names, place, first_row)))
    if "properties" in names:
        types = piece.column("propertyTypes") if "propertyTypes" in names else None
        parts.append(property_sections(piece.column("properties"), types))
    body = encoding.as_binary(piece.column("body"))
    parts += encoding.data_section(arrow.filled(body, b""))
    return arrow.joined(*parts)


def _ids(piece: pa.RecordBatch, names: set[str], place: str, first_row: int) -> Column:
    if "messageId" in names:
        given = piece.column("messageId").cast(pa.string())
        has_one = arrow.flags(arrow.differs(given, ""))
        return given if has_one.all() else arrow.chosen(has_one, given, _made(piece, place, first_row))
    return _made(piece, place, first_row)


def _made(piece: pa.RecordBatch, place: str, first_row: int) -> Column:
    numbers = pa.array(np.arange(first_row, first_row + piece.num_rows)).cast(pa.string())
    return arrow.joined_texts(f"{place}/", numbers)


def _properties(piece: pa.RecordBatch, names: set[str], ids: Column) -> Column:
    given = [name if name in names or name == "messageId" else None for name in _FIELDS]
    count = max(at for at, name in enumerate(given) if name is not None) + 1
    fields: list[Column | bytes] = []
    for name in given[:count]:
        if name is None:
            fields.append(encoding.NULL)
            continue
        column = ids if name == "messageId" else piece.column(name)
        fields.append(_field(name, column))
    body = arrow.joined(*fields)
    return encoding.section(
        encoding.PROPERTIES, encoding.compound(body, np.full(len(body), count), encoding.LIST_FORM)
    )


def _field(name: str, column: Column) -> Column | bytes:
    if column.null_count == len(column):
        return encoding.NULL
    if name in RARE_FIELDS:
        return encoded_field(name, column)
    if name != "contentType":
        return encoding.with_null(encoding.variable(column, encoding.TEXT_FORM))
    if not arrow.is_ascii(column):
        raise encoding.NotEncodable("a content type is not ASCII")
    return encoding.with_null(encoding.variable(column, encoding.SYMBOL_FORM))


def _headers(lives: Column) -> Column:
    """M-17: a life is more than nothing, and at most what an unsigned number of 32 bits tells."""
    is_interval = pa.types.is_duration(lives.type)
    numbers = arrow.longs(lives.cast(pa.duration("us")) if is_interval else lives, 1_000_000)
    numbers = numbers // 1000 if is_interval else numbers
    if (numbers <= 0).any():
        raise encoding.NotEncodable("a life is not more than 0")
    found = encoding.fixed(lives, np.minimum(numbers, _TTL_MS_MAX).astype(">u4"), _HEADER)
    return arrow.filled(found, b"")


def _annotations(piece: pa.RecordBatch, names: set[str]) -> Column:
    entries: list[Column] = []
    counts: Longs = np.zeros(piece.num_rows, np.int64)
    if "partitionKey" in names:
        keys = piece.column("partitionKey")
        entries.append(arrow.joined(_KEY_ENTRY, encoding.variable(keys, encoding.TEXT_FORM)))
    if "scheduledEnqueueTime" in names:
        times = piece.column("scheduledEnqueueTime")
        millis = arrow.longs(times.cast(pa.timestamp("us", "UTC"))) // 1000
        entries.append(encoding.fixed(times, millis.astype(">i8"), _TIME_ENTRY))
    for each in entries:
        counts += 2 * arrow.is_valid(each)
    body = arrow.joined(*(arrow.filled(each, b"") for each in entries))
    sections = encoding.section(
        encoding.MESSAGE_ANNOTATIONS, encoding.compound(body, counts, encoding.MAP_FORM)
    )
    return encoding.only_where(counts > 0, sections)
