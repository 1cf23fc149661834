"""A captured row as the broker's own message, so that the broker's own rules can be asked about it and change it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.message.head import Head
from busway.message.message import Message
from busway_spark.property_types import properties_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
#: Of a message that came to its topic by forwarding: how often is not captured, that it did is.
_HOPS: Final = 1


def captured_message(row: Mapping[str, object]) -> Message:
    """Raises UnknownProperties. Columns that the row lacks are taken as null."""
    bare = AmqpMessage(
        [_bytes(row.get("body"))],
        DATA,
        properties=_properties(row),
        application_properties=properties_of(_text(row, "properties"), _text(row, "propertyTypes")) or None,
    )
    return Message(
        _head(row),
        encode_message(bare),
        ttl_ms=_life_ms(row),
        session_id=_text(row, "sessionId"),
        partition_key=_text(row, "partitionKey"),
        scheduled_at_ms=_instant_ms(row.get("scheduledEnqueueTime")) or 0,
    )


def payload_of(message: Message) -> bytes:
    """As a sender sends it. A scheduled time is not told: it is over."""
    if message.ttl_ms < 0 and message.partition_key is None:
        return message.bare
    front = AmqpMessage(
        None,
        0,
        header=None if message.ttl_ms < 0 else Header(ttl=UInt(message.ttl_ms)),
        message_annotations=None
        if message.partition_key is None
        else {Symbol("x-opt-partition-key"): message.partition_key},
    )
    return encode_message(front) + message.bare


def _properties(row: Mapping[str, object]) -> Properties:
    content_type = _text(row, "contentType")
    return Properties(
        message_id=_text(row, "messageId"),
        to=_text(row, "to"),
        subject=_text(row, "subject"),
        reply_to=_text(row, "replyTo"),
        correlation_id=_text(row, "correlationId"),
        content_type=None if content_type is None else Symbol(content_type),
        group_id=_text(row, "sessionId"),
        reply_to_group_id=_text(row, "replyToSessionId"),
    )


def _head(row: Mapping[str, object]) -> bytes:
    number = row.get("enqueuedSequenceNumber")
    if not isinstance(number, int):
        return b""
    head = Head()
    head.hops, head.first_number = _HOPS, number
    return head.encoded()


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else b""


def _life_ms(row: Mapping[str, object]) -> int:
    end, start = _instant_ms(row.get("expiresAt")), _instant_ms(row.get("enqueuedTime"))
    return -1 if end is None or start is None else max(end - start, 0)


def _instant_ms(value: object) -> Timestamp | None:
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return Timestamp((moment - _EPOCH) // _MS)
