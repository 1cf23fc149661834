"""The half of a read that runs in a thread, on a connection of its own.

Nothing here knows of batches that are not committed: what comes back is the state of one commit, and the store
corrects it on the loop. Pages are bounded in bytes by the server, so that rows nobody has room for do not travel; a
shared body comes with its row. A connection that is lost is opened again, and the read begins anew: for as long as a
commit would wait.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import psycopg
from psycopg.types.numeric import Int8BinaryDumper

from busway.clock import Clock
from busway.store.contract import (
    ChunkHead,
    ChunkPage,
    FragmentKey,
    FragmentRow,
    ProducerRow,
    StoreError,
    TransferMark,
)
from busway.store.log_rows import chunk_data, damaged_head, is_of
from busway.store.postgres.server_checks import Connection, connect
from busway.store.postgres.sqlstates import Meaning, meaning_of
from busway.store.postgres.url import PostgresUrl
from busway.store.postgres.writing_connection import PLANS_S
from busway.store.reads import DamagedState, FirstNumbers, RawSession
from busway.store.rows import NUMBER_MASK, RawPage, fragment_row, key_bounds, unsealed
from busway.store.statements import statements_of

query = statements_of(__package__).query
by_place = statements_of(__package__).by_place

T = TypeVar("T")

#: How long a read waits for the database to come back.
PATIENCE_S: Final = 5.0
_PAUSE_S: Final = 0.05
#: Numbers and times outside of the database's integers are asked for by people, not found in it.
_FAR: Final = (1 << 62) - 1
#: A page of chunks is cut here, however much was asked for.
_PAGE_BYTES_MAX: Final = 8 << 20
_PAGE_CHUNKS_MAX: Final = 256
#: What a damaged chunk counts at least, so that the page ends.
_DAMAGE_BYTES: Final = 4 << 10


class ReadingConnections:
    """`spans.ReadThreads` of a database."""

    def __init__(self, url: PostgresUrl, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._idle: queue.SimpleQueue[_Session | None] = queue.SimpleQueue()
        self._open: list[Connection] = []
        self.threads: ThreadPoolExecutor | None = None
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def start(self, name: str, threads: int) -> None:
        self.threads = ThreadPoolExecutor(threads, f"{name}-read")
        for _ in range(threads):
            self._idle.put(None)  # opened when it is needed

    def stop(self) -> None:
        """Blocks: waits for reads under way."""
        if self.threads is not None:
            self.threads.shutdown(cancel_futures=True)
        self.threads = None
        self._idle = queue.SimpleQueue()
        for connection in self._open:
            connection.close()
        self._open.clear()

    def run(self, work: Callable[[psycopg.RawCursor[Any]], T]) -> T:
        """In a reader thread: there are as many connections as threads."""
        session = self._idle.get_nowait()
        ends_s = self._clock.monotonic() + PATIENCE_S
        try:
            while True:
                try:
                    if session is None:
                        session = _Session(self._connect(), self._clock)
                    session.plan_again()
                    return work(session.cursor)
                except (psycopg.Error, StoreError) as error:
                    if session is not None and not session.is_closed and not _may_work_later(error):
                        raise
                    if session is not None:
                        self._forget(session.cursor.connection)
                        session = None
                    if self._clock.monotonic() + _PAUSE_S >= ends_s:
                        raise
                    time.sleep(_PAUSE_S)
        finally:
            self._idle.put(session)

    def _connect(self) -> psycopg.RawCursor[Any]:
        connection = connect(self._url)
        connection.prepare_threshold = 0
        connection.execute(_SESSION)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        self._open.append(connection)
        return psycopg.RawCursor(connection)

    def _forget(self, connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            connection.close()
        with contextlib.suppress(ValueError):
            self._open.remove(connection)


class _Session:
    """One connection, and how old its plans are."""

    __slots__ = ("_clock", "_planned_s", "cursor")

    def __init__(self, cursor: psycopg.RawCursor[Any], clock: Clock) -> None:
        self.cursor = cursor
        self._clock = clock
        self._planned_s = clock.monotonic()

    @property
    def is_closed(self) -> bool:
        return self.cursor.connection.closed

    def plan_again(self) -> None:
        """When that was long ago."""
        if self._clock.monotonic() >= self._planned_s + PLANS_S:
            self.cursor.execute(_PLAN_AGAIN, prepare=False)
            self._planned_s = self._clock.monotonic()


def _may_work_later(error: Exception) -> bool:
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return isinstance(error, psycopg.OperationalError) and meaning_of(sqlstate) is not Meaning.REFUSED


class PostgresReader:
    """The reads of one store on a connection that it has for the moment: `reads.PostgresReader`."""

    def __init__(self, store: int, cursor: psycopg.RawCursor[Any]) -> None:
        self._store = store
        self._cursor = cursor
        self.logs = ChunkReader(cursor)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._cursor.execute(statement, values, binary=True).fetchall()

    # -- messages
    def messages(self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int) -> RawPage:
        low, high = key_bounds(fragment)
        rows = self._all(_READ_MESSAGES[place], low + after, high, limit + 1, min(bytes_max, _FAR))
        return _page(rows, place, limit, bytes_max)

    def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> RawPage:
        low, high = key_bounds(fragment)
        values = (low + after, high, limit + 1, min(bytes_max, _FAR), session_id.encode())
        return _page(self._all(_READ_SESSION_MESSAGES, *values), 0, limit, bytes_max)

    def by_key(self, place: int, keys: Sequence[int], bytes_max: int) -> RawPage:
        return _page(self._all(_READ_BY_KEY[place], list(keys), bytes_max), place, len(keys), bytes_max)

    def sizes(self, place: int, keys: Sequence[int]) -> list[tuple[int, int]]:
        return self._all(_READ_SIZES[place], list(keys))

    def peek(
        self, fragment: FragmentKey, after: int, limit: int, bytes_max: int, session_id: str | None
    ) -> RawPage:
        low, high = key_bounds(fragment)
        values = (low + after, high, limit + 1, min(bytes_max, _FAR))
        if session_id is None:
            rows = self._all(_PEEK, *values)
        else:
            rows = self._all(_PEEK_SESSION, *values, session_id.encode())
        page = RawPage(limit, bytes_max, _no_payload)
        for row in rows:
            if not page.take(row[:6], row[6]):
                break
        return page

    # -- due and expired
    def due(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
        return self._all(_READ_DUE, self._store, *after, now_ms, limit)

    def expiry(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
        return self._all(_READ_EXPIRY, self._store, *after, now_ms, limit)

    # -- sessions
    def session(self, fragment: FragmentKey, session_id: str, numbers_max: int) -> RawSession:
        _, high = key_bounds(fragment)
        [row] = self._all(_READ_SESSION, fragment, session_id.encode(), high, numbers_max)
        keys, sealed_state, set_at_ms = row
        numbers = [key & NUMBER_MASK for key in keys]
        try:
            state = None if sealed_state is None else unsealed(sealed_state)
        except ValueError:
            raise DamagedState from None
        return RawSession(len(numbers), FirstNumbers(numbers, len(numbers) < numbers_max), state, set_at_ms)

    def session_firsts(
        self, fragment: FragmentKey, after: int, limit: int, removed: Sequence[int], numbers_max: int
    ) -> tuple[list[tuple[str, FirstNumbers]], int | None]:
        low, high = key_bounds(fragment)
        with self._snapshot():
            rows = self._all(_READ_SESSION_FIRSTS, low + after, high, limit)
            cut = rows[-1][1] & NUMBER_MASK if len(rows) == limit else None
            passed = [low | number for number in removed if number <= after]
            if passed:
                rows += self._all(_READ_SESSIONS_OF_FIRSTS, passed)
            found = self._firsts(fragment, rows, set(removed), numbers_max)
        return [(name.decode(), numbers) for name, numbers in found], cut

    def sessions(
        self,
        fragment: FragmentKey,
        state_set_after_ms: int | None,
        from_id: str,
        skip: int,
        limit: int,
        removed: Sequence[int],
        numbers_max: int,
    ) -> list[tuple[str, FirstNumbers, int | None]]:
        values: tuple[Any, ...] = (fragment, from_id.encode(), limit, skip)
        with self._snapshot():
            if state_set_after_ms is None:
                rows = self._all(_READ_SESSIONS, *values)
            else:
                rows = self._all(_READ_SESSIONS_BY_STATE, *values, state_set_after_ms)
            firsts = self._firsts(fragment, [row[:2] for row in rows], set(removed), numbers_max)
        return [(name.decode(), numbers, row[2]) for (name, numbers), row in zip(firsts, rows, strict=True)]

    def _firsts(
        self, fragment: FragmentKey, rows: list[tuple[bytes, int]], gone: set[int], numbers_max: int
    ) -> list[tuple[bytes, FirstNumbers]]:
        """Just the first number of each session, or the first few where the first is going."""
        unclear = [name for name, key in rows if key & NUMBER_MASK in gone]
        known: dict[bytes, list[int]] = {}
        if unclear:
            known = dict(self._all(_READ_SESSION_KEYS, unclear, *key_bounds(fragment), numbers_max))
        found = []
        for name, key in rows:
            first = key & NUMBER_MASK
            if name in known and first in gone:
                numbers = [each & NUMBER_MASK for each in known[name]]
                found.append((name, FirstNumbers(numbers, len(numbers) < numbers_max)))
            elif first == 0:
                found.append((name, FirstNumbers([], is_whole=True)))
            else:
                found.append((name, FirstNumbers([first], is_whole=False)))
        return found

    @contextlib.contextmanager
    def _snapshot(self) -> Any:
        """Several statements that see the same commit."""
        self._cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            self._cursor.execute("ROLLBACK")

    # -- the rest
    def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> dict[str, int]:
        names = [each.encode() for each in ids]
        rows = self._all(_READ_DUPLICATE_IDS, fragment, names, since_ms)
        return {name.decode(): at_ms for name, at_ms in rows}

    def transfer_marks(self, source_store: str | None) -> list[TransferMark]:
        rows = self._all(_READ_TRANSFER_MARKS, self._store, source_store)
        return [TransferMark(store, fragment, number) for store, fragment, number in rows]

    def fragments(self, keys: Sequence[FragmentKey] | None) -> list[FragmentRow]:
        if keys is None:
            rows = self._all(_READ_FRAGMENTS, self._store)
        else:
            rows = self._all(_READ_SOME_FRAGMENTS, self._store, [int(key) for key in keys])
        return [fragment_row(*row) for row in rows]

    def catalogue(self) -> tuple[int, dict[str, str]]:
        with self._snapshot():
            [(version,)] = self._all(_READ_CATALOGUE_VERSION, self._store)
            return version, dict(self._all(_READ_CATALOGUE, self._store))


class StoreFacts:
    """What a store must know of its rows before it writes."""

    __slots__ = (
        "dropped",
        "heads",
        "highest",
        "last_payload",
        "number_indexes",
        "sharing",
        "versions",
        "with_expiry",
        "with_sessions",
    )

    def __init__(self, store: int, payload_bounds: tuple[int, int], cursor: psycopg.RawCursor[Any]) -> None:
        def rows(name: str, *values: int) -> list[Any]:
            return cursor.execute(query(name), values, binary=True).fetchall()

        marks = rows("read_fragment_marks", store)
        self.number_indexes = {key: index for key, index, _, _, _ in marks if index > 0}
        self.heads = {key: head for key, _, head, _, _ in marks if head > 0}
        self.highest = {key: last & NUMBER_MASK for key, _, _, last, _ in marks}
        self.versions = {key: version for key, _, _, _, version in marks}
        self.dropped = {key for (key,) in rows("read_dropped", store)}
        self.sharing = {key for (key,) in rows("read_sharing", store)}
        entries = rows("read_fragments_with_entries", store)
        self.with_sessions = {key for key, has_sessions, _ in entries if has_sessions}
        self.with_expiry = {key for key, _, has_expiry in entries if has_expiry}
        [(self.last_payload,)] = rows("read_last_payload", *payload_bounds)


class ChunkReader:
    """The part of a `PostgresReader` about logs."""

    def __init__(self, cursor: psycopg.RawCursor[Any]) -> None:
        self._cursor = cursor

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._cursor.execute(statement, values, binary=True).fetchall()

    def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        bytes_max = min(max(bytes_max, 0), _PAGE_BYTES_MAX)
        from_number = _within(from_number)
        rows = self._all(_READ_CHUNKS, log, from_number, bytes_max, _PAGE_CHUNKS_MAX)
        page = ChunkPage([], [], len(rows) == _PAGE_CHUNKS_MAX)
        after = from_number - 1
        for at, row in enumerate(rows):
            if row[-1] is None and at > 0:
                page.more = True
                break
            data = chunk_data(row)
            last_number = row[2]
            if data is None or not is_of(row, log, last_number):
                size_bytes = max(len(row[-1] or b""), _DAMAGE_BYTES)
                page.damaged.append(damaged_head(row, after, last_number, size_bytes))
            else:
                page.chunks.append(data)
            after = last_number
        return page

    def heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        rows = self._all(_READ_CHUNK_HEADS, log, _within(from_number), limit)
        return [ChunkHead(*row) for row in rows]

    def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        rows = self._all(_READ_NUMBER_SINCE, log, _within(at_ms))
        return rows[0][0] if rows else None

    def producers(self, log: FragmentKey) -> list[ProducerRow]:
        return [ProducerRow(*row) for row in self._all(_READ_PRODUCERS, log)]


def _page(rows: list[Any], place: int, limit: int, bytes_max: int) -> RawPage:
    page = RawPage(limit, bytes_max, _no_payload)
    page.take_all(rows, place)
    return page


def _no_payload(_: int) -> bytes | None:
    """Shared bodies come with their rows."""
    return None


def _within(value: int) -> int:
    return min(max(value, -_FAR), _FAR)


_SESSION: Final = query("session_plans")
_PLAN_AGAIN: Final = query("plan_again")
_READ_MESSAGES: Final = by_place("read_messages")
_READ_SESSION_MESSAGES: Final = query("read_session_messages")
_READ_BY_KEY: Final = by_place("read_by_key")
_READ_SIZES: Final = by_place("read_sizes")
_PEEK: Final = query("peek")
_PEEK_SESSION: Final = query("peek_session")
_READ_DUE: Final = query("read_due")
_READ_EXPIRY: Final = query("read_expiry")
_READ_SESSION: Final = query("read_session")
_READ_SESSION_KEYS: Final = query("read_session_keys")
_READ_SESSION_FIRSTS: Final = query("read_session_firsts")
_READ_SESSIONS_OF_FIRSTS: Final = query("read_sessions_of_firsts")
_READ_SESSIONS: Final = query("read_sessions")
_READ_SESSIONS_BY_STATE: Final = query("read_sessions_by_state")
_READ_DUPLICATE_IDS: Final = query("read_duplicate_ids")
_READ_TRANSFER_MARKS: Final = query("read_transfer_marks")
_READ_FRAGMENTS: Final = query("read_fragments")
_READ_SOME_FRAGMENTS: Final = query("read_some_fragments")
_READ_CATALOGUE: Final = query("read_catalogue")
_READ_CATALOGUE_VERSION: Final = query("read_catalogue_version")
_READ_CHUNKS: Final = query("read_chunks")
_READ_CHUNK_HEADS: Final = query("read_chunk_heads")
_READ_NUMBER_SINCE: Final = query("read_number_since")
_READ_PRODUCERS: Final = query("read_producers")
