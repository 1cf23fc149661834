"""A plain queue, one with sessions and one that detects duplicates, all under load at the same time."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.checker import Verdict, check
from tests.chaos.draining import drain
from tests.chaos.history import FAIL, History
from tests.chaos.provision import create_queue
from tests.chaos.scenario import add_verdict
from tests.chaos.workload import Workload
from tests.harness.running_server import RunningServer

SESSIONS = tuple(f"session-{number}" for number in range(6))


class _Part:
    """One queue, its load and its history."""

    def __init__(
        self, server: RunningServer, connection_string: str, name: str, kind: str, lock_lost: str
    ) -> None:
        self._server = server
        self._name = name
        self._has_sessions = kind == "sessions"
        self._resends = kind == "duplicates"
        self.history = History()
        self.workload = Workload(
            connection_string,
            name,
            self.history,
            run=name,
            sessions=SESSIONS if self._has_sessions else (),
            resends=self._resends,
            lock_lost=lock_lost,
        )

    def create(self) -> None:
        create_queue(
            self._server,
            self._name,
            requires_session=self._has_sessions,
            requires_duplicate_detection=self._resends,
        )

    async def finish(self, acknowledged_before: float) -> Verdict:
        await drain(self._server, self._name, self.history, sessions=SESSIONS if self._has_sessions else ())
        verdict = check(self.history, acknowledged_before=acknowledged_before, exactly_once=self._resends)
        if not verdict.holds:
            self.history.save(self._server.folder / f"{self._name}.jsonl")
        return verdict


class MixedLoad:
    """`start`, hurt the server, `stop`, `verdict`."""

    def __init__(
        self,
        server: RunningServer,
        name: str,
        connection_string: str | None = None,
        *,
        lock_lost: str = FAIL,
    ) -> None:
        through = connection_string or server.connection_string
        self._parts = [
            _Part(server, through, f"{name}-{kind}", kind, lock_lost)
            for kind in ("plain", "sessions", "duplicates")
        ]
        self._running: list[asyncio.Task[None]] = []

    def create_queues(self) -> None:
        for part in self._parts:
            part.create()

    def start(self, *, plain_workers: int = 2) -> None:
        for part, workers in zip(self._parts, (plain_workers, 1, 1), strict=True):
            self._running.append(asyncio.create_task(part.workload.run(workers, workers)))

    async def wait_for_work(self, more: int, seconds_max: float = 10.0) -> bool:
        """Until every queue has taken something new, all together so many, and something was completed too."""
        before = self._progress()
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            sent, completed = self._progress()
            gained = [now - then for now, then in zip(sent, before[0], strict=True)]
            if sum(gained) >= more and all(gained) and completed > before[1]:
                return True
            await asyncio.sleep(0.01)
        return False

    def _progress(self) -> tuple[list[int], int]:
        loads = [part.workload for part in self._parts]
        return [load.acknowledged for load in loads], sum(load.completed for load in loads)

    def note_restart(self) -> None:
        for part in self._parts:
            part.history.note_restart(time.monotonic())

    async def stop(self, seconds_max: float = 40.0) -> None:
        for part in self._parts:
            part.workload.stop()
        await asyncio.wait_for(asyncio.gather(*self._running), seconds_max)

    async def verdict(self, acknowledged_before: float = float("inf")) -> Verdict:
        """Drains all queues; violations carry the queue's name in their values."""
        together = Verdict()
        for verdict in await asyncio.gather(*(part.finish(acknowledged_before) for part in self._parts)):
            add_verdict(together, verdict)
        return together
