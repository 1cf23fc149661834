"""Words of the store suite: a world that opens stores of one kind, and short forms for what batches hold."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import Counters, FragmentKey, FragmentRow, Page, StoreError, StoreState
from busway.store.postgres.url import parse
from busway.store.shadow import Shadow
from busway.store.sqlite.commit_batch import REFERENCE_WEIGHT
from busway.store.sqlite.reader import Reader
from busway.store.sqlite.reader_pool import ReaderPool
from busway.store.sqlite.store import SqliteStore
from tests.harness.memory_store import MemoryStore
from tests.store_contract.holdable_postgres import HoldablePostgresStore

LOTS = 1 << 40
#: In each database of a test.
STORES = 4
#: Settings of SQLite stores: every message is a row of its own; a few that are put together are a run.
ROWS_ONLY = {"run_messages_min": LOTS}
SMALL_RUNS = {"run_messages_min": 4}
#: By name, because a compiled class has no __slots__ to ask.
MESSAGE_FIELDS = (
    "sequence_number",
    "state",
    "enqueued_at_ms",
    "expires_at_ms",
    "delivery_count",
    "ttl_ms",
    "scheduled_at_ms",
    "session_id",
    "partition_key",
    "message_id",
    "head",
    "changes",
    "bare",
)
T = TypeVar("T")


class HoldableSqliteStore(SqliteStore):
    """Its commits wait in their thread while held, its reads with their rows already in hand."""

    def __init__(self, name: str, path: Path, clock: Clock, **settings: Any) -> None:
        super().__init__(name, path, clock, **settings)
        self._may_commit = threading.Event()
        self._may_commit.set()
        self._may_return = threading.Event()
        self._may_return.set()
        self._has_read = threading.Event()
        self.readers = HoldableReaders(self)
        self._readers = self._spans.readers = self._reads._readers = self.readers

    def hold_reads(self) -> None:
        self._may_return.clear()
        self._has_read.clear()

    async def read_rows_taken(self) -> None:
        """A held read has its rows."""
        await asyncio.to_thread(self._has_read.wait)

    def release_reads(self) -> None:
        self._may_return.set()

    def wait_with_rows(self) -> None:
        """In a reader thread."""
        self._has_read.set()
        self._may_return.wait()

    def hold_commits(self) -> None:
        self._may_commit.clear()

    def release_commits(self) -> None:
        self._may_commit.set()

    def _commit(self, shadow: Shadow, generation: int) -> None:
        self._may_commit.wait()
        super()._commit(shadow, generation)


class HoldableReaders(ReaderPool):
    """Those of a `HoldableSqliteStore`."""

    def __init__(self, store: HoldableSqliteStore) -> None:
        super().__init__(store._require_open)
        self._store = store
        #: How often a thread read rows, and how often it only touched them.
        self.runs = 0
        self.visits = 0

    def run(self, work: Callable[[Reader], T]) -> T:
        self.runs += 1
        result = super().run(work)
        self._store.wait_with_rows()
        return result

    def warmed(self, warm: Callable[[Reader], T]) -> tuple[Reader, T]:
        self.visits += 1
        warmed = super().warmed(warm)
        self._store.wait_with_rows()
        return warmed


class HoldableMemoryStore(MemoryStore):
    """Its reads wait while held; they take their rows as they return."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._may_return = asyncio.Event()
        self._may_return.set()

    def hold_reads(self) -> None:
        self._may_return.clear()

    async def read_rows_taken(self) -> None:
        await asyncio.sleep(0)

    def release_reads(self) -> None:
        self._may_return.set()

    async def _turn(self) -> None:
        await self._may_return.wait()
        await super()._turn()


class World:
    """Where stores of one kind live. Data outlives a store, as it would on a disk."""

    def __init__(self, kind: str, directory: Path, url: str = "") -> None:
        """`url`: of the database where stores of the kind "postgres" lie."""
        self.kind = kind
        self.directory = directory
        self.url = url
        self._memory: dict[str, HoldableMemoryStore] = {}
        self._numbers: dict[str, int] = {}

    def store(self, name: str = "first", **settings: Any) -> Any:
        if self.kind == "memory":
            return self._memory.setdefault(name, HoldableMemoryStore(name))
        if self.kind == "postgres":
            number = self._numbers.setdefault(name, len(self._numbers))
            taken = {key: value for key, value in settings.items() if key == "batch_bytes_max"}
            return HoldablePostgresStore(parse(f"{self.url}?stores={STORES}"), number, Clock(), **taken)
        settings = {**SMALL_RUNS, **settings}
        settings.setdefault("reserve_bytes", 0)
        settings.setdefault("space_low_bytes", 0)
        return HoldableSqliteStore(name, self.directory / f"{name}.db", Clock(), **settings)

    def run(self, play: Callable[[Any], Awaitable[None]], **settings: Any) -> None:
        """Opens a store, plays, closes it."""

        async def scene() -> None:
            store = self.store(**settings)
            await store.open()
            try:
                await play(store)
            finally:
                store.release_reads()
                store.release_commits()
                await store.close()

        asyncio.run(scene())


