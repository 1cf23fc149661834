"""`BrokerProperties`: the system properties of a message as one JSON object, a header of single messages and a
member of each message of a batch (S-5, S-21, M-1…M-13).

Read: the members of the table below. null is the same as absent, everything else is ignored, and so is what only
the broker sets. Written: what the message has of them, and what the broker knows of it (M-14…M-23).

Instants are written as RFC 1123 has them (`Wed, 02 Jul 2014 01:32:27 GMT`), and read as that or as ISO 8601.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from typing import Final
from uuid import UUID

from busway.amqp.performatives import Properties
from busway.gateway.http.json_input import is_text
from busway.message.dotnet_time import LAST_INSTANT_MS
from busway.message.message import Message
from busway.model.durations import FOREVER_MS, parse_duration_or_clock
from busway.model.errors import ArgumentOutOfRange, BadArgument

#: Member → field of the AMQP properties.
_PROPERTIES: Final[Mapping[str, str]] = {
    "CorrelationId": "correlation_id",
    "ContentType": "content_type",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_group_id",
    "SessionId": "group_id",
    "To": "to",
}
#: Member → message annotation.
_KEYS: Final[Mapping[str, str]] = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
}
_STATES: Final = ("Active", "Deferred", "Scheduled")
#: Annotations that the broker adds only to messages they concern (M-15, M-21).
_FORWARDED_NUMBER: Final = "x-opt-enqueue-sequence-number"
_DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
#: From here on a time to live is .NET's longest, give or take what a double cannot hold: none at all.
_NO_TTL_MS: Final = FOREVER_MS - 1_000
#: What a message without a time to live is said to have: .NET's longest. Rust's client wants the member (M-11).
_NO_TTL_S: Final = 922337203685.47754
_CHARACTERS_MAX: Final = 64
_RFC_1123: Final = re.compile(
    r"[A-Za-z]{3}, [0-9]{1,2} [A-Za-z]{3} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (?:GMT|UTC|[+-][0-9]{4})"
)
_ISO: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}\S*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: The last whole second of the year 9999.
_LATEST_S: Final = LAST_INSTANT_MS // 1000


@dataclass(frozen=True)
class BrokerProperties:
    """What a sender may set. `texts` are fields of the AMQP properties, `keys` message annotations."""

    texts: Mapping[str, str]
    keys: Mapping[str, str]
    ttl_ms: int | None = None
    scheduled_at_ms: int | None = None


NO_PROPERTIES: Final = BrokerProperties({}, {})


# -- in


def broker_properties(sent: object, what: str = "BrokerProperties") -> BrokerProperties:
    """Out of parsed JSON. Raises BadArgument or ArgumentOutOfRange."""
    if not isinstance(sent, dict):
        raise BadArgument(f"{what} must be a JSON object.")
    _check_boolean(sent, "ForcePersistence")
    texts = {field: text for name, field in _PROPERTIES.items() if (text := _text(sent, name)) is not None}
    if not texts.get("content_type", "").isascii():
        raise BadArgument("ContentType must be ASCII.")
    return BrokerProperties(
        texts,
        {key: text for name, key in _KEYS.items() if (text := _text(sent, name)) is not None},
        _ttl_ms(sent),
        _scheduled_at_ms(sent),
    )


def _text(sent: Mapping[str, object], name: str) -> str | None:
    value = sent.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not is_text(value):
        raise BadArgument(f"{name} must be a string.")
    return value


def _check_boolean(sent: Mapping[str, object], name: str) -> None:
    """M-13: every message is persistent here, so only its form matters."""
    if not isinstance(sent.get(name), bool | None):
        raise BadArgument(f"{name} must be true or false.")


def _ttl_ms(sent: Mapping[str, object]) -> int | None:
    seconds, span = sent.get("TimeToLive"), _text(sent, "TimeToLiveTimeSpan")
    if seconds is not None and span is not None:
        raise BadArgument("TimeToLive and TimeToLiveTimeSpan say the same thing: set one of them.")
    if span is not None:
        return _checked_ttl("TimeToLiveTimeSpan", parse_duration_or_clock(span, "TimeToLiveTimeSpan"))
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise BadArgument("TimeToLive must be a number of seconds.")
    return _checked_ttl("TimeToLive", int(seconds * 1000))


def _checked_ttl(name: str, ttl_ms: int) -> int | None:
    if ttl_ms <= 0:
        raise ArgumentOutOfRange(f"{name} must be at least a millisecond.")
    return None if ttl_ms >= _NO_TTL_MS else ttl_ms


def _scheduled_at_ms(sent: Mapping[str, object]) -> int | None:
    text = _text(sent, "ScheduledEnqueueTimeUtc")
    return None if text is None else max(0, instant_ms(text, "ScheduledEnqueueTimeUtc"))


# -- out


def described_message(
    message: Message, properties: Properties, annotations: Mapping[object, object]
) -> dict[str, object]:
    """The members that every receiver gets, in alphabetical order as the service writes them. The count of
    deliveries includes this one, as the service's REST API counts (M-20)."""
    members: dict[str, object] = {
        "DeliveryCount": message.delivery_count + 1,
        "EnqueuedSequenceNumber": _number(annotations.get(_FORWARDED_NUMBER)),
        "EnqueuedTimeUtc": http_date(message.enqueued_at_ms),
        "SequenceNumber": message.sequence_number,
        "State": _STATES[message.state],
        "TimeToLive": _seconds(message.ttl_ms) if message.ttl_ms >= 0 else _NO_TTL_S,
    }
    if message.scheduled_at_ms > 0:
        members["ScheduledEnqueueTimeUtc"] = http_date(message.scheduled_at_ms)
    texts = {name: getattr(properties, field) for name, field in _PROPERTIES.items()}
    texts |= {name: annotations.get(key) for name, key in _KEYS.items()}
    texts["DeadLetterSource"] = annotations.get(_DEAD_LETTER_SOURCE)
    members |= {name: text for name, value in texts.items() if (text := id_text(value)) is not None}
    return dict(sorted(members.items()))


