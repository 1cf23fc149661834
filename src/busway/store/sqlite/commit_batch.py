"""Writing one commit batch: the statements between BEGIN and COMMIT, and bodies that several rows share.

Theory of operation. A batch is written on the loop's thread, grouped by kind so that each kind is one
`executemany`. Side tables are touched only for fragments that have rows in them: `_with_sessions` and
`_with_expiry` name those, found at open by one look-up per fragment. A session's row is brought up to date from
what the batch added and took (count by difference) and one look into the index (first number), never by scanning,
so an endless session costs what a short one does. Active messages that were put together are one row
(`message_runs`). Large removals (dropped fragments, forgotten ids) go in slices
over several batches. A batch with very many rows is written over several turns of the loop, inside of one
transaction: it is one commit all the same.

Payloads. Copies of one publish hold the identical bytes object. Where it pays (`rows.shared_bodies`) such a body
is stored once, and its rows hold the payload's number instead. How many rows refer to it stands in a table of its
own. A row that moves takes its reference along. Before rows go, the payloads they refer to are looked up, and once
per batch the counts are brought down and payloads without any reference removed, all in the batch's transaction.

A flipped bit may cost its own message, never a neighbour's: a payload that is kept for ever does less harm than
one that goes too early. So a payload's number carries a check, and a reference without the right one releases
nothing. And references are counted by a weight that no single bit can bring to zero: a payload goes at exactly
zero.

Most fragments never share, and their deletes must not pay: `sharing` names those that ever had such a row.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar
from zlib import crc32

import apsw

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.store.contract import (
    COUNTER_BITS,
    Change,
    CommitBatch,
    FragmentKey,
    Move,
    TransferMark,
    first_number_base,
)
from busway.store.rows import (
    Front,
    count_bodies,
    count_sessions,
    counter_values,
    deleted_keys,
    find_shared,
    key_bounds,
    keys_among,
    message_rows,
    rewritten,
    runs,
    sealed,
    session_rows,
    shared_bodies,
)
from busway.store.shadow import row_key
from busway.store.sqlite.event_logs import LogWriter
from busway.store.sqlite.message_runs import RunWriter
from busway.store.statements import PLACE_TABLES, statements_of

query = statements_of(__package__).query
by_place = statements_of(__package__).by_place

#: What one reference weighs: a prime, so that the difference that one bit makes is never a number of references.
REFERENCE_WEIGHT: Final = 1_000_003
_CHECK_BITS: Final = 20
_CHECK_MASK: Final = (1 << _CHECK_BITS) - 1
#: Looked at in one turn of the loop.
_PUTS_PER_TURN: Final = 10_000


class Payloads:
    """Shared bodies of one store, for its writer."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        #: Fragments that may have rows with a shared payload; readers look at it, too.
        self.sharing: set[int] = {row[0] for row in cursor.execute(_READ_SHARING)}
        self._last = max(row[0] for row in cursor.execute(_READ_LAST_PAYLOAD)) >> _CHECK_BITS
        #: Payload → rows that the current batch took from it.
        self._released: dict[int, int] = {}

    def begin(self) -> None:
        """A new batch; whatever the last one left undone was rolled back."""
        self._released.clear()

    def keep(
        self, puts: list[tuple[FragmentKey, int, Message]]
    ) -> Generator[None, None, dict[int, int] | None]:
        """Stores the bodies that several puts share: identity of the bytes → payload. Others may go on wherever it
        yields, which it does for very many puts only."""
        if len(puts) <= _PUTS_PER_TURN:
            bodies = shared_bodies(puts)
        else:
            bodies = yield from _shared_bodies(puts)
        if bodies is None:
            return None
        payload_of: dict[int, int] = {}
        rows: list[tuple[int, bytes]] = []
        weights: list[tuple[int, int]] = []
        for identity, (bare, count) in bodies.items():
            self._last += 1
            payload = payload_number(self._last)
            payload_of[identity] = payload
            rows.append((payload, bare))
            weights.append((payload, count * REFERENCE_WEIGHT))
        self._cursor.executemany(_PAYLOAD_PUT, rows)
        self._cursor.executemany(_PAYLOAD_WEIGH, weights)
        for start in range(0, len(puts), _PUTS_PER_TURN):
            if start > 0:
                yield
            some = puts[start : start + _PUTS_PER_TURN]
            self._note_sharing({fragment for fragment, _, message in some if id(message.bare) in payload_of})
        return payload_of

    def note_moves(self, moves: list[Move]) -> None:
        """Rows take their references along, perhaps into fragments that had none."""
        if self.sharing:
            self._note_sharing({move.to_fragment for move in moves if move.from_fragment in self.sharing})

    def _note_sharing(self, fragments: set[FragmentKey]) -> None:
        new = fragments - self.sharing
        if new:
            self._cursor.executemany(_SHARING_FRAGMENT_PUT, [(fragment,) for fragment in new])
            self.sharing |= new

    def release(self, place: int, keys: list[int]) -> None:
        """The rows are about to be deleted."""
        if self.sharing:
            concerned = [key for key in keys if key >> COUNTER_BITS in self.sharing]
            if concerned:
                self._count(self._cursor.executemany(_PAYLOADS_OF_RUN[place], runs(concerned)))

    def release_slice(self, place: int, low: int, high: int, limit: int) -> None:
        """The first rows of a dropped fragment are about to be swept."""
        self._count(self._cursor.execute(_PAYLOADS_OF_SLICE[place], (low, high, limit)))

    def _count(self, references: apsw.Cursor) -> None:
        released = self._released
        for (payload,) in references:
            if payload == payload_number(payload >> _CHECK_BITS):
                released[payload] = released.get(payload, 0) + 1

    def end(self) -> None:
        """Brings the weights down; payloads to which nothing refers any more go."""
        if self._released:
            weights = [(count * REFERENCE_WEIGHT, payload) for payload, count in self._released.items()]
            self._cursor.executemany(_PAYLOAD_RELEASE, weights)
            released = [(payload,) for payload in self._released]
            self._cursor.executemany(_PAYLOAD_DROP, released)
            self._cursor.executemany(_PAYLOAD_FORGET, released)
            self._released.clear()


