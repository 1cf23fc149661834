"""The reads of the contract: rows from a reader thread, corrected on the loop. Each is a span (`spans`).

A session's first number can be hidden while its later rows are not, and only the database knows these. So a thread
is told which rows are going, answers with the first few numbers of the sessions concerned, and is asked again, for
more of them, in the rare case that all of those went meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from busway.message.message import PLACE_SCHEDULED, Message
from busway.store.contract import (
    COUNTER_BITS,
    ChunkHead,
    ChunkPage,
    FragmentKey,
    FragmentRow,
    Page,
    ProducerRow,
    SessionRow,
    StoreError,
    TimedRow,
    TransferMark,
)
from busway.store.rows import NUMBER_MASK, RawPage
from busway.store.shadow import Shadows
from busway.store.spans import ReadSpan, Spans

#: Past every time and count a client can name, and small enough for a database's integers.
_FAR: Final = 1 << 62
_LIMIT_MAX: Final = 1 << 30
#: What a thread brings of rows that are asked for by number before others have their turn.
_BY_NUMBER_BYTES: Final = 1 << 20
#: How many numbers of a session a thread brings when its first row is going, and how this grows.
_NUMBERS_FIRST: Final = 64
_NUMBERS_GROWTH: Final = 16


class FirstNumbers:
    """The first few numbers of a session's active rows."""

    __slots__ = ("is_whole", "numbers")

    def __init__(self, numbers: list[int], is_whole: bool) -> None:
        self.numbers = numbers
        self.is_whole = is_whole  #: False: there may be more

    def left(self, gone: set[int]) -> list[int]:
        return [number for number in self.numbers if number not in gone]

    def is_unclear(self, gone: set[int]) -> bool:
        """All of these are going, but the session may have more."""
        return not self.is_whole and not self.left(gone)


class OrderHead(Protocol):
    """Where an order of times begins. `seen`: a read from it on found this first; when it began, that commit was the
    last stored one."""

    at: tuple[int, int]

    def seen(self, first: tuple[int, int], stored_number: int) -> None: ...


class RawSession:
    """A session as committed."""

    __slots__ = ("active", "first", "state", "state_set_at_ms")

    def __init__(self, active: int, first: FirstNumbers, state: bytes | None, state_set_at_ms: int) -> None:
        self.active = active
        self.first = first
        self.state = state
        self.state_set_at_ms = state_set_at_ms


class DamagedState(Exception):
    """A session's state is not what was stored."""


class LogRows(Protocol):
    """The part of a `RowReader` about logs."""

    def chunks(self, log: FragmentKey, from_number: int, bytes_max: int) -> ChunkPage: ...

    def heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]: ...

    def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None: ...

    def producers(self, log: FragmentKey) -> list[ProducerRow]: ...


