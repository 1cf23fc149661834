"""Captured rows as encoded messages, all rows of a piece at once.

Each column becomes its part of the messages (`amqp_arrays.encoding`), and the parts are joined row by row. What comes
out is, byte by byte, what `rules.captured_message` makes of each row alone; a piece with a row that needs a closer
look is refused, and whoever asked takes its rows one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.encode import encode_value
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Longs
from busway_spark.property_types import properties_of

MESSAGE_ID: Final = "messageId"
#: Columns by their place in the properties of a message; the others are not captured.
_FIELDS: Final = (
    MESSAGE_ID, None, "to", "subject", "replyTo", "correlationId", "contentType", None, None, None, "sessionId",
    None, "replyToSessionId",
)  # fmt: skip
_HEADER: Final = 0x70
_HEADER_FIELDS: Final = 5
_UINT_MAX: Final = (1 << 32) - 1
_KEY_ENTRY: Final = b"\xa3\x13x-opt-partition-key"
_APPLICATION_HEAD: Final = bytes((0, 0x53, encoding.APPLICATION_PROPERTIES))


def payloads(rows: pa.RecordBatch) -> Column:
    """As senders send them; a scheduled time is not told, because it is over. Raises NotEncodable."""
    parts: list[Column] = []
    if _is_told(rows, "expiresAt"):
        parts.append(_headers(rows.column("enqueuedTime"), rows.column("expiresAt")))
    if _is_told(rows, "partitionKey"):
        parts.append(_annotations(rows.column("partitionKey")))
    parts.append(_properties(rows))
    if _is_told(rows, "properties"):
        parts.append(_application_properties(rows.column("properties"), rows.column("propertyTypes")))
    parts += encoding.data_section(arrow.filled(rows.column("body"), b""))
    return arrow.joined(*parts)


def _is_told(rows: pa.RecordBatch, name: str) -> bool:
    column = rows.column(name)
    return column.null_count < len(column)


def _headers(starts: Column, ends: Column) -> Column:
    """How long a message has to live, in the smallest form of its number."""
    lives: Longs = np.maximum(arrow.longs(ends) // 1000 - arrow.longs(starts) // 1000, 0)
    has_one = arrow.is_valid(ends)
    if (lives[has_one] > _UINT_MAX).any():
        raise encoding.NotEncodable("a life has no place in 32 bits")
    small = encoding.fixed(ends, lives.astype(">u1"), b"\x52")
    numbers = arrow.chosen(lives > 0, small, b"\x43")
    numbers = arrow.chosen(lives > 255, encoding.fixed(ends, lives.astype(">u4"), b"\x70"), numbers)
    body = arrow.joined(encoding.NULL * 2, arrow.filled(numbers, b""), encoding.NULL * 2)
    fields = encoding.compound(body, np.full(len(body), _HEADER_FIELDS), encoding.LIST_FORM)
    return encoding.only_where(has_one, encoding.section(_HEADER, fields))


def _annotations(keys: Column) -> Column:
    entries = arrow.joined(_KEY_ENTRY, encoding.variable(arrow.filled(keys, ""), encoding.TEXT_FORM))
    entry = encoding.compound(entries, np.full(len(keys), 2), encoding.MAP_FORM)
    return encoding.only_where(arrow.is_valid(keys), encoding.section(encoding.MESSAGE_ANNOTATIONS, entry))


def _properties(rows: pa.RecordBatch) -> Column:
    body = _each_row(rows, [encoding.NULL if name is None else _field(rows, name) for name in _FIELDS])
    fields = encoding.compound(body, np.full(len(body), len(_FIELDS)), encoding.LIST_FORM)
    return encoding.section(encoding.PROPERTIES, fields)


def _each_row(rows: pa.RecordBatch, parts: list[Column | bytes]) -> Column:
    """Joined row by row, also where all rows have the same."""
    if all(isinstance(part, bytes) for part in parts):
        same = b"".join(part for part in parts if isinstance(part, bytes))
        return arrow.repeated(same, encoding.BINARY, rows.num_rows)
    return arrow.joined(*parts)


def _field(rows: pa.RecordBatch, name: str) -> Column | bytes:
    if not _is_told(rows, name):
        return encoding.NULL
    column = rows.column(name)
    if name != "contentType":
        return encoding.with_null(encoding.variable(column, encoding.TEXT_FORM))
    if not arrow.is_ascii(column):
        raise encoding.NotEncodable("a content type is not ASCII")
    return encoding.with_null(encoding.variable(column, encoding.SYMBOL_FORM))


def _application_properties(texts: Column, types: Column) -> Column:
    """An element for each row, empty for a row without. Equal ones are read once."""
    known: dict[tuple[str | None, str | None], bytes] = {}
    found: list[bytes] = []
    for pair in zip(texts.to_pylist(), types.to_pylist(), strict=True):
        section = known.get(pair)
        if section is None:
            section = known[pair] = _section(*pair)
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _section(text: str | None, types: str | None) -> bytes:
    try:
        properties = properties_of(text, types)
        return _APPLICATION_HEAD + encode_value(properties) if properties else b""
    except ValueError as error:  # UnknownProperties and EncodeError are such
        raise encoding.NotEncodable(str(error)) from error
