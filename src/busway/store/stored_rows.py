"""What a store holds that nobody serves, row by row: for whoever copies it, and whoever compares a copy.

Rows come by kind (`KINDS`), in an order that is the same each time, and reading may begin behind any of them: each
row says its `position`. What lies in one form here and in another there (rows or runs, a body of its own or one that
copies share, text or bytes) comes as the same row. A row is read whole and proven by its checksum; one that is
damaged comes as what it was, without its content.

Keys of fragments, and names of stores, are a store's own. `placed` puts a row under those of another one. Then it can
join a commit batch, and say its digest: a number that is the same wherever the row lies, so that the sum of a kind
tells whether two stores hold the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, Protocol
from zlib import crc32

from busway.message.event_chunk import whole_chunk
from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import (
    COUNTER_BITS,
    COUNTER_MASK,
    INDEX_SHIFT,
    CommitBatch,
    Counters,
    FragmentKey,
    FragmentRow,
    LogChanges,
    LogCounters,
    ProducerRow,
    TransferMark,
)
from busway.store.rows import more_of

#: Behind which reading goes on; of numbers and texts.
Position = tuple[int | str, ...]

#: Active, deferred and scheduled messages with a body of their own; those that share one, sharers together.
MESSAGES: Final = "messages"
COPIES: Final = "copies"
KINDS: Final = (MESSAGES, COPIES, "states", "ids", "chunks", "producers", "marks")
#: What is put together with messages: it is read only to be compared.
INDEXES: Final = ("sessions", "expiry")

_ROW: Final = Struct("<qqqqB")
_PLACES: Final = ("active", "deferred", "scheduled")


class Places:
    """Where rows of a store come to lie: fragments by their key there, and those of other stores by theirs."""

    def __init__(
        self,
        here: Mapping[int, FragmentKey],
        elsewhere: Mapping[str, tuple[str, Mapping[int, FragmentKey]]],
        sessions: set[int],
    ) -> None:
        self.here = here
        #: Store → its name there, and its fragments.
        self.elsewhere = elsewhere
        #: Fragments whose active messages stand in the session index.
        self.sessions = sessions


class StoredRow:
    """Of one kind."""

    __slots__ = ("fragment", "position")

    def __init__(self, position: Position, fragment: int) -> None:
        self.position = position
        self.fragment = FragmentKey(fragment)

    @property
    def group(self) -> int:
        """Other than 0: it is put together with those before it of the same group."""
        return 0

    @property
    def size_bytes(self) -> int:
        """About."""
        return 64

    @property
    def is_damaged(self) -> bool:
        return False

    def placed(self, places: Places) -> bool:
        """From now on it bears the keys of its new place. False: it belongs to a fragment that is gone."""
        found = places.here.get(self.fragment)
        if found is None:
            return False
        self.fragment = found
        return True

    def join(self, batch: CommitBatch) -> None:
        raise NotImplementedError

    def digest(self) -> int:
        raise NotImplementedError

    def told(self, fragment_index: int) -> str:
        """Which one it is, in front of the path of its entity."""
        del fragment_index
        return "a row"

    def leave_out(self, counters: Counters) -> None:
        """A damaged row is left behind: its fragment counts it no more."""


def _crc_of(*values: object) -> int:
    return crc32(repr(values).encode())


class StoredMessage(StoredRow):
    __slots__ = ("_body_bytes", "_is_indexed", "_payload", "expires_at_ms", "message", "number", "place")

    def __init__(
        self,
        position: Position,
        fragment: int,
        place: int,
        number: int,
        message: Message | None,
        body_bytes: int,
        payload: int = 0,
        expires_at_ms: int | None = None,
    ) -> None:
        super().__init__(position, fragment)
        self.place = place
        #: Without the index in its upper bits, here and below.
        self.number = number
        #: None when it is damaged.
        self.message = message
        self._body_bytes = body_bytes
        self._payload = payload
        self._is_indexed = False
        #: As its own expiry entry says; None: it has none.
        self.expires_at_ms = expires_at_ms

    @property
    def group(self) -> int:
        return self._payload

    @property
    def size_bytes(self) -> int:
        return self._body_bytes + 128

    @property
    def is_damaged(self) -> bool:
        return self.message is None

    def placed(self, places: Places) -> bool:
        self._is_indexed = self.place == PLACE_ACTIVE and self.fragment in places.sessions
        return super().placed(places)

    def join(self, batch: CommitBatch) -> None:
        message = self.message
        assert message is not None, "damaged rows are left out"
        batch.puts.append((self.fragment, self.place, message))
        if self._payload:
            batch.puts_copies = True
        if self._is_indexed and message.session_id is not None:
            batch.session_entries.append((self.fragment, message.session_id, self.number))
        if self.expires_at_ms is not None:
            batch.expiry_entries.append((self.fragment, self.expires_at_ms, self.number))

    def digest(self) -> int:
        message = self.message
        assert message is not None, "damaged rows are left out"
        front = _ROW.pack(
            self.fragment, self.number, message.enqueued_at_ms, message.expires_at_ms, self.place
        )
        return crc32(message.bare, crc32(more_of(message) or b"", crc32(front)))

    def told(self, fragment_index: int) -> str:
        return f"number {fragment_index << INDEX_SHIFT | self.number} ({_PLACES[self.place]})"

    def leave_out(self, counters: Counters) -> None:
        if self.place == PLACE_ACTIVE:
            counters.active -= 1
        elif self.place == 1:
            counters.deferred -= 1
        else:
            counters.scheduled -= 1
        counters.bytes = max(0, counters.bytes - self._body_bytes)


def message_row(
    position: Position,
    place: int,
    message: Message | None,
    body_bytes: int,
    payload: int,
    expires_at_ms: int | None,
) -> StoredMessage:
    """`position` ends with its key."""
    key = int(position[-1])
    fragment, number = key >> COUNTER_BITS, key & COUNTER_MASK
    return StoredMessage(position, fragment, place, number, message, body_bytes, payload, expires_at_ms)


class StoredSessionEntry(StoredRow):
    """That an active message stands in the session index."""

    __slots__ = ("number", "session_id")

    def __init__(self, position: Position, fragment: int, number: int, session_id: str) -> None:
        super().__init__(position, fragment)
        self.number = number
        self.session_id = session_id

    def digest(self) -> int:
        return _crc_of(self.fragment, self.number, self.session_id)


class StoredExpiry(StoredRow):
    """An expiry entry of a message's own."""

    __slots__ = ("at_ms", "number")

    def __init__(self, position: Position, fragment: int, number: int, at_ms: int) -> None:
        super().__init__(position, fragment)
        self.number = number
        self.at_ms = at_ms

    def digest(self) -> int:
        return _crc_of(self.fragment, self.number, self.at_ms)


