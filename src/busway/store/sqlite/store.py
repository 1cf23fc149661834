"""A store in one SQLite file.

Theory of operation. One connection writes. A batch's statements run on the loop's thread (measured: a third faster
than in a writer thread, for want of hand-overs per row) and touch memory only, because the page cache never spills;
COMMIT, which writes and syncs, runs in the commit thread. A batch with very many rows is written over several turns
of the loop. What comes before and behind is `commit_cycle`.

    gathering ──_start──▶ written, in flight ──_commit (thread)──▶ _committed ──▶ reported
                                                        └─ upkeep (thread) ──▶ _upkept

Reads (`reads`) run on connections of their own in reader threads and see some commit at or after the last reported
one. On their return they are corrected, on the loop, by the shadows of all batches that were not reported when the
read began: `spans` keeps a batch until every read that began before its report has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import apsw

from busway.clock import Clock
from busway.event_loop import LOOP
from busway.store.commit_cycle import CommitCycle, CommitThread
from busway.store.contract import (
    CommitBatch,
    CommitRefused,
    CommitUnknown,
    StoreError,
    StoreState,
)
from busway.store.shadow import Shadow
from busway.store.spans import Spans
from busway.store.sqlite.commit_batch import BatchWriter
from busway.store.sqlite.companion_files import FileLock, HighWater, SpaceGuard, free_bytes_of
from busway.store.sqlite.database_file import FileUpkeep, open_for_reading, open_for_writing
from busway.store.sqlite.message_runs import RUN_MESSAGES_MIN
from busway.store.sqlite.reader import Reader
from busway.store.sqlite.reader_pool import ReaderPool
from busway.store.sqlite.reads import SqliteReads
from busway.store.sqlite.snapshot import StoreSnapshot
from busway.store.statements import statements_of

query = statements_of(__package__).query

log = logging.getLogger(__name__)

_MIB: Final = 1 << 20
#: Free space is looked at no more often than this.
_SPACE_INTERVAL_S: Final = 0.25
#: The high-water file is never further behind than this.
_MARK_INTERVAL_S: Final = 1.0

_COMMIT: Final = query("commit")
_ROLL_BACK: Final = query("roll_back")


class SqliteStore(CommitCycle):
    """`contract.Store` in the file `path`, with its lock, NAME.high-water and NAME.reserve beside it.

    `lost_commits` is more than 0 when the file has lost commits it had reported (damage to the file or its log).
    `run_messages_min`: fewer messages of one commit and one fragment are stored as a row each.
    `vfs` and `free_bytes` are for tests: the file system as SQLite sees it, and its free space.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        clock: Clock,
        *,
        batch_bytes_max: int = 32 * _MIB,
        space_low_bytes: int = 64 * _MIB,
        reserve_bytes: int = 16 * _MIB,
        checkpoint_bytes: int = 16 * _MIB,
        vacuum_bytes: int = 16 * _MIB,
        read_threads: int = 2,
        run_messages_min: int = RUN_MESSAGES_MIN,
        vfs: str | None = None,
        free_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._readers = ReaderPool(self._require_open)
        super().__init__(name, clock, Spans(name, self._readers, self._require_open), batch_bytes_max)
        self._reads = SqliteReads(self._spans, self._readers, clock)
        self._take_over_reads(self._reads)
        # Settings.
        self.url = f"sqlite:{path}"
        self._path = path
        self._checkpoint_bytes = checkpoint_bytes
        self._vacuum_bytes = vacuum_bytes
        self._read_thread_count = read_threads
        self._run_messages_min = run_messages_min
        self._vfs = vfs
        self._lock = FileLock(path)
        self._high_water = HighWater(path.with_suffix(".high-water"))
        self._space = SpaceGuard(
            path.with_suffix(".reserve"),
            low_bytes=space_low_bytes,
            reserve_bytes=reserve_bytes,
            free_bytes=free_bytes or free_bytes_of(path.parent),
        )
        # Of one opening; see _begin.
        self._is_paused = False
        self._key_written = 1
        self._space_looked_at = 0.0
        self._mark_timer: asyncio.TimerHandle | None = None
        self._marked = 0

    # -- life
    async def open(self) -> None:
        async with self._turn:
            if self.state is not StoreState.OPEN:
                try:
                    await self._open()
                except BaseException:
                    self._lock.release()
                    raise

    async def reopen(self) -> None:
        """After a failure the file stays ours, so that nobody writes what the owner does not know of."""
        async with self._turn:
            if self.state is not StoreState.OPEN:
                await self._release()
                await self._open()

    async def close(self) -> None:
        async with self._turn:
            while self.state is StoreState.OPEN and not self._is_quiet():
                with contextlib.suppress(StoreError):  # Those who joined were told.
                    await self.flush()
            was_open = self.state is StoreState.OPEN
            self.state = StoreState.CLOSED
            await self._release(with_checkpoint=was_open)
            self._lock.release()

    async def disable(self) -> None:
        """Takes the store out of service until `reopen`."""
        await self.close()
        self.state = StoreState.DISABLED

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chores_thread = ThreadPoolExecutor(1, f"{self.name}-chores")
        self._readers.start(self.name, self._read_thread_count)
        try:
            stored, marked = await self._loop.run_in_executor(self._chores_thread, self._open_files)
        except BaseException:
            self._stop_pools()
            raise
        self._commit_thread = CommitThread(f"{self.name}-commit")
        self._begin(stored, marked)

    def _open_files(self) -> tuple[int, int]:
        """In the chores thread: (commits the file knows, commits the high-water file knows)."""
        self._lock.acquire()
        self._look_at_space()
        self._connection = open_for_writing(self._path, self._vfs)
        try:
            self._writer = BatchWriter(self._connection, self._run_messages_min)
            self._upkeep = FileUpkeep(
                self._connection,
                self._clock,
                checkpoint_bytes=self._checkpoint_bytes,
                vacuum_bytes=self._vacuum_bytes,
            )
            for _ in range(self._read_thread_count):
                self._readers.add(Reader(open_for_reading(self._path, self._vfs)))
            self._key_written = self._writer.next_fragment_key()
            return self._writer.commit_number(), self._high_water.read()
        except (apsw.Error, OSError, LookupError, TypeError, UnicodeDecodeError) as error:
            self._close_connections(with_checkpoint=False)
            raise StoreError(f"The store's file {self._path} cannot be read: {error}.") from error

    def _begin(self, stored: int, marked: int) -> None:
        """The files are open: from here on the store takes batches."""
        self.lost_commits = max(0, marked - stored)
        if self.lost_commits:
            log.warning(
                "The store %s has lost its last %d commits: its file %s ends at commit %d, but %d were reported."
                " The file or its log was damaged or replaced; messages of those commits are missing or back.",
                self.name,
                self.lost_commits,
                self._path,
                stored,
                marked,
            )
        self._marked = max(stored, marked)
        self._next_key = max(self._next_key, self._key_written)
        self._dropped = self._writer.dropped
        self._reads.begin(self._writer.dropped, self._writer.sharing, self._writer.number_bases)
        self._begin_cycle(self._marked)

    async def _release(self, with_checkpoint: bool = False) -> None:
        """Closes the files and ends the threads, if there are any."""
        if self._mark_timer is not None:
            self._mark_timer.cancel()
            self._mark_timer = None
        if self._readers.threads is None:
            return
        commit_number = self._spans.commit_number
        if with_checkpoint and commit_number > self._marked:
            await self._loop.run_in_executor(self._chores_thread, self._write_mark, commit_number)
        await self._loop.run_in_executor(self._chores_thread, self._commit_thread.stop)
        await self._loop.run_in_executor(self._chores_thread, self._close_connections, with_checkpoint)
        self._stop_pools()

    def _close_connections(self, with_checkpoint: bool) -> None:
        """In the chores thread. Waits for reads under way; the writer goes last, so that it empties the log."""
        self._readers.close()
        with contextlib.suppress(apsw.Error):
            if with_checkpoint:
                self._connection.execute(query("pragma_checkpoint_truncate")).fetchall()
        with contextlib.suppress(apsw.Error):
            self._connection.close(True)

    def _stop_pools(self) -> None:
        self._chores_thread.shutdown(wait=False)
        self._readers.stop()

    # -- joining
    def accepts_payload(self) -> bool:
        if self._clock.monotonic() - self._space_looked_at >= _SPACE_INTERVAL_S:
            self._look_at_space_soon()
        return not self._space.is_low and self._batch.bytes < self._batch_bytes_max

    # -- committing
    def _start(self, generation: int) -> None:
        if generation != self._spans.generation:
            return
        self._is_scheduled = False
        if self._is_writer_busy or self._reporting is not None or self._is_paused:
            return
        if not self._has_work() or self.state is not StoreState.OPEN:
            return
        began_s = LOOP.now()
        shadow, batch = self._shadows[-1], self._batch
        next_key = self._next_key if self._next_key != self._key_written else None
        writing = self._writer.write(batch, shadow.number, next_key, self._sweep_rows)
        try:
            is_written = _is_over(writing)
        except Exception as error:  # Whatever it is: nothing of the batch may stay.
            self._fail(batch, self._rolled_back(error))
            return
        if next_key is not None:
            self._key_written = next_key
        self._take_batch()
        if is_written:
            self._commit_thread.submit(partial(self._commit, shadow, generation))
        else:
            self._loop.call_soon(self._write_on, writing, shadow, generation)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"writing a batch of {batch.bytes:,} bytes to {self.name}")

    def _write_on(self, writing: Generator[None, None, None], shadow: Shadow, generation: int) -> None:
        """The rest of a large batch, a turn of the loop at a time. The next one gathers meanwhile."""
        if generation != self._spans.generation or self.state is not StoreState.OPEN:
            return
        began_s = LOOP.now()
        try:
            is_written = _is_over(writing)
        except Exception as error:
            self._in_flight = None
            self._is_writer_busy = False
            self._fail(shadow.batch, self._rolled_back(error))
            return
        self._in_flight_since = self._clock.monotonic()  # what takes long here is not the disk
        if is_written:
            self._commit_thread.submit(partial(self._commit, shadow, generation))
        else:
            self._loop.call_soon(self._write_on, writing, shadow, generation)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"writing a part of a batch to {self.name}")

    def _rolled_back(self, error: Exception) -> StoreError:
        """Takes the failed batch back; says whether that is certain."""
        with contextlib.suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute(_ROLL_BACK)
        log.error("A batch of store %s failed: %s: %s.", self.name, type(error).__name__, error)
        kind = CommitUnknown if self._connection.in_transaction else CommitRefused
        return kind(f"The store {self.name} could not write: {error}.")

    def _commit(self, shadow: Shadow, generation: int) -> None:
        """In the commit thread."""
        try:
            self._connection.execute(_COMMIT)
        except Exception as error:  # The loop must hear of it in any case.
            log.error("A commit of store %s failed: %s: %s.", self.name, type(error).__name__, error)
            outcome = CommitUnknown(f"A commit of store {self.name} failed half way: {error}.")
            outcome.__cause__ = error
            self._tell_loop(self._committed, generation, shadow, outcome, True)
            return
        is_upkeep_due = self._upkeep.is_due(self._space.is_low)
        self._tell_loop(self._committed, generation, shadow, None, not is_upkeep_due)
        if is_upkeep_due:
            self._run_upkeep(generation)

    def _run_upkeep(self, generation: int) -> None:
        """In the commit thread."""
        made_checkpoint = self._upkeep.run(self._space.is_low)
        self._tell_loop(self._upkept, generation, made_checkpoint)

    def _stored(self) -> None:
        self._writer.committed()

    def _reported(self, batch: CommitBatch) -> None:
        self._space.spend(batch.bytes)
        self._note_commit()

    def _upkept(self, generation: int, made_checkpoint: bool) -> None:
        if generation == self._spans.generation and self.state is StoreState.OPEN:
            self._is_writer_busy = False
            if made_checkpoint:
                self._mark()
            self._go_on()

    def _idle(self) -> None:
        if self._upkeep.has_slices:
            self._upkeep_soon()

    def _upkeep_soon(self) -> None:
        self._is_writer_busy = True
        self._commit_thread.submit(partial(self._run_upkeep, self._spans.generation))

    def _failed(self) -> None:
        self._look_at_space_soon()

    # -- a snapshot
    def pause_commits(self) -> None:
        """None starts until `resume_commits`. One that is under way goes on to its end."""
        self._is_paused = True

    def resume_commits(self) -> None:
        self._is_paused = False
        if self.state is StoreState.OPEN:
            self._go_on()

    def snapshot(self) -> StoreSnapshot:
        """Of a moment that is still to come. Raises StoreUnavailable."""
        self._require_open()
        return StoreSnapshot(self.name, self._path, self._vfs, self._upkeep)

    def _has_work(self) -> bool:
        """Something has joined, or slices of an earlier removal are left."""
        return super()._has_work() or bool(self._writer.purges)

    # -- chores: high-water mark, free space, free pages
    def _note_commit(self) -> None:
        if self._mark_timer is None:
            self._mark_timer = self._loop.call_later(_MARK_INTERVAL_S, self._on_mark_timer)
        if self._clock.monotonic() - self._space_looked_at >= _SPACE_INTERVAL_S:
            self._look_at_space_soon()

    def _on_mark_timer(self) -> None:
        self._mark_timer = None
        if self.state is not StoreState.OPEN:
            return
        self._mark()
        if not self._is_writer_busy and not self._is_scheduled:
            self._upkeep_soon()

    def _mark(self) -> None:
        if self._spans.commit_number > self._marked:
            self._marked = self._spans.commit_number
            self._chores_thread.submit(self._write_mark, self._spans.commit_number)

    def _write_mark(self, commit_number: int) -> None:
        """In the chores thread."""
        try:
            self._high_water.write(commit_number)
        except OSError as error:
            log.warning("The high-water file of store %s cannot be written: %s.", self.name, error.strerror)

    def _look_at_space_soon(self) -> None:
        self._space_looked_at = self._clock.monotonic()
        if self._readers.threads is not None:
            self._chores_thread.submit(self._look_at_space)

    def _look_at_space(self) -> None:
        """In the chores thread."""
        try:
            self._space.sample()
        except OSError as error:
            log.warning("Free space of store %s cannot be told: %s.", self.name, error.strerror)


def _is_over(writing: Generator[None, None, None]) -> bool:
    """Goes on until the next turn of the loop should come, or to the end."""
    for _ in writing:
        return False
    return True
