"""The head of a message: what the sender put before the bare message and gets back, in a compact form.

The broker keeps it as opaque bytes; this file alone knows the layout:

  byte 0       flags, see the constants below; an empty head says nothing at all
  1 byte       the priority, if set
  11 + n bytes the origin of a forwarded message, if any: hops so far, its first sequence number (8 bytes), length
               (2 bytes) and text of the entity whose dead-letter queue it left (M-15, M-21, F-6, F-10)
  4 + 4 bytes  delivery annotations, if any: number of keys and values, length in bytes; then the entries as sent
  4 bytes      message annotations, if any: number of keys and values; then the entries as sent, to the end
"""

from __future__ import annotations

from typing import Final

DURABLE_SET: Final = 1
DURABLE: Final = 2
PRIORITY_SET: Final = 4
FIRST_ACQUIRER_SET: Final = 8
FIRST_ACQUIRER: Final = 16
DELIVERY_ANNOTATIONS: Final = 32
MESSAGE_ANNOTATIONS: Final = 64
FORWARDED: Final = 128

_ORIGIN_BYTES: Final = 11
_HOPS_MAX: Final = 255


class Head:
    """Taken apart. Annotations are the number of keys and values, and the encoded entries."""

    __slots__ = (
        "dead_letter_source",
        "delivery_annotations",
        "first_number",
        "flags",
        "hops",
        "message_annotations",
        "priority",
    )

    def __init__(self) -> None:
        self.flags = 0
        self.priority = 0
        #: How often it was forwarded; the next two mean nothing while it is 0.
        self.hops = 0
        self.first_number = 0
        self.dead_letter_source = ""
        self.delivery_annotations: tuple[int, bytes] = (0, b"")
        self.message_annotations: tuple[int, bytes] = (0, b"")

    def encoded(self) -> bytes:
        flags = self.flags & ~(DELIVERY_ANNOTATIONS | MESSAGE_ANNOTATIONS | FORWARDED)
        delivery_count, delivery_entries = self.delivery_annotations
        message_count, message_entries = self.message_annotations
        flags |= DELIVERY_ANNOTATIONS if delivery_count else 0
        flags |= MESSAGE_ANNOTATIONS if message_count else 0
        flags |= FORWARDED if self.hops else 0
        if flags == 0:
            return b""
        out = bytearray((flags,))
        if flags & PRIORITY_SET:
            out.append(self.priority)
        if self.hops:
            source = self.dead_letter_source.encode()
            out.append(min(self.hops, _HOPS_MAX))
            out += self.first_number.to_bytes(8, "big")
            out += len(source).to_bytes(2, "big")
            out += source
        if delivery_count:
            out += delivery_count.to_bytes(4, "big")
            out += len(delivery_entries).to_bytes(4, "big")
            out += delivery_entries
        if message_count:
            out += message_count.to_bytes(4, "big")
            out += message_entries
        return bytes(out)


def read_head(data: bytes) -> Head:
    head = Head()
    if not data:
        return head
    flags = head.flags = data[0]
    at = 1
    if flags & PRIORITY_SET:
        head.priority = data[at]
        at += 1
    if flags & FORWARDED:
        head.hops = data[at]
        head.first_number = int.from_bytes(data[at + 1 : at + 9], "big")
        length = int.from_bytes(data[at + 9 : at + _ORIGIN_BYTES], "big")
        at += _ORIGIN_BYTES
        head.dead_letter_source = data[at : at + length].decode()
        at += length
    if flags & DELIVERY_ANNOTATIONS:
        count = int.from_bytes(data[at : at + 4], "big")
        length = int.from_bytes(data[at + 4 : at + 8], "big")
        head.delivery_annotations = (count, data[at + 8 : at + 8 + length])
        at += 8 + length
    if flags & MESSAGE_ANNOTATIONS:
        head.message_annotations = (int.from_bytes(data[at : at + 4], "big"), data[at + 4 :])
    return head
