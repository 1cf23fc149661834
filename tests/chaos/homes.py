"""Where the queues of a server lie, read from a copy of its files."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from busway.broker.namespace.catalogue_rows import ENTITY_PREFIXES, EntityRow
from busway.clock import Clock
from busway.store.sqlite.store import SqliteStore
from tests.harness.running_server import RunningServer

_HOME = "store-0"


def homes_of(server: RunningServer) -> dict[str, EntityRow]:
    """By path. The server may run, as long as nobody changes its entities."""
    with tempfile.TemporaryDirectory(prefix="busway-homes-") as folder:
        for suffix in (".db", ".db-wal"):
            file = server.data / "stores" / f"{_HOME}{suffix}"
            if file.exists():
                shutil.copy(file, folder)
        rows = asyncio.run(_catalogue(Path(folder)))
    found = [
        EntityRow.parse(key, text) for key, text in rows.items() if key.startswith(tuple(ENTITY_PREFIXES))
    ]
    return {row.description.path: row for row in found}


async def _catalogue(folder: Path) -> dict[str, str]:
    store = SqliteStore(_HOME, folder / f"{_HOME}.db", Clock(), reserve_bytes=0, space_low_bytes=0)
    await store.open()
    try:
        return (await store.catalogue())[1]
    finally:
        await store.close()
