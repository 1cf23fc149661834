"""Fields of a message that few senders set: columns that a query gets when option `columns` names them, and that may
be written. They are read message by message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, TimestampType

from busway.amqp.performatives import Properties
from busway.amqp.sections import decode_message, encode_message
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusReceivedMessage
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MS_MAX: Final = 253_402_300_799_999
_UINT_MAX: Final = (1 << 32) - 1
_TIMESTAMP_FORM: Final = b"\x83"
_UINT_FORM: Final = b"\x70"

#: By column: its type, its field among the properties of a message and that field's place.
FIELDS: Final[dict[str, tuple[DataType, str, int]]] = {
    "userId": (BinaryType(), "user_id", 1),
    "contentEncoding": (StringType(), "content_encoding", 7),
    "absoluteExpiryTime": (TimestampType(), "absolute_expiry_time", 8),
    "creationTime": (TimestampType(), "creation_time", 9),
    "groupSequence": (LongType(), "group_sequence", 11),
}
TYPES: Final[dict[str, DataType]] = {
    **{name: entry[0] for name, entry in FIELDS.items()},
    "timeToLive": LongType(),
}


# -- reading


def reading_of(name: str) -> Callable[[ServiceBusReceivedMessage], object]:
    if name == "timeToLive":
        return lambda message: message.time_to_live_ms
    kind, field, _ = FIELDS[name]

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
    given = {name: row[name] for name in FIELDS if row.get(name) is not None}
    if not given:
        return payload
    message = decode_message(payload)
    message.properties = message.properties or Properties()
    for name, value in given.items():
        setattr(message.properties, FIELDS[name][1], _as_amqp(name, value))
    return encode_message(message)


def _as_amqp(name: str, value: object) -> object:
    if isinstance(value, datetime):
        return Timestamp((value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1))
    if name == "contentEncoding":
        return Symbol(value)
    if name == "groupSequence":
        return UInt(int(str(value)))
    return bytes(value) if isinstance(value, bytes | bytearray) else value
