"""A delivery as an HTTP answer: body, BrokerProperties, custom properties (R-23, M-33).

The body: data sections as they are, one after the other; a string as UTF-8; binary as it is; any other AMQP value,
and sequences, as JSON. A body that cannot be decoded comes as the bytes it is encoded with. What AMQP clients sent is
stored unread, so each part is decoded by itself here, and one that is malformed costs only that part.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.performatives import Properties
from busway.amqp.sections import (
    DATA,
    VALUE,
    Sections,
    batch_contents,
    decode_message,
    has_null_body,
    scan,
    scan_properties,
)
from busway.broker.fragment.outlet import Delivery
from busway.gateway.http.messages.broker_properties import described_lock, described_message
from busway.gateway.http.messages.custom_properties import BROKER_PROPERTIES, headers_of, json_form

_CONTENT_TYPE: Final = "Content-Type"
_JSON: Final = "application/json"

_Part = TypeVar("_Part")


class ReceivedMessage:
    """`headers` are ready to be written: ASCII, without line ends, each name once."""

    __slots__ = ("body", "headers")

    def __init__(self, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.body = body
        self.headers = headers


def received_message(delivery: Delivery, payload: bytes) -> ReceivedMessage:
    """`payload` is the delivery in its AMQP form."""
    found = scan(payload)
    properties = _readable(lambda: scan_properties(payload, found)) or Properties()
    annotations = _map(payload, found.message_annotations_at, found.message_annotations_end)
    members = described_message(delivery.message, properties, annotations)
    if delivery.token:
        members |= described_lock(delivery.token, delivery.locked_until_ms)
    body, is_json = _body(payload, found)
    headers = [(BROKER_PROPERTIES, json.dumps(dict(sorted(members.items())), separators=(",", ":")))]
    content_type = header_text(properties.content_type) or (_JSON if is_json else None)
    if content_type is not None:
        headers.append((_CONTENT_TYPE, content_type))
    custom = _map(payload, found.application_properties_at, found.application_properties_end)
    return ReceivedMessage(body, headers + headers_of(custom))


def message_id_of(payload: bytes) -> object:
    """properties.message-id, of whatever type; None without one."""
    found = scan(payload)
    properties = _readable(lambda: scan_properties(payload, found))
    return None if properties is None else properties.message_id


def header_text(value: object) -> str | None:
    """A text of the sender as the value of a header, if it can be one."""
    text = value.strip() if isinstance(value, str) else ""
    return text if text and text.isascii() and text.isprintable() else None


def _body(payload: bytes, found: Sections) -> tuple[bytes, bool]:
    """(the body, whether it is JSON of our making)."""
    if found.body_kind == 0 or has_null_body(payload, found):
        return b"", False
    if found.body_kind == DATA:
        return b"".join(batch_contents(payload, found)), False
    encoded = payload[found.body_start : found.body_end]
    message = _readable(lambda: decode_message(encoded))
    if message is None:
        return encoded, False
    value = message.body
    if found.body_kind == VALUE and isinstance(value, str):
        return value.encode(), False
    if found.body_kind == VALUE and type(value) is bytes:
        return value, False
    return json.dumps(json_form(value)).encode(), True


def _map(payload: bytes, at: int, end: int) -> Mapping[Any, object]:
    value = None if at < 0 else _readable(lambda: decode_value(payload, at, end)[0])
    return value if isinstance(value, dict) else {}


def _readable(read: Callable[[], _Part]) -> _Part | None:
    try:
        return read()
    except DecodeError:
        return None
