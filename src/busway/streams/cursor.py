"""A reader's place in a log: where it begins (`Position`: H-20, H-22, and the texts that say so), and the events from
there on.

Theory of operation. A cursor hands out runs of events, each a range inside one stored chunk, in order and without
gaps but those of retention and compaction. It takes them from three places: the page that it has fetched, the tail
of newest chunks that the log keeps in memory while there are cursors, the store. The tail is a piece of the log that
ends at its durable end, or it is empty. So a cursor that follows the end of a log never causes a read; one
that is behind holds at most one page.

`next_run` never waits. When it has nothing it returns None, and either a fetch is under way or the cursor waits for
the next commit; in both cases the reader is woken, once, when another try is worth it. Nobody is woken who did not
ask.

Only events whose commit was reported are handed out, even if a read has seen more. What is damaged is never stepped
over in silence: a reader that comes to it is evicted with the numbers that are lost. One that begins behind them
reads on. A read that fails is tried again a few times; then the reader is evicted too, for it would wait for ever.

Who reads a partition is kept by consumer group (H-23…H-25, `Readers`). A group has either readers without an epoch,
as many as the limit allows, each of which gets all events; or one reader with an epoch. One with an epoch takes the
partition over from everybody whose epoch is not higher than its own. A reader without one never takes over.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from busway.broker.fragment.outlet import Attachment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.message.event_chunk import Chunk, ChunkBuilder, ChunkDamaged
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, BrokerError, EventsLost, ReceiverStolen, TooManyReaders
from busway.store.contract import ChunkHead, ChunkPage, StoreError

if TYPE_CHECKING:
    from busway.streams.partition_log import PartitionLog

START: Final = 0
LATEST: Final = 1
NUMBER: Final = 2
TIME: Final = 3

_START_TEXT: Final = "-1"
_LATEST_TEXT: Final = "@latest"
_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19


class Position:
    """`value` is a number, or a time in milliseconds; the reader begins with it when `is_inclusive`, else behind."""

    __slots__ = ("is_inclusive", "is_offset", "kind", "value")

    def __init__(
        self, kind: int, value: int = -1, is_inclusive: bool = False, is_offset: bool = False
    ) -> None:
        self.kind = kind
        self.value = value
        self.is_inclusive = is_inclusive
        #: It was said as an offset, so that is what its faults speak of. Offsets are numbers here.
        self.is_offset = is_offset

    def first_number(self) -> int:
        """Of a number: the first that it admits."""
        return self.value if self.is_inclusive else self.value + 1

    def first_ms(self) -> int:
        """Of a time: the first that it admits."""
        return self.value if self.is_inclusive else self.value + 1

    def behind_the_end(self, last_number: int) -> BadArgument:
        """H-22, in the words that clients know."""
        what = "offset" if self.is_offset else "sequence number"
        return BadArgument(
            f"The supplied {what} '{self.value}' is invalid. The last {what} in the system is '{last_number}'"
        )

    def __repr__(self) -> str:
        return f"Position({self.kind}, {self.value}, {self.is_inclusive}, {self.is_offset})"


def position_of_offset(text: str, inclusive: bool) -> Position:
    """`-1` is the start, `@latest` the end. Raises BadArgument."""
    if text == _START_TEXT:
        return Position(START)
    if text == _LATEST_TEXT:
        return Position(LATEST)
    return Position(NUMBER, _whole("offset", text), inclusive, True)


def position_of_number(text: str, inclusive: bool) -> Position:
    """Before the first number there is the start. Raises BadArgument."""
    if text == _START_TEXT:
        return Position(START)
    return Position(NUMBER, _whole("sequence number", text), inclusive)


def position_of_time(text_ms: str, inclusive: bool) -> Position:
    """Milliseconds since 1970; before that is the start. Raises BadArgument."""
    if text_ms.startswith("-"):
        _whole("enqueued time", text_ms[1:])
        return Position(START)
    return Position(TIME, _whole("enqueued time", text_ms), inclusive)


def _whole(what: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        value = int(text)
        if value <= _NUMBER_MAX:
            return value
    raise BadArgument(f"The supplied {what} {shown(text)} is invalid. It must be a whole number.")


_log = logging.getLogger(__name__)

#: One fetch: a page has so many bytes, or one chunk.
PAGE_BYTES_MAX: Final = 1024 * 1024
_RETRY_S: Final = 1.0
#: Reads that fail in a row before the reader is told.
_TRIES_MAX: Final = 5


@mypyc_attr(allow_interpreted_subclasses=True)
class EventReader(Attachment):
    """Somebody who reads events, implemented by gateways. All calls come on the event loop.

    `evict` (see `Attachment`) is called once: whoever calls it has forgotten the reader, which closes its cursor.
    """

    #: What the client calls itself (H-24); "" when it does not say.
    name: str = ""
    #: -1 = without one.
    epoch: int = -1

    def wake(self) -> None:
        """There may be more: another `next_run` is worth it."""
        raise NotImplementedError


class EventRun:
    """Events `first` to `end` (exclusive) of a chunk, by their places in it."""

    __slots__ = ("chunk", "end", "first")

    def __init__(self, chunk: Chunk, first: int, end: int) -> None:
        self.chunk = chunk
        self.first = first
        self.end = end

    @property
    def count(self) -> int:
        return self.end - self.first

    def size_bytes(self) -> int:
        return self.chunk.end(self.end - 1) - self.chunk.start(self.first)


class Cursor:
    """See the head of this file. Made by `PartitionLog.cursor`."""

    __slots__ = (
        "_chunk",
        "_failures",
        "_is_fetching",
        "_log",
        "_page",
        "_place",
        "is_closed",
        "next_number",
        "reader",
    )

    def __init__(self, log: PartitionLog, from_number: int, reader: EventReader) -> None:
        self._log = log
        self.reader = reader
        #: Everything before it was handed out, or is gone.
        self.next_number = from_number
        self.is_closed = False
        self._is_fetching = False
        #: Reads that have failed, one after the other.
        self._failures = 0
        #: The chunk that runs are cut from, and where the next one begins in it.
        self._chunk: Chunk | None = None
        self._place = 0
        #: Fetched chunks behind it, the next one last.
        self._page: list[Chunk] = []

    def next_run(self, events_max: int, bytes_max: int) -> EventRun | None:
        """The next events: at most so many, in at most so many bytes, but at least one. They count as handed out."""
        if self.is_closed or events_max <= 0:
            return None
        chunk = self._chunk
        if chunk is None:
            chunk = self._next_chunk()
            if chunk is None:
                return None
        first = self._place
        end = _end_of_run(chunk, first, min(chunk.count, first + events_max), bytes_max)
        self.next_number = chunk.number(end - 1) + 1
        if end == chunk.count:
            self._chunk = None
        else:
            self._place = end
        run = EventRun(chunk, first, end)
        self._log.flow.handed_out(end - first, run.size_bytes())
        return run

    def close(self) -> None:
        """Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._chunk = None
            self._page.clear()
            self._log.cursors.forget(self)

    def has_at_hand(self) -> bool:
        """Whether the next run needs no fetch."""
        return self._chunk is not None or len(self._page) > 0

    def kept_bytes(self) -> int:
        """What it keeps for its reader, or has asked for; a page counts whole."""
        chunk = self._chunk
        kept = 0 if chunk is None else len(chunk.data)
        return kept + PAGE_BYTES_MAX if self._is_fetching or len(self._page) > 0 else kept

    def is_fetching(self) -> bool:
        """True while a read is under way: to say "nothing there" would be early."""
        return self._is_fetching

    def _next_chunk(self) -> Chunk | None:
        """Sets `_chunk` and `_place`; has more fetched if there is more, else waits for the next commit."""
        while self._page:
            if self._enter(self._page.pop()):
                return self._chunk
        log = self._log
        if self.next_number >= log.durable_end:
            log.cursors.await_commit(self)
            return None
        chunk = log.cursors.tail.chunk(self.next_number)
        if chunk is not None and self._enter(chunk):
            return chunk
        if not self._is_fetching and log.is_usable():
            self._is_fetching = True
            log.runtime.spawn(self._fetch())
        return None

    def _enter(self, chunk: Chunk) -> bool:
        """False when nothing of the chunk is ahead."""
        place = chunk.index_of(self.next_number)
        if place == chunk.count:
            return False
        self._chunk = chunk
        self._place = place
        return True

    # -- fetching

    async def _fetch(self) -> None:
        log = self._log
        # A read shows at least what was reported before it began.
        seen_end = log.durable_end
        try:
            page = await log.store.chunks(log.key, self.next_number, PAGE_BYTES_MAX)
        except StoreError as error:
            self._fetch_failed(error)
            return
        finally:
            self._is_fetching = False
        if self.is_closed or not log.is_usable():
            return
        self._failures = 0
        lost = self._take(page, seen_end)
        if lost is None:
            self.reader.wake()
        else:
            self._lost(lost)

    def _fetch_failed(self, error: StoreError) -> None:
        """A store that stays open and cannot read, as a malformed file, is tried a few times."""
        log = self._log
        if self.is_closed or not log.is_usable():
            return  # whoever sees to the store evicts the reader
        self._failures += 1
        if self._failures >= _TRIES_MAX:
            _log.error(
                "Events from number %d on of %s cannot be read, a reader is detached: %s",
                self.next_number,
                log.name,
                error,
            )
            self._evict(EventsLost.from_number(log.name, self.next_number))
            return
        _log.warning("Cannot read events of %s: %s", log.name, error)
        log.runtime.timers.at(log.runtime.clock.monotonic() + _RETRY_S, self._try_again)

    def _try_again(self) -> None:
        if not self.is_closed:
            self.reader.wake()

    def _take(self, page: ChunkPage, seen_end: int) -> ChunkHead | None:
        """Lays the page up; the damage instead when that is what comes next."""
        lost = first_damage(page, self.next_number)
        limit = self._log.durable_end if lost is None else min(lost.first_number, self._log.durable_end)
        chunks: list[Chunk] = []
        for data in page.chunks:
            try:
                chunk = Chunk(data)
            except ChunkDamaged as error:
                # The checksum fits, so it was written so: nothing behind it can be trusted to follow.
                _log.error("A stored chunk of %s is no chunk: %s", self._log.name, error)
                lost = lost or ChunkHead(self.next_number, self.next_number, 0, 0, 0, 0)
                break
            if chunk.first_number >= limit:
                break
            chunks.append(chunk)
        if chunks:
            chunks.reverse()
            self._page = chunks
            return None
        if lost is not None and lost.first_number < self._log.durable_end:
            return lost
        # Whatever lay between was compacted away, or its time was over.
        self.next_number = max(self.next_number, seen_end)
        return None

    def _lost(self, lost: ChunkHead) -> None:
        log = self._log
        _log.error(
            "Events %d to %d of %s are damaged: a reader is detached.",
            lost.first_number,
            lost.last_number,
            log.name,
        )
        self._evict(EventsLost.in_partition(log.name, lost.first_number, lost.last_number))

    def _evict(self, error: EventsLost) -> None:
        self.close()
        self._log.readers.forget(self.reader)
        self.reader.evict(error)


