"""The commits of one database, in the commit thread: sending, and finding out what became of what was sent.

Theory of operation. The parcels of several stores are one transaction: one pipeline of array statements, one round
trip, one COMMIT. Only moves and changes need another: they are worked out from rows that are read inside the
transaction. Where it fails for what one of the stores wrote, each parcel is sent alone, so that a failure of one is
none of another.

A commit has a known end. Its first statement checks and advances the fence of each store: epoch, commit number, and
the random id of the batch. When the answer is lost (a connection cut, a backend that ended, a warning at COMMIT),
another connection is opened and *looks*: it raises the epochs, so that whatever still lies in the socket of the old
backend comes too late, and finds number and id of the last commit. Then success is reported, or the same parcel sent
again. The look writes, and counts only once its own COMMIT has returned: so what it saw is on a standby as well.
Nothing is ever cancelled. When the database is not back within PATIENCE_S of the sending, the outcome is unknown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from struct import Struct
from typing import Final

import psycopg
from psycopg import pq

from busway.store.contract import CommitRefused, CommitUnknown, StoreError, StoreTaken
from busway.store.postgres.batch_arrays import Rows, bigint, bigints, column_of, integer
from busway.store.postgres.parcel import FIRST, KEY_BLOCK, LAST, PURGE_SLICE, Parcel, bounds
from busway.store.postgres.pipeline import COMMIT, AnswerLost, Pipeline, Refused, Statement
from busway.store.postgres.queries import PLACE_TABLES, query
from busway.store.postgres.row_changes import RowChanges
from busway.store.postgres.server_checks import connect
from busway.store.postgres.sqlstates import Meaning, meaning_of
from busway.store.postgres.url import PostgresUrl

log = logging.getLogger(__name__)

#: How long a commit may take, with all that is tried to bring it to an end.
PATIENCE_S: Final = 5.0
#: Between two tries.
_PAUSE_S: Final = 0.05

_BEGIN: Final[Statement] = (query("begin"), ())
_COMMIT: Final[Statement] = (COMMIT, ())
_FENCE: Final = query("fence")
_LOOK: Final = query("look")
_READ_COMMITS: Final = query("read_commits")
_TAKE_STORE: Final = query("take_store")
_PURGE: Final = query("duplicate_ids_purge")
_PAYLOADS_DROP: Final[Statement] = (query("payloads_drop"), ())
_KEYS_RESERVE: Final = query("keys_reserve")
_SWEEP_DONE: Final = query("sweep_done")
_SHARING_FORGET: Final = query("sharing_fragment_forget")
_SWEEP_BY_KEY: Final = tuple(
    query("sweep_by_key", place=table) for table in (*PLACE_TABLES, "expiry_entries", "session_messages")
)
_SWEEP_SHARING: Final = tuple(query("sweep_sharing_by_key", place=table) for table in PLACE_TABLES)
_SWEEP_BY_FRAGMENT: Final = tuple(
    query("sweep_by_fragment", place=table) for table in ("sessions", "session_states", "duplicate_ids")
)
_SWEEP_BY_LOG: Final = tuple(query("sweep_by_log", place=table) for table in ("log_chunks", "log_producers"))
_NUMBER: Final = Struct(">q")
#: What a dropped fragment counts for when dropped ones are removed: it takes a dozen statements, whatever it holds.
_FRAGMENT_ROWS: Final = 10


class ServerFull(CommitRefused):
    """The server's disk has no room."""


class TakenStore:
    """What a store's row said when its epoch was raised."""

    __slots__ = ("commit_number", "epoch", "keys_end", "next_key", "spare_key")

    def __init__(self, epoch: int, commit_number: int, next_key: int, keys_end: int, spare_key: int) -> None:
        self.epoch = epoch
        self.commit_number = commit_number
        self.next_key = next_key
        self.keys_end = keys_end
        self.spare_key = spare_key


