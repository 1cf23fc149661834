"""A backup of a running bus: one cut through all of its stores, then copies at leisure.

Theory of operation. What a bus knows lies in several stores that do not commit together, so four copies made one
after the other would be of four moments: a message that was forwarded meanwhile would be in two of them or in none.
Here all copies are of one moment, the *cut*:

 1. No store starts a commit any more. That is one step on the loop, for all of them.
 2. Each store's snapshot is opened, in threads: a read transaction, which sees what is committed and goes on seeing
    it.
 3. Commits go on. They were held for as long as opening took, a few milliseconds; nothing was refused meanwhile.

Commits that were in flight at the first step may or may not be seen. That is no hole in the cut: whoever is told of a
commit can only cause another one that starts later, and none did. So the cut is a state that a crash could have left,
with everything in it that anybody had been told before it began, and the bus is built to go on from any such state.

Then the snapshots are copied one after the other, in a thread, some pages at a time, and synced as they go, so that
no commit finds a heap of our pages before it at the disk. A snapshot keeps its store's log from starting over: it
grows by what is written meanwhile. That is bounded (LOG_BYTES_MAX, and free space): a backup that would need more
ends with a sentence, and the bus goes on. A snapshot is let go as soon as it is copied, and what its log has gathered
is brought into the store by a connection of its own, beside the commits.

After a failure: whatever ends a backup before its folder has its name, nothing is left of it (`draft`). The bus has
not changed in either case, so a retry begins anew. Nothing of it outlives the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from busway import __version__
from busway.clock import Clock
from busway.data_directory import DataDirectory, write_private
from busway.event_loop import BackgroundWork
from busway.model.errors import BadArgument, InvalidOperation
from busway.safekeeping.draft import BackupRefused, Draft
from busway.safekeeping.stopped_copy import copy_tls
from busway.store.contract import Store, StoreError, StoreState
from busway.store.sqlite.snapshot import StoreSnapshot
from busway.store.sqlite.store import SqliteStore

#: Commits are held for no longer than this; a disk that takes longer to begin a read hangs.
CUT_S: Final = 2.0
#: By how much a store's log may grow while its snapshot waits or is copied.
LOG_BYTES_MAX: Final = 4 << 30
#: Stays free beside each store; below half of it the store would refuse messages.
SPARE_BYTES: Final = 128 << 20

_log = logging.getLogger("busway.backup")
T = TypeVar("T")


class _Part:
    """One store's share of a backup; what it does, it does in a thread of its own, one thing after the other."""

    def __init__(self, store: SqliteStore) -> None:
        self.snapshot: StoreSnapshot = store.snapshot()
        self._thread = ThreadPoolExecutor(1, f"{store.name}-backup")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        await self.run(self.snapshot.close)
        self._thread.shutdown(wait=False)


class _Work:
    """One backup, and how far it is. Its numbers grow in threads and are read on the loop."""

    def __init__(self, target: Path) -> None:
        self.draft = Draft(target)
        self.state = "copying"
        self.error = ""
        self.bytes = 0
        self.bytes_total = 0
        self.held_s = 0.0
        self.stores: list[dict[str, object]] = []
        self.is_stopped = False

    def told(self) -> dict[str, object]:
        return {
            "state": self.state,
            "to": str(self.draft.target),
            "bytes": self.bytes,
            "bytesTotal": self.bytes_total,
            "heldMs": round(self.held_s * 1000, 1),
            "stores": self.stores,
            "error": self.error,
        }


