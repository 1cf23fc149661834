"""A plain queue, one with sessions and one that detects duplicates, all under load at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from tests.chaos.checker import Verdict, check
from tests.chaos.draining import drain
from tests.chaos.history import History, Operation
from tests.chaos.provision import create_queue
from tests.chaos.scenario import add_verdict
from tests.chaos.workload import Workload
from tests.harness.running_server import RunningServer

#: How long a server takes to go when nobody watches it go.
RESTART_S = 2.0
SESSIONS = tuple(f"session-{number}" for number in range(6))


class _Part:
    """One queue, its load and its history."""

    def __init__(self, server: RunningServer, connection_string: str, name: str, kind: str) -> None:
        self._server = server
        self.name = name
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
        )

    def create(self) -> None:
        create_queue(
            self._server,
            self.name,
            requires_session=self._has_sessions,
            requires_duplicate_detection=self._resends,
        )

    def served_by(self, server: RunningServer) -> None:
        self._server = server

    async def finish(self, acknowledged_before: float) -> Verdict:
        await drain(self._server, self.name, self.history, sessions=SESSIONS if self._has_sessions else ())
        verdict = check(self.history, acknowledged_before=acknowledged_before, exactly_once=self._resends)
        if not verdict.holds:
            self.history.save(self._server.folder / f"{self.name}.jsonl")
        return verdict

    async def judge_copy(self, copy: RunningServer, began: float, ended: float) -> Verdict:
        """Of a backup that was made between these times, and is served."""
        history = history_until(self.history, ended)
        await drain(copy, self.name, history, sessions=SESSIONS if self._has_sessions else ())
        verdict = check(history, acknowledged_before=began, exactly_once=self._resends)
        if not verdict.holds:
            history.save(copy.folder / f"{self.name}.jsonl")
        return verdict


def history_until(history: History, ended: float) -> History:
    """What clients may have done in a bus whose copy was made by then. A receive that was answered later may have
    given out what came later."""
    known = History()
    known.operations = [
        operation
        for operation in history.operations
        if operation.kind != "drain"
        and (operation.done if operation.kind == "receive" else operation.invoked) <= ended
    ]
    return known


class MixedLoad:
    """`start`, hurt the server, `stop`, `verdict`."""

    def __init__(self, server: RunningServer, name: str, connection_string: str | None = None) -> None:
        through = connection_string or server.connection_string
        self._parts = [
            _Part(server, through, f"{name}-{kind}", kind) for kind in ("plain", "sessions", "duplicates")
        ]
        self._running: list[asyncio.Task[None]] = []

    def create_queues(self) -> None:
        for part in self._parts:
            part.create()

    def start(self, *, plain_workers: int = 2) -> None:
        """Sessions have two consumers, so that one can take what another let go."""
        for part, workers in zip(self._parts, ((plain_workers,) * 2, (1, 2), (1, 1)), strict=True):
            self._running.append(asyncio.create_task(part.workload.run(*workers)))

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

    def note_restart(self, began: float | None = None, ended: float | None = None) -> None:
        """Of the server, or of the stores of all queues; without times it is about to begin."""
        began = time.monotonic() if began is None else began
        for part in self._parts:
            part.history.note_restart(began, began + RESTART_S if ended is None else ended)

    def note_store_failures(self, failures: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """By queue: when its store forgot everything."""
        for part in self._parts:
            for began, ended in failures.get(part.name, ()):
                part.history.note_restart(began, ended)

    def note_cut(self) -> None:
        """Some connection broke just now."""
        for part in self._parts:
            part.history.note_cut(time.monotonic())

    def drained_from(self, server: RunningServer) -> None:
        """Another one than at the beginning serves the queues in the end."""
        for part in self._parts:
            part.served_by(server)

    def sends(self) -> list[Operation]:
        """All of them so far."""
        return [send for part in self._parts for send in part.history.of("send")]

    async def stop(self, seconds_max: float = 40.0) -> None:
        for part in self._parts:
            part.workload.stop()
        await asyncio.wait_for(asyncio.gather(*self._running), seconds_max)

    async def verdict_of_copy(self, copy: RunningServer, began: float, ended: float) -> Verdict:
        """Like `verdict`, of a backup that was made between these times."""
        together = Verdict()
        for verdict in await asyncio.gather(*(part.judge_copy(copy, began, ended) for part in self._parts)):
            add_verdict(together, verdict)
        return together

    async def verdict(self, acknowledged_before: float = float("inf")) -> Verdict:
        """Drains all queues; violations carry the queue's name in their values."""
        together = Verdict()
        for verdict in await asyncio.gather(*(part.finish(acknowledged_before) for part in self._parts)):
            add_verdict(together, verdict)
        return together