class Committer:
    """The writing connection of a database. Everything here runs in the commit thread."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        #: None after it was lost.
        self._pipeline: Pipeline | None = None
        #: What is ours: store → epoch, and the random id of its opening.
        self._epochs: dict[int, int] = {}
        self._openings: dict[int, bytes] = {}
        #: Batches that were sent again.
        self.resends = 0

    def epoch_of(self, store: int) -> int | None:
        """As we know it; also for other threads."""
        return self._epochs.get(store)

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _connected(self, ends_s: float) -> Pipeline:
        """Tries until then; raises StoreError."""
        if self._pipeline is not None and self._pipeline.is_lost:
            self.close()
        while self._pipeline is None:
            try:
                connection = connect(self._url)
                try:
                    self._pipeline = Pipeline(connection)
                except psycopg.Error as error:
                    connection.close()
                    raise StoreError(str(error)) from error
            except StoreError:
                if time.monotonic() + _PAUSE_S >= ends_s:
                    raise
                time.sleep(_PAUSE_S)
        return self._pipeline

    def take(self, store: int, opening: bytes) -> TakenStore:
        """The store is ours, from its next epoch on."""
        values = (integer(store), opening)
        statements: list[Statement] = [
            _BEGIN,
            (_TAKE_STORE, values),
            (_READ_COMMITS, (column_of("integer", [store]),)),
            _COMMIT,
        ]
        _, row, commits, _ = self._insist(statements, time.monotonic() + PATIENCE_S)
        if row.ntuples != 1 or commits.ntuples != 1:
            raise StoreError(f"The database at {self._url.shown} has no store {store}.")
        epoch, next_key, keys_end, spare_key = [_number(row, 0, column) for column in range(4)]
        taken = TakenStore(epoch, _number(commits, 0, 1), next_key, keys_end, spare_key)
        self._epochs[store] = taken.epoch
        self._openings[store] = opening
        return taken

    def _insist(self, statements: Sequence[Statement], ends_s: float) -> list[pq.abc.PGresult]:
        """What may be done twice, until it is done. Raises StoreError."""
        while True:
            try:
                return self._connected(ends_s).run(statements, ends_s)
            except (AnswerLost, Refused) as error:
                self.close()
                if time.monotonic() + _PAUSE_S >= ends_s:
                    raise StoreError(f"The database at {self._url.shown} cannot be used: {error}.") from error
                time.sleep(_PAUSE_S)

    # -- commits
    def commit(self, parcels: list[Parcel]) -> None:
        """Each parcel has its outcome then."""
        ends_s = time.monotonic() + PATIENCE_S
        try:
            self._settle(parcels, ends_s)
        except StoreError as error:
            for parcel in parcels:
                if not parcel.is_stored:
                    parcel.outcome = parcel.outcome or CommitUnknown(str(error))

    def _settle(self, parcels: list[Parcel], ends_s: float) -> None:
        """Raises StoreError when patience is over, and nobody knows."""
        while parcels:
            try:
                self._send(parcels, ends_s)
                return
            except Refused as error:
                meaning = meaning_of(error.sqlstate)
                if meaning is Meaning.AGAIN and time.monotonic() + _PAUSE_S < ends_s:
                    time.sleep(_PAUSE_S)
                elif len(parcels) > 1:
                    for parcel in parcels:
                        self._settle_alone(parcel, ends_s)
                    return
                else:
                    parcels[0].outcome = self._refusal(parcels[0], meaning, error)
                    return
            except AnswerLost as error:
                log.warning("The answer to a commit at %s was lost: %s.", self._url.shown, error)
                self.close()
                parcels = self._look(parcels, ends_s)
                self.resends += len(parcels)

    def _settle_alone(self, parcel: Parcel, ends_s: float) -> None:
        try:
            self._settle([parcel], ends_s)
        except StoreError as error:
            parcel.outcome = CommitUnknown(str(error))

    def _refusal(self, parcel: Parcel, meaning: Meaning, error: Refused) -> StoreError:
        name = self._url.store_name(parcel.store)
        if meaning is Meaning.FENCED:
            log.error(
                "Another server has taken over the store %s, which is not served here any more. If that was not"
                " meant, stop the other server and start this one again.",
                name,
            )
            return StoreTaken(f"Another server has the store {name}.")
        log.error("A batch of store %s failed: %s (%s).", name, error, error.sqlstate)
        kind = ServerFull if meaning is Meaning.FULL else CommitRefused
        return kind(f"The store {name} could not write: {error}.")

    def _look(self, parcels: list[Parcel], ends_s: float) -> list[Parcel]:
        """Those that are not stored, and may be sent again."""
        stores = [parcel.store for parcel in parcels]
        openings = [self._openings[store] for store in stores]
        values = (column_of("integer", stores), column_of("bytea", openings))
        statements: list[Statement] = [_BEGIN, (_LOOK, values), (_READ_COMMITS, values[:1]), _COMMIT]
        _, ours, commits, _ = self._insist(statements, ends_s)
        epochs = {_integer(ours, at, 0): _number(ours, at, 1) for at in range(ours.ntuples)}
        last = {_integer(commits, at, 0): at for at in range(commits.ntuples)}
        unsent: list[Parcel] = []
        for parcel in parcels:
            at = last.get(parcel.store)
            if at is None or parcel.store not in epochs:
                parcel.outcome = self._refusal(parcel, Meaning.FENCED, Refused(None, ""))
                continue
            self._epochs[parcel.store] = epochs[parcel.store]
            number = _number(commits, at, 1)
            if number == parcel.number and commits.get_value(at, 2) == parcel.batch_id:
                parcel.is_stored = True
                continue
            if number == parcel.number - 1:
                unsent.append(parcel)
            else:
                parcel.outcome = CommitUnknown(
                    f"The store {self._url.store_name(parcel.store)} is at commit {number}, not {parcel.number - 1}."
                )
        return unsent

    def _send(self, parcels: list[Parcel], ends_s: float) -> None:
        try:
            pipeline = self._connected(ends_s)
        except StoreError as error:  # nothing was sent, but an earlier try may have been
            raise AnswerLost(str(error)) from error
        changes = RowChanges(parcels)
        statements = [_BEGIN, self._fence(parcels), *_statements(FIRST, parcels)]
        if changes:
            first = len(statements)
            changes.see(pipeline.run([*statements, *changes.reads()], ends_s)[first:])
            statements = changes.writes()
        statements += _statements(LAST, parcels)
        sweeping = [parcel for parcel in parcels if parcel.sweep_rows]
        if sweeping:
            pipeline.run(statements, ends_s)
            statements = [each for parcel in sweeping for each in _sweep(pipeline, parcel, ends_s)]
        upkeep = _Upkeep(parcels, len(statements))
        statements += upkeep.statements
        if any(parcel.has_shared or parcel.sweep_rows for parcel in parcels):
            statements.append(_PAYLOADS_DROP)
        statements.append(_COMMIT)
        upkeep.note(pipeline.run(statements, ends_s))

    def _fence(self, parcels: list[Parcel]) -> Statement:
        return _FENCE, (
            column_of("integer", [parcel.store for parcel in parcels]),
            bigints([self._epochs[parcel.store] for parcel in parcels]),
            bigints([parcel.number for parcel in parcels]),
            column_of("bytea", [parcel.batch_id for parcel in parcels]),
        )


def _statements(kinds: dict[str, Rows], parcels: list[Parcel]) -> list[Statement]:
    if len(parcels) == 1:
        rows = parcels[0].rows
        return [kind.statement([rows[name]]) for name, kind in kinds.items() if name in rows]
    found = []
    for name, kind in kinds.items():
        parts = [parcel.rows[name] for parcel in parcels if name in parcel.rows]
        if parts:
            found.append(kind.statement(parts))
    return found


def _sweep(pipeline: Pipeline, parcel: Parcel, ends_s: float) -> list[Statement]:
    """Removes rows of dropped fragments, one statement after the other, because each has the room that is left.
    What says that nothing is left of a fragment."""
    done: list[Statement] = []
    parcel.swept.clear()
    room = parcel.sweep_rows
    for fragment, is_sharing in parcel.sweeping:
        low, high = (bigint(bound) for bound in bounds(fragment))
        by_key = (*(_SWEEP_SHARING if is_sharing else _SWEEP_BY_KEY[:3]), *_SWEEP_BY_KEY[3:])
        statements: list[Statement] = [(text, (low, high, bigint(room))) for text in by_key]
        key = bigint(fragment)
        statements += [(text, (key, bigint(room))) for text in (*_SWEEP_BY_FRAGMENT, *_SWEEP_BY_LOG)]
        for text, values in statements:
            room -= _removed(pipeline.run([(text, (*values[:-1], bigint(room)))], ends_s)[0])
            if room <= 0:
                return done
        done += [(_SWEEP_DONE, (key,)), (_SHARING_FORGET, (key,))]
        parcel.swept.append(fragment)
        room -= _FRAGMENT_ROWS
        if room <= 0:
            return done
    return done


class _Upkeep:
    """Slices of forgotten ids, and blocks of keys."""

    def __init__(self, parcels: list[Parcel], first: int) -> None:
        self.statements: list[Statement] = []
        self._first = first
        #: Where the result of each stands.
        self._purges: list[tuple[Parcel, int, int]] = []
        self._keys: list[tuple[Parcel, int]] = []
        for parcel in parcels:
            for fragment, before_ms in parcel.purges:
                self._purges.append((parcel, fragment, len(self.statements)))
                values = (bigint(fragment), bigint(before_ms), bigint(PURGE_SLICE))
                self.statements.append((_PURGE, values))
            if parcel.wants_keys:
                self._keys.append((parcel, len(self.statements)))
                self.statements.append((_KEYS_RESERVE, (integer(parcel.store), bigint(KEY_BLOCK))))

    def note(self, results: list[pq.abc.PGresult]) -> None:
        results = results[self._first :]
        for parcel, fragment, at in self._purges:
            if (results[at].command_tuples or 0) < PURGE_SLICE:
                parcel.purged.append(fragment)
        for parcel, at in self._keys:
            parcel.reserved = _number(results[at], 0, 0)


def _removed(result: pq.abc.PGresult) -> int:
    if result.nfields:  # it says how many
        return _number(result, 0, 0)
    return result.command_tuples or 0


def _number(result: pq.abc.PGresult, row: int, column: int) -> int:
    found: int = _NUMBER.unpack(result.get_value(row, column) or b"")[0]
    return found


def _integer(result: pq.abc.PGresult, row: int, column: int) -> int:
    return int.from_bytes(result.get_value(row, column) or b"", "big", signed=True)
