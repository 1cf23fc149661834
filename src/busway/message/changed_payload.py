"""A message as AMQP encodes it, with parts of it changed: what a dead letter becomes before it is sent again.

`changes` name parts as the format `servicebus` names its columns, and `properties.NAME`; None takes a part away. What
nothing names stays as it was, the body byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Symbol, Timestamp, UInt

BODY: Final = "body"
TIME_TO_LIVE: Final = "timeToLive"
SCHEDULED: Final = "scheduledEnqueueTime"
PARTITION: Final = "partitionKey"
MESSAGE_ID: Final = "messageId"
PROPERTY_MARK: Final = "properties."
#: Parts that are fields of the AMQP properties.
_FIELDS: Final = {
    MESSAGE_ID: "message_id",
    "sessionId": "group_id",
    "subject": "subject",
    "contentType": "content_type",
    "correlationId": "correlation_id",
    "to": "to",
    "replyTo": "reply_to",
    "replyToSessionId": "reply_to_group_id",
}
PARTS: Final = (*_FIELDS, PARTITION, TIME_TO_LIVE, SCHEDULED, BODY)
_NO_BODY: Final = 0
_PARTITION_KEY: Final = "x-opt-partition-key"
_SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
_TTL_MS_MAX: Final = (1 << 32) - 1


def is_part(name: str) -> bool:
    return name in PARTS or (name.startswith(PROPERTY_MARK) and len(name) > len(PROPERTY_MARK))


def changed_payload(payload: bytes, changes: Mapping[str, Any], without: Collection[str] = ()) -> bytes:
    """Without the application properties that are named. Raises ValueError, TypeError or OverflowError for what AMQP
    cannot say."""
    found = decode_message(payload)
    head = AmqpMessage(
        None,
        _NO_BODY,
        header=_header(found.header, changes),
        delivery_annotations=found.delivery_annotations,
        message_annotations=_annotations(found.message_annotations or {}, changes) or None,
        properties=_fields(found.properties or Properties(), changes),
        application_properties=_properties(found.application_properties or {}, changes, without) or None,
    )
    return encode_message(head) + _tail(payload, changes)


def _header(header: Header | None, changes: Mapping[str, Any]) -> Header | None:
    if TIME_TO_LIVE not in changes:
        return header
    life_ms = changes[TIME_TO_LIVE]
    life = None if life_ms is None else UInt(max(1, min(int(life_ms), _TTL_MS_MAX)))
    return Header(ttl=life) if header is None else Header(header.durable, header.priority, life)


def _annotations(annotations: dict[Any, Any], changes: Mapping[str, Any]) -> dict[Any, Any]:
    """The time that it was once scheduled for is over: it does not come back."""
    changed = {name: value for name, value in annotations.items() if name != _SCHEDULED_TIME}
    if PARTITION in changes:
        changed.pop(Symbol(_PARTITION_KEY), None)
        if changes[PARTITION] is not None:
            changed[Symbol(_PARTITION_KEY)] = str(changes[PARTITION])
    if changes.get(SCHEDULED) is not None:
        changed[Symbol(_SCHEDULED_TIME)] = Timestamp(int(changes[SCHEDULED]))
    return changed


def _fields(properties: Properties, changes: Mapping[str, Any]) -> Properties:
    changed: dict[str, Any] = {}
    for part, name in _FIELDS.items():
        if part in changes:
            value = changes[part]
            changed[name] = Symbol(str(value)) if part == "contentType" and value is not None else value
    return replace(properties, **changed) if changed else properties


def _properties(
    properties: dict[Any, Any], changes: Mapping[str, Any], without: Collection[str]
) -> dict[Any, Any]:
    changed = {name: value for name, value in properties.items() if name not in without}
    for part, value in changes.items():
        if not part.startswith(PROPERTY_MARK):
            continue
        name = part[len(PROPERTY_MARK) :]
        changed.pop(name, None)
        if value is not None:
            changed[name] = value
    return changed


def _tail(payload: bytes, changes: Mapping[str, Any]) -> bytes:
    """Body and footer. A new body makes a footer, which may hold its checksum, wrong: it goes."""
    if BODY in changes:
        body = changes[BODY]
        data = body.encode() if isinstance(body, str) else bytes(body or b"")
        return encode_message(AmqpMessage([data], DATA))
    found = scan(payload)
    tail = payload[found.body_start : found.body_end] if found.body_kind else b""
    return tail + (payload[found.footer_start : found.footer_end] if found.footer_at >= 0 else b"")