def _shared_bodies(
    puts: list[tuple[FragmentKey, int, Message]],
) -> Generator[None, None, dict[int, tuple[bytes, int]] | None]:
    """`shared_bodies`, so many at a time."""
    counts: dict[int, int] = {}
    for start in range(0, len(puts), _PUTS_PER_TURN):
        count_bodies(puts[start : start + _PUTS_PER_TURN], counts)
        yield
    if max(counts.values(), default=0) < 2:
        return None
    found: dict[int, tuple[bytes, int]] = {}
    for start in range(0, len(puts), _PUTS_PER_TURN):
        find_shared(puts[start : start + _PUTS_PER_TURN], counts, found)
        yield
    return found if found else None


def payload_number(count: int) -> int:
    """The number of the store's nth payload, with its check."""
    return count << _CHECK_BITS | crc32(count.to_bytes(8, "big", signed=True)) & _CHECK_MASK


_READ_SHARING: Final = query("read_sharing")
_READ_LAST_PAYLOAD: Final = query("read_last_payload")
_PAYLOAD_PUT: Final = query("payload_put")
_PAYLOADS_OF_RUN: Final = by_place("payloads_of_run")
_PAYLOADS_OF_SLICE: Final = by_place("payloads_of_slice")
_PAYLOAD_WEIGH: Final = query("payload_weigh")
_PAYLOAD_RELEASE: Final = query("payload_release")
_PAYLOAD_DROP: Final = query("payload_drop")
_PAYLOAD_FORGET: Final = query("payload_forget")
_SHARING_FRAGMENT_PUT: Final = query("sharing_fragment_put")


#: Rows per batch: a slice must not hold the loop for longer than a few milliseconds.
SWEEP_SLICE_MAX: Final = 256
PURGE_SLICE: Final = 512
#: What a dropped fragment counts for when dropped ones are removed: it takes a dozen statements, whatever it holds.
_FRAGMENT_ROWS: Final = 10
#: Rows that are put in one turn of the loop.
ROWS_PER_TURN: Final = 2_000
#: The same of rows that are moved or changed: each may bring 64 KiB of properties (L-7).
REWRITES_PER_TURN: Final = 500

T = TypeVar("T")


