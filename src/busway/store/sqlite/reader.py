"""The half of a read that runs in a reader thread, on a connection of its own.

Nothing here knows of batches that are not committed: what comes back is the state of one commit, and the store
corrects it on the loop. A row that cannot be decoded at all (a flipped bit may turn any column into nonsense) must
not take its neighbours along, so a page that stumbles is read again row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw

from busway.message.message import PLACE_ACTIVE
from busway.store.contract import FragmentKey, FragmentRow, TransferMark
from busway.store.reads import DamagedState, FirstNumbers, RawSession
from busway.store.rows import NUMBER_MASK, RawPage, fragment_row, key_bounds, unsealed
from busway.store.sqlite.event_logs import LogReader
from busway.store.sqlite.message_runs import RunReader
from busway.store.statements import statements_of

query = statements_of(__package__).query
by_place = statements_of(__package__).by_place

#: Bytes of runs that are touched behind a page, one run at least.
_BYTES_AHEAD: Final = 4 << 20
#: Past every size, and small enough for SQLite's integers.
_FAR: Final = 1 << 62
#: (key, place) of a row.
Spot = tuple[int, int]


class _Snapshot:
    """Several statements that see the same commit."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor

    def __enter__(self) -> None:
        self._cursor.execute(_BEGIN_READ)

    def __exit__(self, *_: object) -> None:
        self._cursor.execute(_END_READ)


