"""A message as HTTP has it: a request as an AMQP payload, and a delivery as an answer.

What a client sends becomes the payload that the rest of the house knows (S-5, S-21). The body becomes one data
section. The id of a message without one is the codec's business, as for AMQP.

An answer is body, BrokerProperties, custom properties (R-23, M-33). The body: data sections as they are, one after
the other; a string as UTF-8; binary as it is; any other AMQP value, and sequences, as JSON. A body that cannot be
decoded comes as the bytes it is encoded with. What AMQP clients sent is stored unread, so each part is decoded by
itself here, and one that is malformed costs only that part.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    BODY_SECTIONS_MAX,
    DATA,
    VALUE,
    AmqpMessage,
    Sections,
    batch_contents,
    decode_message,
    encode_message,
    has_null_body,
    scan,
    scan_properties,
)
from busway.amqp.types import Symbol, Timestamp
from busway.broker.fragment.outlet import Delivery
from busway.gateway.http.messages.message_properties import (
    BROKER_PROPERTIES,
    NO_PROPERTIES,
    BrokerProperties,
    broker_properties,
    checked_value,
    described_lock,
    described_message,
    headers_of,
    json_form,
    properties_of,
)
from busway.gateway.http.untrusted_input import is_text, parse_json
from busway.message.message import LAST_INSTANT_MS, Message
from busway.model.errors import BadArgument, MessageTooLarge

BATCH_CONTENT_TYPE: Final = "application/vnd.microsoft.servicebus.json"
#: What header.ttl can hold; a longer time is told by the absolute expiry besides, as AMQP clients do.
_TTL_MS_MAX: Final = 0xFFFF_FFFF
_PARSED_AT_ONCE_BYTES: Final = 64 * 1024
_MADE_AT_ONCE: Final = 500
_MEDIA_TYPE: Final = re.compile(r"[\x20-\x7e]{1,1024}")


def is_batch(content_type: str | None) -> bool:
    media_type = (content_type or "").partition(";")[0]
    return media_type.strip().lower() == BATCH_CONTENT_TYPE


def single_payload(
    body: bytes, headers: Iterable[tuple[str, bytes]], content_type: str | None, now_ms: int
) -> bytes:
    """One message: body, BrokerProperties and the other headers. `headers` have the names as they were spelled.
    Raises BadArgument, ArgumentOutOfRange."""
    sent = list(headers)
    found = [content for name, content in sent if name.lower() == "brokerproperties"]
    if len(found) > 1:
        raise BadArgument("The header BrokerProperties comes twice.")
    known = NO_PROPERTIES
    if found:
        known = broker_properties(parse_json(found[0], "The header BrokerProperties"))
    if content_type is not None and "content_type" not in known.texts:
        known = _with_content_type(known, content_type)
    return _encoded(body, known, properties_of(sent), now_ms)


async def batch_payloads(body: bytes, now_ms: int, taken: Callable[[int], None]) -> list[bytes]:
    """All messages of a batch. `taken` is told the bytes of each as it is made, and may raise. Others have their turn
    meanwhile: there may be tens of thousands, as many as in a batch over AMQP."""
    if len(body) > _PARSED_AT_ONCE_BYTES:
        sent = await asyncio.to_thread(parse_json, body, "The body")
    else:
        sent = parse_json(body, "The body")
    if not isinstance(sent, list) or not sent:
        raise BadArgument("The body of a batch must be a JSON list of one or more messages.")
    if len(sent) > BODY_SECTIONS_MAX:
        raise MessageTooLarge(
            f"The batch has {len(sent)} messages; at most {BODY_SECTIONS_MAX} are possible."
        )
    payloads: list[bytes] = []
    for index, item in enumerate(sent):
        if index % _MADE_AT_ONCE == _MADE_AT_ONCE - 1:
            await asyncio.sleep(0)
        payloads.append(_batch_item(item, f"Message {index} of the batch", now_ms))
        taken(len(payloads[-1]))
    return payloads


def _batch_item(item: object, what: str, now_ms: int) -> bytes:
    if not isinstance(item, dict):
        raise BadArgument(f"{what} must be an object with Body, BrokerProperties and UserProperties.")
    body = item.get("Body")
    if not isinstance(body, str | None) or not is_text(body or ""):
        raise BadArgument(f"{what}: Body must be a string.")
    known, custom = item.get("BrokerProperties"), item.get("UserProperties")
    if not isinstance(custom, dict | None):
        raise BadArgument(f"{what}: UserProperties must be an object.")
    return _encoded(
        (body or "").encode(),
        NO_PROPERTIES if known is None else broker_properties(known, f"{what}: BrokerProperties"),
        {name: checked_value(name, value) for name, value in (custom or {}).items()},
        now_ms,
    )


def _with_content_type(known: BrokerProperties, content_type: str) -> BrokerProperties:
    if _MEDIA_TYPE.fullmatch(content_type) is None:
        raise BadArgument("The header Content-Type must be ASCII and no longer than 1,024 characters.")
    texts = {**known.texts, "content_type": content_type}
    return BrokerProperties(texts, known.keys, known.ttl_ms, known.scheduled_at_ms)


def _encoded(body: bytes, known: BrokerProperties, custom: Mapping[str, object], now_ms: int) -> bytes:
    annotations: dict[str, object] = dict(known.keys)
    if known.scheduled_at_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(known.scheduled_at_ms)
    try:
        return encode_message(
            AmqpMessage(
                [body],
                DATA,
                header=None if known.ttl_ms is None else Header(ttl=min(known.ttl_ms, _TTL_MS_MAX)),
                message_annotations=annotations or None,
                properties=_properties(known, now_ms),
                application_properties=dict(custom) or None,
            )
        )
    except EncodeError as error:
        raise BadArgument("A property of the message cannot be stored.") from error


def _properties(known: BrokerProperties, now_ms: int) -> Properties | None:
    fields: dict[str, Any] = dict(known.texts)
    if "content_type" in fields:
        fields["content_type"] = Symbol(fields["content_type"])
    if known.ttl_ms is not None and known.ttl_ms > _TTL_MS_MAX:
        fields["creation_time"] = Timestamp(now_ms)
        fields["absolute_expiry_time"] = Timestamp(min(now_ms + known.ttl_ms, LAST_INSTANT_MS))
    return Properties(**fields) if fields else None


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


#: How a body is encoded, for people.
_KINDS: Final = {0: "none", DATA: "data", VALUE: "value"}


def told_message(message: Message, payload: bytes, body_bytes_max: int) -> dict[str, object]:
    """A message in JSON, for whoever looks without taking it: BrokerProperties as everywhere, custom properties
    of every name, and so much of the body. `Body` is text where it is text, else base64."""
    found = scan(payload)
    properties = _readable(lambda: scan_properties(payload, found)) or Properties()
    annotations = _map(payload, found.message_annotations_at, found.message_annotations_end)
    custom = _map(payload, found.application_properties_at, found.application_properties_end)
    body, _ = _body(payload, found)
    shown = body[:body_bytes_max]
    told: dict[str, object] = {
        "Number": str(message.sequence_number),
        "BrokerProperties": described_message(message, properties, annotations),
        "UserProperties": {str(name): json_form(value) for name, value in custom.items()},
        "ContentType": header_text(properties.content_type),
        "EnqueuedAtMs": message.enqueued_at_ms,
        "Size": message.size(),
        "BodyKind": _KINDS.get(found.body_kind, "sequence"),
        "BodyBytes": len(body),
    }
    try:
        told["Body"] = shown.decode("utf-8")
    except UnicodeDecodeError:
        told["BodyBase64"] = base64.b64encode(shown).decode("ascii")
    return told


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
