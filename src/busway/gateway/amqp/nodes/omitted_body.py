"""A peeked message without its body, for whoever looks at many large ones (R-60)."""

from __future__ import annotations

from typing import Final

from busway.amqp.encode import append_map, encode_value
from busway.amqp.sections import scan
from busway.amqp.types import Long, Symbol

_OMITTED_KEY: Final = encode_value(Symbol("omitted-message-body-size"))
_SECTION: Final = b"\x00Sq"
_SMALL_MAP: Final = 0xC1


def without_body(payload: bytes) -> bytes:
    """How many bytes the body's sections had is told in the delivery annotations, as the service does. `payload` is a
    message of our writing."""
    found = scan(payload)
    if found.body_kind == 0:
        return payload
    size = found.body_end - found.body_start
    count, entries = 0, b""
    start, end = found.header_end, found.header_end
    if found.delivery_annotations_at >= 0:
        start, end = found.delivery_annotations_start, found.delivery_annotations_end
        count, entries = _entries(payload, found.delivery_annotations_at, end)
    start, end = max(start, 0), max(end, 0)
    out = bytearray(payload[:start])
    out += _SECTION
    append_map(out, entries + _OMITTED_KEY + encode_value(Long(size)), count + 2)
    out += payload[end : found.body_start]
    out += payload[found.body_end :]
    return bytes(out)


def _entries(payload: bytes, at: int, end: int) -> tuple[int, bytes]:
    """Of an encoded map: how many keys and values, and their bytes as they are."""
    if payload[at] == _SMALL_MAP:
        return payload[at + 2], payload[at + 3 : end]
    return int.from_bytes(payload[at + 5 : at + 9], "big"), payload[at + 9 : end]
