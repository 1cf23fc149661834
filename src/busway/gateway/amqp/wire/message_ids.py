"""A message id for messages that come without one (M-1).

Some clients send without an id and yet cannot receive without: the service gives such a message one, and so does
this gateway. The id is spliced into the properties section, and nothing else of the bare message changes. It is for
receivers only: duplicates are found by ids that senders chose (S-40), so `Message.message_id` stays as it was.
"""

from typing import Final

from busway.amqp.sections import compound_start, scan
from busway.clock import Entropy
from busway.message.message import Message

_NULL: Final = 0x40
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0
#: A properties section in its usual form: described by the small ulong 0x73.
_PROPERTIES: Final = b"\x00\x53\x73"
_ID_BYTES: Final = 16
#: A string of so many hexadecimal digits.
_ID_START: Final = bytes((0xA1, 2 * _ID_BYTES))


def ensure_message_id(message: Message, entropy: Entropy) -> None:
    """Gives the message an id if it has none. For one that has, this looks at six bytes."""
    bare = message.bare
    if len(bare) > 12 and bare[2] == 0x73 and bare[1] == 0x53:
        code = bare[3]
        if code == _LIST8 and bare[5] != 0 and bare[6] != _NULL:
            return
        if code == _LIST32 and bare[12] != _NULL and bare[8:12] != b"\0\0\0\0":
            return
    message.bare = _identified(bare, _ID_START + entropy.bytes(_ID_BYTES).hex().encode())


def _identified(bare: bytes, encoded_id: bytes) -> bytes:
    """The bare message with this id, unless it has one after all."""
    cut = scan(bare)
    at, end = cut.properties_at, cut.properties_end
    if at < 0:
        return _PROPERTIES + bytes((_LIST8, len(encoded_id) + 1, 1)) + encoded_id + bare
    count, first = compound_start(bare, at, end)
    if count > 0:
        if bare[first] != _NULL:
            return bare
        first += 1
    fields = encoded_id + bare[first:end]
    return bare[:at] + _list_start(bare[at], max(count, 1), len(fields)) + fields + bare[end:]


def _list_start(code: int, count: int, size_bytes: int) -> bytes:
    """Constructor, size and count; a short list stays short while it can."""
    if code != _LIST32 and count < 256 and size_bytes + 1 < 256:
        return bytes((_LIST8, size_bytes + 1, count))
    return bytes((_LIST32,)) + (size_bytes + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