class BatchWriter:
    """Runs the statements of batches on the writing connection."""

    def __init__(self, connection: apsw.Connection, run_messages_min: int) -> None:
        self._cursor = connection.cursor()
        self._payloads = Payloads(self._cursor)
        self._runs = RunWriter(connection, run_messages_min)
        self._logs = LogWriter(self._cursor)
        #: Fragments that may have rows with a shared payload.
        self.sharing = self._payloads.sharing
        #: Fragments that may have rows in the session index, or own expiry entries.
        self._with_sessions = self._column("read_fragments_with_sessions")
        self._with_expiry = self._column("read_fragments_with_expiry")
        #: Fragments of partitioned entities: what their numbers have in the upper bits.
        self.number_bases: dict[int, int] = {
            key: first_number_base(index)
            for key, index in self._cursor.execute(query("read_fragment_indexes"))
        }
        #: Fragments that wait for the sweep, and those the current batch finishes.
        self.dropped = self._column("read_dropped")
        self._swept: set[int] = set()
        #: Fragment → forget ids accepted before; rows of these are still there.
        self.purges: dict[FragmentKey, int] = {}
        #: (fragment, session) → rows the current batch added minus rows it took.
        self._touched: dict[tuple[int, str], int] = {}

    def _column(self, name: str) -> set[int]:
        return {row[0] for row in self._cursor.execute(query(name))}

    def commit_number(self) -> int:
        """How many commits the file knows."""
        return _number(self._column("read_commit_number"), 0)

    def next_fragment_key(self) -> int:
        return _number(self._column("read_next_fragment_key"), 1)

    def write(
        self, batch: CommitBatch, commit_number: int, next_fragment_key: int | None, sweep_rows: int
    ) -> Generator[None, None, None]:
        """Everything but the COMMIT; others may go on wherever it yields, which only large batches do. Raises what
        apsw raises; the caller rolls back."""
        execute = self._cursor.execute
        # As they are now: what joins the next batch meanwhile is not in this one.
        counters = [(*counter_values(counters), key) for key, counters in batch.counters.items()]
        self._touched.clear()
        self._payloads.begin()
        self._runs.begin()
        execute(_BEGIN)
        if batch.fragments_created:
            self._create_fragments(batch)
        if batch.puts:
            yield from self._put(batch)
        if batch.moves:
            yield from self._move(batch.moves)
        if batch.changes:
            yield from self._change(batch.changes)
        if batch.deletes:
            self._delete(batch.deletes)
        self._runs.end()
        if batch.session_states:
            self._set_states(batch)
        if batch.duplicate_ids or batch.duplicate_purges or self.purges:
            yield from self._remember_ids(batch)
        if batch.logs is not None:
            yield from self._logs.write(batch.logs)
        if self._touched:
            yield from self._recount_sessions()
        if counters:
            self._cursor.executemany(_COUNTERS_WRITE, counters)
        self._write_rest(batch, next_fragment_key)
        if sweep_rows:
            self._sweep(min(sweep_rows, SWEEP_SLICE_MAX))
        self._payloads.end()
        execute(_COMMIT_NUMBER_WRITE, (commit_number,))

    def committed(self) -> None:
        """The batch is durable: what it swept is gone for good."""
        if self._swept:
            self.dropped -= self._swept
            for fragment in self._swept:
                self.number_bases.pop(fragment, None)
            self._swept.clear()

    # -- messages
    def _put(self, batch: CommitBatch) -> Generator[None, None, None]:
        shared = (yield from self._payloads.keep(batch.puts)) if batch.puts_copies else None
        with_sessions = {fragment for fragment, _, _ in batch.session_entries}
        for some, is_last in _in_turns(batch.puts):
            rows = message_rows(self._runs.put(some, shared, with_sessions), shared)
            if rows.active:
                self._cursor.executemany(_PUT_ACTIVE, rows.active)
            if rows.deferred:
                self._cursor.executemany(_PUT_ASIDE[PLACE_DEFERRED], rows.deferred)
            if rows.scheduled:
                self._cursor.executemany(_PUT_ASIDE[PLACE_SCHEDULED], rows.scheduled)
            if not is_last:
                yield
        for entries, is_last in _in_turns(batch.session_entries):
            indexed = session_rows(entries)
            self._cursor.executemany(_SESSION_ENTRY_PUT, indexed)
            count_sessions(indexed, 1, self._touched)
            if not is_last:
                yield
        for expiring, is_last in _in_turns(batch.expiry_entries):
            self._cursor.executemany(
                _EXPIRY_ENTRY_PUT,
                [(row_key(fragment, number), at_ms) for fragment, at_ms, number in expiring],
            )
            self._with_expiry.update(fragment for fragment, _, _ in expiring)
            if not is_last:
                yield

    def _move(self, moves: list[Move]) -> Generator[None, None, None]:
        self._payloads.note_moves(moves)
        for some, is_last in _in_turns(moves, REWRITES_PER_TURN):
            self._move_some(some)
            if not is_last:
                yield

    def _move_some(self, moves: Sequence[Move]) -> None:
        for (source, target), group in groupby(moves, _source_and_target):
            run = list(group)
            keys = [row_key(move.from_fragment, move.from_number) for move in run]
            self._delete_entries(keys, source)
            if source == PLACE_ACTIVE:
                self._runs.take_out(keys)
            # Inside of one table a row may move on to where another of the run came from, so only one by one.
            if len(run) > 1 and source != target:
                self._move_run(run, source, target)
            else:
                for move in run:
                    self._move_row(move, source, target)
            self._enter_moved(run, target)

    def _move_row(self, move: Move, source: int, target: int) -> None:
        from_key = row_key(move.from_fragment, move.from_number)
        front = self._front(source, from_key)
        if front is None:  # Gone already: nothing to move.
            return
        values = _moved(move, front, target)
        if target == PLACE_ACTIVE:
            self._cursor.execute(_MOVE_TO_ACTIVE[source], (*values, from_key))
        else:
            self._cursor.execute(_MOVE_ASIDE[source][target], (*values, from_key))

    def _move_run(self, run: list[Move], source: int, target: int) -> None:
        by_key = {row_key(move.from_fragment, move.from_number): move for move in run}
        ranges = runs(list(by_key))
        fronts: list[Any] = self._cursor.executemany(_READ_FRONTS_OF_RUN[source], ranges).fetchall()
        copy = _COPY_TO_ACTIVE[source] if target == PLACE_ACTIVE else _COPY_ASIDE[source][target]
        self._cursor.executemany(copy, [_moved(by_key[front[0]], front, target) for front in fronts])
        self._cursor.executemany(_DELETE_RUN[source], ranges)

    def _front(self, place: int, key: int) -> Front | None:
        """A row without its body."""
        return self._cursor.execute(_READ_FRONT[place], (key,)).fetchone()

    def _enter_moved(self, run: list[Move], target: int) -> None:
        """Session and expiry entries of rows at their new place."""
        for move in run:
            key = row_key(move.to_fragment, move.to_number)
            if move.session_id is not None and target == PLACE_ACTIVE:
                for _ in self._cursor.execute(_SESSION_ENTRY_MOVED, (key, move.session_id)):
                    self._touch(move.to_fragment, move.session_id, 1)
            if move.with_expiry_entry:
                self._cursor.execute(_EXPIRY_ENTRY_MOVED[target], (key,))
                self._with_expiry.add(move.to_fragment)

    def _change(self, changes: list[Change]) -> Generator[None, None, None]:
        for some, is_last in _in_turns(changes, REWRITES_PER_TURN):
            self._change_some(some)
            if not is_last:
                yield

    def _change_some(self, changes: Sequence[Change]) -> None:
        self._runs.take_out([row_key(c.fragment, c.number) for c in changes if c.place == PLACE_ACTIVE])
        for change in changes:
            key = row_key(change.fragment, change.number)
            front = self._front(change.place, key)
            if front is not None:
                row = rewritten(front, key, None, None, change.delivery_count, change.changes)
                self._cursor.execute(_CHANGE[change.place], (row[3], row[6], key))

    def _delete(self, deletes: list[tuple[FragmentKey, int, list[int]]]) -> None:
        for place, keys in enumerate(deleted_keys(deletes)):
            if keys:
                self._delete_entries(keys, place)
                self._payloads.release(place, keys)
                ranges = runs(keys)
                if place == PLACE_ACTIVE:
                    ranges = self._runs.delete(ranges)
                self._cursor.executemany(_DELETE_RUN[place], ranges)

    def _delete_entries(self, keys: list[int], place: int) -> None:
        """Takes what other tables hold about the rows."""
        if self._with_sessions and place == PLACE_ACTIVE:
            indexed = runs(keys_among(keys, self._with_sessions))
            if indexed:
                gone: Any = self._cursor.executemany(_SESSION_ENTRIES_DELETE_RUN, indexed).fetchall()
                count_sessions(gone, -1, self._touched)
        if self._with_expiry:
            entered = runs(keys_among(keys, self._with_expiry))
            if entered:
                self._cursor.executemany(_EXPIRY_ENTRIES_DELETE_RUN, entered)

    # -- sessions and ids
    def _touch(self, fragment: int, session_id: str, difference: int) -> None:
        session = (fragment, session_id)
        self._touched[session] = self._touched.get(session, 0) + difference

    def _recount_sessions(self) -> Generator[None, None, None]:
        self._with_sessions.update([fragment for fragment, _ in self._touched])
        for some, is_last in _in_turns(list(self._touched.items())):
            self._cursor.executemany(
                _SESSION_RECOUNT,
                [
                    (fragment, name, difference, *key_bounds(FragmentKey(fragment)), fragment, name)
                    for (fragment, name), difference in some
                ],
            )
            if not is_last:
                yield

    def _set_states(self, batch: CommitBatch) -> None:
        for fragment, session_id, state, set_at_ms in batch.session_states:
            if state is None:
                self._cursor.execute(_SESSION_STATE_CLEAR, (fragment, session_id))
            else:
                self._cursor.execute(_SESSION_STATE_SET, (fragment, session_id, set_at_ms, sealed(state)))

    def _remember_ids(self, batch: CommitBatch) -> Generator[None, None, None]:
        for ids, is_last in _in_turns(batch.duplicate_ids):
            self._cursor.executemany(_DUPLICATE_ID_PUT, ids)
            if not is_last:
                yield
        for fragment, before_ms in batch.duplicate_purges:
            self._cursor.execute(_DUPLICATE_IDS_FORGET, (before_ms, fragment))
            self.purges[fragment] = max(before_ms, self.purges.get(fragment, 0))
        room = PURGE_SLICE
        for fragment, before_ms in list(self.purges.items()):
            removed = self._removed(_DUPLICATE_IDS_PURGE, (fragment, before_ms, room))
            room -= removed
            if room <= 0:
                break
            del self.purges[fragment]

    # -- the rest
    def _create_fragments(self, batch: CommitBatch) -> None:
        self._cursor.executemany(
            _FRAGMENT_CREATE,
            [
                (row.key, row.owner, row.fragment_index, *counter_values(row.counters))
                for row in batch.fragments_created
            ],
        )
        for row in batch.fragments_created:
            if row.fragment_index > 0:
                self.number_bases[row.key] = first_number_base(row.fragment_index)

    def _write_rest(self, batch: CommitBatch, next_fragment_key: int | None) -> None:
        execute = self._cursor.execute
        for key in batch.fragments_dropped:
            execute(_FRAGMENT_DROP, (key, key))
            self.dropped.add(key)
        for name, text in batch.catalogue.items():
            if text is None:
                execute(_CATALOGUE_DELETE, (name,))
            else:
                execute(_CATALOGUE_PUT, (name, text))
        if batch.transfer_marks:
            self._cursor.executemany(_TRANSFER_MARK_PUT, map(_mark_values, batch.transfer_marks))
        if batch.transfer_marks_removed:
            self._cursor.executemany(_TRANSFER_MARK_DELETE, map(_mark_values, batch.transfer_marks_removed))
        if batch.catalogue_version is not None:
            execute(_META_WRITE, (batch.catalogue_version, "catalogue_version"))
        if next_fragment_key is not None:
            execute(_META_WRITE, (next_fragment_key, "next_fragment_key"))

    def _sweep(self, room: int) -> None:
        """Removes up to `room` rows of dropped fragments; those that reads of all fragments meet go first, events of
        logs last. A topic may leave thousands of fragments without a row: each counts by itself."""
        for fragment in sorted(self.dropped - self._swept):
            low, high = key_bounds(FragmentKey(fragment))
            room -= self._runs.sweep(fragment, room)
            for statement, place in _SWEEPS_BY_KEY:
                if place is not None:
                    self._payloads.release_slice(place, low, high, room)
                room -= self._removed(statement, (low, high, room))
            for statement in _SWEEPS_BY_FRAGMENT:
                room -= self._removed(statement, (fragment, room))
            room -= self._logs.sweep(fragment, room)
            if room <= 0:
                return
            self._cursor.execute(_SWEEP_DONE, (fragment, fragment))
            self._swept.add(fragment)
            room -= _FRAGMENT_ROWS
            if room <= 0:
                return

    def _removed(self, statement: str, values: tuple[int, ...]) -> int:
        self._cursor.execute(statement, values)
        return self._cursor.connection.changes()


