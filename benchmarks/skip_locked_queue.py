"""A queue as extensions of the pgmq kind keep one in PostgreSQL: rows with a time of visibility, read with SKIP
LOCKED, deleted when they are done. Our own SQL, not the extension's code; bodies are bytes instead of JSON, which
spares it the parsing.

Beside it stands a PostgreSQL store, driven through the store contract, with the same bodies in batches of the same
size. What is told is the CPU of all of PostgreSQL's processes, vacuum included, for each message that came and went.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.postgres_rig import SETTINGS
from benchmarks.process_counters import family_cpu_ns
from busway.clock import Clock, Entropy
from busway.message.message import NEVER_MS, PLACE_ACTIVE, Message
from busway.store.contract import Counters, FragmentKey, FragmentRow
from busway.store.postgres.database import PostgresDatabase
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse
from tests.harness.postgres_server import PostgresServer

SQL = {
    "create": """CREATE TABLE queue (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, read_count INT NOT NULL DEFAULT 0,
    enqueued_at TIMESTAMPTZ NOT NULL DEFAULT now(), visible_at TIMESTAMPTZ NOT NULL, message BYTEA)""",
    "index": "CREATE INDEX queue_visible ON queue (visible_at)",
    "send": "INSERT INTO queue (visible_at, message) SELECT clock_timestamp(), unnest(%s::bytea[]) RETURNING id",
    "read": """WITH found AS (
    SELECT id FROM queue WHERE visible_at <= clock_timestamp() ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE queue SET visible_at = clock_timestamp() + interval '30 s', read_count = read_count + 1
FROM found WHERE queue.id = found.id RETURNING queue.id, read_count, enqueued_at, visible_at, message""",
    "delete": "DELETE FROM queue WHERE id = ANY(%s) RETURNING id",
}
#: Until vacuum has come and gone.
_REST_S = 4.0


def compared(body_bytes: int, batch: int, batches: int) -> tuple[float, float, float]:
    """PostgreSQL's microseconds for each message: those of a store whose commits bring as many as they take, of one
    that puts and deletes in commits of their own, and of the other queue."""
    with PostgresServer(settings=SETTINGS, place=Path(tempfile.gettempdir())) as server:
        body = bytes(body_bytes)
        found = [
            asyncio.run(_stored(server, body, batch, batches, is_joint=is_joint))
            for is_joint in (True, False)
        ]
        return found[0], found[1], _skipped(server, body, batch, batches)


class _Cost:
    """Of PostgreSQL, from now on."""

    def __init__(self, server: PostgresServer) -> None:
        self._pid = server.pid
        self._before_ns = family_cpu_ns(self._pid)

    def of(self, messages: int) -> float:
        time.sleep(_REST_S)
        return (family_cpu_ns(self._pid) - self._before_ns) / messages / 1e3


def _skipped(server: PostgresServer, body: bytes, batch: int, batches: int) -> float:
    with psycopg.connect(server.database(), autocommit=True) as connection:
        connection.prepare_threshold = 0
        connection.execute(SQL["create"])
        connection.execute(SQL["index"])

        def turn() -> None:
            connection.execute(SQL["send"], ([body] * batch,), binary=True)
            rows = connection.execute(SQL["read"], (batch,), binary=True).fetchall()
            assert len(rows) == batch
            connection.execute(SQL["delete"], ([row[0] for row in rows],), binary=True)

        for _ in range(20):
            turn()
        cost = _Cost(server)
        for _ in range(batches):
            turn()
        return cost.of(batch * batches)


async def _stored(server: PostgresServer, body: bytes, batch: int, batches: int, *, is_joint: bool) -> float:
    database = PostgresDatabase(parse(f"{server.database()}?stores=1&name=bench"), Clock(), Entropy())
    store = PostgresStore(database, 0, Clock())
    await store.open()
    try:
        queue = _StoredQueue(store)
        await queue.turns(20, body, batch, is_joint=is_joint)
        cost = _Cost(server)
        await queue.turns(batches, body, batch, is_joint=is_joint)
        return cost.of(batch * batches)
    finally:
        await store.close()


class _StoredQueue:
    """One fragment: what one commit puts, the next one deletes."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._counters = Counters()
        self._fragment: FragmentKey = store.next_fragment_key()
        store.batch().fragments_created.append(FragmentRow(self._fragment, "queue", 0, self._counters))
        self._next = 1

    async def turns(self, count: int, body: bytes, batch: int, *, is_joint: bool) -> None:
        for _ in range(count):
            numbers = range(self._next, self._next + batch)
            self._next += batch
            open_batch: Any = self._store.batch()
            open_batch.puts.extend(
                (self._fragment, PLACE_ACTIVE, _message(number, body)) for number in numbers
            )
            open_batch.counters[self._fragment] = self._counters
            self._counters.last_counter = self._next - 1
            if not is_joint:
                await self._store.flush()
                open_batch = self._store.batch()
                open_batch.counters[self._fragment] = self._counters
                open_batch.deletes.append((self._fragment, PLACE_ACTIVE, list(numbers)))
            elif self._next > 2 * batch + 1:
                open_batch.deletes.append(
                    (self._fragment, PLACE_ACTIVE, [number - batch for number in numbers])
                )
            await self._store.flush()


def _message(number: int, body: bytes) -> Message:
    made = Message(b"", body)
    made.sequence_number = number
    made.enqueued_at_ms = 1_700_000_000_000 + number
    made.expires_at_ms = NEVER_MS
    return made
