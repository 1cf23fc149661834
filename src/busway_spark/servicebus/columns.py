"""The columns of `format("servicebus")`: which there are, of which type, and which a query wants.

Fields of a message that few senders set are columns that a query gets when option `columns` names them, and that may
be written. They are read message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from busway.amqp.performatives import Properties
from busway.amqp.sections import decode_message, encode_message
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusReceivedMessage
from busway.message.message import LAST_INSTANT_MS
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column
from busway_spark.bodies.body_columns import BODY, CORRUPT, NUMBER
from busway_spark.given_options import WrongColumns
from busway_spark.servicebus.options import JSON, ServiceBusOptions, WrongOption

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MS_MAX: Final = LAST_INSTANT_MS
_UINT_MAX: Final = (1 << 32) - 1
_TIMESTAMP_FORM: Final = b"\x83"
_UINT_FORM: Final = b"\x70"

#: By column: its type, its field among the properties of a message and that field's place.
RARE_FIELDS: Final[dict[str, tuple[DataType, str, int]]] = {
    "userId": (BinaryType(), "user_id", 1),
    "contentEncoding": (StringType(), "content_encoding", 7),
    "absoluteExpiryTime": (TimestampType(), "absolute_expiry_time", 8),
    "creationTime": (TimestampType(), "creation_time", 9),
    "groupSequence": (LongType(), "group_sequence", 11),
}
RARE_TYPES: Final[dict[str, DataType]] = {
    **{name: entry[0] for name, entry in RARE_FIELDS.items()},
    "timeToLive": LongType(),
}
_TEXT: Final = StringType()
_TYPES: Final[dict[str, DataType]] = {
    "body": BinaryType(),
    "messageId": _TEXT,
    "sessionId": _TEXT,
    "partitionKey": _TEXT,
    "subject": _TEXT,
    "contentType": _TEXT,
    "correlationId": _TEXT,
    "to": _TEXT,
    "replyTo": _TEXT,
    "replyToSessionId": _TEXT,
    "sequenceNumber": LongType(),
    "enqueuedSequenceNumber": LongType(),
    "enqueuedTime": TimestampType(),
    "expiresAt": TimestampType(),
    "scheduledEnqueueTime": TimestampType(),
    "deliveryCount": IntegerType(),
    "state": _TEXT,
    "fragment": IntegerType(),
    "deadLetterReason": _TEXT,
    "deadLetterErrorDescription": _TEXT,
    "deadLetterSource": _TEXT,
    "properties": MapType(_TEXT, VariantType()),
    "entity": _TEXT,
}
#: Only where option `columns` names them: the AMQP types of the properties whose JSON does not tell them, and fields
#: that few senders set.
_ON_REQUEST: Final[dict[str, DataType]] = {"propertyTypes": _TEXT, **RARE_TYPES}
#: What a sender may set as text.
TEXT_COLUMNS: Final = (
    "messageId", "sessionId", "partitionKey", "subject", "contentType", "correlationId", "to", "replyTo",
    "replyToSessionId",
)  # fmt: skip
_WRITABLE: Final = frozenset(
    {
        "body",
        "properties",
        "propertyTypes",
        "entity",
        "scheduledEnqueueTime",
        *RARE_TYPES,
        *TEXT_COLUMNS,
    }
)


# -- reading


def reading_of(name: str) -> Callable[[ServiceBusReceivedMessage], object]:
    if name == "timeToLive":
        return lambda message: message.time_to_live_ms
    kind, field, _ = RARE_FIELDS[name]

    def read(message: ServiceBusReceivedMessage) -> object:
        properties = message.raw_amqp_message.properties
        value = None if properties is None else getattr(properties, field)
        if value is None:
            return None
        if isinstance(kind, TimestampType):
            return _EPOCH + timedelta(milliseconds=max(0, min(int(value), _TIME_MS_MAX)))
        if isinstance(kind, BinaryType):
            return value if isinstance(value, bytes) else str(value).encode()
        return str(value) if isinstance(kind, StringType) else int(value)

    return read


# -- writing


def encoded_field(name: str, column: Column) -> Column | bytes:
    """The field of each row's properties. Raises NotEncodable."""
    if column.null_count == len(column):
        return encoding.NULL
    if name == "userId":
        return encoding.with_null(encoding.variable(column, encoding.BYTES_FORM))
    if name == "contentEncoding":
        if not arrow.is_ascii(column):
            raise encoding.NotEncodable("a content encoding is not ASCII")
        return encoding.with_null(encoding.variable(column, encoding.SYMBOL_FORM))
    if name == "groupSequence":
        numbers = arrow.longs(column)
        if (numbers < 0).any() or (numbers > _UINT_MAX).any():
            raise encoding.NotEncodable("a group sequence has no place in 32 bits")
        return encoding.with_null(encoding.fixed(column, numbers.astype(">u4"), _UINT_FORM))
    millis: Any = arrow.longs(column.cast(pa.timestamp("us", "UTC"))) // 1000
    return encoding.with_null(encoding.fixed(column, np.asarray(millis).astype(">i8"), _TIMESTAMP_FORM))


