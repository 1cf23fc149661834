"""Reads that are under way: the connections they run on, and the batches by which they are corrected.

Theory of operation. A read is a *span*: it begins with the number of the last reported commit, asks reader threads
(once or more often), and at its end looks at the shadows of every batch after that number. `Spans` keeps those
batches while any span needs them. From the correction to the caller's next statement nothing is awaited.

`ReaderPool` belongs to reader threads and loop alike, `Spans` to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

import apsw

from busway.store.contract import StoreError, StoreUnavailable
from busway.store.shadow import Shadow, Shadows
from busway.store.sqlite.reader import Reader

T = TypeVar("T")
U = TypeVar("U")

#: How often a read that waits for a connection looks whether the store is still open.
_LOOK_AGAIN_S: Final = 1.0
#: Closing waits this long for a read under way before it lets its connection go.
_READERS_WAIT_S: Final = 10.0


class ReaderPool:
    """Reading connections, each used by one thread at a time, or by the loop."""

    def __init__(self, require_open: Callable[[], None]) -> None:
        self._require_open = require_open
        self._idle: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._count = 0
        #: None while the store is closed.
        self.threads: ThreadPoolExecutor | None = None

    def start(self, name: str, threads: int) -> None:
        self.threads = ThreadPoolExecutor(threads, f"{name}-read")

    def stop(self) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=False)
        self.threads = None

    def add(self, reader: Reader) -> None:
        self._idle.put(reader)
        self._count += 1

    def close(self) -> None:
        """Closes all connections. Blocks: waits for reads under way."""
        while self._count > 0:
            self._count -= 1
            with contextlib.suppress(apsw.Error, queue.Empty):
                self._idle.get(timeout=_READERS_WAIT_S).close()

    def take(self) -> Reader:
        """In a reader thread. A read that still waited for its turn when the store closed finds no readers any more;
        left waiting it would keep the process from ending."""
        while True:
            try:
                return self._idle.get(timeout=_LOOK_AGAIN_S)
            except queue.Empty:
                self._require_open()

    def take_idle(self) -> Reader | None:
        """Without waiting."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None

    def give_back(self, reader: Reader) -> None:
        reader.end()
        self._idle.put(reader)

    def give_back_later(self, warmed: asyncio.Future[tuple[Reader, U]]) -> None:
        """Nobody waits for it any more."""
        if not warmed.cancelled() and warmed.exception() is None:
            self.give_back(warmed.result()[0])

    def run(self, work: Callable[[Reader], T]) -> T:
        """In a reader thread."""
        reader = self.take()
        try:
            return work(reader)
        finally:
            self._idle.put(reader)

    def warmed(self, warm: Callable[[Reader], U]) -> tuple[Reader, U]:
        """In a reader thread: a reader inside a transaction, the pages it will need in its cache."""
        reader = self.take()
        try:
            reader.begin()
            return reader, warm(reader)
        except BaseException:
            self.give_back(reader)
            raise


class Spans:
    """The reads of one store, and what was written while they run."""

    def __init__(self, name: str, readers: ReaderPool, require_open: Callable[[], None]) -> None:
        self.name = name
        self.readers = readers
        self.require_open = require_open
        #: The last commit that was reported.
        self.commit_number = 0
        #: Batches not yet reported, and reported ones that some span still needs; oldest first.
        self.shadows: deque[Shadow] = deque()
        #: Counts openings: a read that began before another opening is void.
        self.generation = 0
        #: Commit number at the beginning of a span → how many such spans there are.
        self.begun: dict[int, int] = {}

    def begin(self, commit_number: int) -> None:
        """The store is open, anew."""
        self.generation += 1
        self.commit_number = commit_number
        self.begun.clear()
        self.shadows.clear()

    def reported(self, commit_number: int) -> None:
        """A batch is durable; another gathers behind it."""
        self.commit_number = commit_number
        self.forget_shadows()
        self._condense_shadows()

    def forget_shadows(self) -> None:
        """Lets go of reported batches that no span needs any more."""
        needed = min(self.begun, default=self.commit_number)
        while self.shadows and self.shadows[0].number <= needed:
            self.shadows.popleft()

    def _condense_shadows(self) -> None:
        """When a span needs the batch that was just reported, it lets go of its messages, and joins the one before
        unless a span began between the two: a slow read costs no memory for what is sent meanwhile."""
        shadows = self.shadows
        if len(shadows) < 2:
            return
        reported = shadows[-2]
        reported.let_go()
        if len(shadows) > 2 and shadows[-3].number not in self.begun:
            shadows[-3].absorb(reported)
            del shadows[-2]


class ReadSpan:
    """One read from its call to its return."""

    __slots__ = ("_began_at", "_generation", "_spans")

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def __enter__(self) -> Self:
        spans = self._spans
        spans.require_open()
        self._generation = spans.generation
        self._began_at = spans.commit_number
        spans.begun[self._began_at] = spans.begun.get(self._began_at, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        spans = self._spans
        if spans.generation != self._generation:
            return
        spans.begun[self._began_at] -= 1
        if spans.begun[self._began_at] == 0:
            del spans.begun[self._began_at]
            spans.forget_shadows()

    async def run(self, work: Callable[[Reader], T]) -> T:
        readers = self._spans.readers
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(readers.threads, readers.run, work)
        except apsw.Error as error:
            raise self._unreadable(error) from error
        self._require_same_opening()
        return result

    async def run_warm(self, warm: Callable[[Reader], U], read: Callable[[Reader, U], T]) -> tuple[U, T]:
        """Touches pages in a thread in one step, so that a slow disk delays nobody, then reads them on the loop: row
        by row in a thread, each row would wait for the interpreter's lock. With the same connection in one
        transaction, for its cache would be void in the next."""
        readers = self._spans.readers
        loop = asyncio.get_running_loop()
        warmed = loop.run_in_executor(readers.threads, readers.warmed, warm)
        try:
            reader, answer = await asyncio.shield(warmed)
        except asyncio.CancelledError:
            warmed.add_done_callback(readers.give_back_later)
            raise
        except apsw.Error as error:
            raise self._unreadable(error) from error
        return answer, self._read_and_give_back(reader, lambda warmed: read(warmed, answer))

    async def run_here(self, read: Callable[[Reader], T]) -> T | None:
        """Reads on the loop what is in memory; None when no reader is idle. Others get a turn first."""
        await asyncio.sleep(0)
        reader = self._spans.readers.take_idle()
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
            self._spans.readers.give_back(reader)

    def _unreadable(self, error: apsw.Error) -> StoreError:
        return StoreError(f"The store {self._spans.name} cannot be read: {error}.")

    def _require_same_opening(self) -> None:
        self._spans.require_open()
        if self._spans.generation != self._generation:
            raise StoreUnavailable(f"The store {self._spans.name} was opened anew meanwhile.")

    def shadows(self) -> Shadows:
        """All batches that were not reported when the span began."""
        return Shadows([shadow for shadow in self._spans.shadows if shadow.number > self._began_at])