def first_damage(page: ChunkPage, from_number: int) -> ChunkHead | None:
    """The first damaged chunk at or behind a number."""
    found: ChunkHead | None = None
    for head in page.damaged:
        if head.last_number >= from_number and (found is None or head.first_number < found.first_number):
            found = head
    return found


def _end_of_run(chunk: Chunk, first: int, limit: int, bytes_max: int) -> int:
    """The last place at most `limit` so that the run has at most so many bytes; one event in any case."""
    bytes_end = chunk.start(first) + bytes_max
    if chunk.end(limit - 1) <= bytes_end:
        return limit
    low, high = first + 1, limit - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if chunk.end(middle - 1) <= bytes_end:
            low = middle
        else:
            high = middle - 1
    return low


class LogTail:
    """The newest chunks of a log, kept in memory while somebody reads it."""

    __slots__ = ("_budget", "_bytes", "_bytes_max", "_chunks", "_firsts")

    def __init__(self, runtime: BrokerRuntime) -> None:
        #: Of all logs.
        self._budget = runtime.tail_budget
        self._bytes_max = runtime.limits.tail_bytes_max
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._bytes = 0

    def chunk(self, number: int) -> Chunk | None:
        """The one that holds this number."""
        firsts = self._firsts
        if not firsts or number < firsts[0]:
            return None
        return self._chunks[bisect_right(firsts, number) - 1]

    def extend(self, builders: list[ChunkBuilder]) -> None:
        """Of many chunks only the newest are worth keeping."""
        bytes_max = self._bytes_max
        kept = 0
        size_bytes = 0
        while kept < len(builders):
            next_bytes = builders[len(builders) - 1 - kept].size_bytes()
            if kept > 0 and size_bytes + next_bytes > bytes_max:
                break
            size_bytes += next_bytes
            kept += 1
        if kept < len(builders) or not self._budget.has_room(size_bytes):
            self.clear()
            if not self._budget.has_room(size_bytes):
                return
        for builder in builders[len(builders) - kept :]:
            self._chunks.append(Chunk(builder.data()))
            self._firsts.append(builder.first_number)
        self._bytes += size_bytes
        self._budget.bytes_used += size_bytes
        self._trim()

    def _trim(self) -> None:
        dropped = 0
        bytes_left = self._bytes
        while bytes_left > self._bytes_max and dropped < len(self._chunks) - 1:
            bytes_left -= len(self._chunks[dropped].data)
            dropped += 1
        self._drop(dropped)

    def chunks_changed(self, end: int) -> None:
        """Chunks before this number have left or were written anew: they must not be shown."""
        self._drop(bisect_left(self._firsts, end))

    def _drop(self, count: int) -> None:
        """The oldest ones."""
        if count > 0:
            freed = sum([len(chunk.data) for chunk in self._chunks[:count]])
            del self._chunks[:count]
            del self._firsts[:count]
            self._bytes -= freed
            self._budget.bytes_used -= freed

    def clear(self) -> None:
        self._budget.bytes_used -= self._bytes
        self._chunks.clear()
        self._firsts.clear()
        self._bytes = 0


