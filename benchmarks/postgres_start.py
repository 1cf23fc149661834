"""What a server whose messages lie in PostgreSQL needs of memory, and of time until it delivers.

The start is that of a large bus: as many entities as a namespace may have, a million messages in one of them. It ends
with the first message that a receiver has; other receivers of the run took a few of them before.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

from benchmarks import bars
from benchmarks.generator import Load, Target, run
from benchmarks.measurement import cpu_s
from benchmarks.parts import Bench
from benchmarks.postgres_rig import STORES, BusOnPostgres, why_not_here
from benchmarks.report import Report
from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.limits import Limits
from busway.store.contract import Store
from busway.store.postgres.database import PostgresDatabase
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse

_BODY_BYTES = 100
_CREATED_AT_ONCE = 500


def postgres_start(bench: Bench, report: Report) -> None:
    """messages in PostgreSQL: resident memory idle and with a backlog, the start of a large bus"""
    reason = why_not_here()
    if reason is not None:
        report.note("start on PostgreSQL", f"left out: {reason}")
        return
    million = 100_000 if bench.quick else 1_000_000
    entities = 1_000 if bench.quick else Limits().entities_max
    with BusOnPostgres(bench.folder / "postgres-start") as server:
        server.start()
        report.within("PostgreSQL, RSS idle", server.rss_mib(), bars.POSTGRES_RSS_IDLE_MIB, "MiB")
        backlog = server.queue("--max-size-in-megabytes", "5120")
        server.fill(backlog, million, _BODY_BYTES)
        title = f"{million:,} x {_BODY_BYTES} B queued"
        report.within(f"PostgreSQL, RSS with {title}", server.rss_mib(), bars.POSTGRES_RSS_QUEUED_MIB, "MiB")
        server.server.stop()
        asyncio.run(_create(server, entities - 1))
        found = [_until_delivered(server, backlog) for _ in range(max(bench.rounds, 3))]
        metric = f"PostgreSQL, start with {entities:,} entities and {title} to first delivery"
        report.within(metric, median(wall_s for wall_s, _ in found), bars.POSTGRES_START_S, "s")
        report.note(f"{metric}, CPU of the server", f"{median(each for _, each in found):.2f} s")


async def _create(server: BusOnPostgres, queues: int) -> None:
    """In this process, through the namespace itself."""
    database = PostgresDatabase(parse(f"{server.url}?name=bench&stores={STORES}"), Clock(), Entropy())
    stores: list[Store] = [PostgresStore(database, number, Clock()) for number in range(STORES)]
    namespace = Namespace("busway", stores, Clock(), Entropy(), Limits())
    await namespace.open()
    try:
        for first in range(0, queues, _CREATED_AT_ONCE):
            numbers = range(first, min(first + _CREATED_AT_ONCE, queues))
            await namespace.create([NewEntity(QueueDescription(f"idle-{number}")) for number in numbers])
    finally:
        await namespace.close()


def _until_delivered(server: BusOnPostgres, backlog: Target) -> tuple[float, float]:
    """From the command on, and the server's CPU time; then it is stopped."""
    begun = time.monotonic()
    server.start()
    run(server.target(backlog.address), "recv", Load(messages=1, window=1))
    took = time.monotonic() - begun, cpu_s(server.server.pid)
    server.server.stop()
    return took
