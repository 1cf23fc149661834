"""A message as the broker holds it.

The sender's bytes are split once, at the gateway, and never re-encoded afterwards:

  head   what the sender put *before* the bare message and gets back: header fields and annotations, in a
         compact form (opaque to broker and store; often empty)
  bare   properties, application properties, body and footer exactly as they arrived (opaque everywhere)

Everything else is what broker decisions need. `changes` holds application properties that settlement changed
(R-11, R-14, D-6): an encoded AMQP map laid over the bare message's own application properties at delivery.

The layout of a head, which only `Head` and `read_head` know (`busway.gateway.amqp.message_mapping` makes it
of what was sent, and what is delivered of it):

  byte 0       flags, see the constants below; an empty head says nothing at all
  1 byte       the priority, if set
  11 + n bytes the origin of a forwarded message, if any: hops so far, its first sequence number (8 bytes), length
               (2 bytes) and text of the entity whose dead-letter queue it left (M-15, M-21, F-6, F-10)
  4 + 4 bytes  delivery annotations, if any: number of keys and values, length in bytes; then the entries as sent
  4 bytes      message annotations, if any: number of keys and values; then the entries as sent, to the end

Times that clients write are .NET's: ticks of 100 ns since the year 1, until the year 9999 ends. They write no
others.
"""

from __future__ import annotations

from typing import Final

#: 1970-01-01 in ticks, and ticks in a millisecond.
EPOCH_TICKS: Final = 621_355_968_000_000_000
TICKS_PER_MS: Final = 10_000
#: In milliseconds since 1970: the beginning of the year 1, and the last instant of the year 9999.
FIRST_INSTANT_MS: Final = -62_135_596_800_000
LAST_INSTANT_MS: Final = 253_402_300_799_999


def ticks_of(at_ms: int) -> int:
    """`at_ms`: since 1970. The service writes ETags and session locks so."""
    return EPOCH_TICKS + at_ms * TICKS_PER_MS


#: Where the row of a message lies, and what clients are told as its state: the same numbers.
PLACE_ACTIVE: Final = 0
PLACE_DEFERRED: Final = 1
PLACE_SCHEDULED: Final = 2

#: Expiry of a message that never expires: past every date a client can write.
NEVER_MS: Final = 1 << 60


class Message:
    """One message of one fragment. Plain slots: hundreds of thousands of these are made each second."""

    __slots__ = (
        "bare",
        "changes",
        "delivery_count",
        "enqueued_at_ms",
        "expires_at_ms",
        "head",
        "message_id",
        "partition_key",
        "scheduled_at_ms",
        "sequence_number",
        "session_id",
        "state",
        "ttl_ms",
    )

    def __init__(
        self,
        head: bytes,
        bare: bytes,
        *,
        ttl_ms: int = -1,
        message_id: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        scheduled_at_ms: int = 0,
    ) -> None:
        self.head = head
        self.bare = bare
        #: The sender's own time to live, -1 when it set none. Comes back in the header as sent (M-27a).
        self.ttl_ms = ttl_ms
        #: Text form of properties.message-id (M-1). Filled only where the entity detects duplicates.
        self.message_id = message_id
        #: properties.group-id; the empty string is a session id, None is none (S-7).
        self.session_id = session_id
        self.partition_key = partition_key
        #: x-opt-scheduled-enqueue-time, 0 when absent.
        self.scheduled_at_ms = scheduled_at_ms
        # The broker's own fields, set when the message is appended or read back from a store.
        self.sequence_number = 0
        self.enqueued_at_ms = 0
        self.expires_at_ms = NEVER_MS
        self.delivery_count = 0
        self.changes: bytes | None = None
        self.state = PLACE_ACTIVE

    def size(self) -> int:
        """Bytes that count toward the entity's size (L-21, M-24)."""
        changes = self.changes
        return len(self.head) + len(self.bare) + (0 if changes is None else len(changes))


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
