"""The bare message (properties, application properties, body, footer) where something of it must be read by name or
written anew. What is not touched stays byte for byte as it was sent."""

from __future__ import annotations

from typing import Any, Final

from busway.amqp.decode import DecodeError, decode_value, skip_value
from busway.amqp.encode import append_list, append_map, encode_value
from busway.amqp.sections import compound_start, scan

#: Fields of the properties section, in the order of the standard.
MESSAGE_ID: Final = 0
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
CORRELATION_ID: Final = 5
CONTENT_TYPE: Final = 6
GROUP_ID: Final = 10
REPLY_TO_GROUP_ID: Final = 12
_FIELDS: Final = 13

_NULL: Final = b"\x40"


def changed_bare(bare: bytes, changes: bytes) -> bytes:
    """The bare message with changed application properties (an encoded map) laid over the sender's."""
    return with_application_properties(bare, entries_by_name(changes, 0, len(changes)), {})


def with_application_properties(bare: bytes, fresh: dict[bytes, bytes], removed: dict[bytes, bool]) -> bytes:
    """`fresh`: name → encoded key and value, laid over what is there. `removed`: names to leave out."""
    cut = scan(bare)
    out = bytearray()
    at = cut.application_properties_at
    end = cut.application_properties_end
    kept: dict[bytes, bytes] = {}
    if at >= 0:
        kept = entries_by_name(bare, at, end)
        out += bare[: cut.application_properties_start]
    else:
        end = cut.properties_end if cut.properties_at >= 0 else 0
        out += bare[:end]
    kept.update(fresh)
    for name in removed:
        kept.pop(name, b"")
    if kept:
        out += b"\x00St"
        append_map(out, b"".join(kept.values()), 2 * len(kept))
    out += bare[end:]
    return bytes(out)


def with_properties(bare: bytes, fields: dict[int, object]) -> bytes:
    """Fields of the properties section set to other values, or to None."""
    cut = scan(bare)
    encoded: list[bytes] = [_NULL] * _FIELDS
    if cut.properties_at >= 0:
        for field, entry in enumerate(property_fields(bare)[:_FIELDS]):
            encoded[field] = entry
    for field, value in fields.items():
        encoded[field] = encode_value(value)
    while encoded and encoded[-1] == _NULL:
        encoded.pop()
    out = bytearray()
    if encoded:
        out += b"\x00Ss"
        append_list(out, b"".join(encoded), len(encoded))
    start = cut.properties_end if cut.properties_at >= 0 else 0
    out += bare[start:]
    return bytes(out)


def property_fields(bare: bytes) -> list[bytes]:
    """The fields of the properties section, each as it is encoded."""
    cut = scan(bare)
    if cut.properties_at < 0:
        return []
    end = cut.properties_end
    count, at = compound_start(bare, cut.properties_at, end)
    fields: list[bytes] = []
    for _ in range(count):
        after = skip_value(bare, at, end)
        fields.append(bare[at:after])
        at = after
    return fields


def application_properties(bare: bytes) -> dict[Any, Any]:
    """Decoded, in the order they stand in."""
    cut = scan(bare)
    if cut.application_properties_at < 0:
        return {}
    value, _ = decode_value(bare, cut.application_properties_at)
    return value if isinstance(value, dict) else {}


def entries_by_name(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
    """Name → encoded key and value, in the order they stand in."""
    count, at = map_start(data, at, end)
    entries: dict[bytes, bytes] = {}
    for _ in range(count >> 1):
        value_at = skip_value(data, at, end)
        after = skip_value(data, value_at, end)
        name = text_bytes(data, at, value_at)
        entries[data[at:value_at] if name is None else name] = data[at:after]
        at = after
    return entries


def map_start(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(number of keys and values, offset of the first key) of the map at `at`."""
    count, first = compound_start(data, at, end)
    if count & 1:
        raise DecodeError("A map has a key without a value")
    return count, first


def text_bytes(data: bytes, at: int, end: int) -> bytes | None:
    """The bytes of a string or symbol at `at`; None when something else stands there."""
    code = data[at]
    if code in (0xA1, 0xA3):
        return data[at + 2 : end]
    if code in (0xB1, 0xB3):
        return data[at + 5 : end]
    return None
