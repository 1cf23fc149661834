"""One database, on the loop: whose turn it is to commit.

Theory of operation. Stores register when something has joined them; in the loop's next turn, unless a commit is under
way, each gives a part, and all parts are one transaction (`committer`). Meanwhile the next batches gather. Each
store tells its own what became of theirs, and registers again.

At most four connections: one commits, two read, and one looks at the server while the database is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import psycopg

from busway.clock import Clock, Entropy
from busway.store.commit_cycle import CommitThread
from busway.store.contract import StoreError
from busway.store.postgres.commit_part import KEY_BLOCK, CommitPart
from busway.store.postgres.committer import Committer, TakenStore
from busway.store.postgres.figures import LOOK_FIRST_S, LOOK_S, DatabaseFigures, look
from busway.store.postgres.high_water import SAVE_S, StoreMarks
from busway.store.postgres.reader import ReadingConnections
from busway.store.postgres.server_checks import FORMAT, READABLE_FROM, Connection, check, connect
from busway.store.postgres.url import PostgresUrl
from busway.store.statements import migrations, statements_of

query = statements_of(__package__).query

T = TypeVar("T")

_READ_THREADS: Final = 2


class Commits(Protocol):
    """A store that commits here."""

    number: int

    def give_part(self) -> CommitPart | None:
        """What has joined; None when it changed its mind."""

    def part_settled(self, part: CommitPart) -> None: ...


def nobody() -> bytes | None:
    """Who opens stores for a moment, without a lease: only while no server has them."""
    return None


class PostgresDatabase:
    """Opened with the first of its stores, closed with the last."""

    def __init__(
        self,
        url: PostgresUrl,
        clock: Clock,
        entropy: Entropy,
        holder: Callable[[], bytes | None] = nobody,
        high_water: Path | None = None,
    ) -> None:
        """`holder`: whose leases its stores are opened under. `high_water`: the file in which is remembered how far
        its stores were; None remembers it for as long as this object lives."""
        self.url = url
        self.entropy = entropy
        self._holder = holder
        self.high_water = StoreMarks(high_water)
        self.readers = ReadingConnections(url, clock)
        self._users = 0
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop
        self._thread: CommitThread | None = None
        self.figures = DatabaseFigures(url.name)
        self._clock = clock
        self._committer = Committer(url, clock, self.high_water, self.figures)
        # Of the loop.
        self._waiting: list[Commits] = []
        self._is_scheduled = False
        self._is_busy = False
        self._saving: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None

    # -- life
    async def enter(self) -> None:
        """One store more is open or about to be."""
        async with self._turn:
            if self._users == 0:
                self._loop = asyncio.get_running_loop()
                self._waiting = []
                self._is_scheduled = self._is_busy = False
                self._thread = CommitThread(f"{self.url.name}-commit")
                try:
                    await self.in_commit_thread(self.high_water.begin)
                    await self.in_commit_thread(partial(prepare, self.url))
                except BaseException:
                    await self._stop()
                    raise
                self.readers.start(self.url.name, _READ_THREADS)
                self._looking = self._loop.call_later(LOOK_FIRST_S, self._look)
            self._users += 1

    async def leave(self) -> None:
        async with self._turn:
            self._users -= 1
            if self._users == 0:
                await self._stop()

    async def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        thread, self._thread = self._thread, None
        for timer in (self._saving, self._looking):
            if timer is not None:
                timer.cancel()
        self._saving = self._looking = None
        if thread is not None:
            await loop.run_in_executor(None, thread.stop)
        self._committer.close()
        await loop.run_in_executor(None, self.readers.stop)
        await loop.run_in_executor(None, partial(self.high_water.save, is_final=True))

    async def in_commit_thread(self, work: Callable[[], T]) -> T:
        """Between two commits."""
        done: Future[T] = Future()

        def job() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        assert self._thread is not None, "a database is entered first"
        self._thread.submit(job)
        return await asyncio.shield(asyncio.wrap_future(done))

    async def take(self, store: int, opening: bytes) -> TakenStore:
        """The store is ours, from its next epoch on."""
        return await self.in_commit_thread(partial(self._committer.take, store, opening, self._holder()))

    def mark_has_moved(self) -> None:
        """A store has gone on, which is written down soon."""
        if self._saving is None and self._thread is not None:
            self._saving = self._loop.call_later(SAVE_S, self._save)

    def _save(self) -> None:
        self._saving = None
        self._loop.run_in_executor(None, self.high_water.save)

    def _look(self) -> None:
        """Now and then, off the loop."""
        self._looking = self._loop.call_later(LOOK_S, self._look)
        if self.readers.threads is not None:
            self.readers.threads.submit(self._look_there)

    def _look_there(self) -> None:
        """In a reader thread. A server that does not answer is others' business."""
        with contextlib.suppress(
            psycopg.Error, StoreError, RuntimeError
        ):  # the last where the loop is closed
            looked = self.readers.run(partial(look, clock=self._clock))
            self._loop.call_soon_threadsafe(self.figures.note, looked)

    def epoch_of(self, store: int) -> int | None:
        return self._committer.epoch_of(store)

    # -- commits: on the loop
    def wants_commit(self, store: Commits) -> None:
        """Something has joined it."""
        self._waiting.append(store)
        self._start_soon()

    def _start_soon(self) -> None:
        if self._waiting and not self._is_busy and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._is_busy or self._thread is None:
            return
        waiting, self._waiting = self._waiting, []
        parts = [part for part in [store.give_part() for store in waiting] if part is not None]
        if parts:
            self._is_busy = True
            self._thread.submit(partial(self._commit, parts, {store.number: store for store in waiting}))

    def _commit(self, parts: list[CommitPart], stores: dict[int, Commits]) -> None:
        """In the commit thread."""
        self._committer.commit(parts)
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is there to be told.
            self._loop.call_soon_threadsafe(self._committed, parts, stores)

    def _committed(self, parts: list[CommitPart], stores: dict[int, Commits]) -> None:
        self._is_busy = False
        for part in parts:
            stores[part.store].part_settled(part)
        self._start_soon()


