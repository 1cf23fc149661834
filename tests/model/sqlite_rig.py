"""The rig of the broker's tests on a SQLite file, on a disk that can fail."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from busway.model.limits import Limits
from busway.store.contract import StoreError, StoreState
from busway.store.sqlite.store import SqliteStore
from tests.store_contract.faulty_disk import FaultyDisk
from tests.unit.broker.rig import Rig

_QUIET_ROUNDS = 3


class SqliteRig(Rig):
    """`dispose` when done: it owns a folder and a file system."""

    store: SqliteStore

    def __init__(self, limits: Limits | None = None, **description: Any) -> None:
        super().__init__(limits, **description)
        self.disk = FaultyDisk()
        self._folder = tempfile.TemporaryDirectory(prefix="busway-model-")
        self.store = self._new_store()

    def _new_store(self) -> SqliteStore:
        path = Path(self._folder.name) / "store.db"
        return SqliteStore(
            "first", path, self.clock, space_low_bytes=0, reserve_bytes=0, read_threads=1, vfs=self.disk.name
        )

    async def restart(self) -> None:
        await self.calm()
        await self.store.close()
        self.store = self._new_store()
        await self.store.open()
        await self.load()

    async def calm(self) -> None:
        """Reads and commits run in threads here: waits until several rounds in a row brought nothing."""
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            for _ in range(5):
                await asyncio.sleep(0)
            if self.tasks:
                quiet = 0
                await asyncio.wait(self.tasks)
                continue
            quiet += 1
            if self.store.state is StoreState.OPEN:
                try:
                    await self.store.flush()
                except StoreError:
                    quiet = 0

    async def break_next_commit(self) -> None:
        """The next thing SQLite writes fails with an I/O error; everything before it is written."""
        await self.calm()
        self.disk.fail_at(self.disk.steps + 1)

    def dispose(self) -> None:
        self.disk.heal()
        self.disk.unregister()
        self._folder.cleanup()
