"""Runs of messages between the wire and the broker: cut out of the read that they came in, written as they leave.

Theory of operation. `message_mapping` says what is kept of a payload and which bytes a delivery is made of; it knows
everything that a sender may do and everything that may have happened to a message. Most messages of a run are like
the one before, and for these the same is done here in one go.

In: `UsualMessages` steps over the sections where they lie, once and in machine numbers. What stands before the bare
message must be known already (`message_mapping` remembers what it has read), and one copy is made, of the bare
message. Whatever is not so, or not right, is answered with None: then `message_of` is asked, and it alone words the
refusals. So both make the same of every payload, and what is overlooked here costs time, not meaning.

Out: most deliveries of a run are made of the same bytes, but for the lock token, our numbers and the bare message,
and fit one frame. `DeliveryWriter` writes these straight into the run's piece of bytes. All others, a second
delivery of a message for one, take the way of their own, `delivery_payload` and `Link.send`. What is written is the
same on both ways, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.byte_writer import (
    BytesWriter,
    i64,
    read_i16_le,
    read_i32_le,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from busway.amqp.decode import DESCRIBED, SIZE_OF_FOUR_BYTES, SIZE_OF_ONE_BYTE, SKIP_WIDTHS, DecodeError
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    FOOTER,
    HEADER,
    MADE,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    WANTED,
)
from busway.gateway.amqp.message_mapping import (
    GOOD_PROPERTIES,
    KNOWN_FRONTS,
    LOCKED_KEY,
    LOCKED_NUMBERS_BYTES,
    MEMORY_BYTES_MAX,
    NUMBERS_BYTES,
    SEQUENCE_KEY,
    check_application_properties,
    deleted_front,
    delivery_payload,
    ids_of,
    is_usual_delivery,
    locked_frame,
    message_of,
)
from busway.message.message import Message
from busway.model.errors import BadArgument
from busway.model.limits import Limits
from busway.store.contract import INDEX_SHIFT

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.amqp.transfer_runs import TransferWriter

_MASK: Final = 0xFFFF_FFFF


class UsualMessages:
    """Of one run in one read, or of one batch."""

    __slots__ = ("_data", "_header_max", "_key_max", "_limits", "_property_max", "_wants_message_id")

    def __init__(self, data: bytes, wants_message_id: bool, limits: Limits) -> None:
        self._data = data
        self._wants_message_id = wants_message_id
        self._limits = limits
        self._key_max: i64 = limits.key_characters_max
        self._property_max: i64 = limits.property_bytes_max
        self._header_max: i64 = limits.header_bytes_max

    def of_payload(self, payload: bytes) -> Message:
        """The message in a payload of its own. Raises what `message_of` raises."""
        self._data = payload
        made = self.message(0, len(payload))
        return message_of(payload, self._wants_message_id, self._limits) if made is None else made

    def message(self, start: i64, end: i64) -> Message | None:
        """What `message_of` would make of this part of the read, or None: ask `message_of`."""
        data = self._data
        previous: i64 = 0
        bare_at: i64 = start
        body_at: i64 = -1
        properties_at: i64 = -1
        properties_end: i64 = -1
        application_at: i64 = -1
        application_end: i64 = -1
        at: i64 = start
        while at < end:
            if end - at < 4 or data[at] != 0 or data[at + 1] != 0x53:
                return None
            code: i64 = data[at + 2]
            if code <= previous or code < HEADER or code > FOOTER:
                return None
            value_at = at + 3
            after = _after(data, value_at, end)
            if after < 0 or MADE[data[value_at]] & WANTED[code - HEADER] == 0:
                return None
            if code <= MESSAGE_ANNOTATIONS:
                bare_at = after
            elif code == PROPERTIES:
                properties_at, properties_end = value_at, after
            elif code == APPLICATION_PROPERTIES:
                application_at, application_end = value_at, after
            elif code != FOOTER:
                if body_at >= 0:
                    return None
                body_at = value_at
            previous = code
            at = after
        if end - start > self._property_max and body_at - start > self._header_max:
            return None
        if application_at >= 0 and not self._has_good_properties(application_at, application_end):
            return None
        return self._made(start, bare_at, end, properties_at, properties_end)

    def _has_good_properties(self, at: i64, end: i64) -> bool:
        data = self._data
        if end - at <= MEMORY_BYTES_MAX and data[at:end] in GOOD_PROPERTIES:
            return True
        try:
            check_application_properties(data, at, end, self._limits)
        except (DecodeError, BadArgument):
            return False
        return True

    def _made(
        self, start: i64, bare_at: i64, end: i64, properties_at: i64, properties_end: i64
    ) -> Message | None:
        data = self._data
        message_id: str | None = None
        session_id: str | None = None
        if properties_at >= 0:
            first, count = _list_at(data, properties_at, properties_end)
            if first < 0:
                return None
            if count > 10 or self._wants_message_id or properties_end - properties_at > self._key_max:
                try:
                    message_id, session_id = ids_of(data, first, properties_end, count, self._key_max)
                except (DecodeError, BadArgument):
                    return None
                if not self._wants_message_id:
                    message_id = None
        if bare_at == start:
            return Message(b"", data[start:end], message_id=message_id, session_id=session_id)
        front = KNOWN_FRONTS.get(data[start:bare_at]) if bare_at - start <= MEMORY_BYTES_MAX else None
        if front is None:
            return None
        return Message(
            front.head,
            data[bare_at:end],
            ttl_ms=front.ttl_ms,
            message_id=message_id,
            session_id=session_id,
            partition_key=front.partition_key,
            scheduled_at_ms=front.scheduled_at_ms,
        )


def _after(data: bytes, at: i64, end: i64) -> i64:
    """The offset behind the value at `at`, as `skip_value` finds it; -1 when it is cut off, described or unknown."""
    width: i64 = SKIP_WIDTHS[data[at]]
    at += 1
    if width < DESCRIBED:
        at += width
    elif width == SIZE_OF_FOUR_BYTES and end - at >= 4:
        at += 4 + (read_i64_be(data, at - 4) & _MASK)
    elif width == SIZE_OF_ONE_BYTE and at < end:
        at += 1 + data[at]
    else:
        return -1
    return at if at <= end else -1


def _list_at(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """(offset of the first field, how many there are) of the list from `at` to `end`; (-1, 0) if it cannot be."""
    code = data[at]
    if code == 0xC0 and end - at >= 3:
        first, count = at + 3, i64(data[at + 2])
    elif code == 0xD0 and end - at >= 9:
        first, count = at + 9, read_i64_be(data, at + 1) & _MASK
    elif code == 0x45:
        first, count = at + 1, 0
    else:
        return -1, 0
    return (first, count) if count <= end - first else (-1, 0)


# -- out

#: Of a lock token, and of a tag that stands in for one.
_TAG_BYTES: Final = 16


class DeliveryWriter:
    """Of one run on one link. It must be closed, whatever happens: then what it has written leaves and is booked."""

    __slots__ = (
        "_before_token", "_behind_token", "_frame_bytes_max", "_front_bytes", "_head", "_is_partitioned", "_link",
        "_partition", "_run", "_settled", "_ttl_ms",
    )  # fmt: skip

    def __init__(self, link: Link, settled: bool, is_partitioned: bool) -> None:
        self._link = link
        self._settled = settled
        self._is_partitioned = is_partitioned
        self._frame_bytes_max: i64 = link.session.frame_bytes_max
        self._run: TransferWriter | None = None
        # Of the last usual message; the next one has the same, most of the time.
        self._head = b""
        self._ttl_ms = 0
        self._partition = 0
        self._before_token = b""
        self._behind_token = b""
        self._front_bytes: i64 = -1

    def write(self, message: Message, tag: bytes, token: bytes, locked_until_ms: int) -> int:
        """One delivery, for which there must be room. Returns the size of its payload."""
        bare = message.bare
        if len(tag) != _TAG_BYTES or (not token) != self._settled or not self._has_usual_front(message):
            return self._write_other(message, tag, token, locked_until_ms)
        run = self._run
        if run is None:
            run = self._run = self._link.begin_run(_TAG_BYTES, self._settled)
        size = self._front_bytes + len(bare)
        if size + run.head_bytes > self._frame_bytes_max:
            return self._write_other(message, tag, token, locked_until_ms)
        run.begin(tag, size)
        out = run.out
        out.write(self._before_token)
        if token:
            write_token(out, token)
            out.write(self._behind_token)
        write_i64_be(out, message.enqueued_at_ms)
        out.write(SEQUENCE_KEY)
        write_i64_be(out, message.sequence_number)
        if token:
            out.write(LOCKED_KEY)
            write_i64_be(out, locked_until_ms)
        out.write(bare)
        return size

    def close(self) -> None:
        if self._run is not None:
            self._link.end_run(self._run)
            self._run = None

    def _has_usual_front(self, message: Message) -> bool:
        """Whether the delivery begins as many do; then these bytes are at hand."""
        if message.delivery_count or message.changes is not None:
            return False
        partition = message.sequence_number >> INDEX_SHIFT if self._is_partitioned else -1
        if (
            self._front_bytes >= 0
            and message.ttl_ms == self._ttl_ms
            and partition == self._partition
            and message.head == self._head
        ):
            return True
        if not is_usual_delivery(message):
            return False
        if self._settled:
            self._before_token = deleted_front(message, partition)
            self._front_bytes = len(self._before_token) + NUMBERS_BYTES
        else:
            frame = locked_frame(message, partition)
            self._before_token, self._behind_token = frame.before_token, frame.behind_token
            between = len(self._before_token) + len(self._behind_token)
            self._front_bytes = between + _TAG_BYTES + LOCKED_NUMBERS_BYTES
        self._head, self._ttl_ms, self._partition = message.head, message.ttl_ms, partition
        return True

    def _write_other(self, message: Message, tag: bytes, token: bytes, locked_until_ms: int) -> int:
        """What was written before goes first, and makes known how much room is left."""
        self.close()
        payload = delivery_payload(message, token, locked_until_ms, self._is_partitioned)
        self._link.send(tag, payload, settled=self._settled)
        return len(payload)


def write_token(out: BytesWriter, token: bytes) -> None:
    """A lock token as a UUID: .NET's order of a GUID's bytes is another one."""
    write_i32_be(out, read_i32_le(token, 0))
    write_i16_be(out, read_i16_le(token, 4))
    write_i16_be(out, read_i16_le(token, 6))
    write_i64_be(out, read_i64_be(token, 8))
