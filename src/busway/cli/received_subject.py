"""A received or peeked message as rules see it (T-2)."""

from typing import TYPE_CHECKING, Final

from busway.rules.subject import Subject, folded
from busway.rules.values import MISSING, Missing, Span, Value
from busway.subject.message_subject import TICKS_PER_MS, instant_of_ms, value_of_amqp

if TYPE_CHECKING:
    from busway.client.messages import ServiceBusReceivedMessage

_STATES: Final = {"active": 0, "deferred": 1, "scheduled": 2}


class ReceivedSubject(Subject):
    def __init__(self, message: "ServiceBusReceivedMessage") -> None:
        self._user = {
            folded(str(name)): value_of_amqp(value) for name, value in message.application_properties.items()
        }
        self._system: dict[str, Value] = {
            "MessageId": _text(message.message_id),
            "CorrelationId": _text(message.correlation_id),
            "To": _text(message.to),
            "ReplyTo": _text(message.reply_to),
            "ReplyToSessionId": message.reply_to_session_id,
            "Label": message.subject,
            "SessionId": message.session_id,
            "ContentType": message.content_type,
            "PartitionKey": _text(message.partition_key),
            "DeadLetterSource": _text(message.dead_letter_source),
            "SequenceNumber": message.sequence_number,
            "DeliveryCount": message.delivery_count,
            "State": _STATES[message.state],
            "EnqueuedTimeUtc": _moment(message.enqueued_time_ms),
            "LockedUntilUtc": _moment(message.locked_until_ms),
            "ScheduledEnqueueTimeUtc": _moment(message.scheduled_enqueue_time_ms),
            "TimeToLive": None
            if message.time_to_live_ms is None
            else Span(message.time_to_live_ms * TICKS_PER_MS),
        }

    def user(self, folded_name: str) -> Value | Missing:
        return self._user.get(folded_name, MISSING)

    def system(self, name: str) -> Value:
        return self._system.get(name)


def _text(value: object) -> str | None:
    """M-1: an id of another AMQP type is known by its text."""
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _moment(at_ms: int | None) -> Value:
    return None if at_ms is None else instant_of_ms(at_ms)
