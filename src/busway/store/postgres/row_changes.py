"""Moves and changes of rows: what they become is known only once the rows are seen.

A row's checksum covers what is packed in `more`, so a row that moves or counts a delivery is written anew, without
its body (`rows.rewritten`). The rows are read inside the transaction, behind the puts of the same batch; then moves
are played through in their order, and each group of them is a statement. Inside of one table a row may go to where
another one came from: there a new group begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from psycopg import pq

from busway.message.message import PLACE_ACTIVE
from busway.store.contract import Move
from busway.store.postgres.batch_arrays import Rows
from busway.store.postgres.commit_part import CommitPart
from busway.store.postgres.writing_connection import Statement
from busway.store.rows import Front, rewritten
from busway.store.shadow import row_key
from busway.store.statements import PLACE_TABLES, statements_of

query = statements_of(__package__).query
by_place = statements_of(__package__).by_place

_BIGINT: Final = Struct(">q")
_READ_FRONTS: Final = tuple(Rows(text, "b") for text in by_place("read_fronts"))
_DELETE: Final = tuple(Rows(text, "b") for text in by_place("delete_rows"))
_CHANGE: Final = tuple(Rows(text, "bbd") for text in by_place("change"))
_SESSIONS_GO_ON: Final = Rows(query("sessions_go_on"), "b")
_SESSION_ENTRIES_DELETE: Final = Rows(query("session_entries_delete"), "b")
_SESSION_ENTRIES_PUT: Final = Rows(query("session_entries_put"), "bd")
_SESSIONS_BEGIN: Final = Rows(query("sessions_begin"), "bdi")
_EXPIRY_ENTRIES_DELETE: Final = Rows(query("expiry_entries_delete"), "b")
_EXPIRY_ENTRIES_PUT: Final = Rows(query("expiry_entries_put"), "bib")
_ACTIVE: Final = "bbbbbd"
_ASIDE: Final = "bbibbbdbd"


def _moving(source: int, target: int) -> Rows:
    tables = PLACE_TABLES
    if source == target:
        if source == PLACE_ACTIVE:
            return Rows(query("renumber_active"), _ACTIVE)
        return Rows(query("renumber_aside", place=tables[source]), _ASIDE)
    if target == PLACE_ACTIVE:
        return Rows(query("copy_to_active", source=tables[source]), _ACTIVE)
    return Rows(query("copy_aside", source=tables[source], target=tables[target]), _ASIDE)


_MOVE: Final = tuple(tuple(_moving(source, target) for target in range(3)) for source in range(3))


class RowChanges:
    """Those of the parts of one commit."""

    def __init__(self, parts: Iterable[CommitPart]) -> None:
        self._moves = [(part.store, move) for part in parts for move in part.moves]
        self._changes = [change for part in parts for change in part.changes]
        keys: tuple[set[int], set[int], set[int]] = (set(), set(), set())
        for _, move in self._moves:
            keys[move.from_place].add(row_key(move.from_fragment, move.from_number))
        for change in self._changes:
            keys[change.place].add(row_key(change.fragment, change.number))
        self._asked = [(place, sorted(each)) for place, each in enumerate(keys) if each]
        self._fronts: dict[tuple[int, int], Front] = {}
        self._statements: list[Statement] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def reads(self) -> list[Statement]:
        return [_READ_FRONTS[place].statement([_alone(keys)]) for place, keys in self._asked]

    def see(self, results: list[pq.abc.PGresult]) -> None:
        """The answers to `reads`."""
        for (place, _), result in zip(self._asked, results, strict=True):
            for at in range(result.ntuples):
                front = _front(result, at)
                self._fronts[place, front[0]] = front

    def writes(self) -> list[Statement]:
        self._play_moves()
        self._play_changes()
        return self._statements

    def _add(self, rows: Rows, values: list[Any]) -> None:
        if values:
            self._statements.append(rows.statement([values]))

    def _play_moves(self) -> None:
        group: list[tuple[int, Move]] = []
        left: set[int] = set()
        reached: set[int] = set()
        way: tuple[int, int] | None = None
        for store, move in self._moves:
            from_key = row_key(move.from_fragment, move.from_number)
            to_key = row_key(move.to_fragment, move.to_number)
            its_way = move.from_place, move.to_place
            meets = to_key in left or from_key in reached or from_key in left
            if group and (its_way != way or meets):
                self._move(group)
                group = []
                left.clear()
                reached.clear()
            way = its_way
            group.append((store, move))
            left.add(from_key)
            reached.add(to_key)
        if group:
            self._move(group)

    def _move(self, group: list[tuple[int, Move]]) -> None:
        source, target = group[0][1].from_place, group[0][1].to_place
        keys = _alone([row_key(move.from_fragment, move.from_number) for _, move in group])
        if source == PLACE_ACTIVE:
            self._add(_SESSIONS_GO_ON, keys)
            self._add(_SESSION_ENTRIES_DELETE, keys)
        self._add(_EXPIRY_ENTRIES_DELETE, keys)
        rows: list[Any] = []
        in_sessions: list[tuple[int, bytes]] = []
        expiring: dict[int, tuple[int, int, int]] = {}
        for store, move in group:
            front = self._fronts.pop((source, row_key(move.from_fragment, move.from_number)), None)
            if front is None:  # gone already: nothing to move
                continue
            row = _moved(move, front)
            key, enqueued_at_ms, expires_at_ms, checksum, session_id, scheduled_at_ms, more = row
            if target == PLACE_ACTIVE:
                rows.append((front[0], key, enqueued_at_ms, expires_at_ms, checksum, more))
                if move.session_id is not None:
                    in_sessions.append((key, move.session_id.encode()))
            else:
                name = None if session_id is None else session_id.encode()
                times = (enqueued_at_ms, expires_at_ms, checksum)
                rows.append((front[0], key, store, *times, name, scheduled_at_ms, more))
            if move.with_expiry_entry:
                expiring[key] = (key, store, expires_at_ms)
            self._fronts[target, key] = (key, enqueued_at_ms, expires_at_ms, checksum, more)
        self._add(_MOVE[source][target], rows)
        if source != target:
            self._add(_DELETE[source], keys)
        self._add(_SESSION_ENTRIES_PUT, in_sessions)
        self._add(_SESSIONS_BEGIN, [(*entry, 0) for entry in in_sessions])
        self._add(_EXPIRY_ENTRIES_PUT, list(expiring.values()))

    def _play_changes(self) -> None:
        changed: tuple[dict[int, Any], dict[int, Any], dict[int, Any]] = ({}, {}, {})
        for change in self._changes:
            key = row_key(change.fragment, change.number)
            front = self._fronts.get((change.place, key))
            if front is None:
                continue
            row = rewritten(front, key, None, None, change.delivery_count, change.changes)
            self._fronts[change.place, key] = (key, row[1], row[2], row[3], row[6])
            changed[change.place][key] = (key, row[3], row[6])
        for place, rows in enumerate(changed):
            self._add(_CHANGE[place], list(rows.values()))


def _moved(move: Move, front: Front) -> tuple[int, int, int, int, str | None, int, bytes | None]:
    return rewritten(
        front,
        row_key(move.to_fragment, move.to_number),
        move.enqueued_at_ms,
        move.expires_at_ms,
        move.delivery_count,
        move.changes,
    )


def _front(result: pq.abc.PGresult, at: int) -> Front:
    numbers = [_BIGINT.unpack(result.get_value(at, column) or b"")[0] for column in range(4)]
    more = result.get_value(at, 4)
    return numbers[0], numbers[1], numbers[2], numbers[3], more


def _alone(keys: Iterable[int]) -> list[tuple[int]]:
    return [(key,) for key in keys]