def prepare(url: PostgresUrl) -> None:
    """The server is fit, the tables are there and have this version's format, and there are as many stores as the
    address says. Waits for the server: not on the loop. Raises StoreError with a sentence."""
    connection = connect(url)
    try:
        check(connection, url)
        _make_tables(connection, url)
        _make_stores(connection, url)
    except psycopg.Error as error:
        raise StoreError(f"The database at {url.shown} cannot be used: {error}.") from error
    finally:
        connection.close()


def _make_tables(connection: Connection, url: PostgresUrl) -> None:
    has_tables = connection.execute(query("has_tables")).fetchone()
    if has_tables is not None and has_tables[0]:
        _migrate(connection)
        return
    exists = psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation
    with contextlib.suppress(*exists), connection.transaction():  # whoever else makes them has made them
        for _, text in migrations(__package__):
            connection.execute(text)
        raw = psycopg.RawCursor(connection)
        raw.execute(query("database_put"), (FORMAT, READABLE_FROM, url.name))


def _migrate(connection: Connection) -> None:
    """Tables of an earlier version, in one transaction."""
    if _format_of(connection) >= FORMAT:
        return
    with connection.transaction():
        connection.execute(query("database_lock"))
        present = _format_of(connection)  # whoever else was at it has done it
        if present >= FORMAT:
            return
        for number, text in migrations(__package__):
            if number > present:
                connection.execute(text)
        psycopg.RawCursor(connection).execute(query("database_migrated"), (FORMAT, READABLE_FROM))


def _format_of(connection: Connection) -> int:
    found = connection.execute(query("read_format")).fetchone()
    return FORMAT if found is None else int(found[0])


def _make_stores(connection: Connection, url: PostgresUrl) -> None:
    with connection.transaction():
        connection.execute(query("database_lock"))
        found = connection.execute(query("count_stores")).fetchone()
        count = 0 if found is None else int(found[0])
        if count > url.stores:
            raise StoreError(
                f"The database at {url.shown} has {count} stores, and its address says {url.stores}: a"
                f" database never has fewer than before. Write stores={count}."
            )
        raw = psycopg.RawCursor(connection)
        for store in range(count, url.stores):
            raw.execute(query("store_put"), (store, KEY_BLOCK))
