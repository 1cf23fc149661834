"""A store that forgets at the end of the process: the executable specification of `contract`, and the store of
tests that are not about storage.

Theory of operation. Committed rows lie in plain dicts per fragment. Joining schedules a commit on the loop, so
callbacks come later, never inside the join. A commit is applied through an undo log, so a batch that cannot be
applied (a number used twice) leaves nothing behind. Reads give the loop one turn and then answer in one go from
the committed rows, corrected by the shadows of the batch in flight and the open one.

For tests: `hold_commits` and `release_commits` stretch the time a batch is in flight, `refuse_next_commit` and
`lose_next_commit` make one fail, `accepts_new_payload` plays the full disk, `crash` forgets what is not committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.store.commit_cycle import report, resolving
from busway.store.contract import (
    COUNTER_MASK,
    Change,
    ChunkHead,
    ChunkPage,
    CommitBatch,
    CommitRefused,
    CommitUnknown,
    Counters,
    FragmentKey,
    FragmentRow,
    LogChanges,
    Move,
    Page,
    ProducerRow,
    SessionRow,
    StoreError,
    StoreState,
    StoreTaken,
    StoreUnavailable,
    TimedRow,
    TransferMark,
)
from busway.store.shadow import Shadow, Shadows
from tests.harness.memory_logs import MemoryLog, closed
from tests.harness.undo_log import NumberUsedTwice, UndoLog


class MemoryStore:
    """`contract.Store` in dicts."""

    def __init__(self, name: str, *, batch_bytes_max: int = 32 << 20) -> None:
        self.name = name
        self.url = f"memory:{name}"
        self.state = StoreState.CLOSED
        self.lost_commits = 0
        self.epoch: int | None = None
        #: Tests set it to False to play a full disk.
        self.accepts_new_payload = True
        self._batch_bytes_max = batch_bytes_max
        self._fragments: dict[FragmentKey, _Fragment] = {}
        self._dropped: list[_Fragment] = []
        self._transfer_marks: dict[TransferMark, None] = {}
        self._catalogue: dict[str, str] = {}
        self._catalogue_version = 0
        self._next_key = 1
        self._open = CommitBatch()
        self._in_flight: CommitBatch | None = None
        self._is_scheduled = False
        self._is_held = False
        #: For tests.
        self.seems_stuck = False
        self._next_outcome: StoreError | None = None
        self._applies_lost = False

    # -- life
    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = CommitBatch()
        self._in_flight = None
        self._is_scheduled = False
        self.state = StoreState.OPEN

    async def close(self) -> None:
        self.release_commits()
        if self.state is StoreState.OPEN:
            await self.flush()
        self.state = StoreState.CLOSED

    async def disable(self) -> None:
        """Takes the store out of service until `reopen`."""
        await self.close()
        self.state = StoreState.DISABLED

    def loss_is_met(self) -> None:
        """It loses nothing."""

    async def reopen(self) -> None:
        if self.state is not StoreState.OPEN:
            await self.open()

    # -- writing
    def batch(self) -> CommitBatch:
        self._require_open()
        self._schedule()
        return self._open

    def accepts_payload(self) -> bool:
        return self.accepts_new_payload and not self.is_congested()

    def is_congested(self) -> bool:
        return self._open.bytes >= self._batch_bytes_max

    def is_stuck(self) -> bool:
        return self.seems_stuck

    def is_slow(self) -> bool:
        return self._is_held and self._in_flight is not None

    async def flush(self) -> None:
        self._require_open()
        last = self._open if self._in_flight is None or not self._open.is_empty() else self._in_flight
        if last.is_empty():
            return
        waiter = self._loop.create_future()
        last.callbacks.append(resolving(waiter))
        await waiter

    def next_fragment_key(self) -> FragmentKey:
        key = FragmentKey(self._next_key)
        self._next_key += 1
        return key

    async def sweep_dropped(self, limit: int) -> bool:
        await self.flush()
        while self._dropped and limit > 0:
            limit -= self._dropped[0].remove_rows(limit)
            if self._dropped[0].is_empty():
                self._dropped.pop(0)
        return bool(self._dropped)

    # -- hooks for tests
    def hold_commits(self) -> None:
        """From now on a started commit stays in flight until `release_commits`."""
        self._is_held = True

    def release_commits(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._in_flight is not None:
                self._loop.call_soon(self._finish, self._in_flight)

    def refuse_next_commit(self) -> None:
        self._next_outcome = CommitRefused("The test wanted this commit to be refused.")

    def be_taken(self) -> None:
        """The next commit finds that another server has the store."""
        self._next_outcome = StoreTaken("Another server has this store.")

    def lose_next_commit(self, *, is_applied: bool) -> None:
        """The next commit ends as unknown; `is_applied` says what the reopened store will show."""
        self._next_outcome = CommitUnknown("The test wanted the outcome of this commit to be unknown.")
        self._applies_lost = is_applied

    def crash(self) -> None:
        """The process dies: what is not committed is gone and nobody is told. `open` starts the next life."""
        self._open = CommitBatch()
        self._in_flight = None
        self.state = StoreState.CLOSED

    # -- committing
    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._in_flight is not None or self._open.is_empty() or self.state is not StoreState.OPEN:
            return
        batch, self._open = self._open, CommitBatch()
        _freeze(batch)
        self._in_flight = batch
        if not self._is_held:
            self._loop.call_soon(self._finish, batch)

    def _finish(self, batch: CommitBatch) -> None:
        if batch is not self._in_flight:  # A crash came between.
            return
        outcome, self._next_outcome = self._next_outcome, None
        if outcome is None or (isinstance(outcome, CommitUnknown) and self._applies_lost):
            outcome = self._apply(batch) or outcome
        self._in_flight = None
        if outcome is None:
            if not self._open.is_empty():
                self._schedule()
            report(self._loop, batch.callbacks, None)
        else:
            self._fail(batch, outcome)

    def _fail(self, batch: CommitBatch, outcome: StoreError) -> None:
        self.state = StoreState.TAKEN if isinstance(outcome, StoreTaken) else StoreState.FAILED
        gathered, self._open = self._open, CommitBatch()
        report(self._loop, batch.callbacks, outcome)
        report(self._loop, gathered.callbacks, CommitRefused("An earlier commit of the store failed."))

    def _apply(self, batch: CommitBatch) -> StoreError | None:
        undo = UndoLog()
        try:
            self._apply_rows(batch, undo)
            self._apply_marks(batch, undo)
        except NumberUsedTwice as error:
            undo.roll_back()
            return CommitRefused(str(error))
        for key, counters in batch.counters.items():
            if key in self._fragments:
                self._fragments[key].row.counters = counters
        for key in batch.fragments_dropped:
            if key in self._fragments:
                self._dropped.append(self._fragments.pop(key))
        for name, text in batch.catalogue.items():
            if text is None:
                self._catalogue.pop(name, None)
            else:
                self._catalogue[name] = text
        if batch.catalogue_version is not None:
            self._catalogue_version = batch.catalogue_version
        return None

    def _apply_rows(self, batch: CommitBatch, undo: UndoLog) -> None:
        for row in batch.fragments_created:
            undo.put(self._fragments, row.key, _Fragment(row))
        for key, place, message in batch.puts:
            self._fragment(key).put(place, message, undo)
        for key, session_id, number in batch.session_entries:
            undo.put(self._fragment(key).session_index, number, session_id)
        for key, expires_at_ms, number in batch.expiry_entries:
            undo.put(self._fragment(key).expiry_entries, number, expires_at_ms)
        for move in batch.moves:
            self._move(move, undo)
        for change in batch.changes:
            self._fragment(change.fragment).change(change, undo)
        for key, place, numbers in batch.deletes:
            self._fragment(key).take_all(place, numbers, undo)
        for key, session_id, state, set_at_ms in batch.session_states:
            self._fragment(key).set_state(session_id, state, set_at_ms, undo)
        for key, message_id, accepted_at_ms in batch.duplicate_ids:
            undo.put(self._fragment(key).duplicate_ids, message_id, accepted_at_ms)
        for key, before_ms in batch.duplicate_purges:
            self._fragment(key).forget_ids(before_ms, undo)
        if batch.logs is not None:
            self._apply_logs(batch.logs, undo)

    def _apply_logs(self, changes: LogChanges, undo: UndoLog) -> None:
        for key, first_number in changes.deleted:
            self._log(key).delete(first_number, undo)
        for key, builder in changes.chunks:
            self._log(key).put(builder, undo)
        for key, row in changes.producers:
            self._log(key).put_producer(row, undo)
        for key, before_ms in changes.producers_purged:
            self._log(key).forget_producers(before_ms, undo)

    def _log(self, key: int) -> MemoryLog:
        return self._fragment(FragmentKey(key)).log

    def _apply_marks(self, batch: CommitBatch, undo: UndoLog) -> None:
        for mark in batch.transfer_marks:
            undo.put(self._transfer_marks, mark, None)
        for mark in batch.transfer_marks_removed:
            undo.pop(self._transfer_marks, mark)

    def _move(self, move: Move, undo: UndoLog) -> None:
        message = self._fragment(move.from_fragment).take(move.from_place, move.from_number, undo)
        if message is None:  # Gone already: nothing to move.
            return
        moved = copy_message(message)
        moved.sequence_number = move.to_number
        for name in ("delivery_count", "changes", "enqueued_at_ms", "expires_at_ms"):
            if getattr(move, name) is not None:
                setattr(moved, name, getattr(move, name))
        target = self._fragment(move.to_fragment)
        target.put(move.to_place, moved, undo)
        if move.session_id is not None and move.to_place == PLACE_ACTIVE:
            undo.put(target.session_index, move.to_number, move.session_id)
        if move.with_expiry_entry:
            undo.put(target.expiry_entries, move.to_number, moved.expires_at_ms)

    def _fragment(self, key: FragmentKey) -> _Fragment:
        """Rows of a fragment nobody knows (dropped meanwhile) go nowhere."""
        return self._fragments.get(key) or _Fragment(FragmentRow(key, "", 0, Counters()))

    # -- reading
    async def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        rows = (await self._rows(fragment)).places[place]
        return self._page(fragment, [m for n, m in rows.items() if n > after], limit, bytes_max)

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        rows = (await self._rows(fragment)).places[place]
        found = [rows[number] for number in set(numbers) if number in rows]
        return self._page(fragment, found, len(found), 1 << 62)

    async def sizes(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> dict[int, int]:
        rows = (await self._rows(fragment)).places[place]
        shadows = self._shadows()
        known = [number for number in set(numbers) if number in rows]
        return {n: rows[n].size() for n in known if not shadows.hides(fragment, place, n)}

    async def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> Page:
        rows = await self._rows(fragment)
        found = [message for message in rows.active_of(session_id) if message.sequence_number > after]
        return self._page(fragment, found, limit, bytes_max)

    async def peek(
        self, fragment: FragmentKey, from_number: int, limit: int, bytes_max: int, session_id: str | None
    ) -> Page:
        rows = await self._rows(fragment)
        if session_id is None:
            found = [message for place in rows.places for message in place.values()]
        else:
            found = rows.active_of(session_id)
            for place in (PLACE_DEFERRED, PLACE_SCHEDULED):
                found += [m for m in rows.places[place].values() if m.session_id == session_id]
        return self._page(fragment, [m for m in found if m.sequence_number >= from_number], limit, bytes_max)

    async def due(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        await self._turn()
        shadows = self._shadows()
        rows = [
            (message.scheduled_at_ms, key, number)
            for key, fragment in self._fragments.items()
            if not shadows.is_dropped(key)
            for number, message in fragment.places[PLACE_SCHEDULED].items()
            if message.scheduled_at_ms <= now_ms and not shadows.hides(key, PLACE_SCHEDULED, number)
        ]
        return _timed(rows, limit, after)

    async def next_due_ms(self, after_ms: int = -1) -> int | None:
        first = await self.due(1 << 62, 1, (FragmentKey(0), 0, after_ms + 1))
        return first[0][2] if first else None

    async def next_expiry_ms(self, after_ms: int = -1) -> int | None:
        first = await self.expired_entries(1 << 62, 1, (FragmentKey(0), 0, after_ms + 1))
        return first[0][2] if first else None

    async def expired_entries(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        await self._turn()
        shadows = self._shadows()
        rows = [
            (expires_at_ms, key, number)
            for key, fragment in self._fragments.items()
            for number, expires_at_ms in fragment.expiry_entries.items()
            if expires_at_ms <= now_ms and not shadows.hides_anywhere(key, number)
        ]
        return _timed(rows, limit, after)

    async def session(self, fragment: FragmentKey, session_id: str) -> SessionRow | None:
        rows = await self._rows(fragment)
        numbers = self._session_numbers(fragment, rows).get(session_id, [])
        states = rows.states | self._shadows().session_states(fragment)
        state, set_at_ms = states.get(session_id, (None, 0))
        if not numbers and state is None:
            return None
        return SessionRow(
            session_id, len(numbers), min(numbers, default=0), state, 0 if state is None else set_at_ms
        )

    async def next_sessions(
        self, fragment: FragmentKey, after_first_number: int, limit: int
    ) -> list[tuple[str, int]]:
        rows = await self._rows(fragment)
        firsts = [(min(numbers), name) for name, numbers in self._session_numbers(fragment, rows).items()]
        return [(name, first) for first, name in sorted(firsts) if first > after_first_number][:limit]

    async def sessions(
        self,
        fragment: FragmentKey,
        state_set_after_ms: int | None,
        skip: int,
        limit: int,
        from_id: str = "",
    ) -> list[str]:
        rows = await self._rows(fragment)
        states = rows.states | self._shadows().session_states(fragment)
        after_ms = -1 if state_set_after_ms is None else state_set_after_ms
        names = {name for name, (state, at_ms) in states.items() if state is not None and at_ms > after_ms}
        if state_set_after_ms is None:
            names.update(self._session_numbers(fragment, rows))
        return sorted(name for name in names if name >= from_id)[skip : skip + limit]

    async def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> set[str]:
        rows = await self._rows(fragment)
        shadows = self._shadows()
        known = rows.duplicate_ids | shadows.joined_ids(fragment)
        since_ms = max(since_ms, shadows.forgotten_before_ms(fragment))
        return {message_id for message_id in ids if known.get(message_id, -1) >= since_ms}

    async def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        return (await self._rows(log)).log.page(from_number, bytes_max)

    async def chunk_heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        return (await self._rows(log)).log.heads(from_number, limit)

    async def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        return (await self._rows(log)).log.first_number_since(at_ms)

    async def producers(self, log: FragmentKey) -> list[ProducerRow]:
        return (await self._rows(log)).log.producer_rows()

    async def transfer_marks(self, source_store: str | None = None) -> list[TransferMark]:
        await self._turn()
        wanted = [m for m in self._transfer_marks if source_store is None or m.source_store == source_store]
        removed = self._shadows().marks_removed()
        return sorted((mark for mark in wanted if mark not in removed), key=_mark_order)

    async def fragments(self, keys: Sequence[FragmentKey] | None = None) -> list[FragmentRow]:
        await self._turn()
        wanted = sorted(self._fragments) if keys is None else sorted(set(keys))
        shadows = self._shadows()
        rows = [self._fragments[k].row for k in wanted if k in self._fragments and not shadows.is_dropped(k)]
        return [FragmentRow(row.key, row.owner, row.fragment_index, row.counters.copy()) for row in rows]

    async def catalogue(self) -> tuple[int, dict[str, str]]:
        await self._turn()
        return self._catalogue_version, dict(self._catalogue)

    # -- the steps of a read
    def _require_open(self) -> None:
        if self.state is not StoreState.OPEN:
            raise StoreUnavailable(f"The store {self.name} is {self.state.value}.")

    async def _turn(self) -> None:
        self._require_open()
        await asyncio.sleep(0)
        self._require_open()

    async def _rows(self, fragment: FragmentKey) -> _Fragment:
        await self._turn()
        if self._shadows().is_dropped(fragment):
            return _Fragment(FragmentRow(fragment, "", 0, Counters()))
        return self._fragment(fragment)

    def _shadows(self) -> Shadows:
        joined = [self._open] if self._in_flight is None else [self._in_flight, self._open]
        return Shadows([Shadow(batch, 0) for batch in joined])

    def _page(self, fragment: FragmentKey, found: list[Message], limit: int, bytes_max: int) -> Page:
        found.sort(key=_sequence_number)
        kept = self._shadows().kept(fragment, [copy_message(message) for message in found])
        taken = 0
        for message in kept[:limit]:
            bytes_max -= message.size()
            if bytes_max < 0 and taken:
                break
            taken += 1
        return Page(kept[:taken], taken < len(kept), [])

    def _session_numbers(self, fragment: FragmentKey, rows: _Fragment) -> dict[str, list[int]]:
        """Session → numbers of its active rows that stay; sessions without any are left out."""
        removed = self._shadows().active_removed(fragment)
        sessions: dict[str, list[int]] = {}
        for number, session_id in rows.session_index.items():
            if number & COUNTER_MASK not in removed:
                sessions.setdefault(session_id, []).append(number)
        return sessions


class _Fragment:
    """The committed rows of one fragment."""

    def __init__(self, row: FragmentRow) -> None:
        self.row = row
        self.places: tuple[dict[int, Message], dict[int, Message], dict[int, Message]] = ({}, {}, {})
        self.session_index: dict[int, str] = {}
        self.expiry_entries: dict[int, int] = {}
        self.states: dict[str, tuple[bytes | None, int]] = {}
        self.duplicate_ids: dict[str, int] = {}
        self.log = MemoryLog()

    def put(self, place: int, message: Message, undo: UndoLog) -> None:
        number = message.sequence_number
        if number in self.places[place]:
            raise NumberUsedTwice(f"Number {number} of fragment {self.row.key} is in use already.")
        message.state = place
        undo.put(self.places[place], number, message)

    def take_all(self, place: int, numbers: list[int], undo: UndoLog) -> None:
        for number in numbers:
            self.take(place, number, undo)

    def take(self, place: int, number: int, undo: UndoLog) -> Message | None:
        message = self.places[place].get(number)
        undo.pop(self.places[place], number)
        undo.pop(self.expiry_entries, number)
        if place == PLACE_ACTIVE:
            undo.pop(self.session_index, number)
        return message

    def change(self, change: Change, undo: UndoLog) -> None:
        message = self.places[change.place].get(change.number)
        if message is None:
            return
        changed = copy_message(message)
        changed.delivery_count = change.delivery_count
        if change.changes is not None:
            changed.changes = change.changes
        undo.put(self.places[change.place], change.number, changed)

    def set_state(self, session_id: str, state: bytes | None, set_at_ms: int, undo: UndoLog) -> None:
        if state is None:
            undo.pop(self.states, session_id)
        else:
            undo.put(self.states, session_id, (state, set_at_ms))

    def forget_ids(self, before_ms: int, undo: UndoLog) -> None:
        for message_id in [name for name, at_ms in self.duplicate_ids.items() if at_ms < before_ms]:
            undo.pop(self.duplicate_ids, message_id)

    def active_of(self, session_id: str) -> list[Message]:
        active = self.places[PLACE_ACTIVE]
        return [active[n] for n, name in self.session_index.items() if name == session_id and n in active]

    def _tables(self) -> tuple[dict[int, Message] | dict[int, str] | dict[int, int] | dict[str, int], ...]:
        return (*self.places, self.session_index, self.expiry_entries, self.duplicate_ids)

    def remove_rows(self, limit: int) -> int:
        """Removes up to `limit` rows of any kind; returns how many."""
        removed = 0
        self.states.clear()
        for table in self._tables():
            while table and removed < limit:
                table.popitem()
                removed += 1
        return removed + self.log.remove_rows(limit - removed)

    def is_empty(self) -> bool:
        return not any(self._tables()) and self.log.is_empty()


def copy_message(message: Message) -> Message:
    """A twin that does not change when the original does."""
    twin = Message(
        message.head,
        message.bare,
        ttl_ms=message.ttl_ms,
        message_id=message.message_id,
        session_id=message.session_id,
        partition_key=message.partition_key,
        scheduled_at_ms=message.scheduled_at_ms,
    )
    twin.sequence_number = message.sequence_number
    twin.enqueued_at_ms = message.enqueued_at_ms
    twin.expires_at_ms = message.expires_at_ms
    twin.delivery_count = message.delivery_count
    twin.changes = message.changes
    twin.state = message.state
    return twin


def _freeze(batch: CommitBatch) -> None:
    """The batch closes: what it writes are the values of this moment, whatever their owners do to them later."""
    batch.puts = [(key, place, copy_message(message)) for key, place, message in batch.puts]
    batch.counters = {key: counters.copy() for key, counters in batch.counters.items()}
    batch.fragments_created = [
        FragmentRow(row.key, row.owner, row.fragment_index, row.counters.copy())
        for row in batch.fragments_created
    ]
    if batch.logs is not None:
        batch.logs = closed(batch.logs)


def _timed(rows: list[tuple[int, FragmentKey, int]], limit: int, after: TimedRow | None) -> list[TimedRow]:
    """The first rows by time that come behind one."""
    if after is not None:
        first = (after[2], after[0], after[1])
        rows = [row for row in rows if row > first]
    return [(key, number, at_ms) for at_ms, key, number in sorted(rows)[:limit]]


def _mark_order(mark: TransferMark) -> tuple[str, int, int]:
    return mark.source_store, mark.source_fragment, mark.source_number


def _sequence_number(message: Message) -> int:
    return message.sequence_number
