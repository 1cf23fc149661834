"""The commits of one database, in the commit thread: sending, and finding out what became of what was sent.

Theory of operation. The parts of several stores are one transaction: one pipeline of array statements, one round
trip, one COMMIT. Only moves and changes need another: they are worked out from rows that are read inside the
transaction. Where it fails for what one of the stores wrote, each part is sent alone, so that a failure of one is
none of another.

A commit has a known end. Its first statement checks and advances the fence of each store: epoch, commit number, and
the random id of the batch. When the answer is lost (a connection cut, a backend that ended, a warning at COMMIT),
another connection is opened and *looks*: it raises the epochs, so that whatever still lies in the socket of the old
backend comes too late, and finds number and id of the last commit. Then success is reported, or the same part sent
again. The look writes, and counts only once its own COMMIT has returned: so what it saw is on a standby as well.
Nothing is ever cancelled. When the database is not back within PATIENCE_S of the sending, the outcome is unknown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

import psycopg
from psycopg import pq

from busway.clock import Clock
from busway.store.contract import CommitRefused, CommitUnknown, StoreError, StoreTaken, StoreUnavailable
from busway.store.postgres.batch_arrays import Rows, bigint, bigints, column_of, integer
from busway.store.postgres.commit_part import FIRST, KEY_BLOCK, LAST, PURGE_SLICE, CommitPart, bounds
from busway.store.postgres.figures import DatabaseFigures
from busway.store.postgres.high_water import StoreMark, StoreMarks
from busway.store.postgres.loss import COMMITS_LEAP, KEYS_LEAP, FoundRow, is_older, lost_commits
from busway.store.postgres.row_changes import RowChanges
from busway.store.postgres.server_checks import connect
from busway.store.postgres.sqlstates import Meaning, meaning_of
from busway.store.postgres.url import PostgresUrl
from busway.store.postgres.writing_connection import (
    COMMIT,
    AnswerLost,
    Statement,
    StatementRefused,
    WritingConnection,
)
from busway.store.statements import PLACE_TABLES, statements_of

query = statements_of(__package__).query

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long a commit may take, with all that is tried to bring it to an end.
PATIENCE_S: Final = 5.0
#: Of a store whose openings are answered by nobody: the last ones are known again.
_OPENINGS_MAX: Final = 8
#: A lock was not to be had in time.
_LOCKED_STATE: Final = "55P03"
#: Between two tries.
_PAUSE_S: Final = 0.05

_BEGIN: Final[Statement] = (query("begin"), ())
_COMMIT: Final[Statement] = (COMMIT, ())
_ROLL_BACK: Final[Statement] = (query("roll_back"), ())
_FENCE: Final = query("fence")
_LOOK: Final = query("look")
_READ_COMMITS: Final = query("read_commits")
_HOLD_STORE: Final = query("hold_store")
_LINEAGE: Final = query("lineage")
_TAKE_STORE: Final = query("take_store")
_STORE_HOLDER: Final = query("store_holder")
_LEAP: Final = query("leap")
_LEAP_COMMITS: Final = query("leap_commits")
_LEAP_KEYS: Final = query("leap_keys")
_LINEAGES_FOLLOW: Final = query("lineages_follow")
_WHO_HAS: Final = query("who_has")
_END_STUCK: Final = query("end_stuck")
_PURGE: Final = query("duplicate_ids_purge")
_PAYLOADS_DROP: Final[Statement] = (query("payloads_drop"), ())
_KEYS_RESERVE: Final = query("keys_reserve")
_SESSIONS_GO_ON: Final = query("sessions_go_on")
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
    """What a store's row said when its epoch was raised. `lost`: so many commits are missing, at least, and `lineage`
    waits to be written."""

    __slots__ = ("commit_number", "epoch", "keys_end", "lineage", "lost", "next_key", "spare_key")

    def __init__(
        self,
        epoch: int,
        commit_number: int,
        next_key: int,
        keys_end: int,
        spare_key: int,
        lost: int,
        lineage: str,
    ) -> None:
        self.epoch = epoch
        self.commit_number = commit_number
        self.lost = lost
        self.lineage = lineage
        self.next_key = next_key
        self.keys_end = keys_end
        self.spare_key = spare_key


class Committer:
    """The writing connection of a database. Everything here runs in the commit thread."""

    def __init__(
        self, url: PostgresUrl, clock: Clock, high_water: StoreMarks, figures: DatabaseFigures
    ) -> None:
        self._url = url
        self._clock = clock
        self._high_water = high_water
        self._figures = figures
        #: Host and port of the last connection. Should it be lost, the other hosts are asked first.
        self._left: tuple[str, int] | None = None
        #: None after it was lost.
        self._connection: WritingConnection | None = None
        #: What is ours: store → epoch, and the random id of its opening.
        self._epochs: dict[int, int] = {}
        self._openings: dict[int, bytes] = {}
        #: As it was seen last.
        self._lineage = ""
        #: Stores that leapt since the database was replaced last.
        self._leapt: set[int] = set()

    def epoch_of(self, store: int) -> int | None:
        """As we know it; also for other threads."""
        return self._epochs.get(store)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self, ends_s: float) -> WritingConnection:
        """Tries until then; raises StoreError."""
        if self._connection is not None and self._connection.is_lost:
            self.close()
        while self._connection is None:
            try:
                connection = connect(self._url, self._left)
                self._left = (connection.info.host, connection.info.port)
                try:
                    self._connection = WritingConnection(connection, self._clock)
                except psycopg.Error as error:
                    connection.close()
                    raise StoreError(str(error)) from error
            except StoreError:
                if self._clock.monotonic() + _PAUSE_S >= ends_s:
                    raise
                time.sleep(_PAUSE_S)
        return self._connection

    def take(self, store: int, opening: bytes, holder: bytes | None) -> TakenStore:
        """The store is ours, from its next epoch on, as long as its lease is this holder's. Where commits are missing
        it leaps."""
        mark = self._high_water.mark(store)
        ends_s = self._clock.monotonic() + PATIENCE_S
        taken = self._insist(
            lambda connection: self._take(connection, store, opening, holder, mark, ends_s), ends_s
        )
        if taken is None:
            raise self._not_ours(store)
        mark.openings = [opening]
        mark.epoch, mark.number, mark.is_exact = taken.epoch, taken.commit_number, True
        mark.keys_end = max(mark.keys_end, taken.keys_end, taken.spare_key + KEY_BLOCK)
        self._epochs[store] = taken.epoch
        self._openings[store] = opening
        self._lineage = taken.lineage
        return taken

    def _not_ours(self, store: int) -> StoreError:
        statements: list[Statement] = [(_STORE_HOLDER, (integer(store),))]
        ends_s = self._clock.monotonic() + PATIENCE_S
        [found] = self._insist(lambda connection: connection.run(statements, ends_s), ends_s)
        if found.ntuples == 0:
            return StoreError(
                f"The store {self._url.store_name(store)} is not there, or has just been given up."
            )
        node, address = [(found.get_value(0, column) or b"").decode() for column in (0, 1)]
        whose = f"the node {node}{f' at {address}' if address else ''}" if node else "a node that is gone"
        return StoreUnavailable(
            f"The store {self._url.store_name(store)} is held by {whose}: stop that server; one that was killed is"
            " started again and stopped."
        )

    def _take(
        self,
        connection: WritingConnection,
        store: int,
        opening: bytes,
        holder: bytes | None,
        mark: StoreMark,
        ends_s: float,
    ) -> TakenStore | None:
        key, stores = integer(store), (column_of("integer", [store]),)
        seen: list[Statement] = [
            _BEGIN,
            (_HOLD_STORE, (key, holder)),
            (_LINEAGE, ()),
            (_READ_COMMITS, stores),
        ]
        _, row, lineages, commits = connection.run(seen, ends_s)
        if row.ntuples != 1 or commits.ntuples != 1:
            connection.run([_ROLL_BACK], ends_s)
            return None
        lineage = (lineages.get_value(0, 0) or b"").decode()
        before = FoundRow(
            _number(row, 0, 0),
            row.get_value(0, 1) or b"",
            (row.get_value(0, 2) or b"").decode(),
            _number(commits, 0, 1),
        )
        lost = lost_commits(before, mark, lineage, holder)
        mark.openings = [*mark.openings[-_OPENINGS_MAX:], opening]
        if lost:
            mark.lost = lost
            self._high_water.save()
            writes: list[Statement] = [
                (_LEAP, (key, opening, bigint(mark.epoch), bigint(COMMITS_LEAP))),
                (_LEAP_COMMITS, (key, bigint(mark.number), bigint(COMMITS_LEAP))),
                (_LEAP_KEYS, (key, bigint(mark.keys_end), bigint(self._keys_gap(store)), bigint(KEY_BLOCK))),
            ]
        else:
            writes = [(_TAKE_STORE, (key, opening, lineage.encode()))]
        *_, after, commits, _ = connection.run([*writes, (_READ_COMMITS, stores), _COMMIT], ends_s)
        epoch, next_key, keys_end, spare_key = [_number(after, 0, column) for column in range(4)]
        return TakenStore(epoch, _number(commits, 0, 1), next_key, keys_end, spare_key, lost, lineage)

    def _keys_gap(self, store: int) -> int:
        """Stores of a database lose together: the first of them leaves the gap."""
        if store in self._leapt:
            self._leapt.clear()
        self._leapt.add(store)
        return KEYS_LEAP if len(self._leapt) == 1 else 0

    def _insist(self, work: Callable[[WritingConnection], T], ends_s: float) -> T:
        """What may be done twice, until it is done. Raises StoreError."""
        while True:
            try:
                return work(self._connected(ends_s))
            except (AnswerLost, StatementRefused) as error:
                if error.sqlstate == _LOCKED_STATE:
                    self._end_stuck(ends_s)
                else:
                    self.close()
                if self._clock.monotonic() + _PAUSE_S >= ends_s:
                    raise StoreError(f"The database at {self._url.shown} cannot be used: {error}.") from error
                time.sleep(_PAUSE_S)

    def _end_stuck(self, ends_s: float) -> None:
        """Somebody holds a store, perhaps without ever letting go."""
        try:
            [ended] = self._connected(ends_s).run([(_END_STUCK, ())], ends_s)
        except (AnswerLost, StatementRefused):
            self.close()
            return
        if ended.ntuples:
            log.warning(
                "A session at %s that stood still in the middle of a commit was ended.", self._url.shown
            )

    # -- commits
    def commit(self, parts: list[CommitPart]) -> None:
        """Each part has its outcome then."""
        began_s = self._clock.monotonic()
        try:
            self._settle(parts, began_s + PATIENCE_S)
        except StoreError as error:
            for part in parts:
                if not part.is_stored:
                    part.outcome = part.outcome or CommitUnknown(str(error))
        self._figures.committed(self._clock.monotonic() - began_s)

    def _settle(self, parts: list[CommitPart], ends_s: float) -> None:
        """Raises StoreError when patience is over, and nobody knows."""
        while parts:
            try:
                self._send(parts, ends_s)
                return
            except StatementRefused as error:
                meaning = meaning_of(error.sqlstate)
                if meaning is Meaning.AGAIN and self._clock.monotonic() + _PAUSE_S < ends_s:
                    time.sleep(_PAUSE_S)
                elif len(parts) > 1:
                    for part in parts:
                        self._settle_alone(part, ends_s)
                    return
                elif meaning is Meaning.FENCED:
                    parts[0].outcome = self._whose(parts[0], ends_s)
                    return
                else:
                    parts[0].outcome = self._refusal(parts[0], meaning, error)
                    return
            except AnswerLost as error:
                log.warning("The answer to a commit at %s was lost: %s.", self._url.shown, error)
                self.close()
                parts = self._look(parts, ends_s)
                self._figures.resends += len(parts)

    def _settle_alone(self, part: CommitPart, ends_s: float) -> None:
        try:
            self._settle([part], ends_s)
        except StoreError as error:
            part.outcome = CommitUnknown(str(error))

    def _refusal(self, part: CommitPart, meaning: Meaning, error: StatementRefused) -> StoreError:
        name = self._url.store_name(part.store)
        log.error("A batch of store %s failed: %s (%s).", name, error, error.sqlstate)
        kind = ServerFull if meaning is Meaning.FULL else CommitRefused
        return kind(f"The store {name} could not write: {error}.")

    def _whose(self, part: CommitPart, ends_s: float) -> StoreError:
        """The fence has refused a commit: another server has the store, or the database is not what it was."""
        name, mark = self._url.store_name(part.store), self._high_water.mark(part.store)
        stores = (column_of("integer", [part.store]),)
        [row] = self._insist(lambda connection: connection.run([(_WHO_HAS, stores)], ends_s), ends_s)
        epoch, opening = (_number(row, 0, 1), row.get_value(0, 2) or b"") if row.ntuples else (0, b"")
        if opening in mark.openings or is_older(epoch, opening, mark):
            return CommitRefused(
                f"The store {name} does not go on from its last commit: its database was replaced."
            )
        log.error(
            "Another server has taken over the store %s, which is not served here any more. If that was not"
            " meant, stop the other server and start this one again.",
            name,
        )
        return StoreTaken(f"Another server has the store {name}.")

    def _look(self, parts: list[CommitPart], ends_s: float) -> list[CommitPart]:
        """Those that are not stored, and may be sent again."""
        stores = [part.store for part in parts]
        openings = [self._openings[store] for store in stores]
        values = (column_of("integer", stores), column_of("bytea", openings))
        statements: list[Statement] = [
            _BEGIN,
            (_LOOK, values),
            (_READ_COMMITS, values[:1]),
            (_LINEAGE, ()),
            _COMMIT,
        ]
        _, ours, commits, lineages, _ = self._insist(
            lambda connection: connection.run(statements, ends_s), ends_s
        )
        epochs = {_integer(ours, at, 0): _number(ours, at, 1) for at in range(ours.ntuples)}
        last = {_integer(commits, at, 0): at for at in range(commits.ntuples)}
        unsent: list[CommitPart] = []
        for part in parts:
            at = last.get(part.store)
            if at is None or part.store not in epochs:
                part.outcome = self._whose(part, ends_s)
                continue
            epoch = self._epochs[part.store] = epochs[part.store]
            self._high_water.mark(part.store).epoch = epoch
            number = _number(commits, at, 1)
            if number == part.number and commits.get_value(at, 2) == part.batch_id:
                part.is_stored = True
                continue
            if number == part.number - 1:
                unsent.append(part)
            else:
                part.outcome = CommitUnknown(
                    f"The store {self._url.store_name(part.store)} is at commit {number}, not {part.number - 1}."
                )
        lineage = (lineages.get_value(0, 0) or b"").decode()
        if lineage != self._lineage:
            self._follow(lineage, ends_s)
        return unsent

    def _follow(self, lineage: str, ends_s: float) -> None:
        """A fail-over: stores that have lost nothing belong to the new history, whoever opens them next."""
        marks = {store: self._high_water.mark(store) for store in self._openings}
        whole = [store for store, mark in marks.items() if not mark.lost]
        values = (
            column_of("integer", whole),
            column_of("bytea", [self._openings[store] for store in whole]),
            bigints([marks[store].number for store in whole]),
            lineage.encode(),
        )
        self._insist(lambda connection: connection.run([(_LINEAGES_FOLLOW, values)], ends_s), ends_s)
        self._lineage = lineage

    def _send(self, parts: list[CommitPart], ends_s: float) -> None:
        try:
            connection = self._connected(ends_s)
        except StoreError as error:  # nothing was sent, but an earlier try may have been
            raise AnswerLost(str(error)) from error
        changes = RowChanges(parts)
        statements = [_BEGIN, self._fence(parts), *_statements(FIRST, parts)]
        if changes:
            first = len(statements)
            changes.see(connection.run([*statements, *changes.reads()], ends_s)[first:])
            statements = changes.writes()
        statements += _statements(LAST, parts)
        sweeping = [part for part in parts if part.sweep_rows]
        if sweeping:
            connection.run(statements, ends_s)
            statements = [each for part in sweeping for each in _sweep(connection, part, ends_s)]
        upkeep = _Upkeep(parts, len(statements))
        statements += upkeep.statements
        if any(part.has_shared or part.sweep_rows for part in parts):
            statements.append(_PAYLOADS_DROP)
        statements.append(_COMMIT)
        results = connection.run(statements, ends_s)
        upkeep.note(results)
        _note_ended(parts, statements, results)

    def _fence(self, parts: list[CommitPart]) -> Statement:
        return _FENCE, (
            column_of("integer", [part.store for part in parts]),
            bigints([self._epochs[part.store] for part in parts]),
            bigints([part.number for part in parts]),
            column_of("bytea", [part.batch_id for part in parts]),
        )


def _statements(kinds: dict[str, Rows], parts: list[CommitPart]) -> list[Statement]:
    if len(parts) == 1:
        rows = parts[0].rows
        return [kind.statement([rows[name]]) for name, kind in kinds.items() if name in rows]
    found = []
    for name, kind in kinds.items():
        rows_of_each = [part.rows[name] for part in parts if name in part.rows]
        if rows_of_each:
            found.append(kind.statement(rows_of_each))
    return found


def _note_ended(parts: list[CommitPart], statements: list[Statement], results: list[pq.abc.PGresult]) -> None:
    """Sessions that had no row left."""
    ended = [
        (_number(result, at, 0), result.get_value(at, 1) or b"")
        for (text, _), result in zip(statements, results, strict=True)
        if text == _SESSIONS_GO_ON
        for at in range(result.ntuples)
    ]
    for part in parts:
        part.sessions_ended = ended


def _sweep(connection: WritingConnection, part: CommitPart, ends_s: float) -> list[Statement]:
    """Removes rows of dropped fragments, one statement after the other, because each has the room that is left.
    What says that nothing is left of a fragment."""
    done: list[Statement] = []
    part.swept.clear()
    room = part.sweep_rows
    for fragment, is_sharing in part.sweeping:
        low, high = (bigint(bound) for bound in bounds(fragment))
        by_key = (*(_SWEEP_SHARING if is_sharing else _SWEEP_BY_KEY[:3]), *_SWEEP_BY_KEY[3:])
        statements: list[Statement] = [(text, (low, high, bigint(room))) for text in by_key]
        key = bigint(fragment)
        statements += [(text, (key, bigint(room))) for text in (*_SWEEP_BY_FRAGMENT, *_SWEEP_BY_LOG)]
        for text, values in statements:
            room -= _removed(connection.run([(text, (*values[:-1], bigint(room)))], ends_s)[0])
            if room <= 0:
                return done
        done += [(_SWEEP_DONE, (key,)), (_SHARING_FORGET, (key,))]
        part.swept.append(fragment)
        room -= _FRAGMENT_ROWS
        if room <= 0:
            return done
    return done


class _Upkeep:
    """Slices of forgotten ids, and blocks of keys."""

    def __init__(self, parts: list[CommitPart], first: int) -> None:
        self.statements: list[Statement] = []
        self._first = first
        #: Where the result of each stands.
        self._purges: list[tuple[CommitPart, int, int]] = []
        self._keys: list[tuple[CommitPart, int]] = []
        for part in parts:
            for fragment, from_ms, before_ms in part.purges:
                self._purges.append((part, fragment, len(self.statements)))
                values = (bigint(fragment), bigint(before_ms), bigint(PURGE_SLICE), bigint(from_ms))
                self.statements.append((_PURGE, values))
            if part.wants_keys:
                self._keys.append((part, len(self.statements)))
                self.statements.append((_KEYS_RESERVE, (integer(part.store), bigint(KEY_BLOCK))))

    def note(self, results: list[pq.abc.PGresult]) -> None:
        results = results[self._first :]
        for part, fragment, at in self._purges:
            if (results[at].command_tuples or 0) < PURGE_SLICE:
                part.purged.append(fragment)
        for part, at in self._keys:
            part.reserved = _number(results[at], 0, 0)


def _removed(result: pq.abc.PGresult) -> int:
    if result.nfields:  # it says how many
        return _number(result, 0, 0)
    return result.command_tuples or 0


def _number(result: pq.abc.PGresult, row: int, column: int) -> int:
    found: int = _NUMBER.unpack(result.get_value(row, column) or b"")[0]
    return found


def _integer(result: pq.abc.PGresult, row: int, column: int) -> int:
    return int.from_bytes(result.get_value(row, column) or b"", "big", signed=True)
