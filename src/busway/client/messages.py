"""Messages as a program sends and receives them. Names follow the official Python client.

`resubmitted_id` is the id under which a dead letter is sent again to an entity that detects duplicates. Such an
entity remembers the ids of the originals and would drop what comes back under one of them, and with it the
message. So it gets an id of its own: the old one and the place of the dead letter. It is the same whenever the
same dead letter is sent, so that a second attempt after a crash is dropped, as it should be.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final
from uuid import UUID, uuid4

from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Symbol, Timestamp, UInt

_TTL_MS_MAX: Final = (1 << 32) - 1

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
PARTITION_KEY: Final = "x-opt-partition-key"
MESSAGE_STATE: Final = "x-opt-message-state"
DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
ENQUEUED_NUMBER: Final = "x-opt-enqueue-sequence-number"
#: Annotations that a sender does not send.
_GIVEN_BY_SERVER: Final = frozenset(
    {
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        SCHEDULED_TIME,
        MESSAGE_STATE,
        DEAD_LETTER_SOURCE,
        ENQUEUED_NUMBER,
    }
)
NO_BODY: Final = 0
_NO_PROPERTIES: Final = Properties()
STATES: Final = {0: "active", 1: "deferred", 2: "scheduled"}


@dataclass(frozen=True)
class ServiceBusMessage:
    """A message to send. Without a message id each sending gives it a new one."""

    body: bytes
    application_properties: Mapping[str, object] = field(default_factory=dict)
    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    time_to_live_ms: int | None = None

    def encode(self, scheduled_enqueue_time_ms: int | None = None) -> bytes:
        return encode_message(
            AmqpMessage(
                [self.body],
                DATA,
                header=self._header(),
                properties=self._properties(),
                application_properties=dict(self.application_properties) or None,
                message_annotations=self._annotations(scheduled_enqueue_time_ms),
            )
        )

    def _header(self) -> Header | None:
        if self.time_to_live_ms is None:
            return None
        return Header(ttl=UInt(min(self.time_to_live_ms, _TTL_MS_MAX)))

    def _properties(self) -> Properties:
        return Properties(
            message_id=self.message_id if self.message_id is not None else uuid4().hex,
            group_id=self.session_id,
            subject=self.subject,
            content_type=None if self.content_type is None else Symbol(self.content_type),
            correlation_id=self.correlation_id,
            to=self.to,
            reply_to=self.reply_to,
            reply_to_group_id=self.reply_to_session_id,
        )

    def _annotations(self, scheduled_enqueue_time_ms: int | None) -> dict[object, object] | None:
        annotations: dict[object, object] = {}
        if self.partition_key is not None:
            annotations[Symbol(PARTITION_KEY)] = self.partition_key
        if scheduled_enqueue_time_ms is not None:
            annotations[Symbol(SCHEDULED_TIME)] = Timestamp(scheduled_enqueue_time_ms)
        return annotations or None


class ServiceBusReceivedMessage:
    """A message that came from the server. `lock_token` and `delivery_id` say how it can be settled."""

    def __init__(
        self, payload: bytes, *, lock_token: UUID | None = None, delivery_id: int | None = None
    ) -> None:
        #: The encoded message as it came.
        self.payload = payload
        #: None when it was peeked or is deleted already.
        self.lock_token = lock_token
        #: None when it did not come by a link.
        self.delivery_id = delivery_id
        #: A lock ends once: the server no longer knows a delivery whose outcome it has confirmed.
        self.is_settled = False

    def __repr__(self) -> str:
        return f"<ServiceBusReceivedMessage #{self.sequence_number} {len(self.body)} bytes>"

    @cached_property
    def raw_amqp_message(self) -> AmqpMessage:
        """All sections as they came, for what has no property here. It is decoded when it is first asked for."""
        return decode_message(self.payload)

    @property
    def _properties(self) -> Properties:
        return self.raw_amqp_message.properties or _NO_PROPERTIES

    @property
    def body(self) -> bytes:
        """The bytes of the data sections; a value or sequence as its text."""
        value = self.raw_amqp_message.body
        if self.raw_amqp_message.body_kind == DATA and isinstance(value, list):
            return b"".join(value)
        if value is None or isinstance(value, bytes):
            return value or b""
        return str(value).encode()

    @property
    def application_properties(self) -> dict[str, object]:
        return self.raw_amqp_message.application_properties or {}

    @property
    def message_id(self) -> object:
        return self._properties.message_id

    @property
    def correlation_id(self) -> object:
        return self._properties.correlation_id

    @property
    def session_id(self) -> str | None:
        return self._properties.group_id

    @property
    def subject(self) -> str | None:
        return self._properties.subject

    @property
    def content_type(self) -> str | None:
        return self._properties.content_type

    @property
    def to(self) -> object:
        return self._properties.to

    @property
    def reply_to(self) -> object:
        return self._properties.reply_to

    @property
    def partition_key(self) -> object:
        return self._annotation(PARTITION_KEY)

    @property
    def dead_letter_source(self) -> object:
        return self._annotation(DEAD_LETTER_SOURCE)

    @property
    def sequence_number(self) -> int | None:
        return self._number(SEQUENCE_NUMBER)

    @property
    def enqueued_time_ms(self) -> int | None:
        return self._number(ENQUEUED_TIME)

    @property
    def locked_until_ms(self) -> int | None:
        return self._number(LOCKED_UNTIL)

    @property
    def scheduled_enqueue_time_ms(self) -> int | None:
        return self._number(SCHEDULED_TIME)

    @property
    def time_to_live_ms(self) -> int | None:
        header = self.raw_amqp_message.header
        return None if header is None else header.ttl

    @property
    def delivery_count(self) -> int:
        header = self.raw_amqp_message.header
        return 0 if header is None or header.delivery_count is None else header.delivery_count

    @property
    def state(self) -> str:
        number = self._number(MESSAGE_STATE)
        return STATES.get(0 if number is None else number, "active")

    @property
    def reply_to_session_id(self) -> str | None:
        return self._properties.reply_to_group_id

    def encode_again(self, without: Collection[str] = (), message_id: str | None = None) -> bytes:
        """The message as a sender would send it: its body and footer byte for byte, its life, its id unless another
        is given, without what the server gave it, and without the application properties that are named."""
        properties = {
            name: value for name, value in self.application_properties.items() if name not in without
        }
        named = self._properties if message_id is None else replace(self._properties, message_id=message_id)
        head = AmqpMessage(
            None,
            NO_BODY,
            header=self._sent_header(),
            message_annotations=self._sent_annotations() or None,
            properties=replace(named, absolute_expiry_time=None, creation_time=None),
            application_properties=properties or None,
        )
        found = scan(self.payload)
        tail = self.payload[found.body_start : found.body_end] if found.body_kind else b""
        if found.footer_at >= 0:
            tail += self.payload[found.footer_start : found.footer_end]
        return encode_message(head) + tail

    def _sent_header(self) -> Header | None:
        header = self.raw_amqp_message.header
        return None if header is None else Header(header.durable, header.priority, header.ttl)

    def _sent_annotations(self) -> dict[object, object]:
        annotations = self.raw_amqp_message.message_annotations or {}
        return {name: value for name, value in annotations.items() if str(name) not in _GIVEN_BY_SERVER}

    def _annotation(self, name: str) -> object:
        return (self.raw_amqp_message.message_annotations or {}).get(name)

    def _number(self, name: str) -> int | None:
        value = self._annotation(name)
        return int(value) if isinstance(value, int) else None


def encode_batch(payloads: list[bytes]) -> bytes:
    return encode_message(AmqpMessage(list(payloads), DATA))


_LETTERS_MAX: Final = 128
_ENDING: Final = re.compile(r"~dl-[0-9a-f]{6}-\d+$")


def resubmitted_id(original: object, source: str, number: int) -> str:
    """`source`: the queue or subscription whose dead letter it is; `number`: its sequence number there."""
    place = hashlib.sha256(source.lower().encode()).hexdigest()[:6]
    ending = f"~dl-{place}-{number}"
    plain = "" if original is None else _ENDING.sub("", str(original))
    return plain[: _LETTERS_MAX - len(ending)] + ending