class Reader:
    """One read-only connection. Used by one thread at a time."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.logs = LogReader(connection)
        self._runs = RunReader(connection)

    def begin(self) -> None:
        """From here to `end` all statements see one commit, and pages read once stay in the cache. Idempotent."""
        if not self._connection.in_transaction:
            self._cursor.execute(_BEGIN_READ)

    def end(self) -> None:
        """Idempotent, also after a failed `begin`."""
        if self._connection.in_transaction:
            self._cursor.execute(_END_READ)

    def close(self) -> None:
        self.logs.close()
        self._cursor.close()
        self._connection.close()

    def _all(self, statement: str, values: tuple[int | str, ...] = ()) -> list[Any]:
        return self._cursor.execute(statement, values).fetchall()

    def _all_of_many(self, statement: str, values: Sequence[tuple[int | str, ...]]) -> list[Any]:
        return self._cursor.executemany(statement, values).fetchall()

    # -- messages
    def warm_messages(
        self,
        fragment: FragmentKey,
        place: int,
        after: int,
        limit: int,
        bytes_max: int,
        rows_ahead: int,
        with_payloads: bool,
    ) -> tuple[int, int]:
        """Touches what `messages` will read, and rows behind it. Up to which number `messages` may read now, and up
        to which number it may read later without a thread; 0 when it may not."""
        runs = None
        if place == PLACE_ACTIVE:
            size_bytes = min(bytes_max, _FAR) + (_BYTES_AHEAD if rows_ahead else 0)
            runs = self._runs.warm(fragment, after, limit + 1 + rows_ahead, size_bytes)
        low, high = key_bounds(fragment)
        [(count, last_row, _)] = self._all(_WARM_MESSAGES[place], (low + after, high, limit + 1))
        if with_payloads and count:
            self._all(_WARM_PAYLOADS[place], (low + after, last_row))
        rows_end = 0 if count > limit or runs is None else NUMBER_MASK
        if count > limit and rows_ahead:
            [(last_ahead, elsewhere)] = self._all(_WARM_AHEAD[place], (last_row, high, rows_ahead))
            if last_ahead is not None:
                rows_end = (last_ahead if elsewhere is None else elsewhere - 1) & NUMBER_MASK
        if runs is None:
            return NUMBER_MASK, rows_end
        runs_end, is_cut = runs
        if is_cut:
            return runs_end, min(rows_end, runs_end)
        # Whoever reads the last page must be told that nothing is left, so that page is not read from memory alone.
        pages = max(runs_end - after - 1, 0) // max(limit, 1)
        return NUMBER_MASK, min(rows_end, after + pages * limit)

    def warm_session_messages(self, fragment: FragmentKey, session_id: str, after: int, limit: int) -> None:
        low, high = key_bounds(fragment)
        self._all(_WARM_SESSION_MESSAGES, (session_id, low + after, high, limit + 1))

    def messages(
        self,
        fragment: FragmentKey,
        place: int,
        after: int,
        limit: int,
        bytes_max: int,
        last: int = NUMBER_MASK,
    ) -> RawPage:
        """`last`: the page ends there, but there may be more."""
        low, _ = key_bounds(fragment)
        bounds = (low + after, low | last, limit + 1)
        try:
            if place == PLACE_ACTIVE:
                page = self._merged(bounds, limit, bytes_max)
            else:
                page = self._streamed(_READ_MESSAGES[place], bounds, place, limit, bytes_max)
        except UnicodeDecodeError:
            spots = [(key, place) for (key,) in self._all(_READ_KEYS[place], bounds)]
            page = self._page_of(self._with_runs(spots, place, *bounds), limit, bytes_max)
        if last < NUMBER_MASK and not page.more:
            page.more = True
            page.last_number = last
        return page

    def _merged(self, bounds: tuple[int, int, int], limit: int, bytes_max: int) -> RawPage:
        """Active messages, those of runs and those of rows, by number."""
        page = RawPage(limit, bytes_max, self._payload)
        cursor = self._connection.cursor()
        runs = self._runs.runs(bounds[0] + 1, bounds[1])
        try:
            rows = iter(cursor.execute(_READ_MESSAGES[PLACE_ACTIVE], bounds))
            row = next(rows, None)
            for run in runs:
                if run.last <= bounds[0]:  # under a key that it cannot have: a page of zeros, for one
                    if not page.take_message(None, run.key & NUMBER_MASK, PLACE_ACTIVE):
                        return page
                    continue
                start, end = max(bounds[0] + 1 - run.key, 0), min(run.count, bounds[1] - run.key + 1)
                while (start := run.marks.next_left(start, end)) < end:
                    if row is not None and row[0] <= run.key + start:
                        if not page.take(row, PLACE_ACTIVE):
                            return page
                        start += row[0] == run.key + start  # in both only after damage
                        row = next(rows, None)
                        continue
                    stop = end if row is None else min(end, row[0] - run.key)
                    start, is_taken = self._runs.take(page, run, start, stop)
                    if not is_taken:
                        return page
            if row is not None and page.take(row, PLACE_ACTIVE):
                page.take_all(rows, PLACE_ACTIVE)
            return page
        finally:
            runs.close()
            self._runs.close()
            cursor.close()  # A statement left half way would keep its snapshot, and the log from starting over.

    def _with_runs(self, spots: list[Spot], place: int, after: int, last: int, limit: int) -> list[Spot]:
        """The first so many of rows and messages of runs, by number."""
        if place == PLACE_ACTIVE:
            known = {key for key, row_place in spots if row_place == PLACE_ACTIVE}
            keys = self._runs.keys(after + 1, last, limit)
            spots = sorted([*spots, *[(key, PLACE_ACTIVE) for key in keys if key not in known]])
        return spots[:limit]

    def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> RawPage:
        low, high = key_bounds(fragment)
        bounds = (session_id, low + after, high, limit + 1)
        try:
            return self._streamed(_READ_SESSION_MESSAGES, bounds, PLACE_ACTIVE, limit, bytes_max)
        except UnicodeDecodeError:
            keys = self._all(_READ_SESSION_KEYS, bounds)
            return self._page_of([(key, PLACE_ACTIVE) for (key,) in keys], limit, bytes_max)

    def _streamed(
        self, statement: str, values: tuple[int | str, ...], place: int, limit: int, bytes_max: int
    ) -> RawPage:
        """Rows as they come, so that no more are read than fit."""
        cursor = self._connection.cursor()
        try:
            page = RawPage(limit, bytes_max, self._payload)
            page.take_all(cursor.execute(statement, values), place)
            return page
        finally:
            cursor.close()  # A statement left half way would keep its snapshot, and the log from starting over.

    def by_key(self, place: int, keys: Sequence[int], bytes_max: int) -> RawPage:
        with _Snapshot(self._cursor):  # One snapshot for a row and the body it may share.
            return self._page_of([(key, place) for key in keys], len(keys), bytes_max)

    def sizes(self, place: int, keys: Sequence[int]) -> list[tuple[int, int]]:
        """(key, bytes) of the rows that are there."""
        with _Snapshot(self._cursor):
            sizes: list[tuple[int, int]] = self._all_of_many(_READ_SIZE[place], [(key,) for key in keys])
            if place == PLACE_ACTIVE and len(sizes) < len(keys):
                known = {key for key, _ in sizes}
                for key in keys:
                    size = None if key in known else self._runs.size(key)
                    if size is not None:
                        sizes.append((key, size))
                self._runs.close()
        return sizes

    def peek(
        self, fragment: FragmentKey, after: int, limit: int, bytes_max: int, session_id: str | None
    ) -> RawPage:
        low, high = key_bounds(fragment)
        with _Snapshot(self._cursor):  # One snapshot for the keys and the rows.
            if session_id is None:
                bounds = (low + after, high, limit + 1)
                spots = self._with_runs(self._all(_PEEK_KEYS, bounds), PLACE_ACTIVE, *bounds)
            else:
                spots = self._all(_PEEK_SESSION_KEYS, (low + after, high, limit + 1, session_id))
            return self._page_of(spots, limit, bytes_max)

    def _page_of(self, spots: Sequence[Spot], limit: int, bytes_max: int) -> RawPage:
        page = RawPage(limit, bytes_max, self._payload)
        for key, place in spots:
            if not self._take_spot(page, key, place):
                break
        self._runs.close()
        return page

    def _take_spot(self, page: RawPage, key: int, place: int) -> bool:
        """What is there; False when it does not fit any more."""
        try:
            rows = self._all(_READ_BY_KEY[place], (key,))
        except UnicodeDecodeError:
            return page.take(key, place)
        if rows:
            return page.take(rows[0], place)
        run = self._runs.holder(key) if place == PLACE_ACTIVE else None
        return run is None or page.take_message(self._runs.message(run, key), key & NUMBER_MASK, place)

    def _payload(self, number: int) -> bytes | None:
        """A shared body, if it is there and readable as bytes."""
        try:
            rows = self._all(_READ_PAYLOAD, (number,))
        except UnicodeDecodeError:
            return None
        return rows[0][0] if rows and isinstance(rows[0][0], bytes) else None

    # -- due and expired
    def due(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
        return self._all(_READ_DUE, (*after, now_ms, limit))

    def expiry(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
        return self._all(_READ_EXPIRY, (*after, now_ms, limit))

    # -- sessions
    def session(self, fragment: FragmentKey, session_id: str, numbers_max: int) -> RawSession:
        with _Snapshot(self._cursor):
            counted = self._all(_READ_SESSION, (fragment, session_id))
            stored = self._all(_READ_SESSION_STATE, (fragment, session_id))
            numbers = self._numbers(fragment, session_id, numbers_max)
        try:
            state = unsealed(stored[0][0]) if stored else None
        except (ValueError, TypeError):
            raise DamagedState from None
        return RawSession(counted[0][0] if counted else 0, numbers, state, stored[0][1] if stored else 0)

    def _numbers(self, fragment: FragmentKey, session_id: str, limit: int) -> FirstNumbers:
        low, high = key_bounds(fragment)
        rows = self._all(_READ_SESSION_KEYS, (session_id, low, high, limit))
        numbers = [key & NUMBER_MASK for (key,) in rows]
        return FirstNumbers(numbers, len(numbers) < limit)

    def session_firsts(
        self, fragment: FragmentKey, after: int, limit: int, removed: Sequence[int], numbers_max: int
    ) -> tuple[list[tuple[str, FirstNumbers]], int | None]:
        """Sessions by first number, each with its first few numbers (more than one only where the first is
        removed); and the last first number looked at when the limit cut. Sessions whose first row lies at or
        before `after` but is removed belong to the answer too: their next row may come after it."""
        low, high = key_bounds(fragment)
        with _Snapshot(self._cursor):
            rows = self._all(_READ_SESSION_FIRSTS, (low + after, high, limit))
            cut = rows[-1][1] & NUMBER_MASK if len(rows) == limit else None
            passed = [(low | number,) for number in removed if number <= after]
            rows += self._all_of_many(_READ_SESSION_OF_FIRST, passed)
            gone = set(removed)
            found = [(name, self._first(fragment, name, key, gone, numbers_max)) for name, key in rows]
        return found, cut

    def _first(
        self, fragment: FragmentKey, session_id: str, first_key: int, gone: set[int], numbers_max: int
    ) -> FirstNumbers:
        """Just the first number, or the first few where the first is going."""
        first = first_key & NUMBER_MASK
        if first == 0:
            return FirstNumbers([], is_whole=True)
        if first in gone:
            return self._numbers(fragment, session_id, numbers_max)
        return FirstNumbers([first], is_whole=False)

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
        """Session ids in order with their first few numbers and the time their state was set."""
        gone = set(removed)
        with _Snapshot(self._cursor):
            if state_set_after_ms is None:
                rows = self._all(_READ_SESSIONS, (fragment, limit, skip, from_id))
            else:
                bounds = (fragment, state_set_after_ms, from_id, limit, skip)
                rows = self._all(_READ_SESSIONS_BY_STATE, bounds)
            return [self._listed(fragment, name, key, gone, numbers_max) for name, key in rows]

    def _listed(
        self, fragment: FragmentKey, name: str, first_key: int, gone: set[int], numbers_max: int
    ) -> tuple[str, FirstNumbers, int | None]:
        stored = self._all(_READ_SESSION_STATE_TIME, (fragment, name))
        set_at_ms: int | None = stored[0][0] if stored else None
        return name, self._first(fragment, name, first_key, gone, numbers_max), set_at_ms

    # -- the rest
    def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> dict[str, int]:
        values = [(fragment, message_id, since_ms) for message_id in ids]
        with _Snapshot(self._cursor):  # else each of them takes the lock of the file and lets it go
            return dict(self._all_of_many(_READ_DUPLICATE_ID, values))

    def transfer_marks(self, source_store: str | None) -> list[TransferMark]:
        if source_store is None:
            rows = self._all(_READ_TRANSFER_MARKS)
        else:
            rows = self._all(_READ_TRANSFER_MARKS_FROM, (source_store,))
        return [TransferMark(store, fragment, number) for store, fragment, number in rows]

    def fragments(self, keys: Sequence[FragmentKey] | None) -> list[FragmentRow]:
        if keys is None:
            rows = self._all(_READ_FRAGMENTS)
        else:
            values = [(key,) for key in sorted(set(keys)) if key > 0]
            rows = self._all_of_many(_READ_FRAGMENT, values)
        return [fragment_row(*row) for row in rows]

    def catalogue(self) -> tuple[int, dict[str, str]]:
        texts: dict[str | None, Any] = dict(self._all(_READ_CATALOGUE))
        version = int(texts.pop(None, 0))
        return version, {str(key): str(text) for key, text in texts.items()}


_BEGIN_READ: Final = query("begin_read")
_END_READ: Final = query("end_read")
_READ_MESSAGES: Final = by_place("read_messages")
_WARM_MESSAGES: Final = by_place("warm_messages")
_WARM_AHEAD: Final = by_place("warm_ahead")
_WARM_PAYLOADS: Final = by_place("warm_payloads")
_WARM_SESSION_MESSAGES: Final = query("warm_session_messages")
_READ_KEYS: Final = by_place("read_keys")
_READ_BY_KEY: Final = by_place("read_by_key")
_READ_SIZE: Final = by_place("read_size")
_READ_SESSION_MESSAGES: Final = query("read_session_messages")
_READ_SESSION_KEYS: Final = query("read_session_keys")
_PEEK_KEYS: Final = query("peek_keys")
_PEEK_SESSION_KEYS: Final = query("peek_session_keys")
_READ_PAYLOAD: Final = query("read_payload")
_READ_DUE: Final = query("read_due")
_READ_EXPIRY: Final = query("read_expiry")
_READ_SESSION: Final = query("read_session")
_READ_SESSION_STATE: Final = query("read_session_state")
_READ_SESSION_STATE_TIME: Final = query("read_session_state_time")
_READ_SESSION_FIRSTS: Final = query("read_session_firsts")
_READ_SESSION_OF_FIRST: Final = query("read_session_of_first")
_READ_SESSIONS: Final = query("read_sessions")
_READ_SESSIONS_BY_STATE: Final = query("read_sessions_by_state")
_READ_DUPLICATE_ID: Final = query("read_duplicate_id")
_READ_TRANSFER_MARKS: Final = query("read_transfer_marks")
_READ_TRANSFER_MARKS_FROM: Final = query("read_transfer_marks_from")
_READ_FRAGMENTS: Final = query("read_fragments")
_READ_FRAGMENT: Final = query("read_fragment")
_READ_CATALOGUE: Final = query("read_catalogue")
