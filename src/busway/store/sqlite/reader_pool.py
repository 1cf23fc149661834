"""Reading connections of one file, and reads that touch pages in a thread before they are read on the loop.

A connection is used by one reader thread at a time, or by the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import apsw

from busway.store.spans import ReadSpan
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
        self.errors: tuple[type[Exception], ...] = (apsw.Error,)

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


async def run_warm(
    span: ReadSpan[Reader],
    readers: ReaderPool,
    warm: Callable[[Reader], U],
    read: Callable[[Reader, U], T],
) -> tuple[U, T]:
    """Touches pages in a thread in one step, so that a slow disk delays nobody, then reads them on the loop: row
    by row in a thread, each row would wait for the interpreter's lock. With the same connection in one
    transaction, for its cache would be void in the next."""
    loop = asyncio.get_running_loop()
    warmed = loop.run_in_executor(readers.threads, readers.warmed, warm)
    try:
        reader, answer = await asyncio.shield(warmed)
    except asyncio.CancelledError:
        warmed.add_done_callback(readers.give_back_later)
        raise
    except apsw.Error as error:
        raise span.unreadable(error) from error
    return answer, _read_and_give_back(span, readers, reader, lambda warmed: read(warmed, answer))


async def run_here(span: ReadSpan[Reader], readers: ReaderPool, read: Callable[[Reader], T]) -> T | None:
    """Reads on the loop what is in memory; None when no reader is idle. Others get a turn first."""
    await asyncio.sleep(0)
    reader = readers.take_idle()
    if reader is None:
        return None
    return _read_and_give_back(span, readers, reader, read)


def _read_and_give_back(
    span: ReadSpan[Reader], readers: ReaderPool, reader: Reader, read: Callable[[Reader], T]
) -> T:
    try:
        span.require_same_opening()
        reader.begin()
        return read(reader)
    except apsw.Error as error:
        raise span.unreadable(error) from error
    finally:
        readers.give_back(reader)
