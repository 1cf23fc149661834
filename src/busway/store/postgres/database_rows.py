"""What one store of a database holds, row by row (`stored_rows`), as of one moment.

The keys of a store's fragments come in blocks that are its own (`commit_part.KEY_BLOCK`), so its rows are read block
by block, in pages that the server cuts. A block that has ended is told apart from a page that was cut by an empty
page: one more question for each block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
from psycopg.types.numeric import Int8BinaryDumper

from busway.store.contract import (
    COUNTER_BITS,
    COUNTER_MASK,
    FragmentRow,
    ProducerRow,
    StoreError,
)
from busway.store.log_rows import chunk_data
from busway.store.postgres.commit_part import KEY_BLOCK, PartMaker
from busway.store.postgres.database import prepare
from busway.store.postgres.server_checks import check, connect, sentence_of
from busway.store.postgres.url import PostgresUrl
from busway.store.rows import message_of, unsealed
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

_PAGE_ROWS: Final = 2_000
_PAGE_BYTES: Final = 2 << 20


def begin_behind(url: PostgresUrl, number: int, count: int) -> None:
    """An empty store gets that count as its epoch and as the number of its last commit. So whoever served another
    store of this name before, and remembers how far it was, does not take this one for an older state of it. Raises
    StoreError."""
    prepare(url)
    connection = connect(url)
    try:
        psycopg.RawCursor(connection).execute(query("copy_leap"), (number, count))
    except psycopg.Error as error:
        raise StoreError(sentence_of(error, url)) from error
    finally:
        connection.close()


class DatabaseRows:
    """`stored_rows.StoredRows` of one store in a database."""

    def __init__(self, url: PostgresUrl, number: int) -> None:
        """Raises StoreError."""
        self.name = url.store_name(number)
        self._url = url
        self._number = number
        self._fragments: list[FragmentRow] = []
        self._connection = connect(url)
        try:
            check(self._connection, url)
            self._connection.execute(query("copy_session"))
            self._connection.adapters.register_dumper(int, Int8BinaryDumper)
            self._connection.prepare_threshold = 0
            self._connection.execute(query("copy_begin"))
        except BaseException as error:
            self._connection.close()
            if isinstance(error, psycopg.Error):
                raise StoreError(sentence_of(error, url)) from error
            raise
        self._cursor = psycopg.RawCursor(self._connection)
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
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    def facts(self) -> StoredFacts:
        try:
            return self._facts()
        except psycopg.Error as error:
            raise StoreError(sentence_of(error, self._url)) from error

    def _facts(self) -> StoredFacts:
        [(has_tables,)] = self._all("has_tables")
        commits = (
            self._cursor.execute(query("read_commits"), ([self._number],)).fetchall() if has_tables else []
        )
        if not commits:
            return StoredFacts(0, 0, {}, [])
        self._fragments = [fragment_row(row) for row in self._all("read_fragments", self._number)]
        [(version,)] = self._all("read_catalogue_version", self._number)
        facts = StoredFacts(
            commits[0][1], version, dict(self._all("read_catalogue", self._number)), self._fragments
        )
        facts.sessions = {
            key for key, has, _ in self._all("read_fragments_with_entries", self._number) if has
        }
        return facts

    def is_busy(self) -> bool:
        """A server, or another copy, has sessions in the database."""
        name = self._connection.info.get_parameters().get("application_name", "busway")
        return bool(self._cursor.execute(query("copy_neighbours"), (name,)).fetchall()[0][0])

    def rows(self, kind: str, after: Position = ()) -> Iterator[StoredRow]:
        try:
            yield from self._readers[kind](after)
        except psycopg.Error as error:
            raise StoreError(sentence_of(error, self._url)) from error

    def _all(self, name: str, *values: Any, place: str = "") -> list[Any]:
        return self._cursor.execute(query(name, place=place), values, binary=True).fetchall()

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """The first and the last fragment of each."""
        ends: dict[int, tuple[int, int]] = {}
        for row in self._fragments:
            block = (row.key - 1) // KEY_BLOCK
            ends[block] = (ends.get(block, (row.key, row.key))[0], row.key)
        yield from ends.values()

    def _keyed(self, name: str, behind: int, *limits: int, place: str = "") -> Iterator[Any]:
        """Rows of a table whose rows bear keys of messages."""
        for first, last in self._blocks():
            low, high = (first << COUNTER_BITS) - 1, (last + 1 << COUNTER_BITS) - 1
            at = max(behind, low)
            while at < high and (page := self._all(name, at, high, *limits, place=place)):
                yield from page
                at = page[-1][0]

    def _owned(self, name: str, after: tuple[Any, ...], lowest: object, limit: int) -> Iterator[Any]:
        """Rows of a table whose rows begin with their fragment and something else."""
        for first, last in self._blocks():
            begin = (first - 1, lowest)
            if after and after[0] >= first:
                begin = (after[0], after[1])
            while begin[0] <= last and (page := self._all(name, *begin, first, last, limit)):
                yield from page
                begin = (page[-1][0], page[-1][1])

    # -- messages

    def _messages(self, after: Position) -> Iterator[StoredRow]:
        first, behind = (int(after[0]), int(after[1])) if after else (0, -1)
        for place in range(first, len(PLACE_TABLES)):
            at = behind if place == first else -1
            expiry = ExpiryBeside(self._keyed("copy_expiry", at, _PAGE_ROWS))
            for row in self._keyed("copy_rows", at, _PAGE_ROWS, _PAGE_BYTES, place=PLACE_TABLES[place]):
                size = len(row[5] or b"")
                yield message_row((place, row[0]), place, message_of(row, place), size, 0, expiry.of(row[0]))

    def _copies(self, after: Position) -> Iterator[StoredRow]:
        low, high = PartMaker(self._number).payload_bounds()
        start = int(after[0]) if after else low
        payload, bare = 0, b""
        with self._connection.cursor(f"copies_{self._number}", binary=True) as cursor:
            cursor.itersize = _PAGE_ROWS
            cursor.execute(query("copy_sharing_rows"), (start, high) * 3)
            for found, place, key, *front in cursor:
                position = (found, place, key)
                if after and position <= after:
                    continue
                if found != payload:
                    payload = found
                    bare = next((row[0] for row in self._all("copy_payload", found)), b"")
                message = message_of((key, *front, bare), place)
                expires_at_ms = next((at_ms for (at_ms,) in self._all("copy_expiry_of", key)), None)
                yield message_row(position, place, message, len(bare), payload, expires_at_ms)

    # -- beside them

    def _session_index(self, after: Position) -> Iterator[StoredRow]:
        for key, session_id in self._keyed("copy_session_index", int(after[0]) if after else -1, _PAGE_ROWS):
            yield StoredSessionEntry((key,), key >> COUNTER_BITS, key & COUNTER_MASK, session_id.decode())

    def _expiry(self, after: Position) -> Iterator[StoredRow]:
        for key, at_ms in self._keyed("copy_expiry", int(after[0]) if after else -1, _PAGE_ROWS):
            yield StoredExpiry((key,), key >> COUNTER_BITS, key & COUNTER_MASK, at_ms)

    def _states(self, after: Position) -> Iterator[StoredRow]:
        behind = (after[0], str(after[1]).encode()) if after else ()
        for fragment, session_id, set_at_ms, sealed in self._owned("copy_states", behind, b"", 64):
            try:
                state = unsealed(sealed)
            except ValueError:
                state = None
            text = session_id.decode()
            yield StoredState((fragment, text), fragment, text, set_at_ms, state)

    def _ids(self, after: Position) -> Iterator[StoredRow]:
        behind = (after[0], str(after[1]).encode()) if after else ()
        for fragment, message_id, at_ms in self._owned("copy_duplicate_ids", behind, b"", _PAGE_ROWS):
            text = message_id.decode()
            yield StoredId((fragment, text), fragment, text, at_ms)

    # -- logs

    def _chunks(self, after: Position) -> Iterator[StoredRow]:
        begin, behind = (int(after[0]), int(after[1])) if after else (0, -1)
        for (log,) in self._all("copy_logs", self._number, begin):
            at = behind if log == begin else -1
            while page := self._all("copy_chunks", log, at, 64, _PAGE_BYTES):
                for row in page:
                    at = row[2]
                    numbers, times_ms = (row[1], at), (row[3], row[4])
                    yield StoredChunk((log, at), log, numbers, times_ms, row[5], chunk_data(row), len(row[7]))

    def _producers(self, after: Position) -> Iterator[StoredRow]:
        for log, producer, *values in self._owned("copy_producers", after, -(1 << 63), _PAGE_ROWS):
            yield StoredProducer((log, producer), log, ProducerRow(producer, *values))

    def _marks(self, after: Position) -> Iterator[StoredRow]:
        for store, fragment, number in self._all("read_transfer_marks", self._number, None):
            if (store, fragment, number) > (after or ("", 0, 0)):
                yield StoredMark((store, fragment, number), store, fragment, number)