class RowReader(Protocol):
    """The half of the reads that runs in a thread, on a connection of its own. What comes back is the state of one
    commit: nothing here knows of batches that are not committed."""

    @property
    def logs(self) -> LogRows: ...

    def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> RawPage: ...

    def session_messages(
        self, fragment: FragmentKey, session_id: str, after: int, limit: int, bytes_max: int
    ) -> RawPage: ...

    def by_key(self, place: int, keys: Sequence[int], bytes_max: int) -> RawPage: ...

    def sizes(self, place: int, keys: Sequence[int]) -> list[tuple[int, int]]:
        """(key, bytes) of the rows that are there."""

    def peek(
        self, fragment: FragmentKey, after: int, limit: int, bytes_max: int, session_id: str | None
    ) -> RawPage: ...

    def due(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
        """(time, key), behind such a pair."""

    def expiry(self, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]: ...

    def session(self, fragment: FragmentKey, session_id: str, numbers_max: int) -> RawSession:
        """Raises DamagedState."""

    def session_firsts(
        self, fragment: FragmentKey, after: int, limit: int, removed: Sequence[int], numbers_max: int
    ) -> tuple[list[tuple[str, FirstNumbers]], int | None]:
        """Sessions by first number, each with its first few numbers (more than one only where the first is
        removed); and the last first number looked at when the limit cut. Sessions whose first row lies at or
        before `after` but is removed belong to the answer too: their next row may come after it."""

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

    def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> dict[str, int]: ...

    def transfer_marks(self, source_store: str | None) -> list[TransferMark]: ...

    def fragments(self, keys: Sequence[FragmentKey] | None) -> list[FragmentRow]: ...

    def catalogue(self) -> tuple[int, dict[str, str]]: ...


R = TypeVar("R", bound=RowReader)


class CorrectedReads(Generic[R]):
    """The reading half of `contract.Store`."""

    def __init__(self, spans: Spans[R]) -> None:
        self._spans = spans
        #: Fragments that wait for the sweep.
        self._dropped: set[int] = set()
        #: Fragments that may have rows with a shared payload.
        self._sharing: set[int] = set()
        #: Fragments of partitioned entities: what their numbers have in the upper bits. Threads and row keys do
        #: without; it is taken off numbers that come in here and put on those that go out.
        self._number_bases: dict[int, int] = {}

    def begin(self, dropped: set[int], sharing: set[int], number_bases: dict[int, int]) -> None:
        """The store is open, anew: what the writer knows of fragments, and goes on to change."""
        self._dropped = dropped
        self._sharing = sharing
        self._number_bases = number_bases

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
        self, span: ReadSpan[R], fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> RawPage:
        return await span.run(lambda reader: reader.messages(fragment, place, after, limit, bytes_max))

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        base = self._number_bases.get(fragment, 0)
        known = sorted({number - base for number in numbers if 0 < number - base <= NUMBER_MASK})
        keys = [fragment << COUNTER_BITS | number for number in known]
        found: list[Message] = []
        damaged: list[int] = []
        with ReadSpan(self._spans) as span:
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
        with ReadSpan(self._spans) as span:
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
        self,
        span: ReadSpan[R],
        fragment: FragmentKey,
        session_id: str,
        after: int,
        limit: int,
        bytes_max: int,
    ) -> RawPage:
        return await span.run(
            lambda reader: reader.session_messages(fragment, session_id, after, limit, bytes_max)
        )

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
        read: Callable[[ReadSpan[R], int], Coroutine[None, None, RawPage]],
    ) -> Page:
        base = self._number_bases.get(fragment, 0)
        after = max(after - base, 0)
        if after >= NUMBER_MASK:
            return Page([], False, [])
        with ReadSpan(self._spans) as span:
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
        return await self._by_time(_due, now_ms, limit, after, _hides_scheduled, self._due_head())

    async def next_due_ms(self, after_ms: int = -1) -> int | None:
        rows = await self.due(_FAR, 1, (FragmentKey(0), 0, after_ms + 1))
        return rows[0][2] if rows else None

    async def expired_entries(self, now_ms: int, limit: int, after: TimedRow | None = None) -> list[TimedRow]:
        return await self._by_time(_expiry, now_ms, limit, after, _hides_entry, self._expiry_head())

    async def next_expiry_ms(self, after_ms: int = -1) -> int | None:
        rows = await self.expired_entries(_FAR, 1, (FragmentKey(0), 0, after_ms + 1))
        return rows[0][2] if rows else None

    def _number(self, key: int) -> int:
        """The whole number of a row."""
        return self._number_bases.get(key >> COUNTER_BITS, 0) + (key & NUMBER_MASK)

    def _row_key(self, fragment: FragmentKey, number: int) -> int:
        """The other way round."""
        return fragment << COUNTER_BITS | (number - self._number_bases.get(fragment, 0)) & NUMBER_MASK

    def _due_head(self) -> OrderHead | None:
        """Where scheduled rows begin, for stores that keep what is dead."""
        return None

    def _expiry_head(self) -> OrderHead | None:
        return None

    async def _by_time(
        self,
        read: Callable[[RowReader, tuple[int, int], int, int], list[tuple[int, int]]],
        now_ms: int,
        limit: int,
        behind: TimedRow | None,
        hides: Callable[[Shadows, int], bool],
        head: OrderHead | None,
    ) -> list[TimedRow]:
        """The earliest rows that stay. Asks for at least a handful, because some may be going."""
        found: list[tuple[int, int]] = []
        after = (-_FAR, 0) if behind is None else (behind[2], self._row_key(behind[0], behind[1]))
        slice_rows = min(limit + 16, _LIMIT_MAX)
        if head is not None and after < head.at:
            after = (head.at[0], head.at[1] - 1)
        else:
            head = None
        with ReadSpan(self._spans) as span:
            stored_number = self._spans.commit_number
            while True:
                rows = await span.run(_slice(read, after, now_ms, slice_rows))
                if head is not None:
                    head.seen(rows[0] if rows else (now_ms + 1, 0), stored_number)
                    head = None
                shadows = span.shadows()
                found = [row for row in (*found, *rows) if not hides(shadows, row[1])]
                if len(found) >= limit or len(rows) < slice_rows:
                    return [(_fragment(key), self._number(key), at_ms) for at_ms, key in found[:limit]]
                after = rows[-1]

    # -- sessions
    async def session(self, fragment: FragmentKey, session_id: str) -> SessionRow | None:
        numbers_max = _NUMBERS_FIRST
        with ReadSpan(self._spans) as span:
            while True:
                try:
                    raw = await span.run(_session(fragment, session_id, numbers_max))
                except DamagedState:
                    raise StoreError(
                        f"The state of a session in store {self._spans.name} is damaged."
                    ) from None
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

    def _before_head(self, fragment: FragmentKey) -> int:  # noqa: ARG002 - for those who know
        """No active row has this number or a lower one."""
        return 0

    async def next_sessions(
        self, fragment: FragmentKey, after_first_number: int, limit: int
    ) -> list[tuple[str, int]]:
        base = self._number_bases.get(fragment, 0)
        after = max(after_first_number - base, self._before_head(fragment))
        rows_max = min(limit, _LIMIT_MAX)
        numbers_max = _NUMBERS_FIRST
        with ReadSpan(self._spans) as span:
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
        with ReadSpan(self._spans) as span:
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
        with ReadSpan(self._spans) as span:
            page = await span.run(lambda reader: reader.logs.chunks(log, from_number, bytes_max))
            return ChunkPage([], [], False) if self._is_dropped(log, span.shadows()) else page

    async def chunk_heads(self, log: FragmentKey, from_number: int, limit: int) -> list[ChunkHead]:
        rows = min(max(limit, 0), _LIMIT_MAX)
        with ReadSpan(self._spans) as span:
            heads = await span.run(lambda reader: reader.logs.heads(log, from_number, rows))
            return [] if self._is_dropped(log, span.shadows()) else heads

    async def first_number_since(self, log: FragmentKey, at_ms: int) -> int | None:
        with ReadSpan(self._spans) as span:
            number = await span.run(lambda reader: reader.logs.first_number_since(log, at_ms))
            return None if self._is_dropped(log, span.shadows()) else number

    async def producers(self, log: FragmentKey) -> list[ProducerRow]:
        with ReadSpan(self._spans) as span:
            rows = await span.run(lambda reader: reader.logs.producers(log))
            return [] if self._is_dropped(log, span.shadows()) else rows

    # -- the rest
    async def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> set[str]:
        asked = set(ids)
        with ReadSpan(self._spans) as span:
            stored = await span.run(lambda reader: reader.known_ids(fragment, asked, since_ms))
            shadows = span.shadows()
        if self._is_dropped(fragment, shadows):
            return set()
        known = stored | shadows.joined_ids(fragment)
        since_ms = max(since_ms, shadows.forgotten_before_ms(fragment))
        return {message_id for message_id in asked if known.get(message_id, -1) >= since_ms}

    async def transfer_marks(self, source_store: str | None = None) -> list[TransferMark]:
        with ReadSpan(self._spans) as span:
            marks = await span.run(lambda reader: reader.transfer_marks(source_store))
            removed = span.shadows().marks_removed()
        return [mark for mark in marks if mark not in removed]

    async def fragments(self, keys: Sequence[FragmentKey] | None = None) -> list[FragmentRow]:
        with ReadSpan(self._spans) as span:
            rows = await span.run(lambda reader: reader.fragments(keys))
            shadows = span.shadows()
        return [row for row in rows if not self._is_dropped(row.key, shadows)]

    async def catalogue(self) -> tuple[int, dict[str, str]]:
        with ReadSpan(self._spans) as span:
            return await span.run(lambda reader: reader.catalogue())


