"""Columns of properties as encoded sections of events: the fields of a message, and application properties.

Values of one type are encoded all at once. Values that are JSON texts are looked at one by one, equal ones once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol, Timestamp, UInt, ULong
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column
from busway_spark.eventhubs.heads import FIELDS
from busway_spark.property_types import UnknownProperties, properties_of, restored
from busway_spark.servicebus.property_entries import property_sections

#: Rows whose encoded section is remembered, in case they are equal.
_KNOWN_MAX: Final = 10_000
_APPLICATION_HEAD: Final = bytes((0, 0x53, encoding.APPLICATION_PROPERTIES))
_PROPERTIES_HEAD: Final = bytes((0, 0x53, encoding.PROPERTIES))

Pairs = list[tuple[str, str | None]]


class BadRows(ValueError):
    """The columns, or a row, cannot be written; the text says which."""


# -- application properties


def application_sections(column: Column, types: Column | None, has_json: bool) -> Column:
    """An element for each row, empty for a row without properties. Raises BadRows."""
    try:
        if types is not None and types.null_count < len(types):
            return _typed_sections(column, types)
        if not has_json or not pa.types.is_map(column.type):
            return property_sections(column)
        return encoding.map_sections(encoding.APPLICATION_PROPERTIES, column, _json_items)
    except (encoding.NotEncodable, UnknownProperties, ValueError, TypeError, OverflowError) as error:
        raise BadRows(f"A row cannot be written, because of its properties: {error}.") from error


def _json_items(items: Column) -> Column:
    """JSON texts as what they tell; null stays null."""
    words, places = arrow.words(items)
    encoded = [encode_value(restored({"": json_value(word)}, None)[""]) for word in words]
    return arrow.taken(pa.array(encoded, encoding.BINARY), places)


def _typed_sections(column: Column, types: Column) -> Column:
    known: dict[object, bytes] = {}
    found: list[bytes] = []
    for given, told in zip(column.to_pylist(), types.to_pylist(), strict=True):
        key = (given if isinstance(given, str) else tuple(given or ()), told)
        section = known.get(key)
        if section is None:
            section = _typed_section(given, told)
            if len(known) < _KNOWN_MAX:
                known[key] = section
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _typed_section(given: Any, told: str | None) -> bytes:
    if not given:
        return b""
    if isinstance(given, str):
        values = properties_of(given, told)
    else:
        values = restored({name: json_value(text) for name, text in given}, told)
    return _APPLICATION_HEAD + encode_value(values) if values else b""


def json_value(text: str | None) -> object:
    """What a JSON text tells; a text that is none tells itself."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- the fields of a message


def property_sections_of_fields(column: Column, has_json: bool) -> Column:
    """An element for each row, empty for a row without any of them. Raises BadRows."""
    known: dict[tuple[tuple[str, str | None], ...], bytes] = {(): b""}
    offsets, names, _ = arrow.map_parts(column)
    if not len(names) or not np.diff(offsets).any():
        return arrow.repeated(b"", encoding.BINARY, len(column))
    found: list[bytes] = []
    for given in column.to_pylist():
        key = tuple(given or ())
        section = known.get(key)
        if section is None:
            section = _fields_section(list(key), has_json)
            if len(known) < _KNOWN_MAX:
                known[key] = section
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _fields_section(pairs: Pairs, has_json: bool) -> bytes:
    values: list[object] = [None] * len(FIELDS)
    for name, text in pairs:
        if text is None or name not in _FIELD_KINDS:
            continue
        value = json_value(text) if has_json else text
        try:
            values[FIELDS.index(name)] = None if value is None else _FIELD_KINDS[name](value, has_json)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadRows(f"A row's systemProperties cannot be written: '{name}': {error}.") from error
    while values and values[-1] is None:
        values.pop()
    if not values:
        return b""
    try:
        return _PROPERTIES_HEAD + encode_value(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRows(f"A row's systemProperties cannot be written: {error}.") from error


def _text(value: object, _: bool) -> object:
    return str(value)


def _symbol(value: object, _: bool) -> object:
    if not str(value).isascii():
        raise ValueError("only ASCII is allowed")
    return Symbol(value)


def _identity(value: object, _: bool) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return ULong(int(str(value))) if is_number else str(value)


def _bytes(value: object, has_json: bool) -> object:
    return base64.b64decode(str(value), validate=True) if has_json else str(value).encode()


def _time(value: object, _: bool) -> object:
    if isinstance(value, int) or str(value).isdigit():
        return Timestamp(int(str(value)))
    at = datetime.fromisoformat(str(value))
    return Timestamp(int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def _number(value: object, _: bool) -> object:
    return UInt(int(str(value)))


_FIELD_KINDS: Final[dict[str, Callable[[object, bool], object]]] = {
    "message-id": _identity, "user-id": _bytes, "to": _text, "subject": _text, "reply-to": _text,
    "correlation-id": _identity, "content-type": _symbol, "content-encoding": _symbol, "absolute-expiry-time": _time,
    "creation-time": _time, "group-id": _text, "group-sequence": _number, "reply-to-group-id": _text,
}  # fmt: skip
