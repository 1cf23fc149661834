"""Messages as rows and back, with the checksum that proves a row unchanged. It knows no database.

A row has few columns, because each costs every message: key, when enqueued, when it expires, checksum, the body.
What few messages have (counts, texts, a head, changed properties …) is packed into one column, `more`, which is
NULL for the others. The body stands in its row, or, where copies share one, as the number of a payload.

SQLite finds a damaged page structure, but not a flipped bit in a body, a date or a number. So a row's checksum is
the sum of a CRC-32 over the body, one over `more` and the row's integers (its key included, so a row under a wrong
number is damaged too), modulo a prime just below 2**32. A sum, because a row that moves or counts a delivery is
rewritten without its body: the checksum just shifts by the difference, and a wrong one stays wrong. Modulo a
prime, because then no single bit of a 64-bit integer can change unnoticed. A shared body counts like one of the
row's own, so a damaged payload shows in each message that refers to it, and so does a reference to another
payload.

`RawPage` is a page of rows as they were committed, while it is being filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from busway.message.message import Message
from busway.store.contract import COUNTER_BITS, COUNTER_MASK, Counters, FragmentKey, FragmentRow

#: A row of `messages`: key, enqueued_at, expires_at, checksum, more, bare (or the number of a payload).
MessageTuple = tuple[int, int, int, int, bytes | None, bytes | int]
#: A row of `deferred` or `scheduled`, with what their indexes need: key, enqueued_at, expires_at, checksum,
#: session_id, scheduled_at, more, bare.
SideTuple = tuple[int, int, int, int, str | None, int, bytes | None, bytes | int]
#: A row without its body: key, enqueued_at, expires_at, checksum, more.
Front = tuple[int, int, int, int, bytes | None]

#: The largest prime below 2**32.
CHECKSUM_PRIME: Final = 4294967291
NUMBER_MASK: Final = COUNTER_MASK
#: No row has this checksum, whatever stands in it.
NEVER_RIGHT: Final = -1
#: Copies share a body when that saves at least so many bytes. Measured over insert and delete of 2, 10 and 100 copies
#: of 128 B to 64 KiB: references win from there on, a little at first, 20 times in the end. Small bodies never share,
#: because a reference costs a look-up when its row is read back.
SHARING_SAVES_BYTES_MIN: Final = 2048
SHARED_BYTES_MIN: Final = 512

#: What `more` holds, in this order: integers of eight bytes, then bytes behind their length.
_DELIVERY_COUNT: Final = 1
_TTL: Final = 2
_SCHEDULED_AT: Final = 4
_SESSION_ID: Final = 8
_PARTITION_KEY: Final = 16
_MESSAGE_ID: Final = 32
_HEAD: Final = 64
_CHANGES: Final = 128
#: Where the CRC-32 of `more` starts, so that it cannot take the body's part.
_MORE_SEED: Final = 1


class MessageRows:
    """Rows to insert, by place."""

    __slots__ = ("active", "deferred", "scheduled")

    def __init__(self) -> None:
        self.active: list[MessageTuple] = []
        self.deferred: list[SideTuple] = []
        self.scheduled: list[SideTuple] = []


def message_rows(
    puts: Iterable[tuple[FragmentKey, int, Message]], payload_of: dict[int, int] | None = None
) -> MessageRows:
    """`payload_of`: the identity of a shared body → the number of its payload."""
    rows = MessageRows()
    checks: dict[int, int] = {}
    for fragment, place, message in puts:
        key = fragment << COUNTER_BITS | message.sequence_number & NUMBER_MASK
        bare = message.bare
        content: bytes | int = bare
        if payload_of is not None and id(bare) in payload_of:
            content = payload_of[id(bare)]
            if content not in checks:
                checks[content] = crc32(bare)
            check = checks[content]
        else:
            check = crc32(bare)
        enqueued_at_ms = message.enqueued_at_ms
        expires_at_ms = message.expires_at_ms
        check += key + enqueued_at_ms + expires_at_ms
        more = more_of(message)
        if more is not None:
            check += crc32(more, _MORE_SEED)
        check %= CHECKSUM_PRIME
        if place == 0:
            rows.active.append((key, enqueued_at_ms, expires_at_ms, check, more, content))
        else:
            aside = rows.deferred if place == 1 else rows.scheduled
            aside.append(
                (
                    key,
                    enqueued_at_ms,
                    expires_at_ms,
                    check,
                    message.session_id,
                    message.scheduled_at_ms,
                    more,
                    content,
                )
            )
    return rows


def shared_bodies(puts: list[tuple[FragmentKey, int, Message]]) -> dict[int, tuple[bytes, int]] | None:
    """Bodies that are worth sharing because several puts hold them as one object: identity → (bytes, how many puts).
    None when there is none, which is told at once where all puts go to one fragment: the usual batch of a queue."""
    if not _are_of_several_fragments(puts):
        return None
    counts: dict[int, int] = {}
    if not count_bodies(puts, counts):
        return None
    found: dict[int, tuple[bytes, int]] = {}
    find_shared(puts, counts, found)
    return found if found else None


def count_bodies(puts: list[tuple[FragmentKey, int, Message]], counts: dict[int, int]) -> bool:
    """How many puts hold each body that is large enough. True when one of them is there several times."""
    are_copies = False
    for _, _, message in puts:
        if len(message.bare) >= SHARED_BYTES_MIN:
            count = counts.get(id(message.bare), 0)
            counts[id(message.bare)] = count + 1
            are_copies = are_copies or count > 0
    return are_copies


def find_shared(
    puts: list[tuple[FragmentKey, int, Message]],
    counts: dict[int, int],
    found: dict[int, tuple[bytes, int]],
) -> None:
    """Adds those that are worth it."""
    for _, _, message in puts:
        bare = message.bare
        count = counts.get(id(bare), 0)
        if (count - 1) * len(bare) >= SHARING_SAVES_BYTES_MIN:
            found[id(bare)] = (bare, count)


def _are_of_several_fragments(puts: list[tuple[FragmentKey, int, Message]]) -> bool:
    first = puts[0][0]
    return any(fragment != first for fragment, _, _ in puts)


def message_of(row: Any, place: int) -> Message | None:
    """The message of a row; None when the row is damaged, or when its body lies elsewhere. A flipped bit can turn
    any column into another type, which shows as one of the errors below."""
    try:
        return _message_of(row, place)
    except (TypeError, ValueError, AttributeError, IndexError):
        return None


def _message_of(row: tuple[int, int, int, int, bytes | None, bytes], place: int) -> Message | None:
    key, enqueued_at_ms, expires_at_ms, checksum, more, bare = row
    check = crc32(bare) + key + enqueued_at_ms + expires_at_ms
    if more is not None:
        check += crc32(more, _MORE_SEED)
    if check % CHECKSUM_PRIME != checksum:
        return None
    message = Message(b"", bare)
    if more is not None:
        unpack(message, more)
    message.sequence_number = key & NUMBER_MASK
    message.enqueued_at_ms = enqueued_at_ms
    message.expires_at_ms = expires_at_ms
    message.state = place
    return message


def rewritten(
    front: Front,
    key: int,
    enqueued_at_ms: int | None,
    expires_at_ms: int | None,
    delivery_count: int | None,
    changes: bytes | None,
) -> tuple[int, int, int, int, str | None, int, bytes | None]:
    """A row at its new place or with new values, without its body: what a `SideTuple` begins with. None keeps what
    the row has. A damaged row is carried along and stays damaged."""
    _, old_enqueued_at_ms, old_expires_at_ms, checksum, old_more = front
    shell = Message(b"", b"")
    try:
        if old_more is not None:
            unpack(shell, old_more)
    except (ValueError, IndexError):
        return key, old_enqueued_at_ms, old_expires_at_ms, NEVER_RIGHT, None, 0, old_more
    if delivery_count is not None:
        shell.delivery_count = delivery_count
    if changes is not None:
        shell.changes = changes
    more = more_of(shell)
    enqueued_at_ms = old_enqueued_at_ms if enqueued_at_ms is None else enqueued_at_ms
    expires_at_ms = old_expires_at_ms if expires_at_ms is None else expires_at_ms
    if checksum != NEVER_RIGHT:
        checksum -= _front_sum(front[0], old_enqueued_at_ms, old_expires_at_ms, old_more)
        checksum = (checksum + _front_sum(key, enqueued_at_ms, expires_at_ms, more)) % CHECKSUM_PRIME
    return key, enqueued_at_ms, expires_at_ms, checksum, shell.session_id, shell.scheduled_at_ms, more


def _front_sum(key: int, enqueued_at_ms: int, expires_at_ms: int, more: bytes | None) -> int:
    """The part of a checksum that does not come from the body."""
    return key + enqueued_at_ms + expires_at_ms + (0 if more is None else crc32(more, _MORE_SEED))


# -- what few messages have


def more_of(message: Message) -> bytes | None:
    """The column `more`: which fields there are, then the fields; None for a message without any."""
    if (
        message.delivery_count == 0
        and message.ttl_ms == -1
        and message.scheduled_at_ms == 0
        and message.session_id is None
        and message.partition_key is None
        and message.message_id is None
        and message.changes is None
        and len(message.head) == 0
    ):
        return None
    fields = 0
    out = b""
    if message.delivery_count != 0:
        fields |= _DELIVERY_COUNT
        out += message.delivery_count.to_bytes(8, "big", signed=True)
    if message.ttl_ms != -1:
        fields |= _TTL
        out += message.ttl_ms.to_bytes(8, "big", signed=True)
    if message.scheduled_at_ms != 0:
        fields |= _SCHEDULED_AT
        out += message.scheduled_at_ms.to_bytes(8, "big", signed=True)
    session_id, partition_key, message_id = message.session_id, message.partition_key, message.message_id
    if session_id is not None:
        fields |= _SESSION_ID
        out += _measured(session_id.encode())
    if partition_key is not None:
        fields |= _PARTITION_KEY
        out += _measured(partition_key.encode())
    if message_id is not None:
        fields |= _MESSAGE_ID
        out += _measured(message_id.encode())
    if len(message.head) != 0:
        fields |= _HEAD
        out += _measured(message.head)
    changes = message.changes
    if changes is not None:
        fields |= _CHANGES
        out += _measured(changes)
    return bytes([fields]) + out


def unpack(message: Message, more: bytes) -> None:
    """Sets the fields that `more` holds. ValueError or IndexError when it is not what `more_of` makes."""
    fields = more[0]
    at = 1
    if fields & _DELIVERY_COUNT:
        message.delivery_count = int.from_bytes(more[at : at + 8], "big", signed=True)
        at += 8
    if fields & _TTL:
        message.ttl_ms = int.from_bytes(more[at : at + 8], "big", signed=True)
        at += 8
    if fields & _SCHEDULED_AT:
        message.scheduled_at_ms = int.from_bytes(more[at : at + 8], "big", signed=True)
        at += 8
    if fields & _SESSION_ID:
        data = _field(more, at)
        message.session_id = data.decode()
        at += 4 + len(data)
    if fields & _PARTITION_KEY:
        data = _field(more, at)
        message.partition_key = data.decode()
        at += 4 + len(data)
    if fields & _MESSAGE_ID:
        data = _field(more, at)
        message.message_id = data.decode()
        at += 4 + len(data)
    if fields & _HEAD:
        message.head = _field(more, at)
        at += 4 + len(message.head)
    if fields & _CHANGES:
        changes = _field(more, at)
        message.changes = changes
        at += 4 + len(changes)
    if at != len(more):
        raise ValueError("the column `more` has another length than its fields")


def _measured(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _field(more: bytes, at: int) -> bytes:
    length = int.from_bytes(more[at : at + 4], "big")
    data = more[at + 4 : at + 4 + length]
    if len(data) != length:
        raise ValueError("a field of the column `more` is cut short")
    return data


# -- bytes of other tables


def sealed(data: bytes) -> bytes:
    """Bytes that prove themselves: session states."""
    return crc32(data).to_bytes(4, "big") + data


def unsealed(data: bytes) -> bytes:
    """The bytes again; ValueError when they are not what was sealed."""
    content = data[4:]
    if len(data) < 4 or crc32(content) != int.from_bytes(data[:4], "big"):
        raise ValueError("the bytes were changed")
    return content


# -- sessions


def session_rows(entries: Sequence[tuple[FragmentKey, str, int]]) -> list[tuple[int, str]]:
    """(key, session id) of rows in the session index."""
    return [
        (fragment << COUNTER_BITS | number & NUMBER_MASK, session_id)
        for fragment, session_id, number in entries
    ]


def count_sessions(rows: list[tuple[int, str]], each: int, counts: dict[tuple[int, str], int]) -> None:
    """Adds so much for each row to what its session has."""
    for key, session_id in rows:
        session = (key >> COUNTER_BITS, session_id)
        counts[session] = counts.get(session, 0) + each


# -- keys


def deleted_keys(
    deletes: list[tuple[FragmentKey, int, list[int]]],
) -> tuple[list[int], list[int], list[int]]:
    """The keys of rows to delete, by place."""
    places: tuple[list[int], list[int], list[int]] = ([], [], [])
    for fragment, place, numbers in deletes:
        keys, low = places[place], fragment << COUNTER_BITS
        for number in numbers:
            keys.append(low | number & NUMBER_MASK)
    return places


def keys_among(keys: list[int], fragments: set[int]) -> list[int]:
    """Those of rows in one of the fragments."""
    return [key for key in keys if key >> COUNTER_BITS in fragments]


def runs(keys: list[int]) -> list[tuple[int, int]]:
    """Keys as inclusive ranges of consecutive ones. Most deletes come in such runs, and one range is one step."""
    if not keys:
        return []
    keys.sort()
    ranges = []
    first = last = keys[0]
    for key in keys:
        if key > last + 1:
            ranges.append((first, last))
            first = key
        last = key
    ranges.append((first, last))
    return ranges


def key_bounds(fragment: FragmentKey) -> tuple[int, int]:
    """The smallest and the largest key a fragment's rows can have."""
    low = fragment << COUNTER_BITS
    return low, low | NUMBER_MASK