def _due(reader: RowReader, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
    return reader.due(after, now_ms, limit)


def _expiry(reader: RowReader, after: tuple[int, int], now_ms: int, limit: int) -> list[tuple[int, int]]:
    return reader.expiry(after, now_ms, limit)


def _slice(
    read: Callable[[RowReader, tuple[int, int], int, int], list[tuple[int, int]]],
    after: tuple[int, int],
    now_ms: int,
    limit: int,
) -> Callable[[RowReader], list[tuple[int, int]]]:
    return lambda reader: read(reader, after, now_ms, limit)


def _by_key(place: int, keys: list[int]) -> Callable[[RowReader], RawPage]:
    return lambda reader: reader.by_key(place, keys, _BY_NUMBER_BYTES)


def _session(fragment: FragmentKey, session_id: str, numbers_max: int) -> Callable[[RowReader], RawSession]:
    return lambda reader: reader.session(fragment, session_id, numbers_max)


def _session_firsts(
    fragment: FragmentKey, after: int, limit: int, going: list[int], numbers_max: int
) -> Callable[[RowReader], tuple[list[tuple[str, FirstNumbers]], int | None]]:
    return lambda reader: reader.session_firsts(fragment, after, limit, going, numbers_max)


def _listed(
    fragment: FragmentKey,
    state_set_after_ms: int | None,
    from_id: str,
    skip: int,
    limit: int,
    going: list[int],
    numbers_max: int,
) -> Callable[[RowReader], list[tuple[str, FirstNumbers, int | None]]]:
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
