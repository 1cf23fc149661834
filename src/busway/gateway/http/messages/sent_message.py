"""What a client sends over HTTP, as the AMQP payload that the rest of the house knows (S-5, S-21).

The body becomes one data section. The id of a message without one is the codec's business, as for AMQP.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from busway.amqp.encode import EncodeError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import BODY_SECTIONS_MAX, DATA, AmqpMessage, encode_message
from busway.amqp.types import Symbol, Timestamp
from busway.gateway.http.json_input import is_text, parse_json
from busway.gateway.http.messages.broker_properties import NO_PROPERTIES, BrokerProperties, broker_properties
from busway.gateway.http.messages.custom_properties import checked_value, properties_of
from busway.message.dotnet_time import LAST_INSTANT_MS
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
