"""What the broker tells, kept in as little time as possible: this runs on the way of every message.

Theory of operation. Rows are never made here. Each column is a list of runs of equal values (`RunColumn`), and a
run of messages is mostly equal: one operation, one entity, one time; sizes, times and keys repeat. Of numbers it is
the distance to the row's own place that repeats. So a run of a hundred messages costs a hundred comparisons and a
handful of entries. Texts are entered once into a table and then told by their place in it.

What has gathered is sealed into a frame when it is large enough, when another hour begins (a frame is of one
hour, as files are), or when the feed asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from busway.broker.fragment.journal import DUPLICATE, PUBLISH, Journal, Lock, OperationRow
from busway.clock import Clock
from busway.journal.frame import NO_NUMBER, NO_TEXT, packed
from busway.message.event_record import Event
from busway.message.message import Message

#: A frame is sealed with so many rows, or so many characters of texts, or a run later.
ROWS_MAX: Final = 16_384
CHARACTERS_MAX: Final = 1024 * 1024
#: Of one text: a client's reason may be long.
TEXT_CHARACTERS_MAX: Final = 1_024
HOUR_MS: Final = 3_600_000

#: What no column holds.
_NOTHING: Final = -(1 << 61)

#: (frame, rows)
Sealed = Callable[[bytes, int], None]


class RunColumn:
    """A column that is gathering, as runs of equal values: `values[i]` holds from row `starts[i]` on. Whoever adds
    looks at `last` first and saves the call."""

    __slots__ = ("last", "starts", "values")

    def __init__(self) -> None:
        self.last = _NOTHING
        self.starts: list[int] = []
        self.values: list[int] = []

    def put(self, row: int, value: int) -> None:
        """The last word on a row counts."""
        if value == self.last:
            return
        self.last = value
        if self.starts and self.starts[-1] == row:
            self.values[-1] = value
            return
        self.starts.append(row)
        self.values.append(value)

    def start_over(self) -> None:
        self.last = _NOTHING
        self.starts = []
        self.values = []


class Recorder(Journal):
    """See the head of this file."""

    def __init__(self, clock: Clock, sealed: Sealed) -> None:
        self._clock = clock
        self._sealed = sealed
        self._hour = 0
        self._characters = 0
        #: Of the frame that gathers.
        self.row_count = 0
        self._times = RunColumn()
        self._operations = RunColumn()
        self._entities = RunColumn()
        self._fragments = RunColumn()
        self._numbers = RunColumn()
        self._sessions = RunColumn()
        self._keys = RunColumn()
        self._sizes = RunColumn()
        self._counts = RunColumn()
        self._enqueued = RunColumn()
        self._reasons = RunColumn()
        #: In the order of `columns.COLUMNS`.
        self._columns = [
            self._times,
            self._operations,
            self._entities,
            self._fragments,
            self._numbers,
            self._sessions,
            self._keys,
            self._sizes,
            self._counts,
            self._enqueued,
            self._reasons,
        ]
        #: Paths of entities, and all other texts, by their place.
        self._paths: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        #: The texts of the row before.
        self._session_id: str | None = None
        self._key: str | None = None

    # -- what the broker tells

    def messages(self, operation: int, path: str, index: int, messages: list[Message]) -> None:
        row = self._begin(operation, path, index)
        numbers, sizes, counts, enqueued = self._numbers, self._sizes, self._counts, self._enqueued
        for message in messages:
            distance = message.sequence_number - row
            if operation == DUPLICATE:
                distance = NO_NUMBER
            if distance != numbers.last:
                numbers.put(row, distance)
            changes = message.changes
            size = len(message.head) + len(message.bare)
            if changes is not None:
                size += len(changes)
            if size != sizes.last:
                sizes.put(row, size)
            count = message.delivery_count
            if count != counts.last:
                counts.put(row, count)
            at_ms = message.enqueued_at_ms
            if at_ms != enqueued.last:
                enqueued.put(row, at_ms)
            session_id = message.session_id
            if session_id is not self._session_id:
                self._put_session(row, session_id)
            key = message.partition_key
            if key is not self._key:
                self._put_key(row, key)
            row += 1
        self.row_count = row

    def locks(self, operation: int, path: str, index: int, locks: list[Lock]) -> None:
        row = self._begin(operation, path, index)
        if self._key is not None:
            self._put_key(row, None)
        numbers, sizes, counts, enqueued = self._numbers, self._sizes, self._counts, self._enqueued
        for lock in locks:
            distance = lock.number - row
            if distance != numbers.last:
                numbers.put(row, distance)
            size = lock.size
            if size != sizes.last:
                sizes.put(row, size)
            count = lock.delivery_count
            if count != counts.last:
                counts.put(row, count)
            at_ms = lock.enqueued_at_ms
            if at_ms != enqueued.last:
                enqueued.put(row, at_ms)
            session = lock.session
            session_id = None if session is None else session.session_id
            if session_id is not self._session_id:
                self._put_session(row, session_id)
            row += 1
        self.row_count = row

    def rows(self, operation: int, path: str, index: int, rows: list[OperationRow]) -> None:
        row = self._begin(operation, path, index)
        for told in rows:
            self._numbers.put(row, NO_NUMBER if told.number < 0 else told.number - row)
            self._sizes.put(row, told.size)
            self._counts.put(row, told.delivery_count)
            self._enqueued.put(row, told.enqueued_at_ms)
            self._put_session(row, told.session_id)
            self._put_key(row, told.partition_key)
            self._reasons.put(row, self._place_of(told.reason))
            row += 1
        self.row_count = row

    def events(self, path: str, index: int, first_number: int, at_ms: int, events: list[Event]) -> None:
        row = self._begin(PUBLISH, path, index)
        self._numbers.put(row, first_number - row)
        self._enqueued.put(row, at_ms)
        self._counts.put(row, -1)
        self._put_session(row, None)
        sizes = self._sizes
        for event in events:
            size = len(event.bare) + len(event.annotations)
            if size != sizes.last:
                sizes.put(row, size)
            key = event.partition_key
            if key is not self._key:
                self._put_key(row, key)
            row += 1
        self.row_count = row

    # -- frames

    def seal(self) -> None:
        """What has gathered, if anything, is handed over."""
        rows = self.row_count
        if rows == 0:
            return
        runs = [(column.starts, column.values) for column in self._columns]
        paths, texts = list(self._paths), list(self._texts)
        for column in self._columns:
            column.start_over()
        self._paths = {}
        self._texts = {}
        self._characters = 0
        self.row_count = 0
        self._session_id = self._key = None
        self._sealed(packed(self._hour, rows, runs, paths, texts), rows)

    def _begin(self, operation: int, path: str, index: int) -> int:
        """The row that comes next; what is the same for the whole run is told."""
        now_ms = self._clock.wall_ms()
        hour = now_ms // HOUR_MS
        if hour != self._hour or self.row_count >= ROWS_MAX or self._characters >= CHARACTERS_MAX:
            self.seal()
            self._hour = hour
        row = self.row_count
        if row == 0:
            self._sessions.put(0, NO_TEXT)
            self._keys.put(0, NO_TEXT)
        entity = self._paths.get(path)
        if entity is None:
            entity = self._paths[path] = len(self._paths)
            self._characters += len(path)
        self._times.put(row, now_ms)
        self._operations.put(row, operation)
        self._entities.put(row, entity)
        self._fragments.put(row, index)
        self._reasons.put(row, NO_TEXT)
        return row

    def _put_session(self, row: int, session_id: str | None) -> None:
        self._session_id = session_id
        self._sessions.put(row, self._place_of(session_id))

    def _put_key(self, row: int, key: str | None) -> None:
        self._key = key
        self._keys.put(row, self._place_of(key))

    def _place_of(self, text: str | None) -> int:
        if text is None:
            return NO_TEXT
        if len(text) > TEXT_CHARACTERS_MAX:
            text = text[:TEXT_CHARACTERS_MAX]
        place = self._texts.get(text)
        if place is None:
            place = self._texts[text] = len(self._texts)
            self._characters += len(text)
        return place