class RawPage:
    """Takes rows until a limit cuts, at least one."""

    __slots__ = ("_bytes_left", "_payload_of", "_rows_left", "damaged", "last_number", "messages", "more")

    def __init__(self, limit: int, bytes_max: int, payload_of: Callable[[int], bytes | None]) -> None:
        """`payload_of`: the shared body of that number, in the same snapshot."""
        self.messages: list[Message] = []
        self.damaged: list[tuple[int, int]] = []  #: (place, number)
        self.more = False
        self.last_number = 0  #: the highest number looked at
        self._rows_left = limit
        self._bytes_left = bytes_max
        self._payload_of = payload_of

    def take_all(self, rows: Iterable[Any], place: int) -> None:
        for row in rows:
            if not self.take(row, place):
                return

    def take(self, row: Any, place: int) -> bool:
        """False when it does not fit any more. A bare key stands for a row that cannot be decoded."""
        message = message_of(row, place)
        if message is None:
            message = self._with_payload(row, place)
        key: int = row if isinstance(row, int) else row[0]
        return self.take_message(message, key & NUMBER_MASK, place)

    def take_message(self, message: Message | None, number: int, place: int) -> bool:
        """The same of a message whose number is known; None stands for one that is damaged."""
        size = 0 if message is None else len(message.head) + len(message.bare)
        if self._rows_left <= 0 or (size > self._bytes_left and self.last_number > 0):
            self.more = True
            return False
        self._rows_left -= 1
        self._bytes_left -= size
        self.last_number = number
        if message is None:
            self.damaged.append((place, number))
        else:
            self.messages.append(message)
        return True

    def room(self) -> tuple[int, int]:
        """Rows and bytes that still fit."""
        return self._rows_left, self._bytes_left

    def lift(self, base: int) -> None:
        """Numbers get the upper bits that row keys do without."""
        for message in self.messages:
            message.sequence_number += base

    def _with_payload(self, row: Any, place: int) -> Message | None:
        """The message of a row whose body lies elsewhere; None when the row or the body is damaged."""
        if not isinstance(row, tuple) or not isinstance(row[5], int):
            return None
        bare = self._payload_of(row[5])
        return None if bare is None else message_of((*row[:5], bare), place)


def counter_values(counters: Counters) -> tuple[int, int, int, int, int, int, int]:
    """In the order of the columns of `fragments`."""
    return (
        counters.last_counter,
        counters.active,
        counters.deferred,
        counters.scheduled,
        counters.bytes,
        counters.expiry_high_ms,
        counters.accessed_at_ms,
    )


def fragment_row(key: int, owner: str, fragment_index: int, *values: int) -> FragmentRow:
    counters = Counters()
    (
        counters.last_counter,
        counters.active,
        counters.deferred,
        counters.scheduled,
        counters.bytes,
        counters.expiry_high_ms,
        counters.accessed_at_ms,
    ) = values
    return FragmentRow(FragmentKey(key), owner, fragment_index, counters)
