"""A store as an earlier version left it, and lives of a namespace on it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from busway.broker.namespace.namespace import Namespace
from busway.model.limits import Limits
from busway.store.sqlite.database_file import query
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy

CATALOGUES = Path(__file__).parent / "catalogues"


def on_an_old_store(tmp_path: Path, sql: str, *lives: Callable[[Namespace], Awaitable[None]]) -> None:
    """Each in a life of its own on the same file."""
    path = tmp_path / "store-0.db"
    connection = apsw.Connection(str(path))
    connection.execute(query("pragmas_of_a_new_file")).fetchall()
    connection.execute(sql).fetchall()
    connection.close()

    async def play() -> None:
        for live in lives:
            clock = ManualClock()
            store = SqliteStore("store-0", path, clock, reserve_bytes=0, space_low_bytes=0)
            namespace = Namespace("bus", [store], clock, SeededEntropy(), Limits())
            await namespace.open()
            await live(namespace)
            await namespace.close()

    asyncio.run(play())
