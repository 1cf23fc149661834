"""The bare message (properties, application properties, body, footer) where something of it must be read by name or
written anew. What is not touched stays byte for byte as it was sent.

Some clients send without a message id and yet cannot receive without: the service gives such a message one, and so
do the gateways (M-1, `ensure_message_id`). The id is spliced into the properties section, and nothing else of
the bare message changes. It is for receivers only: duplicates are found by ids that senders chose (S-40), so
`Message.message_id` stays as it was.
"""

from __future__ import annotations

from typing import Any, Final

from busway.amqp.decode import DecodeError, decode_value, skip_value
from busway.amqp.encode import append_list, append_map, encode_value
from busway.amqp.sections import compound_start, scan
from busway.clock import Entropy
from busway.message.message import Message

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
_NULL_CODE: Final = 0x40
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0
#: A properties section in its usual form: described by the small ulong 0x73.
_PROPERTIES_START: Final = b"\x00\x53\x73"
_ID_BYTES: Final = 16
#: A string of so many hexadecimal digits.
_ID_START: Final = bytes((0xA1, 2 * _ID_BYTES))


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


def ensure_message_id(message: Message, entropy: Entropy) -> None:
    """Gives the message an id if it has none. For one that has, this looks at six bytes."""
    bare = message.bare
    if len(bare) > 12 and bare[2] == 0x73 and bare[1] == 0x53:
        code = bare[3]
        if code == _LIST8 and bare[5] != 0 and bare[6] != _NULL_CODE:
            return
        if code == _LIST32 and bare[12] != _NULL_CODE and bare[8:12] != b"\0\0\0\0":
            return
    message.bare = _identified(bare, _ID_START + entropy.bytes(_ID_BYTES).hex().encode())


def _identified(bare: bytes, encoded_id: bytes) -> bytes:
    """The bare message with this id, unless it has one after all."""
    cut = scan(bare)
    at, end = cut.properties_at, cut.properties_end
    if at < 0:
        return _PROPERTIES_START + bytes((_LIST8, len(encoded_id) + 1, 1)) + encoded_id + bare
    count, first = compound_start(bare, at, end)
    if count > 0:
        if bare[first] != _NULL_CODE:
            return bare
        first += 1
    fields = encoded_id + bare[first:end]
    return bare[:at] + _list_start(bare[at], max(count, 1), len(fields)) + fields + bare[end:]


def _list_start(code: int, count: int, size_bytes: int) -> bytes:
    """Constructor, size and count; a short list stays short while it can."""
    if code != _LIST32 and count < 256 and size_bytes + 1 < 256:
        return bytes((_LIST8, size_bytes + 1, count))
    return bytes((_LIST32,)) + (size_bytes + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
