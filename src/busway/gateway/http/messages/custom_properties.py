"""Application properties as HTTP headers, one for each (M-33).

    Priority: "High"        a string, as JSON writes it
    Priority: High          a string too: what is no JSON value is taken as it stands
    Weight: 12.5            a number: without point and exponent a long, else a double
    Express: true           a boolean; null is null

In: every header is a property, except those of the closed list below, which belong to HTTP, to whoever carries the
request, or to the service. Out: the same list stays free, and so a message cannot set a cookie or move the border of
the body. A name that is no HTTP token, and AMQP's decimals, stay behind (AMQP delivers them); a value
is ASCII with JSON's escapes, so no letter of it can end the line.
"""

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from busway.amqp.types import Array, Decimal, Described, Timestamp
from busway.gateway.http.json_input import is_text, parse_json
from busway.gateway.http.messages.broker_properties import http_date
from busway.message.dotnet_time import EPOCH_TICKS
from busway.model.errors import BadArgument

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