def with_fields(payload: bytes, row: Mapping[str, object]) -> bytes:
    """The message with what the row says of them. Raises ValueError."""
    given = {name: row[name] for name in RARE_FIELDS if row.get(name) is not None}
    if not given:
        return payload
    message = decode_message(payload)
    message.properties = message.properties or Properties()
    for name, value in given.items():
        setattr(message.properties, RARE_FIELDS[name][1], _as_amqp(name, value))
    return encode_message(message)


def _as_amqp(name: str, value: object) -> object:
    if isinstance(value, datetime):
        return Timestamp((value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1))
    if name == "contentEncoding":
        return Symbol(value)
    if name == "groupSequence":
        return UInt(int(str(value)))
    return bytes(value) if isinstance(value, bytes | bytearray) else value


def readable_schema(options: ServiceBusOptions) -> StructType:
    """What a query gets: all columns, or those of option `columns` in their order. Raises WrongOption."""
    types = _types(options)
    names = tuple(types) if options.columns is None else options.columns
    types |= _ON_REQUEST
    by_lower = {name.lower(): name for name in types}
    fields: list[StructField] = []
    for name in names:
        proper = by_lower.get(name.lower())
        if proper is None:
            raise WrongOption("columns", f"'{name[:60]}' is not a column. There are {', '.join(types)}.")
        fields.append(StructField(proper, types[proper]))
    if not fields or len({each.name for each in fields}) < len(fields):
        raise WrongOption("columns", "must name at least one column, and none twice.")
    return StructType(fields)


def check_readable(schema: StructType, options: ServiceBusOptions) -> None:
    """A schema that the query brought may leave columns out and order them. Raises WrongColumns."""
    types = {**_types(options), **_ON_REQUEST}
    for each in schema.fields:
        expected = types.get(each.name)
        if expected is None:
            raise WrongColumns(
                f"'{each.name}' is not a column of 'servicebus'. There are {', '.join(types)}."
            )
        if each.dataType != expected:
            raise WrongColumns(
                f"Column '{each.name}' of 'servicebus' is {expected.simpleString()}, "
                f"not {each.dataType.simpleString()}."
            )


def check_writable(schema: StructType, options: ServiceBusOptions) -> None:
    """Columns that only a server sets may be there, they are not sent; unknown ones may not. Raises WrongColumns."""
    types = {each.name: each.dataType for each in schema.fields}
    for name in types:
        if name not in _WRITABLE and name not in _TYPES:
            raise WrongColumns(
                f"'{name}' is not a column that can be written to 'servicebus'. "
                f"There are {', '.join(sorted(_WRITABLE))}."
            )
    if "body" not in types:
        raise WrongColumns("Writing to 'servicebus' needs a column 'body', binary or string.")
    if options.address is None and "entity" not in types:
        raise WrongOption("queue", "is missing; say 'queue' or 'topic', or give each row a column 'entity'.")
    for name, kind in types.items():
        if name in _WRITABLE:
            _check_type(name, kind)


def _check_type(name: str, kind: DataType) -> None:
    allowed: tuple[type[DataType], ...] = (StringType,)
    if name == "body":
        allowed = (BinaryType, StringType)
    elif name == "scheduledEnqueueTime":
        allowed = (TimestampType,)
    elif name == "timeToLive":
        allowed = (DayTimeIntervalType, LongType, IntegerType)
    elif name in RARE_FIELDS:
        allowed = (type(RARE_FIELDS[name][0]),)
        allowed += (IntegerType,) if name == "groupSequence" else ()
    elif name == "properties":
        allowed = (MapType, StringType)
    if not isinstance(kind, allowed):
        words = " or ".join(each.typeName() for each in allowed)
        raise WrongColumns(f"Column '{name}' must be {words} to be written, not {kind.simpleString()}.")
    if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
        raise WrongColumns("Column 'properties' must have keys of type string.")


def binary_schema(schema: StructType) -> StructType:
    """What a reader must give so that bodies can be decoded: they are binary and have their numbers beside them."""
    fields = {each.name: each for each in schema.fields if each.name not in (BODY, CORRUPT)}
    for name in (BODY, NUMBER):
        fields[name] = StructField(name, _TYPES[name])
    return StructType(list(fields.values()))


def _types(options: ServiceBusOptions) -> dict[str, DataType]:
    """Of the columns that a query gets unless it names others, as its options want them."""
    types = dict(_TYPES)
    if options.properties == JSON:
        types["properties"] = _TEXT
    if not options.bodies.is_binary:
        types[BODY] = options.bodies.body_type()
    if options.bodies.keeps_corrupt:
        types[CORRUPT] = BinaryType()
    return types
