"""The properties of a message over HTTP: the system's as one JSON object, the application's as headers.

`BrokerProperties` are the system properties, a header of single messages and a member of each message of a batch
(S-5, S-21, M-1…M-13). Read: the members of the table below. null is the same as absent, everything else is
ignored, and so is what only the broker sets. Written: what the message has of them, and what the broker knows of
it (M-14…M-23). Instants are written as RFC 1123 has them (`Wed, 02 Jul 2014 01:32:27 GMT`), and read as that or as
ISO 8601.

Application properties are HTTP headers, one for each (M-33):

    Priority: "High"        a string, as JSON writes it
    Priority: High          a string too: what is no JSON value is taken as it stands
    Weight: 12.5            a number: without point and exponent a long, else a double
    Express: true           a boolean; null is null

In: every header is a property, except those of the closed list below, which belong to HTTP, to whoever carries the
request, or to the service. Out: the same list stays free, and so a message cannot set a cookie or move the border
of the body. A name that is no HTTP token, and AMQP's decimals, stay behind (AMQP delivers them); a value is ASCII
with JSON's escapes, so no letter of it can end the line.
"""

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Final
from uuid import UUID

from busway.amqp.performatives import Properties
from busway.amqp.types import Array, Decimal, Described, Timestamp
from busway.gateway.http.untrusted_input import is_text, parse_json
from busway.message.message import EPOCH_TICKS, LAST_INSTANT_MS, Message
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


BROKER_PROPERTIES: Final = "BrokerProperties"
#: Never application properties, in either direction.
RESERVED_NAMES: Final = frozenset({
    "accept", "accept-charset", "accept-datetime", "accept-encoding", "accept-language", "accept-ranges",
    "age", "allow", "alt-svc", "authentication-info", "authorization", "baggage", "brokerproperties",
    "cache-control", "clear-site-data", "connection", "cookie", "cookie2", "correlation-context", "date",
    "dnt", "etag", "expect", "expires", "forwarded", "from", "host", "http2-settings", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive", "last-modified",
    "link", "location", "max-forwards", "origin", "pragma", "prefer", "range", "referer", "refresh",
    "request-id", "retry-after", "server", "servicebusdlqsupplementaryauthorization",
    "servicebussupplementaryauthorization", "set-cookie", "set-cookie2", "strict-transport-security", "te",
    "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "upgrade-insecure-requests",
    "user-agent", "vary", "via", "warning", "www-authenticate", "x-content-type-options", "x-frame-options",
    "x-real-ip", "x-xss-protection",
})  # fmt: skip
RESERVED_PREFIXES: Final = ("access-control-", "content-", "proxy-", "sec-", "x-forwarded-", "x-ms-")

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,39})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,399})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,9})?")
_WORDS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_TICKS_PER_S: Final = 10_000_000


def is_reserved(name: str) -> bool:
    lowered = name.lower()
    return lowered in RESERVED_NAMES or lowered.startswith(RESERVED_PREFIXES)


# -- in


def properties_of(headers: Iterable[tuple[str, bytes]]) -> dict[str, object]:
    """The properties among the headers, under the spelling they were sent with. Raises BadArgument."""
    found: dict[str, object] = {}
    seen: set[str] = set()
    for name, content in headers:
        if is_reserved(name):
            continue
        if name.lower() in seen:
            raise BadArgument(f"The header {name[:64]!r} comes twice: a property has one value.")
        seen.add(name.lower())
        found[name] = _header_value(name, content)
    return found


def _header_value(name: str, content: bytes) -> object:
    try:
        text = content.decode().strip()
    except UnicodeDecodeError as error:
        raise BadArgument(f"The header {name[:64]!r} is not UTF-8.") from error
    if text.startswith('"'):
        return checked_value(name, parse_json(text.encode(), f"The header {name[:64]!r}"))
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) is not None:
        return checked_value(name, int(text))
    if _DECIMAL.fullmatch(text) is not None:
        return checked_value(name, float(text))
    return text


def checked_value(name: str, value: object) -> object:
    """A JSON value that a property can have (M-31, M-34). Raises BadArgument."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not is_text(value):
            raise BadArgument(f"The property {name[:64]!r} holds half of a surrogate pair.")
        return value
    if isinstance(value, int):
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise BadArgument(
                f"The property {name[:64]!r} is a number of more than 64 bits; write it as a string."
            )
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadArgument(f"The property {name[:64]!r} is a number too large for a double.")
        return value
    raise BadArgument(
        f"The property {name[:64]!r} must be a string, a number, a boolean or null, not a list or an object."
    )


# -- out


def headers_of(properties: Mapping[Any, object]) -> list[tuple[str, str]]:
    """(name, value) of every property that can be a header."""
    headers: list[tuple[str, str]] = []
    seen: set[str] = set()
    for name, value in properties.items():
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None or is_reserved(name):
            continue
        if name.lower() in seen:  # two names that HTTP cannot tell apart: the first one stays
            continue
        if isinstance(value, Decimal):
            continue
        seen.add(name.lower())
        headers.append((name, json.dumps(json_form(value))))
    return headers


def json_form(value: object) -> object:
    """The value in JSON's words: times as RFC 1123, binary as base64, numbers that are none as their names. Maps
    and lists, which only bodies hold, member by member; their depth was bounded when they were decoded."""
    if isinstance(value, dict):
        return {_member_name(key): json_form(member) for key, member in value.items()}
    if isinstance(value, Array):
        return [json_form(member) for member in value.items]
    if isinstance(value, list):
        return [json_form(member) for member in value]
    return _simple_form(value)


def _member_name(key: object) -> str:
    return str(key) if isinstance(key, str) else json.dumps(json_form(key))


def _simple_form(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return http_date(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Described):
        return _described(value)
    return str(value)  # strings, symbols, chars, uuids


def _described(value: Described) -> object:
    """M-32: what .NET's clients describe; anything else by what it holds."""
    inner = value.value
    ticks = inner if isinstance(inner, int) and not isinstance(inner, bool) else None
    if ticks is not None and value.descriptor == "com.microsoft:datetime-offset":
        return http_date((ticks - EPOCH_TICKS) // (_TICKS_PER_S // 1000))
    if ticks is not None and value.descriptor == "com.microsoft:timespan":
        return _timespan(ticks)
    return json_form(inner)


def _timespan(ticks: int) -> str:
    """As .NET writes it: [-][d.]hh:mm:ss[.fffffff]."""
    seconds, fraction = divmod(abs(ticks), _TICKS_PER_S)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    sign = "-" if ticks < 0 else ""
    return sign + (f"{days}." if days else "") + text + (f".{fraction:07d}" if fraction else "")
