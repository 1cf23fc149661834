"""The one pen of a fragment: what changes its rows, counters, horizon and journal, in one step (D-5, M-38, S-34).

Theory of operation. `Fragment.write` opens a write in the store's open batch. Its verbs say what happens to a run of
messages; which rows change by that, and how they are counted, follows from the step of the run (`message_states`).
`join` is the last word: counters go into the batch, and the write itself is the batch's callback. Nothing suspends
between, so memory and batch always tell the same story.

When the commit is durable the journal is told first and then receivers may have what has arrived, so that a message's
operations are told in their order. When it failed the fragment is dropped, and nothing of it was told.

What goes to the dead-letter fragment is a move within the same batch: a message is never lost and never in both
places. The dead-letter fragment has a write of its own there, which belongs to this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.journal import DEAD_LETTER, SCHEDULE, UNKNOWN, Note, OperationRow
from busway.broker.fragment.locks import Lock
from busway.broker.fragment.message_states import (
    EXPIRED,
    HEADER_SIZE_EXCEEDED,
    MessageInput,
    MessageState,
    Step,
    reason_in,
    step_of,
)
from busway.broker.fragment.property_changes import merge_changes
from busway.message.message import NEVER_MS, PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.model.errors import InvalidOperation
from busway.store.contract import Change, CommitBatch, FragmentKey, Move, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_COMPLETED: Final = step_of(MessageState.LOCKED, MessageInput.COMPLETED)
_COMPLETED_DEFERRED: Final = step_of(MessageState.LOCKED_DEFERRED, MessageInput.COMPLETED)
_ACTIVATED: Final = step_of(MessageState.SCHEDULED, MessageInput.ACTIVATED)
_CLAIM_RELEASED: Final = step_of(MessageState.DEFERRED, MessageInput.CLAIM_RELEASED)


class FragmentWrite:
    """See the head of this file. A write that nobody waits for: only its failure matters."""

    __slots__ = ("_dead_letters", "_notes", "_rows", "arrivals", "batch", "fragment", "last_number")

    batch: CommitBatch

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        #: Rows that come by a move or are put back, (number, session id): receivable once that is durable.
        self.arrivals: list[tuple[int, str | None]] | None = None
        #: The highest number newly given out; 0 when none was.
        self.last_number = 0
        #: For the journal.
        self._notes: list[Note] | None = None
        self._rows: Note | None = None
        #: What arrives in the dead-letter fragment.
        self._dead_letters: FragmentWrite | None = None

    # -- rows that leave

    def remove(self, step: Step, messages: list[Message], *, is_noted: bool = True) -> None:
        """For good. Nobody holds them."""
        size_bytes = 0
        for message in messages:
            size_bytes += message.size()
        numbers = [message.sequence_number for message in messages]
        self.batch.deletes.append((self.fragment.key, step.place, numbers))
        self._uncount(step.place, len(messages), size_bytes)
        if is_noted and step.operation != UNKNOWN:
            self.note(step.operation, messages)

    def complete(self, numbers: list[int], size_bytes: int) -> None:
        """R-10: active rows, whose locks the caller has taken. The list is the write's from here on."""
        self.batch.deletes.append((self.fragment.key, _COMPLETED.place, numbers))
        self._uncount(_COMPLETED.place, len(numbers), size_bytes)

    def complete_deferred(self, lock: Lock) -> None:
        self._delete_locked(_COMPLETED_DEFERRED, lock)

    def complete_locked(self, locks: list[Lock]) -> None:
        """The same for locks of any place, with the journal's note."""
        active = [lock for lock in locks if lock.place == PLACE_ACTIVE]
        if active:
            self.complete([lock.number for lock in active], sum([lock.size for lock in active]))
        for lock in locks:
            if lock.place != PLACE_ACTIVE:
                self.complete_deferred(lock)
        self.note_completed(locks)

    def _delete_locked(self, step: Step, lock: Lock) -> None:
        self.batch.deletes.append((self.fragment.key, step.place, [lock.number]))
        self._uncount(step.place, 1, lock.size)

    def expire(
        self, before: MessageState, messages: list[Message], properties: dict[str, object] = EXPIRED
    ) -> None:
        """Rows that nobody holds and that no window shows, whose time to live is over: dropped, or dead letters with
        these properties (D-11)."""
        fragment = self.fragment
        if fragment.settings.dead_letters_expired and fragment.dead_letter is not None:
            step = step_of(before, MessageInput.EXPIRED_TO_DEAD_LETTER)
            for message in messages:
                self.dead_letter(step, message, properties)
        else:
            self.remove(step_of(before, MessageInput.EXPIRED), messages)

    # -- rows that move to the dead-letter fragment

    def dead_letter(self, step: Step, message: Message, properties: dict[str, object]) -> None:
        """A row that nobody holds; the properties are laid over it (D-6)."""
        row = OperationRow(
            message.sequence_number,
            message.size(),
            message.delivery_count,
            message.enqueued_at_ms,
            message.session_id,
            message.partition_key,
        )
        self._move_to_dead_letters(step, row, message.changes, properties)

    def _move_to_dead_letters(
        self, step: Step, row: OperationRow, changes: bytes | None, properties: dict[str, object] | None
    ) -> None:
        """`row` and `changes` are the row as it is."""
        fragment = self.fragment
        target = self._dead_letter_write()
        changed = merge_changes(changes, properties)
        if changed is not None and len(changed) > fragment.runtime.limits.header_bytes_max:
            properties = HEADER_SIZE_EXCEEDED
            changed = merge_changes(changes, properties)
        self.batch.moves.append(
            Move(
                fragment.key,
                step.place,
                row.number,
                target.fragment.key,
                PLACE_ACTIVE,
                row.number,
                delivery_count=row.delivery_count,
                changes=changed,
            )
        )
        fragment.flow.dead_lettered += 1
        self._uncount(step.place, 1, row.size)
        grown = (0 if changed is None else len(changed)) - (0 if changes is None else len(changes))
        target.expect(row.number, None, row.size + grown)
        if fragment.runtime.journal is not None:
            row.reason = reason_in(properties)
            self._note_row(step.operation, row)

    def put_dead_letters(self, dead: list[tuple[Message, dict[str, object]]]) -> None:
        """Messages that enter the dead-letter fragment without having been in the main one, numbered by it."""
        fragment = self.fragment
        target = self._dead_letter_write()
        now_ms = fragment.runtime.clock.wall_ms()
        fragment.flow.dead_lettered += len(dead)
        for message, properties in dead:
            fragment.counters.last_counter += 1
            number = message.sequence_number = fragment.counters.last_counter
            message.enqueued_at_ms = now_ms
            message.changes = merge_changes(message.changes, properties)
            self.batch.puts.append((target.fragment.key, PLACE_ACTIVE, message))
            size = message.size()
            target.expect(number, None, size)
            if fragment.runtime.journal is not None:
                reason = reason_in(properties)
                session_id, key = message.session_id, message.partition_key
                row = OperationRow(number, size, message.delivery_count, now_ms, session_id, key, reason)
                self._note_row(DEAD_LETTER, row)

    def _dead_letter_write(self) -> FragmentWrite:
        write = self._dead_letters
        if write is None:
            target = self.fragment.dead_letter
            if target is None:
                raise InvalidOperation("A message in a dead-letter queue cannot be dead-lettered again.")
            write = self._dead_letters = FragmentWrite(target)
            write.batch = self.batch
        return write

    # -- rows whose lock ends

    def end(
        self, step: Step, lock: Lock, changed: bytes | None, properties: dict[str, object] | None = None
    ) -> bool:
        """The caller has taken the lock. `changed` replaces the changes of the row; `properties` are laid over them
        when it becomes a dead letter. False when the row stays as it is."""
        counts = step.counts and not self.fragment.settings.is_dead_letter
        if counts:
            lock.delivery_count += 1
        if step.after is MessageState.GONE:
            self._delete_locked(step, lock)
            self.note_lock(step.operation, lock)
        elif step.after is MessageState.DEAD_LETTERED:
            self._dead_letter_locked(step, lock, changed, properties)
        elif step.place_after != step.place:
            self._defer(step, lock, changed)
        elif counts or changed is not lock.changes:
            self._change(step, lock, changed)
        else:
            return False
        return True

    def _dead_letter_locked(
        self, step: Step, lock: Lock, changed: bytes | None, properties: dict[str, object] | None
    ) -> None:
        size = lock.size + _growth(lock, changed)
        self.fragment.counters.bytes += size - lock.size
        session_id = None if lock.session is None else lock.session.session_id
        row = OperationRow(lock.number, size, lock.delivery_count, lock.enqueued_at_ms, session_id)
        self._move_to_dead_letters(step, row, changed, properties)

    def _defer(self, step: Step, lock: Lock, changed: bytes | None) -> None:
        fragment = self.fragment
        self.batch.moves.append(
            Move(
                fragment.key,
                step.place,
                lock.number,
                fragment.key,
                step.place_after,
                lock.number,
                delivery_count=lock.delivery_count,
                changes=changed,
            )
        )
        self._uncount(step.place, 1, lock.size)
        fragment.counters.deferred += 1
        fragment.counters.bytes += lock.size + _growth(lock, changed)

    def _change(self, step: Step, lock: Lock, changed: bytes | None) -> None:
        fragment = self.fragment
        fragment.counters.bytes += _growth(lock, changed)
        kept = None if changed is lock.changes else changed
        self.batch.changes.append(Change(fragment.key, step.place, lock.number, lock.delivery_count, kept))

    # -- rows that come, or come back

    def activate(self, message: Message, enqueued_ms: int, expires_ms: int) -> None:
        """S-34: a scheduled row becomes active, under a new number."""
        fragment = self.fragment
        counters = fragment.counters
        counters.last_counter += 1
        number = self.last_number = counters.last_counter
        session_id = (message.session_id or "") if fragment.settings.requires_session else None
        self.batch.moves.append(
            Move(
                fragment.key,
                _ACTIVATED.place,
                message.sequence_number,
                fragment.key,
                _ACTIVATED.place_after,
                number,
                enqueued_at_ms=enqueued_ms,
                expires_at_ms=expires_ms,
                session_id=session_id,
                with_expiry_entry=expires_ms < counters.expiry_high_ms,
            )
        )
        counters.scheduled -= 1
        counters.active += 1
        self._arrive(number, session_id)
        if fragment.runtime.journal is not None:
            size, key = message.size(), message.partition_key
            row = OperationRow(number, size, 0, enqueued_ms, message.session_id, key)
            self._note_row(_ACTIVATED.operation, row)

    def release_claimed(self, message: Message, changes: bytes) -> None:
        """From the deferred rows back to the active ones, with these changes instead of its own."""
        fragment = self.fragment
        step, number, size = _CLAIM_RELEASED, message.sequence_number, message.size()
        expires = message.expires_at_ms < NEVER_MS and not fragment.settings.is_dead_letter
        self.batch.moves.append(
            Move(
                fragment.key,
                step.place,
                number,
                fragment.key,
                step.place_after,
                number,
                changes=changes,
                session_id=(message.session_id or "") if fragment.settings.requires_session else None,
                with_expiry_entry=expires,
            )
        )
        if expires:
            self.expires_out_of_order(message.expires_at_ms)
        self._uncount(step.place, 1, size)
        self.expect(number, message.session_id, size + len(changes) - len(message.changes or b""))

    def put_back(self, messages: list[Message]) -> None:
        """What was deleted for a receiver that did not get it, under its number."""
        batch, fragment = self.batch, self.fragment
        for message in messages:
            number = message.sequence_number
            batch.puts.append((fragment.key, PLACE_ACTIVE, message))
            self.expect(number, message.session_id, message.size())
            if fragment.settings.requires_session:
                batch.session_entries.append((fragment.key, message.session_id or "", number))
            if message.expires_at_ms < NEVER_MS and not fragment.settings.is_dead_letter:
                batch.expiry_entries.append((fragment.key, message.expires_at_ms, number))
                self.expires_out_of_order(message.expires_at_ms)

    def put_scheduled(self, messages: list[Message]) -> None:
        """S-30, S-31: stored apart, receivable from their time on. Their bytes are counted with the others'."""
        fragment = self.fragment
        for message in messages:
            message.state = PLACE_SCHEDULED
            self.batch.puts.append((fragment.key, PLACE_SCHEDULED, message))
        fragment.counters.scheduled += len(messages)
        activator = fragment.runtime.activators.get(fragment.store.name)
        if activator is not None:
            activator.joined(min(message.scheduled_at_ms for message in messages))

    def put_reserved(self, messages: list[Message], enqueued_ms: int) -> None:
        """Scheduled messages that have their numbers already."""
        size_bytes = 0
        for message in messages:
            message.enqueued_at_ms = enqueued_ms
            size_bytes += message.size()
        self.fragment.counters.bytes += size_bytes
        self.batch.bytes += size_bytes
        self.count_arrival(enqueued_ms)
        self.put_scheduled(messages)
        self.note(SCHEDULE, messages)

    def put_prepared_dead_letters(
        self, puts: list[tuple[FragmentKey, int, Message]], rows: list[OperationRow], size_bytes: int
    ) -> None:
        """`put_dead_letters` for such as are numbered and counted already."""
        fragment = self.fragment
        target = self._dead_letter_write()
        number = puts[-1][2].sequence_number
        fragment.flow.dead_lettered += len(puts)
        fragment.counters.last_counter = number
        counters = target.fragment.counters
        counters.active += len(puts)
        counters.bytes += size_bytes
        counters.last_counter = max(counters.last_counter, number)
        arrivals: list[tuple[int, str | None]] = [(message.sequence_number, None) for _, _, message in puts]
        target.fragment.horizon.arriving.update([number for number, _ in arrivals])
        target.arrivals = arrivals
        self.batch.puts.extend(puts)
        if fragment.runtime.journal is not None:
            self._rows = Note(DEAD_LETTER, None, None, rows)

    def expect(self, number: int, session_id: str | None, size_bytes: int) -> None:
        """An active row is on its way here; nobody sees it before it is durable."""
        fragment = self.fragment
        counters = fragment.counters
        counters.active += 1
        counters.bytes += size_bytes
        counters.last_counter = max(counters.last_counter, number)
        fragment.horizon.arriving.add(number)
        self._arrive(number, session_id)

    def _arrive(self, number: int, session_id: str | None) -> None:
        if self.arrivals is None:
            self.arrivals = []
        self.arrivals.append((number, session_id))

    def expires_out_of_order(self, expires_at_ms: int) -> None:
        """A row with an expiry entry of its own is in the batch."""
        sweeper = self.fragment.runtime.sweepers.get(self.fragment.store.name)
        if sweeper is not None:
            sweeper.joined(expires_at_ms)

    # -- what else belongs to it

    def count_arrival(self, enqueued_ms: int) -> None:
        """A use of the entity (E-41), whatever its status is by now: the next message must not be enqueued before
        this one (M-16)."""
        if self.fragment.settings.arrivals_are_uses:
            self.fragment.touch(enqueued_ms)

    def set_session_state(self, session_id: str, state: bytes | None, growth_bytes: int) -> None:
        """X-15: counts in the size of the entity."""
        fragment = self.fragment
        now_ms = fragment.runtime.clock.wall_ms()
        self.batch.session_states.append((fragment.key, session_id, state, now_ms))
        fragment.counters.bytes += growth_bytes

    def remember_ids(self, ids: Iterable[str]) -> None:
        """S-40: of messages that are in the batch."""
        key, now_ms = self.fragment.key, self.fragment.runtime.clock.wall_ms()
        self.batch.duplicate_ids.extend([(key, message_id, now_ms) for message_id in ids])

    def forget_ids(self, before_ms: int) -> None:
        self.batch.duplicate_purges.append((self.fragment.key, before_ms))

    # -- counting

    def _uncount(self, place: int, count: int, size_bytes: int) -> None:
        fragment = self.fragment
        counters = fragment.counters
        counters.bytes -= size_bytes
        if place == PLACE_ACTIVE:
            counters.active -= count
            if counters.active == 0 and fragment.consumption.count == 0:
                counters.expiry_high_ms = 0
        elif place == PLACE_DEFERRED:
            counters.deferred -= count
        else:
            assert place == PLACE_SCHEDULED
            counters.scheduled -= count

    # -- the journal

    def note(self, operation: int, messages: list[Message]) -> None:
        if messages and self.fragment.runtime.journal is not None:
            self._add_note(Note(operation, messages, None, None))

    def note_completed(self, locks: list[Lock]) -> None:
        """They are read when the batch is durable: what changes in them until then counts."""
        if locks and self.fragment.runtime.journal is not None:
            self._add_note(Note(_COMPLETED.operation, None, locks, None))

    def note_lock(self, operation: int, lock: Lock) -> None:
        """The same, with those of that operation before it."""
        if self.fragment.runtime.journal is None:
            return
        for note in self._notes or ():
            if note.operation == operation and note.locks is not None:
                note.locks.append(lock)
                return
        self._add_note(Note(operation, None, [lock], None))

    def _add_note(self, note: Note) -> None:
        if self._notes is None:
            self._notes = []
        self._notes.append(note)

    def _note_row(self, operation: int, row: OperationRow) -> None:
        """All rows of a write are of one operation. They are told of last: what led to it comes before."""
        if self._rows is None:
            self._rows = Note(operation, None, None, [])
        assert self._rows.operation == operation
        assert self._rows.rows is not None
        self._rows.rows.append(row)

    # -- the end

    def write_counters(self) -> None:
        """For whoever waits for the commit by itself, instead of `join`. Only rows that leave are written so."""
        self.batch.counters[self.fragment.key] = self.fragment.counters

    def join(self) -> None:
        """The last step."""
        self.write_counters()
        self.batch.callbacks.append(self.committed)
        if self._dead_letters is not None:
            self._dead_letters.join()

    def committed(self, error: StoreError | None) -> None:
        fragment = self.fragment
        if error is not None:
            fragment.commit_failed(error)
            return
        self.tell_journal()
        if self.last_number > fragment.horizon.committed_high:
            fragment.horizon.committed_high = self.last_number
        if self.arrivals is not None:
            fragment.arrived(self.arrivals)

    def tell_journal(self) -> None:
        fragment = self.fragment
        journal = fragment.runtime.journal
        if journal is None:
            return
        for note in self._notes or ():
            note.tell(journal, fragment.settings.path, fragment.index)
        if self._rows is not None:
            self._rows.tell(journal, fragment.settings.path, fragment.index)


def _growth(lock: Lock, changed: bytes | None) -> int:
    return (0 if changed is None else len(changed)) - (0 if lock.changes is None else len(lock.changes))