class StoredState(StoredRow):
    """The state of a session."""

    __slots__ = ("session_id", "set_at_ms", "state")

    def __init__(
        self, position: Position, fragment: int, session_id: str, set_at_ms: int, state: bytes | None
    ) -> None:
        super().__init__(position, fragment)
        self.session_id = session_id
        self.set_at_ms = set_at_ms
        #: None when it is damaged.
        self.state = state

    @property
    def size_bytes(self) -> int:
        return 128 + len(self.state or b"")

    @property
    def is_damaged(self) -> bool:
        return self.state is None

    def join(self, batch: CommitBatch) -> None:
        batch.session_states.append((self.fragment, self.session_id, self.state, self.set_at_ms))

    def digest(self) -> int:
        return _crc_of(self.fragment, self.session_id, self.set_at_ms, self.state)

    def told(self, fragment_index: int) -> str:
        del fragment_index
        return f"the state of session {self.session_id!a}"


class StoredId(StoredRow):
    """A message id that was accepted, where duplicates are detected."""

    __slots__ = ("accepted_at_ms", "message_id")

    def __init__(self, position: Position, fragment: int, message_id: str, accepted_at_ms: int) -> None:
        super().__init__(position, fragment)
        self.message_id = message_id
        self.accepted_at_ms = accepted_at_ms

    def join(self, batch: CommitBatch) -> None:
        batch.duplicate_ids.append((self.fragment, self.message_id, self.accepted_at_ms))

    def digest(self) -> int:
        return _crc_of(self.fragment, self.message_id, self.accepted_at_ms)


