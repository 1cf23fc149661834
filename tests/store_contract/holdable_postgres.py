"""Stores in a PostgreSQL database whose commits and reads a test can hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from busway.clock import Clock, Entropy
from busway.store.postgres.commit_part import CommitPart
from busway.store.postgres.database import Commits, PostgresDatabase
from busway.store.postgres.reader import ReadingConnections
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import PostgresUrl

T = TypeVar("T")


class HoldableDatabase(PostgresDatabase):
    """Its commits wait in their thread while held, its reads with their rows already in hand."""

    def __init__(self, url: PostgresUrl) -> None:
        super().__init__(url, Clock(), Entropy())
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.readers: HoldableConnections = HoldableConnections(url, Clock())

    def _commit(self, parts: list[CommitPart], stores: dict[int, Commits]) -> None:
        self.may_commit.wait()
        super()._commit(parts, stores)


class HoldableConnections(ReadingConnections):
    """Those of a `HoldableDatabase`."""

    def __init__(self, url: PostgresUrl, clock: Clock) -> None:
        super().__init__(url, clock)
        self.may_return = threading.Event()
        self.may_return.set()
        self.has_read = threading.Event()
        #: How often a thread read rows.
        self.runs = 0

    def run(self, work: Callable[[psycopg.RawCursor[Any]], T]) -> T:
        self.runs += 1
        result = super().run(work)
        self.has_read.set()
        self.may_return.wait()
        return result


class HoldablePostgresStore(PostgresStore):
    """The only store of its database that is open, as far as this object knows."""

    def __init__(self, url: PostgresUrl, number: int, clock: Clock, **settings: Any) -> None:
        self.database = HoldableDatabase(url)
        super().__init__(self.database, number, clock, **settings)

    def hold_reads(self) -> None:
        self.database.readers.may_return.clear()
        self.database.readers.has_read.clear()

    async def read_rows_taken(self) -> None:
        """A held read has its rows."""
        await asyncio.to_thread(self.database.readers.has_read.wait)

    def release_reads(self) -> None:
        self.database.readers.may_return.set()

    def hold_commits(self) -> None:
        self.database.may_commit.clear()

    def release_commits(self) -> None:
        self.database.may_commit.set()
