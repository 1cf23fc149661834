"""Runs of messages in SQLite: how they are written, how their messages leave, how they are read.

Theory of operation. Active messages that were put together are one row of `message_runs`, never changed (see
`busway.store.run_block`). What is settled is marked in the narrow row of `run_marks`, and a run goes with its last
message. Whatever else happens to one of its messages (a move, a change) first makes it a row of `messages`, in the
same transaction: so there is one way of moving and changing, that of rows. A number lies in a run or in `messages`;
if ever in both, after damage to the marks, the row counts.

Bytes are read with SQLite's incremental reads: they copy the part that is asked for and pass by the pages before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

import apsw

from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import COUNTER_BITS, COUNTER_MASK, FragmentKey
from busway.store.rows import NEVER_RIGHT, MessageTuple, RawPage, key_bounds, message_rows
from busway.store.run_block import (
    FIXED_BYTES,
    RUN_MESSAGES_MAX,
    RunDamaged,
    RunHead,
    RunMarks,
    RunSlice,
    bounds_checksum,
    encoded,
    gathered,
    head_bytes,
    marks_checksum,
    marks_of,
    take_slice,
)
from busway.store.sqlite.event_logs import SWEPT_AS_ROW_BYTES
from busway.store.statements import statements_of

query = statements_of(__package__).query

#: Fewer messages become rows. Measured with 100 B and 1 KiB: eight cost more to read as a run than as rows, sixteen
#: are read alike, and are cheaper to put and to delete.
RUN_MESSAGES_MIN: Final = 16
#: Runs that the writer knows without asking, for each fragment and in all.
_KNOWN_OF_FRAGMENT: Final = 8
_KNOWN_FRAGMENTS: Final = 1024


class Run:
    """A run as it lies in the file, without its block."""

    __slots__ = ("key", "last", "marks")

    def __init__(self, key: int, last: int, marks: RunMarks) -> None:
        self.key = key
        self.last = last
        self.marks = marks

    @property
    def count(self) -> int:
        return self.last - self.key + 1

    def has(self, key: int) -> bool:
        return self.key <= key <= self.last and not self.marks.is_gone(key - self.key)


class RunFile:
    """Blocks on one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._blob: apsw.Blob | None = None
        self._key = 0
        #: That of the open block; None when it is damaged.
        self._head: RunHead | None = None

    def close(self) -> None:
        """Lets go of the open block: it would keep its snapshot."""
        if self._blob is not None:
            with contextlib.suppress(apsw.Error):
                self._blob.close(True)
        self._blob = None
        self._head = None
        self._key = 0

    def head(self, key: int) -> RunHead | None:
        """None when it is damaged."""
        if self._key != key:
            self._open(key)
        return self._head

    def _open(self, key: int) -> None:
        self.close()
        self._key = key
        try:
            blob = self._blob = self._connection.blob_open("main", "message_runs", "data", key, False)
            fixed = blob.read(FIXED_BYTES)
            length = head_bytes(fixed)
            if length <= blob.length():
                self._head = RunHead(fixed + blob.read(length - len(fixed)), key)
        except (RunDamaged, apsw.SQLError):  # no blob, after a flipped bit
            self._head = None

    def slice(self, head: RunHead, start: int, stop: int) -> RunSlice:
        """Of the block whose head was asked for last."""
        part = self._slice(head, start, stop)
        return self._slice(head, 0, head.count) if part.is_damaged else part

    def _slice(self, head: RunHead, start: int, stop: int) -> RunSlice:
        blob = self._blob
        assert blob is not None
        try:
            bodies = self._bodies(blob, head, start, stop)
        except apsw.CorruptError:  # one page of many: what lies on others can be read
            bodies = b"".join([self._body_or_zeros(blob, head, index) for index in range(start, stop)])
        return head.slice(start, stop, bodies)

    def _bodies(self, blob: apsw.Blob, head: RunHead, start: int, stop: int) -> bytes:
        first, end = head.body_start(start), head.body_start(stop)
        length = max(min(head.bytes + end, blob.length()) - head.bytes - first, 0)
        if not length:
            return b""
        blob.seek(head.bytes + first)
        return blob.read(length)

    def _body_or_zeros(self, blob: apsw.Blob, head: RunHead, index: int) -> bytes:
        try:
            return self._bodies(blob, head, index, index + 1)
        except apsw.CorruptError:
            return bytes(head.body_start(index + 1) - head.body_start(index))

    def run_of(self, row: Any) -> Run:
        """Of a row of `read_run_at` or `read_runs`. What is wrong beside a block is known from the block; of a run
        that is damaged throughout no more is believed than can be."""
        key, last, checksum, is_marked, gone, dead, marks_sum = row
        if bounds_checksum(key, last) != checksum:
            head = self.head(key)
            if head is not None:
                last = key + head.count - 1
            else:
                last = min(max(key, last), key + RUN_MESSAGES_MAX - 1, key | COUNTER_MASK)
        return Run(key, last, marks_of(key, gone, dead, marks_sum) if is_marked else RunMarks())


