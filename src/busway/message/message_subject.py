"""A message as rules see it (T-2, T-24), and the copies that a publish makes by them (T-4, T-6).

Its properties are decoded at most once and only when a rule asks. Plain copies share everything; a rule's action
changes one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from busway.amqp.decode import DecodeError, decode_value, skip_value
from busway.amqp.encode import encode_value
from busway.amqp.sections import scan
from busway.amqp.types import Byte, Described, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
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
    with_application_properties,
    with_properties,
)
from busway.message.message import EPOCH_TICKS, NEVER_MS, TICKS_PER_MS, Message, read_head
from busway.rules.compiled_rule import ActingRule
from busway.rules.rule import ActionError
from busway.rules.subject import MISSING, ChangeableSubject, Instant, Missing, Span, Subject, Value, folded

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


#: T-4: the property that tells which rule made a copy.
RULE_NAME: Final = "RuleName"
#: What actions may make of a message at most: the sections before the body (L-7), one key (L-8).
_HEADER_BYTES_MAX: Final = 64 * 1024
_KEY_CHARACTERS_MAX: Final = 128
#: header.ttl is an unsigned integer of 32 bits.
_TTL_MS_MAX: Final = (1 << 32) - 1

_KEYS: Final = ("MessageId", "SessionId", "ReplyToSessionId", "PartitionKey", "ViaPartitionKey")
_ANNOTATION_OF: Final[dict[str, str]] = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
}
_RANGES: Final[tuple[tuple[type[int], int, int], ...]] = (
    (UByte, 0, 0xFF),
    (UShort, 0, 0xFFFF),
    (UInt, 0, 0xFFFF_FFFF),
    (ULong, 0, 0xFFFF_FFFF_FFFF_FFFF),
    (Byte, -0x80, 0x7F),
    (Short, -0x8000, 0x7FFF),
    (Int, -0x8000_0000, 0x7FFF_FFFF),
)


def plain_copy(message: Message) -> Message:
    """Another message over the same bytes."""
    copy = Message(
        message.head,
        message.bare,
        ttl_ms=message.ttl_ms,
        session_id=message.session_id,
        partition_key=message.partition_key,
        scheduled_at_ms=message.scheduled_at_ms,
    )
    copy.changes = message.changes
    return copy


def changed_copy(message: Message, rule: ActingRule) -> Message:
    """A copy changed by the rule's action, with the rule's name on it. Raises ActionError."""
    changed = ChangedMessage(message)
    rule.action.apply(changed)
    changed.set_user(RULE_NAME, rule.name)
    return changed.message()


class ChangedMessage(ChangeableSubject):
    """A message while an action changes it: later statements see earlier results (T-53)."""

    __slots__ = ("_annotations", "_copy", "_fields", "_names", "_original", "_set", "_subject", "_system")

    def __init__(self, message: Message) -> None:
        self._copy = plain_copy(message)
        self._subject = MessageSubject(message)
        #: Folded name → the name as it is written, and the value as sent.
        properties = application_properties(message.bare)
        self._names = {folded(str(name)): str(name) for name in properties}
        self._original = {folded(str(name)): value for name, value in properties.items()}
        #: Folded name → new value; None is null, absent from `_names` is gone.
        self._set: dict[str, Value] = {}
        self._system: dict[str, Value] = {}
        self._fields: dict[int, object] = {}
        self._annotations: dict[str, str | None] = {}

    # -- what rules see

    def user(self, folded_name: str) -> Value | Missing:
        if folded_name in self._set:
            return self._set[folded_name]
        if folded_name not in self._names:
            return MISSING
        return self._subject.user(folded_name)

    def system(self, name: str) -> Value:
        return self._system[name] if name in self._system else self._subject.system(name)

    # -- what actions change

    def set_user(self, name: str, value: Value) -> None:
        key = folded(name)
        self._names.setdefault(key, name)
        self._set[key] = value

    def remove_user(self, folded_name: str) -> None:
        self._names.pop(folded_name, None)
        self._set.pop(folded_name, None)

    def set_system(self, name: str, value: Value) -> None:
        if isinstance(value, str):
            value = str(value)  # symbols and characters are texts to rules, and only that to clients
        if name in _KEYS and isinstance(value, str) and len(value) > _KEY_CHARACTERS_MAX:
            raise ActionError(
                f"sys.{name} would have {len(value)} characters; at most {_KEY_CHARACTERS_MAX} are allowed."
            )
        is_symbol = name == "ContentType" and isinstance(value, str)
        if is_symbol and isinstance(value, str) and not value.isascii():
            raise ActionError("sys.ContentType would hold characters outside ASCII.")
        self._system[name] = value
        copy = self._copy
        if name in _FIELD_OF:
            self._fields[_FIELD_OF[name]] = Symbol(value) if is_symbol else value
            if name == "SessionId":
                copy.session_id = value if isinstance(value, str) else None
        elif name in _ANNOTATION_OF:
            text = value if isinstance(value, str) else None
            self._annotations[_ANNOTATION_OF[name]] = text
            if name == "PartitionKey":
                copy.partition_key = text
        elif name == "TimeToLive":
            copy.ttl_ms = (
                min(max(value.ticks // TICKS_PER_MS, 0), _TTL_MS_MAX) if isinstance(value, Span) else -1
            )
        # T-7: a scheduled time has no effect in a subscription; ForcePersistence has none anywhere (M-13).

    # -- the result

    def message(self) -> Message:
        """Raises ActionError when the properties have grown too large (L-7)."""
        copy = self._copy
        if self._fields:
            copy.bare = with_properties(copy.bare, self._fields)
        copy.bare = with_application_properties(copy.bare, self._fresh(), self._removed())
        if self._annotations:
            copy.head = _with_annotations(copy.head, self._annotations)
        grown = len(copy.bare) - len(self._subject.message.bare)
        if grown > 0 and _properties_bytes(copy.bare) > _HEADER_BYTES_MAX:
            raise ActionError(f"The properties of the message have grown over {_HEADER_BYTES_MAX} bytes.")
        return copy

    def _fresh(self) -> dict[bytes, bytes]:
        fresh: dict[bytes, bytes] = {}
        for key, value in self._set.items():
            name = self._names[key]
            encoded = encode_value(amqp_value(value, self._original.get(key)))
            fresh[name.encode()] = encode_value(name) + encoded
        return fresh

    def _removed(self) -> dict[bytes, bool]:
        gone = {str(name) for name in application_properties(self._subject.message.bare)}
        gone -= set(self._names.values())
        return {name.encode(): True for name in gone}


def amqp_value(value: Value, original: object) -> object:
    """The value as AMQP carries it, in the type that the property had where it fits (T-51)."""
    if isinstance(value, Instant):
        return Timestamp((value.ticks - EPOCH_TICKS) // TICKS_PER_MS)
    if isinstance(value, Span):
        return Described(Symbol("com.microsoft:timespan"), Long(value.ticks))
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer(value, original)
    return value if isinstance(value, str | bool | float | bytes | UUID) else None


def _integer(value: int, original: object) -> object:
    for kind, least, most in _RANGES:
        if isinstance(original, kind) and least <= value <= most:
            make: Callable[[int], object] = kind  # as a type of integers mypyc would make a plain int of it
            return make(value)
    if not -(1 << 63) <= value < 1 << 63:
        return ULong(value)
    return Long(value)


def _properties_bytes(bare: bytes) -> int:
    cut = scan(bare)
    return max(cut.properties_end, cut.application_properties_end, 0)


def _with_annotations(head: bytes, changed: dict[str, str | None]) -> bytes:
    parts = read_head(head)
    count, entries = parts.message_annotations
    kept: list[bytes] = []
    at = 0
    for _ in range(count >> 1):
        value_at = skip_value(entries, at, len(entries))
        after = skip_value(entries, value_at, len(entries))
        name, _ = decode_value(entries, at)
        if name not in changed:
            kept.append(entries[at:after])
        at = after
    for key, text in changed.items():
        if text is not None:
            kept.append(encode_value(Symbol(key)) + encode_value(text))
    parts.message_annotations = (2 * len(kept), b"".join(kept))
    return parts.encoded()
