"""What lies in a store's file, row by row (`stored_rows`): in rows or in runs, with a body of its own or shared.

Nothing is written. A file that nobody serves is opened without a trace (`file_check`); one that this process has just
written is read on a connection beside the writer's. Rows that cannot be read at all end the reading with a sentence:
`busway check` tells more of such a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import (
    COUNTER_BITS,
    COUNTER_MASK,
    ProducerRow,
    StoreError,
)
from busway.store.log_rows import chunk_data
from busway.store.rows import message_of, unsealed
from busway.store.sqlite.database_file import SCHEMA_VERSION, open_for_reading
from busway.store.sqlite.file_check import open_without_trace
from busway.store.sqlite.message_runs import RunFile
from busway.store.statements import PLACE_TABLES, statements_of
from busway.store.stored_rows import (
    ExpiryBeside,
    Position,
    StoredChunk,
    StoredExpiry,
    StoredFacts,
    StoredId,
    StoredMark,
    StoredProducer,
    StoredRow,
    StoredSessionEntry,
    StoredState,
    fragment_row,
    message_row,
)

query = statements_of(__package__).query

_HIGH: Final = (1 << 63) - 1
#: Steps of reading messages with a body of their own: rows, runs, and the other places.
_RUNS: Final = 1
_STEPS: Final = {0: PLACE_ACTIVE, 2: PLACE_DEFERRED, 3: PLACE_SCHEDULED}


class FileRows:
    """`stored_rows.StoredRows` of a file."""

    def __init__(self, name: str, path: Path, *, is_open: bool = False) -> None:
        """`is_open`: this process has the store open, and writes nothing meanwhile. Raises StoreError."""
        self.name = name
        self._path = path
        self._connection = open_for_reading(path, None) if is_open else open_without_trace(path)
        version = self._number("pragma_schema_version")
        if version != SCHEMA_VERSION:
            self.close()
            raise StoreError(
                f"The file {path} was written by an earlier version (schema {version}): start busway serve on it"
                " once, which brings it up to date."
            )
        self._readers: dict[str, Callable[[Position], Iterator[StoredRow]]] = {
            "messages": self._messages,
            "copies": self._copies,
            "expiry": self._expiry,
            "states": self._states,
            "ids": self._ids,
            "chunks": self._chunks,
            "producers": self._producers,
            "marks": self._marks,
            "sessions": self._session_index,
        }

    def close(self) -> None:
        self._connection.close(True)

    def facts(self) -> StoredFacts:
        try:
            texts: dict[Any, Any] = dict(self._all("read_catalogue"))
            version = int(texts.pop(None, 0))
            catalogue = {str(key): str(text) for key, text in texts.items()}
            fragments = [fragment_row(row) for row in self._all("read_fragments")]
            dropped = {key for (key,) in self._all("read_dropped")}
            commit_number = self._number("read_commit_number")
            facts = StoredFacts(
                commit_number, version, catalogue, [row for row in fragments if row.key not in dropped]
            )
            facts.sessions = {key for (key,) in self._all("read_fragments_with_sessions")}
        except (apsw.Error, UnicodeDecodeError, ValueError, TypeError) as error:
            raise self._unreadable(error) from error
        return facts

    def rows(self, kind: str, after: Position = ()) -> Iterator[StoredRow]:
        try:
            yield from self._readers[kind](after)
        except (apsw.Error, UnicodeDecodeError, ValueError, TypeError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StoreError:
        return StoreError(f"The file {self._path} cannot be read ({error}): busway check tells where.")

    def _all(self, name: str, values: tuple[Any, ...] = (), place: str = "") -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield from cursor.execute(query(name, place=place), values)
        finally:
            cursor.close()

    def _number(self, name: str) -> int:
        found: Any = self._connection.execute(query(name)).fetchone()
        return int(found[0])

    # -- messages

    def _messages(self, after: Position) -> Iterator[StoredRow]:
        first, key = (int(after[0]), int(after[1])) if after else (0, -1)
        for step in range(first, 4):
            behind = key if step == first else -1
            if step == _RUNS:
                yield from self._run_messages(behind)
            else:
                yield from self._own_rows(step, behind)

    def _own_rows(self, step: int, behind: int) -> Iterator[StoredRow]:
        place = _STEPS[step]
        expiry = ExpiryBeside(self._all("copy_expiry", (behind,)))
        for row in self._all("copy_rows", (behind,), PLACE_TABLES[place]):
            key = row[0]
            size = len(row[5]) if isinstance(row[5], bytes) else 0
            yield message_row((step, key), place, message_of(row, place), size, 0, expiry.of(key))

    def _run_messages(self, behind: int) -> Iterator[StoredRow]:
        """A run that was begun is met again: one begins no later than a key that lies in it."""
        file = RunFile(self._connection)
        expiry = ExpiryBeside(self._all("copy_expiry", (behind,)))
        try:
            begin = behind
            if behind >= 0:
                begin = next((row[0] for row in self._all("read_run_at", (0, behind))), behind)
            for row in self._all("read_runs", (begin, _HIGH)):
                run = file.run_of(row)
                head = file.head(run.key)
                part = None
                if head is not None and head.count == run.count:
                    part = file.slice(head, 0, head.count)
                for index in range(run.count):
                    key = run.key + index
                    if key > behind and not run.marks.is_gone(index):
                        message = None if part is None else part.message(index)
                        size = 0 if message is None else len(message.bare)
                        yield message_row((_RUNS, key), PLACE_ACTIVE, message, size, 0, expiry.of(key))
        finally:
            file.close()

    def _copies(self, after: Position) -> Iterator[StoredRow]:
        payload, bare = 0, None
        start = int(after[0]) if after else -(1 << 63)
        for found, place, key, *front in self._all("copy_sharing_rows", (start,)):
            position = (found, place, key)
            if after and position <= after:
                continue
            if found != payload or bare is None:
                payload, bare = found, self._payload(found)
            message = None if bare is None else message_of((key, *front, bare), place)
            expires_at_ms = next((at_ms for (at_ms,) in self._all("copy_expiry_of", (key,))), None)
            yield message_row(position, place, message, len(bare or b""), payload, expires_at_ms)

    def _payload(self, payload: int) -> bytes | None:
        found = next(self._all("read_payload", (payload,)), None)
        return found[0] if found is not None and isinstance(found[0], bytes) else None

    # -- beside them

    def _session_index(self, after: Position) -> Iterator[StoredRow]:
        for key, session_id in self._all("copy_session_index", after or (-1,)):
            yield StoredSessionEntry((key,), key >> COUNTER_BITS, key & COUNTER_MASK, session_id)

    def _expiry(self, after: Position) -> Iterator[StoredRow]:
        for key, at_ms in self._all("copy_expiry", after or (-1,)):
            yield StoredExpiry((key,), key >> COUNTER_BITS, key & COUNTER_MASK, at_ms)

    def _states(self, after: Position) -> Iterator[StoredRow]:
        for fragment, session_id, set_at_ms, sealed in self._all("copy_states", after or (-1, "")):
            try:
                state = unsealed(sealed)
            except (ValueError, TypeError):
                state = None
            yield StoredState((fragment, session_id), fragment, session_id, set_at_ms, state)

    def _ids(self, after: Position) -> Iterator[StoredRow]:
        for fragment, message_id, at_ms in self._all("copy_duplicate_ids", after or (-1, "")):
            yield StoredId((fragment, message_id), fragment, message_id, at_ms)

    # -- logs

    def _chunks(self, after: Position) -> Iterator[StoredRow]:
        for key, log, last_number in self._all("copy_chunk_spots", after or (-1, -1)):
            [row] = self._all("read_chunk", (key,))
            data = chunk_data(row) if row[0] == log and row[2] == last_number else None
            numbers, times_ms = (row[1], last_number), (row[3], row[4])
            yield StoredChunk((log, last_number), log, numbers, times_ms, row[5], data, len(row[7]))

    def _producers(self, after: Position) -> Iterator[StoredRow]:
        for log, producer, epoch, last_sequence, used_at_ms, groups in self._all(
            "copy_producers", after or (-1, -(1 << 63))
        ):
            row = ProducerRow(producer, epoch, last_sequence, used_at_ms, groups)
            yield StoredProducer((log, producer), log, row)

    def _marks(self, after: Position) -> Iterator[StoredRow]:
        for store, fragment, number in sorted(self._all("read_transfer_marks")):
            if (store, fragment, number) > (after or ("", 0, 0)):
                yield StoredMark((store, fragment, number), store, fragment, number)
