"""The reads of the contract: rows from a reader thread, corrected on the loop.

Theory of operation. A read is a *span*: it begins with the number of the last reported commit, asks reader threads
(once or more often), and at its end looks at the shadows of every batch after that number. `SqliteReads` keeps
those batches while any span needs them. From the correction to the caller's next statement nothing is awaited.

A session's first number can be hidden while its later rows are not, and only the database knows these. So a thread
is told which rows are going, answers with the first few numbers of the sessions concerned, and is asked again, for
more of them, in the rare case that all of those went meanwhile.
"""

from __future__ import annotations

import asyncio
import queue
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

import apsw

from busway.clock import Clock
from busway.message.message import PLACE_SCHEDULED, Message
from busway.store.contract import (
    COUNTER_BITS,
    FragmentKey,
    FragmentRow,
    Page,
    SessionRow,
    StoreError,
    StoreState,
    StoreUnavailable,
    TimedRow,
    TransferMark,
)
from busway.store.log_contract import ChunkHead, ChunkPage, ProducerRow
from busway.store.shadow import Shadow, Shadows
from busway.store.sqlite.raw_page import RawPage
from busway.store.sqlite.reader import DamagedState, FirstNumbers, RawSession, Reader
from busway.store.sqlite.rows import NUMBER_MASK
from busway.store.sqlite.warmth import Warmth

T = TypeVar("T")
U = TypeVar("U")

#: Past every time and count a client can name, and small enough for SQLite's integers.
_FAR: Final = 1 << 62
_LIMIT_MAX: Final = 1 << 30
#: How many pages a thread touches behind one that follows another.
_PAGES_AHEAD: Final = 8
#: What a thread brings of rows that are asked for by number before others have their turn.
_BY_NUMBER_BYTES: Final = 1 << 20
#: How many numbers of a session a thread brings when its first row is going, and how this grows.
_NUMBERS_FIRST: Final = 64
_NUMBERS_GROWTH: Final = 16
#: How often a read that waits for a connection looks whether the store is still open.
_LOOK_AGAIN_S: Final = 1.0


