"""What a dead letter is changed into before it is sent again.

A fix names a part of the message and a SQL expression of Spark over the columns of format `servicebus`. Spark
computes the values while it browses, and they are put into the message when it is moved. What no fix names stays
byte for byte as it was, bodies of AMQP values and properties of any type included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.client.messages import NO_BODY, PARTITION_KEY, SCHEDULED_TIME, ServiceBusReceivedMessage
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY

BODY: Final = "body"
TIME_TO_LIVE: Final = "timeToLive"
SCHEDULED: Final = "scheduledEnqueueTime"
PARTITION: Final = "partitionKey"
PROPERTY_MARK: Final = "properties."
#: Columns that are fields of the AMQP properties.
_FIELDS: Final = {
    "messageId": "message_id",
    "sessionId": "group_id",
    "subject": "subject",
    "contentType": "content_type",
    "correlationId": "correlation_id",
    "to": "to",
    "replyTo": "reply_to",
    "replyToSessionId": "reply_to_group_id",
}
PARTS: Final = (*_FIELDS, PARTITION, TIME_TO_LIVE, SCHEDULED, BODY)
_BY_LOWER: Final = {name.lower(): name for name in PARTS}
#: What only a dead letter, or one that a stream holds, bears.
LEFT_OUT: Final = ("DeadLetterReason", "DeadLetterErrorDescription", CLAIM_PROPERTY)
_TTL_MS_MAX: Final = (1 << 32) - 1


class WrongFix(ValueError):
    """The fix cannot be understood; a sentence."""


@dataclass(frozen=True)
class Fix:
    #: One of PARTS, or `properties.NAME`.
    part: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> Fix:
        """`subject='new'`, `properties.tenant=concat('t-', sessionId)`. Raises WrongFix."""
        name, mark, expression = text.partition("=")
        if not mark or not expression.strip():
            raise WrongFix(f"--set {text[:80]}: write it as NAME=EXPRESSION, such as subject=\"'new'\".")
        return cls(_part(name.strip()), expression.strip())


def _part(name: str) -> str:
    if name.lower().startswith(PROPERTY_MARK) and len(name) > len(PROPERTY_MARK):
        return PROPERTY_MARK + name[len(PROPERTY_MARK) :]
    proper = _BY_LOWER.get(name.lower())
    if proper is None:
        raise WrongFix(
            f"--set {name[:80]}: there is no such part of a message. There are {', '.join(PARTS)},"
            " and properties.NAME."
        )
    return proper


def encode_fixed(
    message: ServiceBusReceivedMessage, changes: Mapping[str, Any], message_id: str | None
) -> bytes:
    """The dead letter as it is sent again. `changes`: part → value, None takes the part away; `message_id` replaces
    the message's own, unless a fix gives one."""
    payload = message.encode_again(LEFT_OUT)
    if message_id is not None and "messageId" not in changes:
        changes = {**changes, "messageId": message_id}
    if not changes:
        return payload
    found = decode_message(payload)
    head = AmqpMessage(
        None,
        NO_BODY,
        header=_header(found.header, changes),
        message_annotations=_annotations(found.message_annotations or {}, changes) or None,
        properties=_fields(found.properties or Properties(), changes),
        application_properties=_properties(found.application_properties or {}, changes) or None,
    )
    return encode_message(head) + _tail(payload, changes)


def _header(header: Header | None, changes: Mapping[str, Any]) -> Header | None:
    if TIME_TO_LIVE not in changes:
        return header
    life_ms = changes[TIME_TO_LIVE]
    life = None if life_ms is None else UInt(max(1, min(int(life_ms), _TTL_MS_MAX)))
    return Header(ttl=life) if header is None else Header(header.durable, header.priority, life)


def _annotations(annotations: dict[Any, Any], changes: Mapping[str, Any]) -> dict[Any, Any]:
    changed = dict(annotations)
    for part, name in ((PARTITION, PARTITION_KEY), (SCHEDULED, SCHEDULED_TIME)):
        if part not in changes:
            continue
        changed.pop(Symbol(name), None)
        value = changes[part]
        if value is not None:
            changed[Symbol(name)] = Timestamp(int(value)) if part == SCHEDULED else str(value)
    return changed


def _fields(properties: Properties, changes: Mapping[str, Any]) -> Properties:
    changed: dict[str, Any] = {}
    for part, name in _FIELDS.items():
        if part in changes:
            value = changes[part]
            changed[name] = Symbol(str(value)) if part == "contentType" and value is not None else value
    return replace(properties, **changed)


def _properties(properties: dict[Any, Any], changes: Mapping[str, Any]) -> dict[Any, Any]:
    changed = dict(properties)
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