#: Makes worlds of a kind, each of its own.
NewWorld = Callable[[str], AbstractContextManager[World]]


class Outcomes(list[StoreError | None]):
    """Collects what callbacks were told."""

    def __call__(self, outcome: StoreError | None) -> None:
        self.append(outcome)

    def kinds(self) -> list[type | None]:
        return [None if outcome is None else type(outcome) for outcome in self]


def message(
    number: int, body: bytes = b"body", *, enqueued_at_ms: int = 1_700_000_000_000, **fields: Any
) -> Message:
    made = Message(fields.pop("head", b""), body, **fields)
    made.sequence_number = number
    made.enqueued_at_ms = enqueued_at_ms
    return made


def add_fragment(store: Any, owner: str = "orders") -> FragmentKey:
    """Joins a new fragment to the open batch."""
    key: FragmentKey = store.next_fragment_key()
    store.batch().fragments_created.append(FragmentRow(key, owner, 0, Counters()))
    return key


def put(store: Any, fragment: FragmentKey, *messages: Message, place: int = PLACE_ACTIVE) -> None:
    batch = store.batch()
    batch.puts.extend((fragment, place, each) for each in messages)
    batch.puts_copies = True  # perhaps: tests publish with it, too


def put_in_session(store: Any, fragment: FragmentKey, session_id: str, *numbers: int) -> None:
    batch = store.batch()
    for number in numbers:
        batch.puts.append((fragment, PLACE_ACTIVE, message(number, session_id=session_id)))
        batch.session_entries.append((fragment, session_id, number))


def delete(store: Any, fragment: FragmentKey, *numbers: int, place: int = PLACE_ACTIVE) -> None:
    store.batch().deletes.append((fragment, place, list(numbers)))


def numbers_of(page: Page) -> list[int]:
    return [each.sequence_number for each in page.messages]


async def active_numbers(store: Any, fragment: FragmentKey) -> list[int]:
    return numbers_of(await store.messages(fragment, PLACE_ACTIVE, 0, 1000, LOTS))


def fields_of(each: Message) -> tuple[object, ...]:
    return tuple(getattr(each, name) for name in MESSAGE_FIELDS)


def check_references(path: Path) -> int:
    """Every shared body is counted right and none is left over. How many there are."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        weights = connection.execute("SELECT payload, weight FROM payload_references").fetchall()
        kept = [row[0] for row in connection.execute("SELECT id FROM payloads ORDER BY id").fetchall()]
        found = Counter(
            row[0]
            for table in ("messages", "deferred", "scheduled")
            for row in connection.execute(f"SELECT bare FROM {table}").fetchall()  # noqa: S608
            if isinstance(row[0], int)
        )
    finally:
        connection.close()
    assert {row[0]: row[1] for row in weights} == {each: found[each] * REFERENCE_WEIGHT for each in found}
    assert kept == sorted(found)
    return len(kept)


def check_postgres_references(url: str) -> int:
    """The same of a database."""
    with psycopg.connect(url) as connection:
        counts = dict(connection.execute("SELECT payload, copies FROM busway.payload_references").fetchall())
        kept = {number for (number,) in connection.execute("SELECT id FROM busway.payloads").fetchall()}
        found = Counter(
            number
            for table in ("messages", "deferred", "scheduled")
            for (number,) in connection.execute(f"SELECT payload FROM busway.{table}".encode()).fetchall()  # noqa: S608
            if number is not None
        )
    assert counts == dict(found)
    assert kept == set(found)
    return len(kept)


async def let_commits_start(store: Any) -> None:
    """A few turns of the loop: what has joined is written and in flight, if no other commit is."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert store.state is StoreState.OPEN