class SqliteReads:
    """What a store must know to read; `SqliteStore` adds the writing."""

    name: str
    state: StoreState

    def __init__(self, clock: Clock) -> None:
        #: The last commit that was reported.
        self._commit_number = 0
        #: Batches not yet reported, and reported ones that some span still needs; oldest first.
        self._shadows: deque[Shadow] = deque()
        #: Commit number at the beginning of a span → how many such spans there are.
        self._spans: dict[int, int] = {}
        #: Fragments that wait for the sweep.
        self._dropped: set[int] = set()
        #: Fragments that may have rows with a shared payload.
        self._sharing: set[int] = set()
        #: Fragments of partitioned entities: what their numbers have in the upper bits. Threads and row keys do
        #: without; it is taken off numbers that come in here and put on those that go out.
        self._number_bases: dict[int, int] = {}
        self._warmth = Warmth(clock)
        #: Counts openings: a read that began before another opening is void.
        self._generation = 0
        self._readers: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._read_threads: ThreadPoolExecutor | None = None

    # -- messages
    async def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        rows = min(limit, _LIMIT_MAX)
        return await self._page(
            fragment,
            after,
            lambda span, number: self._raw_messages(span, fragment, place, number, rows, bytes_max),
        )

    async def _raw_messages(
        self, span: _Span, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> RawPage:
        """At once where a thread has touched the rows lately, else after a thread has."""
        warmth = self._warmth
        touched = warmth.last(fragment, place, after)
        if touched is not None:
            last: int = touched
            found = await span.run_here(
                lambda reader: reader.messages(fragment, place, after, limit, bytes_max, last)
            )
            if found is not None:
                return found
        rows_ahead = limit * _PAGES_AHEAD if warmth.is_followed(fragment, place, after) else 0
        with_payloads = fragment in self._sharing
        touched, page = await span.run_warm(
            lambda reader: reader.warm_messages(fragment, place, after, limit, rows_ahead, with_payloads),
            lambda reader: reader.messages(fragment, place, after, limit, bytes_max),
        )
        warmth.note(fragment, place, page.last_number, page.last_number if touched is None else touched)
        return page

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        base = self._number_bases.get(fragment, 0)
        known = sorted({number - base for number in numbers if 0 < number - base <= NUMBER_MASK})
        keys = [fragment << COUNTER_BITS | number for number in known]
        found: list[Message] = []
        damaged: list[int] = []
        with _Span(self) as span:
            # Corrected at the end, so that all pages show one moment.
            at = 0
            while at < len(keys):
                raw = await span.run(_by_key(place, keys[at:]))
                found += raw.messages
                damaged += [number for _, number in raw.damaged]
                if not raw.more:
                    break
                at = bisect_right(keys, fragment << COUNTER_BITS | raw.last_number, at)
            shadows = span.shadows()
        if self._is_dropped(fragment, shadows):
            return Page([], False, [])
        if base:
            for message in found:
                message.sequence_number += base
        kept = shadows.kept(fragment, found)
        return Page(
            kept, False, [base + number for number in damaged if not shadows.hides(fragment, place, number)]
        )

    async def sizes(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> dict[int, int]:
        base = self._number_bases.get(fragment, 0)
        known = {number - base for number in numbers if 0 < number - base <= NUMBER_MASK}
        keys = [fragment << COUNTER_BITS | number for number in sorted(known)]
        with _Span(self) as span:
            rows = await span.run(lambda reader: reader.sizes(place, keys))
            shadows = span.shadows()
        if self._is_dropped(fragment, shadows):
            return {}
        sizes = {key & NUMBER_MASK: size for key, size in rows}
        return {base + n: size for n, size in sizes.items() if not shadows.hides(fragment, place, n)}

    async def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> Page:
        rows = min(limit, _LIMIT_MAX)
        return await self._page(
            fragment,
            after,
            lambda span, number: self._raw_session(span, fragment, session_id, number, rows, bytes_max),
        )

    async def _raw_session(
        self, span: _Span, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> RawPage:
        _, page = await span.run_warm(
            lambda reader: reader.warm_session_messages(fragment, session_id, after, limit),
            lambda reader: reader.session_messages(fragment, session_id, after, limit, bytes_max),
        )
        return page

    async def peek(
        self, fragment: FragmentKey, from_number: int, limit: int, bytes_max: int, session_id: str | None
    ) -> Page:
        rows = min(limit, _LIMIT_MAX)
        return await self._page(
            fragment,
            from_number - 1,
            lambda span, number: span.run(
                lambda reader: reader.peek(fragment, number, rows, bytes_max, session_id)
            ),
        )

    async def _page(
        self,
        fragment: FragmentKey,
        after: int,
        read: Callable[[_Span, int], Coroutine[None, None, RawPage]],
    ) -> Page:
        base = self._number_bases.get(fragment, 0)
        after = max(after - base, 0)
        if after >= NUMBER_MASK:
            return Page([], False, [])
        with _Span(self) as span:
            while True:
                raw = await read(span, after)
                shadows = span.shadows()
                if base:
                    raw.lift(base)
                if self._is_dropped(fragment, shadows):
                    return Page([], False, [])
                kept = shadows.kept(fragment, raw.messages)
                damaged = [base + n for place, n in raw.damaged if not shadows.hides(fragment, place, n)]
                if kept or damaged or not raw.more:
                    return Page(kept, raw.more, damaged)
                after = raw.last_number

    def _is_dropped(self, fragment: FragmentKey, shadows: Shadows) -> bool:
        return fragment in self._dropped or shadows.is_dropped(fragment)

    # -- due and expired
    async def due(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        return await self._by_time(Reader.due, now_ms, limit, after, _hides_scheduled)

    async def next_due_ms(self, after_ms: int = -1) -> int | None:
        rows = await self.due(_FAR, 1, (FragmentKey(0), 0, after_ms + 1))
        return rows[0][2] if rows else None

    async def expired_entries(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        return await self._by_time(Reader.expiry, now_ms, limit, after, _hides_entry)

    async def next_expiry_ms(self, after_ms: int = -1) -> int | None:
        rows = await self.expired_entries(_FAR, 1, (FragmentKey(0), 0, after_ms + 1))
        return rows[0][2] if rows else None

    def _number(self, key: int) -> int:
        """The whole number of a row."""
        return self._number_bases.get(key >> COUNTER_BITS, 0) + (key & NUMBER_MASK)

    def _row_key(self, fragment: FragmentKey, number: int) -> int:
        """The other way round."""
        return fragment << COUNTER_BITS | (number - self._number_bases.get(fragment, 0)) & NUMBER_MASK

    async def _by_time(
        self,
        read: Callable[[Reader, tuple[int, int], int, int], list[tuple[int, int]]],
        now_ms: int,
        limit: int,
        behind: TimedRow | None,
        hides: Callable[[Shadows, int], bool],
    ) -> list[TimedRow]:
        """The earliest rows that stay. Asks for at least a handful, because some may be going."""
        found: list[tuple[int, int]] = []
        after = (-_FAR, 0) if behind is None else (behind[2], self._row_key(behind[0], behind[1]))
        slice_rows = min(limit + 16, _LIMIT_MAX)
        with _Span(self) as span:
            while True:
                rows = await span.run(_slice(read, after, now_ms, slice_rows))
                shadows = span.shadows()
                found = [row for row in (*found, *rows) if not hides(shadows, row[1])]
                if len(found) >= limit or len(rows) < slice_rows:
                    return [(_fragment(key), self._number(key), at_ms) for at_ms, key in found[:limit]]
                after = rows[-1]

    # -- sessions
    async def session(self, fragment: FragmentKey, session_id: str) -> SessionRow | None:
        numbers_max = _NUMBERS_FIRST
        with _Span(self) as span:
            while True:
                try:
                    raw = await span.run(_session(fragment, session_id, numbers_max))
                except DamagedState:
                    raise StoreError(f"The state of a session in store {self.name} is damaged.") from None
                shadows = span.shadows()
                if self._is_dropped(fragment, shadows):
                    return None
                gone = shadows.active_removed(fragment)
                if not raw.first.is_unclear(gone):
                    break
                numbers_max *= _NUMBERS_GROWTH
        left = raw.first.left(gone)
        joined = shadows.session_states(fragment).get(session_id)
        state, set_at_ms = (raw.state, raw.state_set_at_ms) if joined is None else joined
        if not left and state is None:
            return None
        active = max(raw.active - len(raw.first.numbers) + len(left), len(left)) if left else 0
        first = self._number_bases.get(fragment, 0) + left[0] if left else 0
        return SessionRow(session_id, active, first, state, 0 if state is None else set_at_ms)

    async def next_sessions(
        self, fragment: FragmentKey, after_first_number: int, limit: int
    ) -> list[tuple[str, int]]:
        base = self._number_bases.get(fragment, 0)
        after = max(after_first_number - base, 0)
        rows_max = min(limit, _LIMIT_MAX)
        numbers_max = _NUMBERS_FIRST
        with _Span(self) as span:
            while after < NUMBER_MASK and rows_max > 0:
                going = sorted(span.shadows().active_removed(fragment))
                rows, cut = await span.run(_session_firsts(fragment, after, rows_max, going, numbers_max))
                shadows = span.shadows()
                if self._is_dropped(fragment, shadows):
                    return []
                gone = shadows.active_removed(fragment)
                if any(numbers.is_unclear(gone) for _, numbers in rows):
                    numbers_max *= _NUMBERS_GROWTH
                    continue
                firsts = sorted((first, name) for name, numbers in rows for first in numbers.left(gone)[:1])
                last = NUMBER_MASK if cut is None else cut
                # A session whose next row lies past the cut is met again there.
                found = [(name, base + first) for first, name in firsts if after < first <= last][:limit]
                if found or cut is None:
                    return found
                after = cut
        return []

    async def sessions(
        self,
        fragment: FragmentKey,
        state_set_after_ms: int | None,
        skip: int,
        limit: int,
        from_id: str = "",
    ) -> list[str]:
        skip = min(max(skip, 0), _LIMIT_MAX)
        rows_max = min(limit, _LIMIT_MAX)
        numbers_max = _NUMBERS_FIRST
        with _Span(self) as span:
            while rows_max > 0:
                going = sorted(span.shadows().active_removed(fragment))
                rows = await span.run(
                    _listed(fragment, state_set_after_ms, from_id, skip, rows_max, going, numbers_max)
                )
                shadows = span.shadows()
                if self._is_dropped(fragment, shadows):
                    return []
                gone = shadows.active_removed(fragment)
                if any(numbers.is_unclear(gone) for _, numbers, _ in rows):
                    numbers_max *= _NUMBERS_GROWTH
                    continue
                states = shadows.session_states(fragment)
                found = [
                    name
                    for name, numbers, set_at_ms in rows
                    if _is_listed(states.get(name), set_at_ms, state_set_after_ms, bool(numbers.left(gone)))
                ]
                if found or len(rows) < rows_max:
                    return found
                skip += rows_max
        return []

    # -- logs
    async def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage:
        with _Span(self) as span:
            page = await span.run(lambda reader: reader.logs.chunks(log, from_number, bytes_max))
            return ChunkPage([], [], False) if self._is_dropped(log, span.shadows()) else page

    async def chunk_heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        rows = min(max(limit, 0), _LIMIT_MAX)
        with _Span(self) as span:
            heads = await span.run(lambda reader: reader.logs.heads(log, from_number, rows))
            return [] if self._is_dropped(log, span.shadows()) else heads

    async def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        with _Span(self) as span:
            number = await span.run(lambda reader: reader.logs.first_number_since(log, at_ms))
            return None if self._is_dropped(log, span.shadows()) else number

    async def producers(self, log: FragmentKey) -> list[ProducerRow]:
        with _Span(self) as span:
            rows = await span.run(lambda reader: reader.logs.producers(log))
            return [] if self._is_dropped(log, span.shadows()) else rows

    # -- the rest
    async def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> set[str]:
        asked = set(ids)
        with _Span(self) as span:
            stored = await span.run(lambda reader: reader.known_ids(fragment, asked, since_ms))
            shadows = span.shadows()
        if self._is_dropped(fragment, shadows):
            return set()
        known = stored | shadows.joined_ids(fragment)
        since_ms = max(since_ms, shadows.forgotten_before_ms(fragment))
        return {message_id for message_id in asked if known.get(message_id, -1) >= since_ms}

    async def transfer_marks(self, source_store: str | None = None) -> list[TransferMark]:
        with _Span(self) as span:
            marks = await span.run(lambda reader: reader.transfer_marks(source_store))
            removed = span.shadows().marks_removed()
        return [mark for mark in marks if mark not in removed]

    async def fragments(self, keys: Sequence[FragmentKey] | None = None) -> list[FragmentRow]:
        with _Span(self) as span:
            rows = await span.run(lambda reader: reader.fragments(keys))
            shadows = span.shadows()
        return [row for row in rows if not self._is_dropped(row.key, shadows)]

    async def catalogue(self) -> tuple[int, dict[str, str]]:
        with _Span(self) as span:
            return await span.run(Reader.catalogue)

    # -- spans
    def _require_open(self) -> None:
        if self.state is not StoreState.OPEN:
            raise StoreUnavailable(f"The store {self.name} is {self.state.value}.")

    def _forget_shadows(self) -> None:
        """Lets go of reported batches that no span needs any more."""
        needed = min(self._spans, default=self._commit_number)
        while self._shadows and self._shadows[0].number <= needed:
            self._shadows.popleft()

    def _condense_shadows(self) -> None:
        """A batch was just reported; another gathers behind it. When a span needs it nevertheless, it lets go of its
        messages, and joins the one before unless a span began between the two: a slow read costs no memory for what
        is sent meanwhile."""
        shadows = self._shadows
        if len(shadows) < 2:
            return
        reported = shadows[-2]
        reported.let_go()
        if len(shadows) > 2 and shadows[-3].number not in self._spans:
            shadows[-3].absorb(reported)
            del shadows[-2]

    def _warmed(self, warm: Callable[[Reader], U]) -> tuple[Reader, U]:
        """In a reader thread: a reader inside a transaction, the pages it will need in its cache."""
        reader = self._take()
        try:
            reader.begin()
            return reader, warm(reader)
        except BaseException:
            self._give_back(reader)
            raise

    def _take(self) -> Reader:
        """In a reader thread. A read that still waited for its turn when the store closed finds no readers any more;
        left waiting it would keep the process from ending."""
        while True:
            try:
                return self._readers.get(timeout=_LOOK_AGAIN_S)
            except queue.Empty:
                self._require_open()

    def _idle_reader(self) -> Reader | None:
        """Without waiting."""
        try:
            return self._readers.get_nowait()
        except queue.Empty:
            return None

    def _give_back(self, reader: Reader) -> None:
        reader.end()
        self._readers.put(reader)

    def _give_back_later(self, warmed: asyncio.Future[tuple[Reader, U]]) -> None:
        """Nobody waits for it any more."""
        if not warmed.cancelled() and warmed.exception() is None:
            self._give_back(warmed.result()[0])

    def _run_read(self, work: Callable[[Reader], T]) -> T:
        """In a reader thread."""
        reader = self._take()
        try:
            return work(reader)
        finally:
            self._readers.put(reader)


class _Span:
    """One read from its call to its return."""

    __slots__ = ("_began_at", "_generation", "_store")

    def __init__(self, store: SqliteReads) -> None:
        self._store = store

    def __enter__(self) -> Self:
        store = self._store
        store._require_open()
        self._generation = store._generation
        self._began_at = store._commit_number
        store._spans[self._began_at] = store._spans.get(self._began_at, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        store = self._store
        if store._generation != self._generation:
            return
        store._spans[self._began_at] -= 1
        if store._spans[self._began_at] == 0:
            del store._spans[self._began_at]
            store._forget_shadows()

    async def run(self, work: Callable[[Reader], T]) -> T:
        store = self._store
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(store._read_threads, store._run_read, work)
        except apsw.Error as error:
            raise self._unreadable(error) from error
        self._require_same_opening()
        return result

    async def run_warm(self, warm: Callable[[Reader], U], read: Callable[[Reader], T]) -> tuple[U, T]:
        """Touches pages in a thread in one step, so that a slow disk delays nobody, then reads them on the loop: row
        by row in a thread, each row would wait for the interpreter's lock. With the same connection in one
        transaction, for its cache would be void in the next."""
        store = self._store
        loop = asyncio.get_running_loop()
        warmed = loop.run_in_executor(store._read_threads, store._warmed, warm)
        try:
            reader, answer = await asyncio.shield(warmed)
        except asyncio.CancelledError:
            warmed.add_done_callback(store._give_back_later)
            raise
        except apsw.Error as error:
            raise self._unreadable(error) from error
        return answer, self._read_and_give_back(reader, read)

    async def run_here(self, read: Callable[[Reader], T]) -> T | None:
        """Reads on the loop what is in memory; None when no reader is idle. Others get a turn first."""
        await asyncio.sleep(0)
        reader = self._store._idle_reader()
        if reader is None:
            return None
        return self._read_and_give_back(reader, read)

    def _read_and_give_back(self, reader: Reader, read: Callable[[Reader], T]) -> T:
        try:
            self._require_same_opening()
            reader.begin()
            return read(reader)
        except apsw.Error as error:
            raise self._unreadable(error) from error
        finally:
            self._store._give_back(reader)

    def _unreadable(self, error: apsw.Error) -> StoreError:
        return StoreError(f"The store {self._store.name} cannot be read: {error}.")

    def _require_same_opening(self) -> None:
        self._store._require_open()
        if self._store._generation != self._generation:
            raise StoreUnavailable(f"The store {self._store.name} was opened anew meanwhile.")

    def shadows(self) -> Shadows:
        """All batches that were not reported when the span began."""
        return Shadows([shadow for shadow in self._store._shadows if shadow.number > self._began_at])


def _slice(
    read: Callable[[Reader, tuple[int, int], int, int], list[tuple[int, int]]],
    after: tuple[int, int],
    now_ms: int,
    limit: int,
) -> Callable[[Reader], list[tuple[int, int]]]:
    return lambda reader: read(reader, after, now_ms, limit)


def _by_key(place: int, keys: list[int]) -> Callable[[Reader], RawPage]:
    return lambda reader: reader.by_key(place, keys, _BY_NUMBER_BYTES)


def _session(fragment: FragmentKey, session_id: str, numbers_max: int) -> Callable[[Reader], RawSession]:
    return lambda reader: reader.session(fragment, session_id, numbers_max)


def _session_firsts(
    fragment: FragmentKey, after: int, limit: int, going: list[int], numbers_max: int
) -> Callable[[Reader], tuple[list[tuple[str, FirstNumbers]], int | None]]:
    return lambda reader: reader.session_firsts(fragment, after, limit, going, numbers_max)


def _listed(
    fragment: FragmentKey,
    state_set_after_ms: int | None,
    from_id: str,
    skip: int,
    limit: int,
    going: list[int],
    numbers_max: int,
) -> Callable[[Reader], list[tuple[str, FirstNumbers, int | None]]]:
    return lambda reader: reader.sessions(
        fragment, state_set_after_ms, from_id, skip, limit, going, numbers_max
    )


def _is_listed(
    joined: tuple[bytes | None, int] | None,
    set_at_ms: int | None,
    state_set_after_ms: int | None,
    has_active: bool,
) -> bool:
    """Whether a session belongs to the answer, a state that joined meanwhile winning over the stored one."""
    if joined is not None:
        set_at_ms = None if joined[0] is None else joined[1]
    if state_set_after_ms is None:
        return has_active or set_at_ms is not None
    return set_at_ms is not None and set_at_ms > state_set_after_ms


def _hides_scheduled(shadows: Shadows, key: int) -> bool:
    fragment = _fragment(key)
    return shadows.is_dropped(fragment) or shadows.hides(fragment, PLACE_SCHEDULED, key & NUMBER_MASK)


def _hides_entry(shadows: Shadows, key: int) -> bool:
    return shadows.hides_anywhere(_fragment(key), key & NUMBER_MASK)


def _fragment(key: int) -> FragmentKey:
    return FragmentKey(key >> COUNTER_BITS)