class StoredChunk(StoredRow):
    """Events of a log."""

    __slots__ = ("_bytes", "data", "events", "first_at_ms", "first_number", "last_at_ms", "last_number")

    def __init__(
        self,
        position: Position,
        log: int,
        numbers: tuple[int, int],
        times_ms: tuple[int, int],
        events: int,
        data: bytes | None,
        size_bytes: int,
    ) -> None:
        super().__init__(position, log)
        self.first_number, self.last_number = numbers
        self.first_at_ms, self.last_at_ms = times_ms
        self.events = events
        #: None when it is damaged.
        self.data = data
        self._bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return 128 + self._bytes

    @property
    def is_damaged(self) -> bool:
        return self.data is None

    def join(self, batch: CommitBatch) -> None:
        assert self.data is not None, "damaged rows are left out"
        numbers, times_ms = (self.first_number, self.last_number), (self.first_at_ms, self.last_at_ms)
        batch.logs = batch.logs or LogChanges()
        batch.logs.chunks.append((self.fragment, whole_chunk(self.data, self.events, numbers, times_ms)))

    def digest(self) -> int:
        head = (self.fragment, self.first_number, self.last_number, self.first_at_ms, self.last_at_ms)
        return crc32(self.data or b"", _crc_of(*head, self.events))

    def told(self, fragment_index: int) -> str:
        del fragment_index
        return f"events {self.first_number} to {self.last_number}"

    def leave_out(self, counters: Counters) -> None:
        log = LogCounters(counters)
        log.events = max(0, log.events - self.events)
        log.bytes = max(0, log.bytes - self._bytes)


class StoredProducer(StoredRow):
    """What a log remembers of a producer."""

    __slots__ = ("row",)

    def __init__(self, position: Position, log: int, row: ProducerRow) -> None:
        super().__init__(position, log)
        self.row = row

    def join(self, batch: CommitBatch) -> None:
        batch.logs = batch.logs or LogChanges()
        batch.logs.producers.append((self.fragment, self.row))

    def digest(self) -> int:
        row = self.row
        values = (row.producer_id, row.epoch, row.last_sequence, row.used_at_ms, row.groups)
        return _crc_of(self.fragment, *values)


class StoredMark(StoredRow):
    """That a row of another store has arrived here."""

    __slots__ = ("number", "store")

    def __init__(self, position: Position, store: str, fragment: int, number: int) -> None:
        super().__init__(position, fragment)
        self.store = store
        self.number = number

    def placed(self, places: Places) -> bool:
        name, fragments = places.elsewhere.get(self.store, ("", {}))
        found = fragments.get(self.fragment)
        if found is None:
            return False
        self.store, self.fragment = name, found
        return True

    def join(self, batch: CommitBatch) -> None:
        batch.transfer_marks.append(TransferMark(self.store, self.fragment, self.number))

    def digest(self) -> int:
        return _crc_of(self.store, self.fragment, self.number)


def fragment_row(row: Sequence[Any]) -> FragmentRow:
    """Of the columns that both databases have: key, owner, index, counters."""
    key, owner, index, *values = row
    counters = Counters()
    counters.last_counter, counters.active, counters.deferred, counters.scheduled = values[:4]
    counters.bytes, counters.expiry_high_ms, counters.accessed_at_ms = values[4:]
    return FragmentRow(FragmentKey(key), str(owner), index, counters)


class StoredFacts:
    """What a store says of itself."""

    __slots__ = ("catalogue", "commit_number", "fragments", "sessions", "version")

    def __init__(
        self, commit_number: int, version: int, catalogue: dict[str, str], fragments: list[FragmentRow]
    ) -> None:
        self.commit_number = commit_number
        #: Of the catalogue.
        self.version = version
        self.catalogue = catalogue
        #: By key; without dropped ones.
        self.fragments = fragments
        #: Those of them that have rows in the session index.
        self.sessions: set[int] = set()


class StoredRows(Protocol):
    """Of one store that nobody serves. Blocks."""

    name: str

    def facts(self) -> StoredFacts:
        """Raises StoreError, StoreTooNew."""

    def rows(self, kind: str, after: Position = ()) -> Iterator[StoredRow]:
        """Of a kind, or of an index. Raises StoreError."""

    def close(self) -> None: ...


class ExpiryBeside:
    """Expiry entries beside messages, both in the order of their keys."""

    def __init__(self, entries: Iterator[tuple[int, int]]) -> None:
        #: (key, time).
        self._entries = entries
        self._next: tuple[int, int] | None = next(entries, None)

    def of(self, key: int) -> int | None:
        """Of that key or a later one than last time."""
        found = self._next
        while found is not None and found[0] < key:
            found = self._next = next(self._entries, None)
        return None if found is None or found[0] != key else found[1]


class NoRows:
    """Of a store that is not there yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self) -> StoredFacts:
        return StoredFacts(0, 0, {}, [])

    def rows(self, kind: str, after: Position = ()) -> Iterator[StoredRow]:
        del kind, after
        yield from ()

    def close(self) -> None:
        pass