class Backups:
    """Of one running bus, one at a time."""

    def __init__(self, stores: Sequence[Store], directory: DataDirectory, clock: Clock) -> None:
        self._all_stores = stores
        #: Those that a backup copies: it is refused where there are others.
        self._stores = [store for store in stores if isinstance(store, SqliteStore)]
        self._directory = directory
        self._clock = clock
        self._background = BackgroundWork()
        self._work: _Work | None = None

    async def begin(self, target: str, note: str) -> None:
        """Returns when the cut is made: from here on it is a backup of what was before. Raises BadArgument,
        InvalidOperation with a sentence."""
        path = Path(target)
        if not path.is_absolute() or "\0" in target or ".." in path.parts or not path.name:
            raise BadArgument("to: the whole path of a folder is expected.")
        if self._work is not None and self._work.state == "copying":
            raise InvalidOperation(
                f"A backup to {self._work.draft.target} is under way: one is made at a time."
            )
        work = self._work = _Work(path)
        # To its end also when whoever asked has gone: commits are held for a moment of it.
        await self._background.finish(self._begin(work, note))

    def told(self) -> dict[str, object]:
        """How far the last one is."""
        return {"state": "none"} if self._work is None else self._work.told()

    def stop(self) -> None:
        """Nothing of one that is under way is kept."""
        if self._work is not None:
            self._work.is_stopped = True

    async def close(self) -> None:
        self.stop()
        await self._background.idle()

    async def _begin(self, work: _Work, note: str) -> None:
        parts: list[_Part] = []
        try:
            parts = await self._prepared(work, note)
            await self._cut(work, parts)
        except (BackupRefused, StoreError) as error:
            await self._failed(work, parts, str(error))
            raise InvalidOperation(work.error) from error
        except BaseException:
            await self._failed(work, parts, "The backup ended early.")
            raise
        self._background.spawn(self._copy(work, parts))

    async def _prepared(self, work: _Work, note: str) -> list[_Part]:
        """Everything that may take long before the cut."""
        for store in self._all_stores:
            if not isinstance(store, SqliteStore):
                raise BackupRefused(
                    f"The store {store.name} lies in a PostgreSQL database: back that up as databases are backed up"
                    " (docs/how-to/postgresql.md). This verb copies stores that are files."
                )
            if store.state is not StoreState.OPEN:
                raise BackupRefused(
                    f"The store {store.name} is {store.state.value}: a backup needs all stores in service."
                )
        await asyncio.to_thread(work.draft.take, note)
        parts = [_Part(store) for store in self._stores]
        await asyncio.gather(*(part.run(part.snapshot.open) for part in parts))
        return parts

    async def _cut(self, work: _Work, parts: list[_Part]) -> None:
        began = self._clock.monotonic()
        for store in self._stores:
            store.pause_commits()
        try:
            async with asyncio.timeout(CUT_S):
                await asyncio.gather(*(part.run(part.snapshot.begin) for part in parts))
        except TimeoutError as error:
            raise BackupRefused(
                f"A store could not be read within {CUT_S:.0f} seconds: its disk hangs. There is no backup."
            ) from error
        finally:
            for store in self._stores:
                store.resume_commits()
        work.held_s = self._clock.monotonic() - began
        work.bytes_total = sum(part.snapshot.size_bytes for part in parts)
        work.stores = [
            {
                "name": part.snapshot.name,
                "commit": part.snapshot.commit_number,
                "bytes": part.snapshot.size_bytes,
            }
            for part in parts
        ]

    async def _copy(self, work: _Work, parts: list[_Part]) -> None:
        taken_at_ms = self._clock.wall_ms()
        try:
            await parts[0].run(lambda: self._begin_copies(work, parts))
            while parts:
                await parts[0].run(lambda: _copy_store(work, parts))
                await parts.pop(0).close()
            await asyncio.to_thread(self._finish, work, taken_at_ms)
        except (BackupRefused, StoreError) as error:
            await self._failed(work, parts, str(error))
        except OSError as error:
            await self._failed(work, parts, f"{work.draft.path}: {error.strerror or error}.")
        except BaseException:
            await self._failed(work, parts, "The backup ended early.")
            raise
        else:
            work.state = "done"
            _log.info("a backup of %d bytes is in %s", work.bytes, work.draft.target)

    def _begin_copies(self, work: _Work, parts: Sequence[_Part]) -> None:
        """In a thread."""
        folder = work.draft.path
        (folder / "stores").mkdir(mode=0o700)
        free = shutil.disk_usage(folder).free
        devices = {os.stat(part.snapshot.path).st_dev for part in parts}
        spare = SPARE_BYTES if os.stat(folder).st_dev in devices else 0
        if free < work.bytes_total + spare:
            raise BackupRefused(
                f"The backup needs {work.bytes_total:,} bytes, and {free:,} are free in {folder.parent}"
                f"{f', of which {spare:,} stay for the bus' if spare else ''}."
            )
        copy_tls(self._directory, folder)

    def _finish(self, work: _Work, taken_at_ms: int) -> None:
        """In a thread."""
        if work.is_stopped:
            raise BackupRefused("The backup was stopped; nothing of it was kept.")
        write_facts(work.draft.path, taken_at_ms, work.stores)
        work.draft.finish()

    async def _failed(self, work: _Work, parts: list[_Part], sentence: str) -> None:
        """Nothing of it stays. Nobody waits for a disk that hangs."""
        work.error = sentence
        _log.warning("there is no backup in %s: %s", work.draft.target, sentence)
        await asyncio.wait([self._background.start(_discard(work, parts))], timeout=CUT_S)
        work.state = "failed"


async def _discard(work: _Work, parts: list[_Part]) -> None:
    await asyncio.gather(*(part.close() for part in parts))
    await asyncio.to_thread(work.draft.discard)


def _copy_store(work: _Work, left: Sequence[_Part]) -> None:
    """In a thread: the first of those that are left."""
    snapshot = left[0].snapshot
    for count in snapshot.copy_to(work.draft.path / "stores" / f"{snapshot.name}.db"):
        work.bytes += count
        if work.is_stopped:
            raise BackupRefused("The backup was stopped; nothing of it was kept.")
        for part in left:
            _check_burden(part.snapshot)


def _check_burden(snapshot: StoreSnapshot) -> None:
    if snapshot.log_growth_bytes() > LOG_BYTES_MAX:
        raise BackupRefused(
            f"The log of store {snapshot.name} has grown by more than {LOG_BYTES_MAX:,} bytes meanwhile: clients"
            " write faster than the backup is copied. Make it at a quieter hour, or to a faster disk."
        )
    free = shutil.disk_usage(snapshot.path.parent).free
    if free < SPARE_BYTES:
        raise BackupRefused(
            f"Only {free:,} bytes are free beside store {snapshot.name}: the backup ended, so that the bus goes on."
        )


def write_facts(folder: Path, taken_at_ms: int, stores: Sequence[dict[str, object]]) -> None:
    """For people who find the folder later: what it is, and of when. Raises OSError."""
    facts = {"busway": __version__, "taken_at_ms": taken_at_ms, "stores": list(stores)}
    write_private(folder / "backup.json", json.dumps(facts, indent=2) + "\n")