def _number(found: set[int], default: int) -> int:
    """TypeError where damage has taken it away."""
    number: Any = max(found, default=default)
    if not isinstance(number, int):
        raise TypeError("a number of the store itself is missing")
    return number


def _in_turns(rows: Sequence[T], count: int = ROWS_PER_TURN) -> list[tuple[Sequence[T], bool]]:
    """So many at a time, and whether they are the last."""
    if len(rows) <= count:
        return [(rows, True)] if rows else []
    starts = range(0, len(rows), count)
    return [(rows[start : start + count], start + count >= len(rows)) for start in starts]


def _moved(move: Move, front: Front, target: int) -> tuple[int | str | bytes | None, ...]:
    """What a row is at its new place, without its body, and the key that it had."""
    key, enqueued_at_ms, expires_at_ms, checksum, session_id, scheduled_at_ms, more = rewritten(
        front,
        row_key(move.to_fragment, move.to_number),
        move.enqueued_at_ms,
        move.expires_at_ms,
        move.delivery_count,
        move.changes,
    )
    if target == PLACE_ACTIVE:
        return key, enqueued_at_ms, expires_at_ms, checksum, more, front[0]
    return key, enqueued_at_ms, expires_at_ms, checksum, session_id, scheduled_at_ms, more, front[0]


