"""From the logs of decided stages into their entities.

Theory of operation. Each fragment that something is decided for has a *line* of logs, in the order of the
decisions and of the stages in each. One task works on a line while it has work: it reads chunks, cuts slices
and hands them over, one slice in a turn of the loop for all lines together (`Pace`). A plain fragment and a
hub's partition take a slice in the very step, so the next one need not wait for the commit; a topic, and an
entity that detects duplicates, take their time, and the line waits for them. Of each store only some bytes are
on their way at once, so that others who write there find space.

What is refused is tried again after a pause, for as long as it takes: the entity is disabled, is just being
changed, its store is away or full. When the entity is gone, or was made again, its rows are dropped and
counted.

When a store is lost its lines are forgotten; what its logs say when it is back is where they go on.

The chunks of a log are read one page ahead (`PagesAhead`): the next one is on its way from the store while the rows
of this one are handed over. Whoever takes rows apart or hands them over does so in a turn of the loop for all of
staging together (`Pace`), for a few milliseconds at most, and everybody else of the server gets his in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.namespace import StoreKeeper
from busway.message.event_chunk import Chunk, ChunkDamaged, span
from busway.model.errors import BrokerError, ServerBusy
from busway.staging.stage_table import Stage, StageLog, StageTable
from busway.staging.staged_record import sizes_in
from busway.staging.targets import Slice, StagingTarget, Targets, slice_end
from busway.store.contract import (
    ChunkHead,
    ChunkPage,
    CommitBatch,
    FragmentKey,
    LogChanges,
    Store,
    StoreError,
)
from busway.timers import Timer

_PAGE_BYTES: Final = 1024 * 1024
#: A slice that joins at once, and one whose entity cuts it as it needs.
_SLICE_ROWS: Final = 400
_LONG_SLICE_ROWS: Final = 1_000
#: On their way into one store, of all lines.
_FLYING_BYTES_MAX: Final = 8 * 1024 * 1024
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 5.0
#: Told when nothing of a stage is left in a store, durably.
StagePublished = Callable[[Stage, str], None]


class Pace:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._turn.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._turn.release()


class PagesAhead:
    def __init__(self, store: Store, log: FragmentKey, bytes_max: int) -> None:
        self._store = store
        self._log = log
        self._bytes_max = bytes_max
        #: Where the page begins that is on its way.
        self._number = -1
        self._reading: asyncio.Task[ChunkPage] | None = None

    async def page(self, number: int) -> ChunkPage:
        """From that number on. Raises StoreError."""
        reading, self._reading = self._reading, None
        if reading is not None and self._number == number:
            page = await reading
        else:
            _forget(reading)
            page = await self._store.chunks(self._log, number, self._bytes_max)
        if page.more and page.chunks and not page.damaged:
            self._number = span(page.chunks[-1])[1] + 1
            self._reading = asyncio.create_task(self._store.chunks(self._log, self._number, self._bytes_max))
        return page

    def close(self) -> None:
        reading, self._reading = self._reading, None
        _forget(reading)


def _forget(reading: asyncio.Task[ChunkPage] | None) -> None:
    """Whatever becomes of it."""
    if reading is not None and not reading.cancel():
        reading.exception()


_log = logging.getLogger("busway.staging")


class Work:
    """A log in a line."""

    __slots__ = ("_chunk", "_publisher", "keeper", "log", "stage")

    def __init__(self, publisher: Publisher, keeper: StoreKeeper, stage: Stage, log: StageLog) -> None:
        self._publisher = publisher
        self.keeper = keeper
        self.stage = stage
        self.log = log
        #: (first number, last number) of the one that slices are cut from.
        self._chunk = (0, -1)

    @property
    def is_done(self) -> bool:
        return self.log.counters.first_number >= self.log.counters.next_number

    def begin_chunk(self, first: int, last: int) -> None:
        self._chunk = (first, last)

    def leave(self, batch: CommitBatch, upto: int, size_bytes: int) -> None:
        """`targets.Leaving`."""
        table, first_and_last = self._publisher.table, self._chunk
        if upto > first_and_last[1]:
            if batch.logs is None:
                batch.logs = LogChanges()
            batch.logs.deleted.append((self.log.key, first_and_last[0]))
        table.uncount(self.keeper.name, self.log, size_bytes)
        table.published(batch, self.keeper, self.stage, self.log, upto)


class Line:
    """See the head of this file."""

    __slots__ = ("is_over", "is_running", "pause_s", "timer", "told", "works")

    def __init__(self) -> None:
        self.works: deque[Work] = deque()
        self.is_running = False
        #: Its store is lost.
        self.is_over = False
        self.pause_s = _PAUSE_S
        self.timer: Timer | None = None
        #: The sentence that the log has heard already.
        self.told = ""


class Flying:
    """What is on its way into one store."""

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_space(self) -> None:
        while self.bytes >= _FLYING_BYTES_MAX:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def landed(self, size_bytes: int) -> None:
        self.bytes -= size_bytes
        self.wake()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class Publisher:
    def __init__(
        self,
        runtime: BrokerRuntime,
        table: StageTable,
        targets: Targets,
        pace: Pace,
        published: StagePublished,
    ) -> None:
        self._runtime = runtime
        self.table = table
        self._targets = targets
        self._pace = pace
        self._published = published
        self._lines: dict[tuple[str, FragmentKey], Line] = {}
        self._flying: dict[str, Flying] = {}
        #: Logs of a stage in a store that are not durably done.
        self._left: dict[tuple[str, str], int] = {}
        #: Since the start.
        self.rows_published = 0
        self.rows_dropped = 0

    def add(self, keeper: StoreKeeper, stage: Stage) -> None:
        """What a decided stage has in a store that is in service. Told again of the same it does nothing."""
        note = stage.notes.get(keeper.name)
        place = (stage.id, keeper.name)
        if note is None or place in self._left:
            return
        self._left[place] = len(note.logs)
        for log in note.logs:
            key = (keeper.name, log.target)
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = Line()
            line.works.append(Work(self, keeper, stage, log))
            self._wake(key, line)

    def is_at(self, stage_id: str, store_name: str) -> bool:
        """Something of the stage is not durably out of that store, whatever memory says."""
        return (stage_id, store_name) in self._left

    def lose_store(self, store_name: str) -> None:
        for key in [key for key in self._lines if key[0] == store_name]:
            line = self._lines.pop(key)
            line.is_over = True
            line.works.clear()
            self._runtime.timers.cancel(line.timer)
        for place in [place for place in self._left if place[1] == store_name]:
            del self._left[place]
        flying = self._flying.pop(store_name, None)
        if flying is not None:
            flying.bytes = 0
            flying.wake()

    def waiting_logs(self) -> int:
        return sum(len(line.works) for line in self._lines.values())

    def _wake(self, key: tuple[str, FragmentKey], line: Line) -> None:
        if not line.is_running and line.timer is None and not line.is_over:
            line.is_running = True
            self._runtime.spawn(self._run(key, line))

    async def _run(self, key: tuple[str, FragmentKey], line: Line) -> None:
        try:
            while line.works and not line.is_over:
                await self._publish(line, line.works[0])
                if not line.is_over:
                    line.pause_s, line.told = _PAUSE_S, ""
                    line.works.popleft()
        except (StoreError, BrokerError) as error:
            self._pause(key, line, error)
        except Exception as error:
            _log.exception("Publishing what was written failed.")
            self._pause(key, line, error)
        finally:
            line.is_running = False
        if not line.works and line.timer is None and self._lines.get(key) is line:
            del self._lines[key]

    def _pause(self, key: tuple[str, FragmentKey], line: Line, error: Exception) -> None:
        if line.is_over:
            return
        work = line.works[0]
        sentence = f"{error}"
        if sentence != line.told and line.pause_s >= 1.0:  # what passes soon is not worth a line
            line.told = sentence
            _log.warning("What was written to %s is published later: %s", work.log.entity.path, sentence)
        deadline = self._runtime.clock.monotonic() + line.pause_s
        line.pause_s = min(2 * line.pause_s, _PAUSE_S_MAX)

        def again() -> None:
            line.timer = None
            self._wake(key, line)

        line.timer = self._runtime.timers.at(deadline, again)

    # -- one log

    async def _publish(self, line: Line, work: Work) -> None:
        """To its end. Raises why it cannot go on just now."""
        counters = work.log.counters
        pages = PagesAhead(work.keeper.store, work.log.key, _PAGE_BYTES)
        try:
            while not work.is_done and not line.is_over:
                page = await pages.page(counters.first_number)
                if line.is_over:
                    return
                if self._targets.named(work.log.entity) is None:
                    await self._drop(work, "was deleted or made again")
                    return
                await self._publish_page(line, work, page)
        finally:
            pages.close()

    async def _publish_page(self, line: Line, work: Work, page: ChunkPage) -> None:
        damaged = page.damaged[0] if page.damaged else None
        if not page.chunks and damaged is None:
            raise ServerBusy("What was staged cannot be read just now.")
        for data in page.chunks:
            try:
                chunk = Chunk(data)
            except ChunkDamaged:
                await self._drop(work, "lies in a chunk that cannot be read")
                return
            if damaged is not None and damaged.first_number < chunk.first_number:
                break
            await self._publish_chunk(line, work, chunk)
            if line.is_over or work.is_done:
                return
        if damaged is not None:
            await self._skip(work, damaged)

    async def _publish_chunk(self, line: Line, work: Work, chunk: Chunk) -> None:
        work.begin_chunk(chunk.first_number, chunk.last_number)
        at = chunk.index_of(work.log.counters.first_number)
        while at < chunk.count:
            flying = self._flying.setdefault(work.keeper.name, Flying())
            await flying.wait_for_space()
            async with self._pace:
                if line.is_over:
                    return
                target = self._targets.named(work.log.entity)
                if target is None:
                    return  # the next look drops it
                piece, waits = self._hand_over(flying, work, target, chunk, at)
            if waits is not None:
                await waits
            if line.is_over:
                return
            if piece.error is not None:
                raise piece.error
            if piece.is_over and piece.next < piece.end:
                await self._rest_leaves(work, piece)
            at += piece.end - piece.first

    def _hand_over(
        self, flying: Flying, work: Work, target: StagingTarget, chunk: Chunk, at: int
    ) -> tuple[Slice, asyncio.Future[None] | None]:
        """One slice; and what to wait for before the next one."""
        is_eager = target.is_eager(work.log.index)
        end = slice_end(chunk, at, _SLICE_ROWS if is_eager else _LONG_SLICE_ROWS)
        size_bytes = chunk.start(end) - chunk.start(at)
        waits: asyncio.Future[None] | None = None
        if not is_eager:
            waits = asyncio.get_running_loop().create_future()
        is_last = chunk.number(at) + end - at >= work.log.counters.next_number

        def over(piece: Slice) -> None:
            flying.landed(size_bytes)
            if waits is not None and not waits.done():
                waits.set_result(None)
            self._slice_over(work, piece, is_last)

        piece = Slice(work, chunk.number(at), sizes_in(chunk, at, end), over)
        flying.bytes += size_bytes
        try:
            target.publish(work.log.index, chunk, at, end, piece)
        except ServerBusy as error:
            piece.done([(0, error)])
        return piece, waits

    def _slice_over(self, work: Work, piece: Slice, is_last: bool) -> None:
        if piece.error is None:
            self.rows_published += piece.next - piece.first
            if is_last and piece.next == piece.end:
                self._log_over(work)

    def _log_over(self, work: Work) -> None:
        """Durably."""
        place = (work.stage.id, work.keeper.name)
        left = self._left.get(place)
        if left is None:
            return
        if left > 1:
            self._left[place] = left - 1
            return
        del self._left[place]
        self._published(work.stage, work.keeper.name)

    async def _rest_leaves(self, work: Work, piece: Slice) -> None:
        """Duplicates at its end join nothing: they leave by themselves."""
        await work.keeper.commit(piece.rest_leaves)
        if work.is_done:
            self._log_over(work)

    async def _skip(self, work: Work, damaged: ChunkHead) -> None:
        """Rows that cannot be read: those behind them are published all the same."""
        _log.error("%d rows written to %s lie in a damaged chunk.", damaged.events, work.log.entity.path)
        work.begin_chunk(damaged.first_number, damaged.last_number)
        await work.keeper.commit(lambda batch: work.leave(batch, damaged.last_number + 1, 0))
        self.rows_dropped += damaged.events
        if work.is_done:
            self._log_over(work)

    async def _drop(self, work: Work, why: str) -> None:
        """The rest of a log cannot be published any more."""
        rows = work.log.counters.events
        _log.warning("%d rows that were written are dropped: %s %s.", rows, work.log.entity.path, why)

        def join(batch: CommitBatch) -> None:
            work.log.counters.first_number = work.log.counters.next_number
            self.table.drop_log(batch, work.keeper, work.stage, work.log)

        await work.keeper.commit(join)
        self.rows_dropped += rows
        self._log_over(work)
