"""A closed batch of one store, as rows for the statements that write it.

Theory of operation. `PartMaker` knows of its store what saves statements: which fragments have rows in the session
index, own expiry entries, shared payloads; and where the active rows of each fragment begin (its *head*). It makes
the part in one step, on the loop, so that what joins the next batch is not in this one. What needs to see rows
first, moves and changes, it only gathers (`row_changes`).

A head moves up with what is deleted there, and to the first row that a page from it on begins with; a row that comes
back below it takes it down. Reads begin there, because what lies before may be dead rows of hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import (
    COUNTER_BITS,
    COUNTER_MASK,
    Change,
    CommitBatch,
    FragmentKey,
    LogChanges,
    Move,
    StoreError,
    TransferMark,
    first_number_base,
)
from busway.store.log_rows import chunk_row
from busway.store.postgres.batch_arrays import Rows
from busway.store.postgres.known_sessions import KnownSessions, Session
from busway.store.postgres.time_head import BEGINNING, TimeHead
from busway.store.rows import (
    counter_values,
    deleted_keys,
    key_bounds,
    keys_among,
    message_rows,
    sealed,
    session_rows,
    shared_bodies,
)
from busway.store.shadow import Shadow, row_key
from busway.store.statements import PLACE_TABLES, statements_of

query = statements_of(__package__).query
by_place = statements_of(__package__).by_place

#: Of a payload's number: the store's in the upper bits.
_PAYLOADS_OF_STORE_BITS: Final = 56
PURGE_SLICE: Final = 512
SWEEP_SLICE_MAX: Final = 5_000
#: Keys of fragments come in blocks.
KEY_BLOCK: Final = 4096


def _in_places(name: str, kinds: str) -> tuple[Rows, ...]:
    return tuple(Rows(text, kinds) for text in by_place(name))


_DELETE: Final = _in_places("delete_rows", "b")
_DELETE_SHARING: Final = _in_places("delete_sharing_rows", "b")
#: Statements in their order, before and behind those of moves and changes.
FIRST: Final = {
    "fragments_create": Rows(query("fragments_create"), "biti"),
    "counters_create": Rows(query("counters_create"), "bbbbbbbbb"),
    "payloads": Rows(query("payloads_put"), "bd"),
    "payload_references": Rows(query("payload_references_put"), "bb"),
    "sharing": Rows(query("sharing_fragments_put"), "bi"),
    "active": Rows(query("put_active"), "bbbbdbd"),
    "deferred": Rows(query("put_aside", place=PLACE_TABLES[PLACE_DEFERRED]), "bibbbdbdbd"),
    "scheduled": Rows(query("put_aside", place=PLACE_TABLES[PLACE_SCHEDULED]), "bibbbdbdbd"),
    "session_entries": Rows(query("session_entries_put"), "bd"),
    "sessions_begun": Rows(query("sessions_begin"), "bdi"),
    "expiry_entries": Rows(query("expiry_entries_put"), "bib"),
}
SESSIONS_GO_ON: Final = "sessions_go_on"
LAST: Final = {
    SESSIONS_GO_ON: Rows(query("sessions_go_on"), "b"),
    "session_entries_deleted": Rows(query("session_entries_delete"), "b"),
    "expiry_entries_deleted": Rows(query("expiry_entries_delete"), "b"),
    **{f"deleted_{place}": _DELETE[place] for place in range(3)},
    **{f"deleted_sharing_{place}": _DELETE_SHARING[place] for place in range(3)},
    "states_cleared": Rows(query("session_states_clear"), "bd"),
    "states": Rows(query("session_states_set"), "bdbd"),
    "ids": Rows(query("duplicate_ids_put"), "bdb"),
    "ids_forgotten": Rows(query("duplicate_ids_forget"), "bb"),
    "chunks_deleted": Rows(query("chunks_delete"), "bb"),
    "chunks": Rows(query("chunks_put"), "bbbbbbbd"),
    "producers": Rows(query("producers_put"), "bbbbbd"),
    "producers_purged": Rows(query("producers_purge"), "bb"),
    "counters": Rows(query("counters_write"), "bbbbbbbbbbb"),
    "fragments_dropped": Rows(query("fragments_drop"), "b"),
    "catalogue_deleted": Rows(query("catalogue_delete"), "it"),
    "catalogue": Rows(query("catalogue_put"), "itt"),
    "catalogue_versions": Rows(query("catalogue_versions_write"), "ib"),
    "marks": Rows(query("transfer_marks_put"), "itbb"),
    "marks_removed": Rows(query("transfer_marks_delete"), "itbb"),
    "keys": Rows(query("keys_write"), "ibb"),
    "lineages": Rows(query("lineages_write"), "it"),
}


class CommitPart:
    """One commit of one store. Its epoch is that of the store at the time it is sent."""

    __slots__ = (
        "batch_id",
        "changes",
        "has_shared",
        "is_stored",
        "moves",
        "moves_into_sessions",
        "number",
        "outcome",
        "purged",
        "purges",
        "reserved",
        "returns",
        "rows",
        "sessions_ended",
        "shadow",
        "store",
        "sweep_rows",
        "sweeping",
        "swept",
        "wants_keys",
    )

    def __init__(self, store: int, shadow: Shadow, batch_id: bytes) -> None:
        self.store = store
        self.shadow = shadow
        self.number = shadow.number
        self.batch_id = batch_id
        self.rows: dict[str, list[Any]] = {}
        self.moves: list[Move] = []
        self.changes: list[Change] = []
        #: Some rows that it deletes may refer to a payload.
        self.has_shared = False
        #: (fragment, forget ids accepted from, and before), a slice each; those of which nothing is left.
        self.purges: list[tuple[int, int, int]] = []
        self.purged: list[int] = []
        #: Rows of dropped fragments to remove, from the first of these; those of which nothing is left.
        self.sweep_rows = 0
        self.sweeping: list[tuple[int, bool]] = []
        self.swept: list[int] = []
        #: Another block of keys is wanted; its beginning.
        self.wants_keys = False
        self.reserved: int | None = None
        #: Some of its moves end in a session; sessions of this database that had no row left, by its commit.
        self.moves_into_sessions = False
        self.sessions_ended: list[Session] = []
        #: Rows that had come back below others when it was closed, with its own.
        self.returns = 0
        #: It was found stored after its answer was lost.
        self.is_stored = False
        self.outcome: StoreError | None = None

    def add(self, name: str, rows: Iterable[Any]) -> None:
        self.rows.setdefault(name, []).extend(rows)


class PartMaker:
    """What a store knows of its rows. Belongs to the loop."""

    def __init__(self, store: int) -> None:
        self.store = store
        #: Fragments that may have rows with a shared payload, rows in the session index, own expiry entries.
        self.sharing: set[int] = set()
        self.with_sessions: set[int] = set()
        self.sessions = KnownSessions()
        #: Where scheduled rows and expiry entries begin, by time.
        self.due_head = TimeHead()
        self.expiry_head = TimeHead()
        #: Fragment → no id that was accepted before is left.
        self.purged_to: dict[int, int] = {}
        self.with_expiry: set[int] = set()
        self.number_bases: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.purges: dict[int, int] = {}
        #: Fragment → the version of its counters.
        self.versions: dict[int, int] = {}
        #: Fragment → no active row has a lower number (without the index in its upper bits).
        self.heads: dict[int, int] = {}
        #: Fragment → the highest number of a row that ever came.
        self._highest: dict[int, int] = {}
        #: Rows that came back below it; and how many of these are durable.
        self.returns = 0
        self.returns_stored = 0
        self.last_payload = store << _PAYLOADS_OF_STORE_BITS

    def payload_bounds(self) -> tuple[int, int]:
        low = self.store << _PAYLOADS_OF_STORE_BITS
        return low, low | (1 << _PAYLOADS_OF_STORE_BITS) - 1

    def make(self, shadow: Shadow, sweep_rows: int, batch_id: bytes) -> CommitPart:
        batch, part = shadow.batch, CommitPart(self.store, shadow, batch_id)
        if batch.fragments_created:
            self._create(part, batch)
        if batch.puts:
            self._put(part, batch)
        if batch.moves or batch.changes:
            self._gather(part, batch)
        if batch.deletes:
            self._delete(part, batch)
        self._states_and_ids(part, batch)
        if batch.logs is not None:
            _write_logs(part, batch.logs)
        if batch.counters:
            versions, number = self.versions, part.number
            part.rows["counters"] = [
                (key, versions.get(key, 0), number, *counter_values(counters), self.heads.get(key, 0))
                for key, counters in batch.counters.items()
            ]
            versions.update(dict.fromkeys(batch.counters, number))
        self._rest(part, batch)
        if sweep_rows:
            part.sweep_rows = min(sweep_rows, SWEEP_SLICE_MAX)
            part.sweeping = [(key, key in self.sharing) for key in sorted(self.dropped)]
        part.returns = self.returns
        return part

    def committed(self, part: CommitPart) -> None:
        """It is durable: what it swept and purged is gone for good."""
        self.returns_stored = part.returns
        if part.is_stored or part.moves_into_sessions:
            self.sessions.forget()  # nobody has seen which have ended, or whether they began again behind that
        else:
            self.sessions.ended(part.sessions_ended)
        self.dropped.difference_update(part.swept)
        for fragment in part.swept:
            self.number_bases.pop(fragment, None)
            self.heads.pop(fragment, None)
            self._highest.pop(fragment, None)
            self.versions.pop(fragment, None)
            self.sharing.discard(fragment)
            self.purged_to.pop(fragment, None)
        for fragment in part.purged:
            self.purges.pop(fragment, None)
        for fragment, _, before_ms in part.purges:
            if fragment in part.purged:
                self.purged_to[fragment] = before_ms

    # -- messages
    def _create(self, part: CommitPart, batch: CommitBatch) -> None:
        part.rows["fragments_create"] = [
            (row.key, self.store, row.owner, row.fragment_index) for row in batch.fragments_created
        ]
        part.rows["counters_create"] = [
            (row.key, 0, *counter_values(row.counters)) for row in batch.fragments_created
        ]
        for row in batch.fragments_created:
            if row.fragment_index > 0:
                self.number_bases[row.key] = first_number_base(row.fragment_index)

    def _put(self, part: CommitPart, batch: CommitBatch) -> None:
        payload_of = self._share(part, batch) if batch.puts_copies else None
        rows = message_rows(batch.puts, payload_of)
        returning: set[int] = set()
        if rows.active:
            returning = self._arrive([row[0] for row in rows.active])
            if payload_of is None:
                part.rows["active"] = [(*row[:5], None, row[5]) for row in rows.active]
            else:
                part.rows["active"] = [(*row[:5], *_body(row[5])) for row in rows.active]
        for name, aside in (("deferred", rows.deferred), ("scheduled", rows.scheduled)):
            if aside:
                part.rows[name] = [
                    (row[0], self.store, *row[1:4], _encoded(row[4]), row[5], row[6], *_body(row[7]))
                    for row in aside
                ]
        if "scheduled" in part.rows:
            self.due_head.joined(part.number, min((row[6], row[0]) for row in part.rows["scheduled"]))
        if batch.session_entries:
            entries = [(key, name.encode()) for key, name in session_rows(batch.session_entries)]
            self.with_sessions.update([key >> COUNTER_BITS for key, _ in entries])
            part.rows["session_entries"] = entries
            begun = self.sessions.begun(entries, returning)
            if begun:
                part.rows["sessions_begun"] = begun
        if batch.expiry_entries:
            expiring = {row_key(fragment, number): at_ms for fragment, at_ms, number in batch.expiry_entries}
            self.with_expiry.update([fragment for fragment, _, _ in batch.expiry_entries])
            part.rows["expiry_entries"] = [(key, self.store, at_ms) for key, at_ms in expiring.items()]
            self.expiry_head.joined(part.number, min((at_ms, key) for key, at_ms in expiring.items()))

    def _share(self, part: CommitPart, batch: CommitBatch) -> dict[int, int] | None:
        bodies = shared_bodies(batch.puts)
        if bodies is None:
            return None
        payload_of: dict[int, int] = {}
        for identity, (bare, count) in bodies.items():
            self.last_payload += 1
            payload_of[identity] = self.last_payload
            part.add("payloads", [(self.last_payload, bare)])
            part.add("payload_references", [(self.last_payload, count)])
        self._note_sharing(
            part, {fragment for fragment, _, message in batch.puts if id(message.bare) in payload_of}
        )
        return payload_of

    def _note_sharing(self, part: CommitPart, fragments: set[FragmentKey]) -> None:
        new = sorted(fragments - self.sharing)
        if new:
            part.add("sharing", [(key, self.store) for key in new])
            self.sharing.update(new)

    def _gather(self, part: CommitPart, batch: CommitBatch) -> None:
        part.moves, part.changes = batch.moves, batch.changes
        if self.sharing:
            self._note_sharing(
                part, {move.to_fragment for move in batch.moves if move.from_fragment in self.sharing}
            )
        arriving = [move for move in batch.moves if move.to_place == PLACE_ACTIVE]
        self._arrive([row_key(move.to_fragment, move.to_number) for move in arriving])
        in_sessions = [move.to_fragment for move in arriving if move.session_id is not None]
        self.with_sessions.update(in_sessions)
        part.moves_into_sessions = bool(in_sessions)
        self.with_expiry.update([move.to_fragment for move in batch.moves if move.with_expiry_entry])
        for move in batch.moves:
            if move.to_place == PLACE_SCHEDULED:
                self.due_head.joined(part.number, BEGINNING)
            if move.with_expiry_entry:
                self.expiry_head.joined(part.number, BEGINNING)
            if move.from_place == PLACE_ACTIVE:
                self._raise_head(move.from_fragment, [move.from_number & COUNTER_MASK])

    def entries_of(self, keys: list[int], place: int) -> tuple[list[int], list[int]]:
        """Keys that may stand in the session index, and those that may have an expiry entry."""
        sessions = (
            keys_among(keys, self.with_sessions) if self.with_sessions and place == PLACE_ACTIVE else []
        )
        return sessions, keys_among(keys, self.with_expiry) if self.with_expiry else []

    def _delete(self, part: CommitPart, batch: CommitBatch) -> None:
        for place, keys in enumerate(deleted_keys(batch.deletes)):
            if not keys:
                continue
            sessions, expiring = self.entries_of(keys, place)
            if sessions:
                part.rows[SESSIONS_GO_ON] = part.rows["session_entries_deleted"] = _alone(sessions)
            if expiring:
                part.add("expiry_entries_deleted", _alone(expiring))
            if self.sharing:
                shared = keys_among(keys, self.sharing)
                if shared:
                    part.has_shared = True
                    part.rows[f"deleted_sharing_{place}"] = _alone(shared)
                    keys = [key for key in keys if key >> COUNTER_BITS not in self.sharing]
            if keys:
                keys.sort()
                part.rows[f"deleted_{place}"] = _alone(keys)
        for fragment, place, numbers in batch.deletes:
            if place == PLACE_ACTIVE and numbers:
                base = self.number_bases.get(fragment, 0)
                self._raise_head(fragment, [number - base for number in numbers] if base else numbers)

    # -- heads
    def _raise_head(self, fragment: int, numbers: list[int]) -> None:
        head = self.heads.get(fragment, 1)
        if head not in numbers:
            return
        gone = set(numbers)
        while head in gone:
            head += 1
        self.heads[fragment] = head

    def _arrive(self, keys: list[int]) -> set[int]:
        """Active rows come: usually behind all others. Those that do not."""
        returning: set[int] = set()
        if not keys:
            return returning
        low, high = min(keys), max(keys)
        fragment = low >> COUNTER_BITS
        if fragment == high >> COUNTER_BITS and low & COUNTER_MASK > self._highest.get(fragment, 0):
            self._highest[fragment] = high & COUNTER_MASK
            return returning
        for key in keys:
            fragment, number = key >> COUNTER_BITS, key & COUNTER_MASK
            if number > self._highest.get(fragment, 0):
                self._highest[fragment] = number
                continue
            self.returns += 1
            returning.add(key)
            if number < self.heads.get(fragment, 1):
                self.heads[fragment] = number
        return returning

    def begin_heads(self, heads: dict[int, int], highest: dict[int, int]) -> None:
        """As they were stored, and the highest numbers ever given out."""
        self.heads, self._highest = heads, highest

    def seen_first(self, fragment: int, number: int, last: int, returns: int) -> None:
        """A page from the head on began with this row. `returns`: how many rows had come back, and were durable, when
        the read began; where others came since, one of them may lie before."""
        self._highest[fragment] = max(last, self._highest.get(fragment, 0))
        if returns == self.returns and number > self.heads.get(fragment, 1):
            self.heads[fragment] = number

    # -- the rest
    def _states_and_ids(self, part: CommitPart, batch: CommitBatch) -> None:
        if batch.session_states:
            states = {(row[0], row[1]): row for row in batch.session_states}  # of each session the last one
            for fragment, session_id, state, set_at_ms in states.values():
                if state is None:
                    part.add("states_cleared", [(fragment, session_id.encode())])
                else:
                    part.add("states", [(fragment, session_id.encode(), set_at_ms, sealed(state))])
        if batch.duplicate_ids:
            ids = {(fragment, name): at_ms for fragment, name, at_ms in batch.duplicate_ids}
            part.rows["ids"] = [(fragment, name.encode(), at_ms) for (fragment, name), at_ms in ids.items()]
            for (fragment, _), at_ms in ids.items():
                if at_ms < self.purged_to.get(fragment, at_ms):
                    self.purged_to[fragment] = at_ms
        if batch.duplicate_purges:
            forgotten: dict[int, int] = {}
            for fragment, before_ms in batch.duplicate_purges:
                forgotten[fragment] = max(before_ms, forgotten.get(fragment, 0))
                self.purges[fragment] = max(before_ms, self.purges.get(fragment, 0))
            part.rows["ids_forgotten"] = list(forgotten.items())
        if self.purges:
            part.purges = [
                (fragment, self.purged_to.get(fragment, BEGINNING[0]), before_ms)
                for fragment, before_ms in list(self.purges.items())[:16]
            ]

    def _rest(self, part: CommitPart, batch: CommitBatch) -> None:
        store = self.store
        if batch.fragments_dropped:
            part.rows["fragments_dropped"] = _alone(batch.fragments_dropped)
            self.dropped.update(batch.fragments_dropped)
        for name, text in batch.catalogue.items():
            if text is None:
                part.add("catalogue_deleted", [(store, name)])
            else:
                part.add("catalogue", [(store, name, text)])
        if batch.catalogue_version is not None:
            part.rows["catalogue_versions"] = [(store, batch.catalogue_version)]
        if batch.transfer_marks:
            part.rows["marks"] = [_mark_values(store, mark) for mark in batch.transfer_marks]
        if batch.transfer_marks_removed:
            part.rows["marks_removed"] = [_mark_values(store, mark) for mark in batch.transfer_marks_removed]


def _write_logs(part: CommitPart, changes: LogChanges) -> None:
    if changes.deleted:
        part.rows["chunks_deleted"] = list(changes.deleted)
    chunks = [chunk_row(log, builder) for log, builder in changes.chunks if builder.count > 0]
    if chunks:
        part.rows["chunks"] = chunks
    if changes.producers:
        producers = {
            (log, row.producer_id): (
                log,
                row.producer_id,
                row.epoch,
                row.last_sequence,
                row.used_at_ms,
                row.groups,
            )
            for log, row in changes.producers
        }
        part.rows["producers"] = list(producers.values())
    if changes.producers_purged:
        part.rows["producers_purged"] = list(changes.producers_purged)


def _mark_values(store: int, mark: TransferMark) -> tuple[int, str, int, int]:
    return store, mark.source_store, mark.source_fragment, mark.source_number


def _body(content: bytes | int) -> tuple[int | None, bytes | None]:
    """The columns `payload` and `bare`."""
    return (content, None) if isinstance(content, int) else (None, content)


def _encoded(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


def _alone(values: Iterable[int]) -> list[tuple[int]]:
    return [(value,) for value in values]


def bounds(fragment: int) -> tuple[int, int]:
    return key_bounds(FragmentKey(fragment))
