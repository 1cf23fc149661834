"""Claimed messages as they travel to those who read them in bulk: columns of fixed width, and behind them the bodies.

  frame     length of the rest (8 bytes), then
  head      magic, number of messages (4 bytes), length of the details (4 bytes)
  columns   sequence numbers (8 bytes each), enqueued times in ms (8), the sender's times to live in ms (8; -1: none),
            ends of the bare messages (8, counted from the first), delivery counts (4)
  details   what few messages have, as JSON: for each of the names below a list with an item for each message, or null
  messages  the bare messages, one behind another

Everything is little-endian. A bare message is what the sender sent, with the properties that settlement changed and
without the stamp of the claim. Whoever reads this reads arrays, not messages.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from busway.message.message import FORWARDED, Message, read_head

MAGIC: Final = b"BWQ1"
LENGTH: Final = Struct("<Q")
HEAD: Final = Struct("<4sII")
#: Bytes of all columns for one message.
COLUMNS_BYTES: Final = 4 * 8 + 4
#: Names of details.
PARTITION_KEY: Final = "partitionKey"
SCHEDULED_TIME: Final = "scheduledEnqueueTime"
FIRST_NUMBER: Final = "enqueuedSequenceNumber"
DEAD_LETTER_SOURCE: Final = "deadLetterSource"


def claimed_frame(messages: Sequence[Message], bares: Sequence[bytes]) -> bytes:
    """`bares`: the bare message of each, as it is to be shown."""
    ends = array("q")
    end = 0
    for bare in bares:
        end += len(bare)
        ends.append(end)
    details = _details(messages)
    pieces = [
        HEAD.pack(MAGIC, len(messages), len(details)),
        _longs([message.sequence_number for message in messages]),
        _longs([message.enqueued_at_ms for message in messages]),
        _longs([message.ttl_ms for message in messages]),
        _little(ends),
        _little(array("I", [min(message.delivery_count, 0x7FFFFFFF) for message in messages])),
        details,
    ]
    size = sum(map(len, pieces)) + end
    return b"".join([LENGTH.pack(size), *pieces, *bares])


def _longs(values: list[int]) -> bytes:
    return _little(array("q", values))


def _little(values: array[int]) -> bytes:
    if _IS_BIG_ENDIAN:
        values.byteswap()
    return values.tobytes()


def _details(messages: Sequence[Message]) -> bytes:
    columns: dict[str, list[str | int | None]] = {}
    if any([message.partition_key is not None for message in messages]):
        columns[PARTITION_KEY] = [message.partition_key for message in messages]
    if any([message.scheduled_at_ms for message in messages]):
        columns[SCHEDULED_TIME] = [message.scheduled_at_ms or None for message in messages]
    if any([message.head and message.head[0] >= FORWARDED for message in messages]):
        heads = [read_head(message.head) for message in messages]
        columns[FIRST_NUMBER] = [head.first_number if head.hops else None for head in heads]
        columns[DEAD_LETTER_SOURCE] = [
            head.dead_letter_source or None if head.hops else None for head in heads
        ]
    return json.dumps(columns, separators=(",", ":")).encode() if columns else b""


_IS_BIG_ENDIAN: Final = array("H", [1]).tobytes() == b"\x00\x01"