class Cursors:
    """All of one log that are open, and who else follows its end."""

    __slots__ = ("_log_name", "_open", "_waiting", "_watchers", "tail")

    def __init__(self, log_name: str, runtime: BrokerRuntime) -> None:
        self._log_name = log_name
        self._open: dict[Cursor, None] = {}
        #: Those that have read everything.
        self._waiting: dict[Cursor, None] = {}
        #: Told when the durable end moves, or the log closes.
        self._watchers: dict[Callable[[], None], None] = {}
        self.tail = LogTail(runtime)

    def add(self, cursor: Cursor) -> None:
        self._open[cursor] = None

    def forget(self, cursor: Cursor) -> None:
        """It was closed."""
        self._open.pop(cursor, None)
        self._waiting.pop(cursor, None)
        if not self._open:
            self.tail.clear()

    def close(self) -> list[EventReader]:
        """All of them. Whose they were: they are to be evicted."""
        cursors = list(self._open)
        for cursor in cursors:
            cursor.close()
        return [cursor.reader for cursor in cursors]

    def keep(self, builders: list[ChunkBuilder]) -> None:
        """Chunks that are durable now."""
        if self._open:
            self.tail.extend(builders)

    def await_commit(self, cursor: Cursor) -> None:
        """It has read everything: its reader is woken with the next events."""
        self._waiting[cursor] = None

    def end_moved(self) -> None:
        """There are more durable events."""
        if self._waiting:
            self._wake_waiting()
        if self._watchers:
            self.tell_watchers()

    def _wake_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for cursor in waiting:
            if cursor.is_closed:
                continue
            try:
                cursor.reader.wake()
            except Exception:
                _log.exception("A reader of %s failed.", self._log_name)

    def watch_end(self, told: Callable[[], None]) -> None:
        """`told` is called when there are more durable events, and when the log closes; it must not raise."""
        self._watchers[told] = None

    def unwatch_end(self, told: Callable[[], None]) -> None:
        self._watchers.pop(told, None)

    def tell_watchers(self) -> None:
        for told in list(self._watchers):
            told()


