"""A message as rules see it (T-2, T-24): its properties, decoded at most once and only when a rule asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.types import Described, Timestamp
from busway.message.bare import (
    CONTENT_TYPE,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_TO_GROUP_ID,
    SUBJECT,
    TO,
    application_properties,
    property_fields,
)
from busway.message.dotnet_time import EPOCH_TICKS, TICKS_PER_MS
from busway.message.head import read_head
from busway.message.message import NEVER_MS, Message
from busway.rules.subject import Subject, folded
from busway.rules.values import MISSING, Instant, Missing, Span, Value

_FIELD_OF: Final[dict[str, int]] = {
    "MessageId": MESSAGE_ID,
    "To": TO,
    "Label": SUBJECT,
    "ReplyTo": REPLY_TO,
    "CorrelationId": CORRELATION_ID,
    "ContentType": CONTENT_TYPE,
    "SessionId": GROUP_ID,
    "ReplyToSessionId": REPLY_TO_GROUP_ID,
}
_STATE_ACTIVE: Final = 0


class MessageSubject(Subject):
    """Never raises: what cannot be decoded is not there."""

    __slots__ = ("_fields", "_known", "_user", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._user: dict[str, Value] | None = None
        self._fields: list[bytes] | None = None
        #: System properties that had to be decoded: a rule may ask for one of 64 KB sixty times.
        self._known: dict[str, Value] | None = None

    def user(self, folded_name: str) -> Value | Missing:
        properties = self._user
        if properties is None:
            properties = self._user = _user_properties(self.message.bare)
        return properties.get(folded_name, MISSING)

    def system(self, name: str) -> Value:
        known = self._known
        if known is not None and name in known:
            return known[name]
        read = _OTHERS.get(name)
        if read is not None:
            return read(self.message)
        if known is None:
            known = self._known = {}
        value = known[name] = self._looked_up(name)
        return value

    def _looked_up(self, name: str) -> Value:
        field = _FIELD_OF.get(name)
        if field is not None:
            return self._field(field)
        read = _IN_HEAD.get(name)
        return None if read is None else read(self.message)

    def _field(self, field: int) -> Value:
        fields = self._fields
        if fields is None:
            fields = self._fields = _fields_of(self.message.bare)
        if field >= len(fields):
            return None
        value = _decoded(fields[field])
        # M-1: an id of another AMQP type is known by its text.
        return value if value is None or isinstance(value, str) else _id_text(value)


def _fields_of(bare: bytes) -> list[bytes]:
    try:
        return property_fields(bare)
    except DecodeError:
        return []


def _user_properties(bare: bytes) -> dict[str, Value]:
    try:
        found = application_properties(bare)
    except DecodeError:
        return {}
    return {folded(str(name)): value_of_amqp(value) for name, value in found.items()}


def _decoded(data: bytes) -> Value:
    try:
        return value_of_amqp(decode_value(data)[0])
    except DecodeError:
        return None


def _id_text(value: Value) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def value_of_amqp(value: object) -> Value:
    """What rules work with; compound values and unknown described ones are null to them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Timestamp):
        return instant_of_ms(value)
    if isinstance(value, (int, float, bytes)):
        return value
    if isinstance(value, UUID):
        return value
    if isinstance(value, Described):
        return _described(value)
    return None


def _described(value: Described) -> Value:
    descriptor, inner = value.descriptor, value.value
    if descriptor == "com.microsoft:timespan" and isinstance(inner, int):
        return Span(int(inner))
    if descriptor == "com.microsoft:datetime-offset" and isinstance(inner, int):
        return Instant(int(inner))
    if descriptor == "com.microsoft:uri" and isinstance(inner, str):
        return str(inner)
    return None


def instant_of_ms(at_ms: int) -> Instant:
    return Instant(EPOCH_TICKS + at_ms * TICKS_PER_MS)


def _annotation(message: Message, key: str) -> Value:
    count, entries = read_head(message.head).message_annotations
    at = 0
    for _ in range(count >> 1):
        name, at = decode_value(entries, at)
        value, at = decode_value(entries, at)
        if name == key:
            return value_of_amqp(value)
    return None


def _enqueued(message: Message) -> Value:
    return instant_of_ms(message.enqueued_at_ms) if message.enqueued_at_ms else None


def _expires(message: Message) -> Value:
    if not message.enqueued_at_ms or message.expires_at_ms >= NEVER_MS:
        return None
    return instant_of_ms(message.expires_at_ms)


def _dead_letter_source(message: Message) -> Value:
    return read_head(message.head).dead_letter_source or None


def _first_number(message: Message) -> Value:
    head = read_head(message.head)
    return head.first_number if head.hops else None


#: What is looked for among the sections before the bare message.
_IN_HEAD: Final[dict[str, Callable[[Message], Value]]] = {
    "ViaPartitionKey": lambda message: _annotation(message, "x-opt-via-partition-key"),
    "EnqueuedSequenceNumber": _first_number,
    "DeadLetterSource": _dead_letter_source,
}
_OTHERS: Final[dict[str, Callable[[Message], Value]]] = {
    "PartitionKey": lambda message: message.partition_key,
    "TimeToLive": lambda message: None if message.ttl_ms < 0 else Span(message.ttl_ms * TICKS_PER_MS),
    "ScheduledEnqueueTimeUtc": lambda message: (
        instant_of_ms(message.scheduled_at_ms) if message.scheduled_at_ms else None
    ),
    "EnqueuedTimeUtc": _enqueued,
    "ExpiresAtUtc": _expires,
    "SequenceNumber": lambda message: message.sequence_number or None,
    "DeliveryCount": lambda message: message.delivery_count,
    "Size": lambda message: message.size(),
    "State": lambda message: message.state,
}
