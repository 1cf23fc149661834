"""Partitioned entities under load: a queue and a topic with keyed and keyless traffic, and a queue with sessions.

Every key has a producer of its own, which sends one after the other: what holds up one fragment holds up nobody else,
and the order inside a key is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from busway.broker.entity.fragment_choice import fragment_of_key
from tests.chaos.checker import Verdict, check
from tests.chaos.draining import drain
from tests.chaos.history import OK, History, Operation, merged
from tests.chaos.provision import create_queue, create_topic
from tests.chaos.scenario import add_verdict
from tests.chaos.workload import Workload
from tests.harness.running_server import RunningServer

FRAGMENTS: Final = 4
QUEUE: Final = "spread-queue"
TOPIC: Final = "spread-topic"
SESSION_QUEUE: Final = "spread-sessions"
SUBSCRIPTIONS: Final = ("first", "second")
#: By fragment a key that belongs to it.
KEYS: Final = tuple(
    next(f"key-{number}" for number in range(100) if fragment_of_key(f"key-{number}", FRAGMENTS) == index)
    for index in range(FRAGMENTS)
)
SESSIONS: Final = tuple(f"session-{number}" for number in range(6))
#: One that waits for a hanging store leaves others.
_KEYLESS_PRODUCERS: Final = 3
_PAUSE_S: Final = 0.02
_PROGRESS_S: Final = 0.02


class SpreadLoad:
    """`create`, `start`, hurt the server, `stop`, `verdict`."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        #: What was sent to the queue and done with it; what was sent to the topic.
        self.queue = History()
        self.topic = History()
        self._sessions = History()
        self._copies = {name: History() for name in SUBSCRIPTIONS}
        self._workloads: list[tuple[Workload, int, int]] = [
            (self._workload(QUEUE, self.queue, keys=True), FRAGMENTS, 0),
            (self._workload(QUEUE, self.queue), _KEYLESS_PRODUCERS, 2),
            (self._workload(TOPIC, self.topic, SUBSCRIPTIONS[0], keys=True), FRAGMENTS, 0),
            (self._workload(TOPIC, self.topic, SUBSCRIPTIONS[0]), _KEYLESS_PRODUCERS, 0),
            *[(self._workload(TOPIC, self._copies[name], name), 0, 1) for name in SUBSCRIPTIONS],
            (self._workload(SESSION_QUEUE, self._sessions, sessions=True), 1, 2),
        ]
        self._running: list[asyncio.Task[None]] = []

    def _workload(
        self,
        path: str,
        history: History,
        subscription: str = "",
        *,
        keys: bool = False,
        sessions: bool = False,
    ) -> Workload:
        return Workload(
            self._server.connection_string,
            path,
            history,
            run=path + ("-keyed" if keys else ""),
            sessions=SESSIONS if sessions else (),
            subscription=subscription,
            is_partitioned=True,
            keys=KEYS if keys else (),
            pause_s=_PAUSE_S,
        )

    def create(self) -> None:
        create_queue(self._server, QUEUE, enable_partitioning=True)
        create_topic(self._server, TOPIC, SUBSCRIPTIONS, enable_partitioning=True)
        create_queue(self._server, SESSION_QUEUE, enable_partitioning=True, requires_session=True)

    def start(self) -> None:
        for workload, producers, consumers in self._workloads:
            self._running.append(asyncio.create_task(workload.run(producers, consumers)))

    # -- watching

    async def wait_for(self, happened: Callable[[], bool], seconds_max: float) -> bool:
        deadline = time.monotonic() + seconds_max
        while not happened():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_PROGRESS_S)
        return True

    def accepted_since(self, moment: float) -> dict[str, int]:
        """By "path key" the acknowledged messages whose sends began after that moment; without a key by the path."""
        found: dict[str, int] = {}
        for path, history in ((QUEUE, self.queue), (TOPIC, self.topic)):
            for send in _since(history, moment):
                if send.result == OK:
                    name = f"{path} {send.key}".strip()
                    found[name] = found.get(name, 0) + 1
        return found

    def sends_since(self, moment: float, key: str) -> list[Operation]:
        """With that key."""
        histories = (self.queue, self.topic)
        return [send for history in histories for send in _since(history, moment) if send.key == key]

    def note_restart(self, began: float, ended: float) -> None:
        """Some store forgot its locks."""
        for history in (self.queue, self._sessions, *self._copies.values()):
            history.note_restart(began, ended)

    # -- the end

    async def stop(self, seconds_max: float = 40.0) -> None:
        for workload, _, _ in self._workloads:
            workload.stop()
        await asyncio.wait_for(asyncio.gather(*self._running), seconds_max)

    async def verdict(self) -> Verdict:
        """Drains everything. Each subscription must have got all that was published, once."""
        together = Verdict()
        sent = list(self.topic.of("send"))
        for name, history in self._copies.items():
            published = History()
            published.operations = sent
            self._copies[name] = merged([published, history])
        places = [
            (QUEUE, "", (), self.queue),
            (SESSION_QUEUE, "", SESSIONS, self._sessions),
            *[(TOPIC, name, (), history) for name, history in self._copies.items()],
        ]
        for path, subscription, sessions, history in places:
            await drain(self._server, path, history, sessions=sessions, subscription=subscription)
            verdict = check(history)
            if not verdict.holds:
                history.save(self._server.folder / f"{path}{subscription}.jsonl")
            add_verdict(together, verdict)
        return together


def _since(history: History, moment: float) -> list[Operation]:
    """Sends that began after that moment. The history is long, and the end of it is what counts."""
    found: list[Operation] = []
    for operation in reversed(history.operations):
        if operation.done < moment:
            break
        if operation.kind == "send" and operation.invoked >= moment:
            found.append(operation)
    return found