def _source_and_target(move: Move) -> tuple[int, int]:
    return move.from_place, move.to_place


def _mark_values(mark: TransferMark) -> tuple[str, int, int]:
    return mark.source_store, mark.source_fragment, mark.source_number


def _by_source(name: str) -> tuple[str, ...]:
    return tuple(query(name, source=source) for source in PLACE_TABLES)


def _by_source_and_target(name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(query(name, source=source, target=target) for target in PLACE_TABLES) for source in PLACE_TABLES
    )


def _sweeps(tables: Iterable[str]) -> tuple[tuple[str, int | None], ...]:
    """Statements, with the place of tables whose rows may share a payload."""
    return tuple(
        (
            query("sweep_by_key", place=table),
            PLACE_TABLES.index(table) if table in PLACE_TABLES else None,
        )
        for table in tables
    )


_BEGIN: Final = query("begin")
_PUT_ACTIVE: Final = query("put_active")
_PUT_ASIDE: Final = by_place("put_aside")
_READ_FRONT: Final = by_place("read_front")
_MOVE_TO_ACTIVE: Final = _by_source("move_to_active")
_MOVE_ASIDE: Final = _by_source_and_target("move_aside")
_READ_FRONTS_OF_RUN: Final = by_place("read_fronts_of_run")
_COPY_TO_ACTIVE: Final = _by_source("copy_to_active")
_COPY_ASIDE: Final = _by_source_and_target("copy_aside")
_CHANGE: Final = by_place("change")
_DELETE_RUN: Final = by_place("delete_run")
_SESSION_ENTRY_PUT: Final = query("session_entry_put")
_SESSION_ENTRY_MOVED: Final = query("session_entry_moved")
_SESSION_ENTRIES_DELETE_RUN: Final = query("session_entries_delete_run")
_SESSION_RECOUNT: Final = query("session_recount")
_SESSION_STATE_SET: Final = query("session_state_set")
_SESSION_STATE_CLEAR: Final = query("session_state_clear")
_EXPIRY_ENTRY_PUT: Final = query("expiry_entry_put")
_EXPIRY_ENTRY_MOVED: Final = by_place("expiry_entry_moved")
_EXPIRY_ENTRIES_DELETE_RUN: Final = query("expiry_entries_delete_run")
_DUPLICATE_ID_PUT: Final = query("duplicate_id_put")
_DUPLICATE_IDS_FORGET: Final = query("duplicate_ids_forget")
_DUPLICATE_IDS_PURGE: Final = query("duplicate_ids_purge")
_TRANSFER_MARK_PUT: Final = query("transfer_mark_put")
_TRANSFER_MARK_DELETE: Final = query("transfer_mark_delete")
_COUNTERS_WRITE: Final = query("counters_write")
_COMMIT_NUMBER_WRITE: Final = query("commit_number_write")
_FRAGMENT_CREATE: Final = query("fragment_create")
_FRAGMENT_DROP: Final = query("fragment_drop")
_CATALOGUE_PUT: Final = query("catalogue_put")
_CATALOGUE_DELETE: Final = query("catalogue_delete")
_META_WRITE: Final = query("meta_write")
_SWEEPS_BY_KEY: Final = _sweeps(("scheduled", "expiry_entries", "deferred", "messages", "session_messages"))
_SWEEPS_BY_FRAGMENT: Final = (
    query("sweep_sessions"),
    query("sweep_session_states"),
    query("sweep_duplicate_ids"),
)
_SWEEP_DONE: Final = query("sweep_done")