class Readers:
    """Of one partition."""

    __slots__ = ("_groups", "_readers_max")

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        #: Group → its readers, the longest there first.
        self._groups: dict[str, dict[EventReader, None]] = {}

    def add(self, group: str, reader: EventReader) -> None:
        """Those who must give way are evicted. Raises ReceiverStolen, TooManyReaders: then nothing has changed."""
        key = path_key(group)
        present = self._groups.get(key, {})
        if reader.epoch < 0:
            self._check_without_epoch(present)
            self._groups.setdefault(key, {})[reader] = None
            return
        _check_epoch(present, reader)
        self._groups[key] = {reader: None}
        for other in present:
            other.evict(_taken_over(other, reader))

    def remove(self, group: str, reader: EventReader) -> None:
        """Idempotent."""
        key = path_key(group)
        present = self._groups.get(key)
        if present is not None:
            present.pop(reader, None)
            if not present:
                del self._groups[key]

    def forget(self, reader: EventReader) -> None:
        """In whatever group it is."""
        for group in list(self._groups):
            self.remove(group, reader)

    def of_group(self, group: str) -> list[EventReader]:
        return list(self._groups.get(path_key(group), ()))

    def all(self) -> list[EventReader]:
        return [reader for present in self._groups.values() for reader in present]

    def evict_group(self, group: str, error: BrokerError) -> None:
        """The consumer group is gone."""
        evicted = self._groups.pop(path_key(group), {})
        for reader in evicted:
            reader.evict(error)

    def clear(self) -> None:
        """Whoever calls it evicts them."""
        self._groups.clear()

    def _check_without_epoch(self, present: dict[EventReader, None]) -> None:
        for other in present:
            if other.epoch >= 0:
                raise ReceiverStolen(
                    f"At least one receiver for the endpoint is created with epoch of '{other.epoch}', and so"
                    " non-epoch receiver is not allowed. Either reconnect with a higher epoch, or make sure all"
                    " epoch receivers are closed or disconnected."
                )
        if len(present) >= self._readers_max:
            raise TooManyReaders(
                "Exceeded the maximum number of allowed receivers per partition in a consumer group which is"
                f" {self._readers_max}."
            )


def _check_epoch(present: dict[EventReader, None], reader: EventReader) -> None:
    for other in present:
        if other.epoch > reader.epoch:
            raise ReceiverStolen(
                f"Receiver {_name(other)} with a higher epoch '{other.epoch}' already exists. Receiver"
                f" {_name(reader)} with epoch {reader.epoch} cannot be created. Make sure you are creating receiver"
                " with increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed"
                " or disconnected."
            )


def _taken_over(old: EventReader, new: EventReader) -> ReceiverStolen:
    return ReceiverStolen(
        f"New receiver {_name(new)} with higher epoch of '{new.epoch}' is created hence current receiver"
        f" {_name(old)} with epoch '{old.epoch}' is getting disconnected. If you are recreating the receiver, make"
        " sure a higher epoch is used."
    )


def _name(reader: EventReader) -> str:
    return shown(reader.name or "nil")