def described_lock(token: bytes, locked_until_ms: int) -> dict[str, object]:
    return {"LockToken": lock_token_text(token), "LockedUntilUtc": http_date(locked_until_ms)}


def lock_token_text(token: bytes) -> str:
    """As AMQP clients see it: the token's bytes are in .NET's order."""
    return str(UUID(bytes_le=token))


def id_text(value: object) -> str | None:
    """Ids and addresses may have other AMQP types than string (M-1); None for what is none of them."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, str | int | UUID) else None


def _number(value: object) -> int:
    return int(value) if isinstance(value, int) else 0


def _seconds(ttl_ms: int) -> int | float:
    seconds, rest_ms = divmod(ttl_ms, 1000)
    return seconds if rest_ms == 0 else ttl_ms / 1000


def instant_ms(text: str, what: str) -> int:
    """Milliseconds since 1970, negative before it; a time without a zone is UTC. `what` names it in the error."""
    stripped = text.strip()
    moment = _moment(stripped) if len(stripped) <= _CHARACTERS_MAX else None
    if moment is None:
        raise BadArgument(
            f"{what}: {stripped[:_CHARACTERS_MAX]!r} is not a time such as 'Wed, 02 Jul 2014 01:32:27 GMT' or"
            " '2014-07-02T01:32:27Z'."
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def _moment(text: str) -> datetime | None:
    try:
        if _ISO.fullmatch(text) is not None:
            return datetime.fromisoformat(text)
        if _RFC_1123.fullmatch(text) is not None:
            return parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return None


def http_date(at_ms: int) -> str:
    """RFC 1123, in whole seconds; what lies outside the years 1970 to 9999 is moved to their border."""
    return formatdate(min(max(at_ms // 1000, 0), _LATEST_S), usegmt=True)