# -- writing


class RunWriter:
    """Runs of one store, for its writer."""

    def __init__(self, connection: apsw.Connection, messages_min: int) -> None:
        self._cursor = connection.cursor()
        self._file = RunFile(connection)
        self._messages_min = messages_min
        #: Fragments that may have runs.
        self._fragments: set[int] = {
            row[0] for row in self._cursor.execute(query("read_fragments_with_runs"))
        }
        #: Fragment → runs that were put or touched lately, the latest last.
        self._known: dict[int, list[Run]] = {}
        #: Runs whose marks the current batch changed.
        self._touched: dict[int, Run] = {}
        #: Fragment → its highest number in the current batch.
        self._last_numbers: dict[int, int] = {}
        #: Fragment → no run of it has a higher key, as far as it is known.
        self._highest: dict[int, int] = {}

    def begin(self) -> None:
        """A new batch."""
        self._touched.clear()
        self._last_numbers.clear()
        if len(self._known) > _KNOWN_FRAGMENTS or len(self._highest) > _KNOWN_FRAGMENTS:
            self._known.clear()
            self._highest.clear()

    def put(
        self,
        puts: Sequence[tuple[FragmentKey, int, Message]],
        payload_of: dict[int, int] | None,
        with_sessions: set[FragmentKey],
    ) -> list[tuple[FragmentKey, int, Message]]:
        """Stores those that make runs; the others."""
        found = gathered(puts, payload_of, with_sessions, self._messages_min, self._last_numbers)
        rows = []
        for fragment, messages in found.runs:
            key = fragment << COUNTER_BITS | messages[0].sequence_number & COUNTER_MASK
            last = key + len(messages) - 1
            if not self._is_free(key, last):
                found.alone.extend([(fragment, PLACE_ACTIVE, message) for message in messages])
                continue
            rows.append((key, last, bounds_checksum(key, last), encoded(key, messages)))
            self._fragments.add(fragment)
            self._know(Run(key, last, RunMarks()))
        if rows:
            self._cursor.executemany(_RUN_PUT, rows)
        if any(self._holder(key) is not None for key in found.late):
            raise ValueError("two messages have one number")
        return found.alone

    def _is_free(self, first: int, last: int) -> bool:
        """No run lies there. What is put back under its old numbers (R-1) may meet the run that it was deleted from:
        runs never overlap, so that each key is looked for in one of them."""
        fragment = first >> COUNTER_BITS
        highest = self._highest.get(fragment)
        if highest is None or first <= highest:
            low, high = key_bounds(FragmentKey(fragment))
            highest = self._last_before(low, high)
            if first <= highest and first <= self._last_before(low, last):
                self._highest[fragment] = highest
                return False
        self._highest[fragment] = max(highest, last)
        return True

    def _last_before(self, low: int, key: int) -> int:
        """Where the last run of a fragment ends that begins no later than at a key; 0 when there is none."""
        row = _first(self._cursor.execute(_READ_RUN_AT, (low, key)))
        last = 0 if row is None else self._file.run_of(row).last
        self._file.close()
        return last

    def delete(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Messages with consecutive keys go, as far as they lie in runs. The ranges that may have rows as well."""
        if not self._fragments:
            return ranges
        return [
            each
            for each in ranges
            if each[0] >> COUNTER_BITS not in self._fragments or not self._delete_range(*each)
        ]

    def _delete_range(self, first: int, last: int) -> bool:
        """True when all of them lay in runs."""
        is_whole = True
        while first <= last:
            run = self._run_at(first)
            if run is None:
                is_whole = False
                following: Any = _first(self._cursor.execute(_READ_NEXT_RUN, (first, last)))
                if following is None:
                    return False
                first = following[0]
                continue
            end = min(last, run.last)
            is_whole = run.marks.mark(first - run.key, end - run.key + 1) and is_whole
            self._touched[run.key] = run
            first = end + 1
        return is_whole

    def take_out(self, keys: list[int]) -> None:
        """Messages that are to be moved or changed become rows."""
        if not self._fragments:
            return
        rows: list[MessageTuple] = []
        for key in sorted(set(keys)):
            run = self._holder(key) if key >> COUNTER_BITS in self._fragments else None
            if run is not None:
                rows.append(self._row(run, key))
                run.marks.mark(key - run.key, key - run.key + 1)
                self._touched[run.key] = run
        self._file.close()
        if rows:
            self._cursor.executemany(_RUN_ROW_PUT, rows)

    def _row(self, run: Run, key: int) -> MessageTuple:
        """A damaged message becomes a damaged row."""
        index = key - run.key
        head = self._file.head(run.key)
        message = None if head is None else self._file.slice(head, index, index + 1).message(index)
        if message is None:
            return key, 0, 0, NEVER_RIGHT, None, b""
        return message_rows([(FragmentKey(key >> COUNTER_BITS), PLACE_ACTIVE, message)]).active[0]

    def end(self) -> None:
        """Writes which messages are gone; a run without any left goes."""
        over: list[tuple[int, int]] = []
        marks: list[tuple[int, int, int, bytes | None]] = []
        for key, run in self._touched.items():
            if run.marks.is_all(run.count):
                over.append((key, key))
                known = self._known.get(key >> COUNTER_BITS, [])
                if run in known:
                    known.remove(run)
            else:
                gone, dead = run.marks.stored()
                marks.append((key, gone, marks_checksum(key, gone, dead), dead))
        if over:
            self._cursor.executemany(_RUN_DELETE, over)
        if marks:
            self._cursor.executemany(_RUN_MARKS_PUT, marks)

    def _holder(self, key: int) -> Run | None:
        """The run in which a message lies that is not gone."""
        run = self._run_at(key)
        return run if run is not None and run.has(key) else None

    def _run_at(self, key: int) -> Run | None:
        """The run whose numbers a key is one of."""
        known = self._known.get(key >> COUNTER_BITS)
        if known is not None:
            for run in reversed(known):
                if run.key <= key <= run.last:
                    return run
        low = key >> COUNTER_BITS << COUNTER_BITS
        row = _first(self._cursor.execute(_READ_RUN_AT, (low, key)))
        if row is None:
            return None
        run = self._touched.get(row[0]) or self._file.run_of(row)
        self._file.close()
        if key > run.last:
            return None
        self._know(run)
        return run

    def _know(self, run: Run) -> None:
        known = self._known.setdefault(run.key >> COUNTER_BITS, [])
        known.append(run)
        if len(known) > _KNOWN_OF_FRAGMENT:
            del known[0]

    def sweep(self, fragment: int, room: int) -> int:
        """Removes runs of a dropped fragment. How much of the room they took; less than all when none is left."""
        if fragment not in self._fragments:
            return 0
        self._known.pop(fragment, None)
        taken = 0
        keys: list[tuple[int, int]] = []
        sizes: Any = self._cursor.execute(_SWEEP_RUN_SIZES, (*key_bounds(FragmentKey(fragment)), room))
        for key, size_bytes in sizes.fetchall():
            if taken >= room:
                break
            keys.append((key, key))
            taken += 1 + size_bytes // SWEPT_AS_ROW_BYTES
        self._cursor.executemany(_RUN_DELETE, keys)
        return taken


# -- reading


class RunReader:
    """The part of a `Reader` about runs, on the same connection. Used by one thread at a time, in one snapshot
    between two calls of `close`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._file = RunFile(connection)
        self._run: Run | None = None

    def close(self) -> None:
        self._file.close()
        self._run = None

    def warm(self, fragment: FragmentKey, after: int, limit: int, bytes_max: int) -> tuple[int, bool] | None:
        """Touches runs from behind a number on; up to which number, and whether there are others behind it. None when
        there is nothing to touch."""
        low, high = key_bounds(fragment)
        values = (low, low + after + 1, high, limit, bytes_max)
        try:
            row = _first(self._cursor.execute(_WARM_RUNS, values))
        except apsw.CorruptError:  # whoever reads finds out which messages it costs
            return None
        if row is None:
            return None
        key, last, is_cut = row
        return min(max(key, last), high) & COUNTER_MASK, bool(is_cut)

    def runs(self, first: int, last: int) -> Generator[Run, None, None]:
        """Those with a number between two keys of one fragment."""
        cursor = self._connection.cursor()
        try:
            low = first >> COUNTER_BITS << COUNTER_BITS
            before = _first(cursor.execute(_READ_RUN_AT, (low, first)))
            if before is not None:
                run = self._file.run_of(before)
                if run.last >= first:
                    yield run
            for row in cursor.execute(_READ_RUNS, (first + 1, last)):
                yield self._file.run_of(row)
        finally:
            cursor.close()  # A statement left half way would keep its snapshot, and the log from starting over.

    def keys(self, first: int, last: int, limit: int) -> Iterator[int]:
        """Of messages between two keys that are not gone, no more than so many."""
        for run in self.runs(first, last):
            index = run.marks.next_left(max(first - run.key, 0), run.count)
            while index < run.count and run.key + index <= last:
                if limit <= 0:
                    return
                limit -= 1
                yield run.key + index
                index = run.marks.next_left(index + 1, run.count)

    def take(self, page: RawPage, run: Run, start: int, stop: int) -> tuple[int, bool]:
        """Messages of a run, from an index on, into a page: where the next slice begins, and False when the page is
        full."""
        head = self._file.head(run.key)
        if head is None:
            for index in range(start, stop):
                number = run.key + index & COUNTER_MASK
                if not run.marks.is_gone(index) and not page.take_message(None, number, PLACE_ACTIVE):
                    return index, False
            return stop, True
        rows, size_bytes = page.room()
        stop = min(stop, head.count, head.stop_for(start, rows + 1, max(size_bytes, 0)))
        part = self._file.slice(head, start, stop)
        return stop, take_slice(page, part, start, stop, run.marks)

    def holder(self, key: int) -> Run | None:
        """The run in which a message lies that is not gone."""
        run = self._run
        if run is None or not run.key <= key <= run.last:
            low = key >> COUNTER_BITS << COUNTER_BITS
            row = _first(self._cursor.execute(_READ_RUN_AT, (low, key)))
            run = self._run = None if row is None else self._file.run_of(row)
        return run if run is not None and run.has(key) else None

    def message(self, run: Run, key: int) -> Message | None:
        """None when it is damaged."""
        head = self._file.head(run.key)
        index = key - run.key
        return None if head is None else self._file.slice(head, index, index + 1).message(index)

    def size(self, key: int) -> int | None:
        """About how many bytes a message has in memory; None when there is none."""
        run = self.holder(key)
        if run is None:
            return None
        head = self._file.head(run.key)
        return 0 if head is None else head.size(key - run.key)


def _first(rows: apsw.Cursor) -> Any:
    """None when there is none. To the end, because a statement left half way keeps its snapshot."""
    return next(iter(rows.fetchall()), None)


_RUN_PUT: Final = query("run_put")
_RUN_DELETE: Final = query("run_delete")
_RUN_MARKS_PUT: Final = query("run_marks_put")
_RUN_ROW_PUT: Final = query("run_row_put")
_READ_RUN_AT: Final = query("read_run_at")
_READ_RUNS: Final = query("read_runs")
_READ_NEXT_RUN: Final = query("read_next_run")
_WARM_RUNS: Final = query("warm_runs")
_SWEEP_RUN_SIZES: Final = query("sweep_run_sizes")
