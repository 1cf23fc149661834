"""The columns of rows that are written to a hub: which are sent, and what of a row stands before its body.

Theory of operation. A sink takes the columns that it knows and ignores all others, as azure-event-hubs-spark does, so
that a frame which was read can be written as it is. What came out of a hub is told from what somebody made up by the
metadata that reading gave its columns (`chosen_columns`), which selections keep:

  properties        of a frame that was read, each value is the JSON text of what was sent, and goes out as that; with
                    the column `propertyTypes` beside them in the type that it had. Of any other frame they are texts,
                    or values of the map's own type
  systemProperties  the fields of an AMQP message (`message-id`, `content-type`, …); what servers set is left out
  partition         or `partitionId`: where the row goes. A partition that was read gives way to the row's key, which
                    leads to the same place in the same hub, and to the right one in any other

A task prepares each batch before it is routed and encoded: `body`, `partitionId`, `partitionKey` as far as there are
such columns, and `sections`, the encoded parts of the message between its annotations and its body. Values of one
type are encoded all at once. Values that are JSON texts are looked at one by one, equal ones once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol, Timestamp, UInt, ULong
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column
from busway_spark.eventhubs.chosen_columns import JSON_VALUES, WAS_READ
from busway_spark.eventhubs.heads import FIELDS
from busway_spark.property_types import UnknownProperties, properties_of, restored
from busway_spark.servicebus.row_messages import property_sections

#: Rows whose encoded section is remembered, in case they are equal.
_KNOWN_MAX: Final = 10_000
_APPLICATION_HEAD: Final = bytes((0, 0x53, encoding.APPLICATION_PROPERTIES))
_PROPERTIES_HEAD: Final = bytes((0, 0x53, encoding.PROPERTIES))

Pairs = list[tuple[str, str | None]]
BODY: Final = "body"
PARTITION: Final = "partition"
PARTITION_ID: Final = "partitionId"
KEY: Final = "partitionKey"
PROPERTIES: Final = "properties"
TYPES: Final = "propertyTypes"
SYSTEM: Final = "systemProperties"
#: What is made of the columns behind them.
SECTIONS: Final = "sections"


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


def _is_place(kind: DataType) -> bool:
    return isinstance(kind, StringType | LongType | IntegerType | ShortType | ByteType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


#: What each column may be: a test, and how it is told.
_COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    BODY: (lambda kind: isinstance(kind, BinaryType | StringType), "binary or string"),
    PARTITION: (_is_place, "string or a whole number"),
    PARTITION_ID: (_is_place, "string or a whole number"),
    KEY: (_is_text, "string"),
    PROPERTIES: (
        lambda kind: _is_map(kind) or _is_text(kind),
        "a map with keys of type string, or a JSON text",
    ),
    TYPES: (_is_text, "string"),
    SYSTEM: (lambda kind: kind.simpleString() == "map<string,string>", "map<string,string>"),
}
_BY_SOUND: Final = {name.lower(): name for name in _COLUMNS}


@dataclass(frozen=True)
class WrittenColumns:
    """Travels to tasks: batches there have lost what the schema says."""

    names: tuple[str, ...] = ()
    has_json_properties: bool = False
    has_json_system: bool = False
    #: Rows were read: their partition is where they were.
    was_read: bool = False

    @classmethod
    def of(cls, schema: StructType, overwrite: bool) -> WrittenColumns:
        """Raises BadRows."""
        if overwrite:
            raise BadRows("A hub cannot be overwritten; use mode('append').")
        if BODY not in schema.names:
            raise BadRows("The column 'body' is missing.")
        marked: set[str] = set()
        for field in schema.fields:
            if field.name in _COLUMNS:
                fits, expected = _COLUMNS[field.name]
                if not fits(field.dataType):
                    kind = field.dataType.simpleString()
                    raise BadRows(f"The column '{field.name}' is {kind}; {expected} is expected.")
                if JSON_VALUES in field.metadata or WAS_READ in field.metadata:
                    marked.add(field.name)
            else:
                _check_meant(field.name)
        names = tuple(name for name in schema.names if name in _COLUMNS)
        return cls(names, PROPERTIES in marked, SYSTEM in marked, PARTITION in marked)

    def prepared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises BadRows."""
        found: dict[str, Column] = {BODY: batch.column(BODY)}
        if KEY in self.names:
            found[KEY] = batch.column(KEY)
        places = self._places(batch)
        if places is not None:
            found[PARTITION_ID] = places
        sections = self._sections(batch)
        if sections:
            found[SECTIONS] = sections[0] if len(sections) == 1 else arrow.joined(*sections)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _places(self, batch: pa.RecordBatch) -> Column | None:
        """Texts; null for a row that says nothing."""
        found = {name: _texts_of(batch, name) for name in (PARTITION, PARTITION_ID) if name in self.names}
        if PARTITION in found and self.was_read and KEY in self.names:
            keyed = arrow.is_valid(batch.column(KEY))
            found[PARTITION] = arrow.chosen(~keyed, found[PARTITION], pa.scalar(None, pa.string()))
        if len(found) < 2:
            return next(iter(found.values()), None)
        first, second = found[PARTITION], found[PARTITION_ID]
        if arrow.has_any(arrow.unequal(first, second)):
            raise BadRows("A row has both partition and partitionId, and they differ.")
        return arrow.chosen(arrow.is_valid(second), second, first)

    def _sections(self, batch: pa.RecordBatch) -> list[Column]:
        """Each with an element for every row, in the order of a message."""
        sections: list[Column] = []
        if SYSTEM in self.names:
            sections.append(property_sections_of_fields(batch.column(SYSTEM), self.has_json_system))
        if PROPERTIES in self.names:
            types = batch.column(TYPES) if TYPES in self.names else None
            sections.append(application_sections(batch.column(PROPERTIES), types, self.has_json_properties))
        return sections


def _check_meant(name: str) -> None:
    """A column that is not sent may have any name but one that was surely meant to be."""
    meant = _BY_SOUND.get(name.replace("_", "").lower())
    if meant is not None:
        raise BadRows(
            f"The column '{name}' would not be sent: it must be called '{meant}', or something else."
        )


def _texts_of(batch: pa.RecordBatch, name: str) -> Column:
    return batch.column(name).cast(pa.string())
