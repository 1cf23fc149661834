"""Traffic over entities that somebody changes: queues, one with sessions, a partitioned one, a topic; single
messages, batches, schedules; official SDK, its retries on.

What is sent to an entity that detects duplicates is sent again until it is accepted, and must be there once: in the
entity, or in what it forwards to for a while. Elsewhere a retry may store a message twice by right; there nothing may
be lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from busway.model.descriptions import Description, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.entity_path import subscription_path
from tests.changes.changes import WATCHED, Made
from tests.chaos.checker import Verdict, check
from tests.chaos.draining import NotDrained, drain
from tests.chaos.history import INFO, OK, History, Operation
from tests.chaos.workload import BROKEN, CALL_S, CLOSE_S, Workload
from tests.harness.running_server import RunningServer

#: What a retry may do where duplicates are not detected.
_ABOUT_COPIES: Final = (
    *("stored twice", "completed twice", "delivered after complete", "resurrected", "lock overlap"),
)
#: The SDK attaches anew without a word, and then its session is held by another link than the one that was noted.
_ABOUT_HOLDS: Final = ("settled after its session's lock", "session held twice")
_SCHEDULED: Final = "later"
_KEYS: Final = ("key-0", "key-1")
_LOCK_MS: Final = 5_000
_DELIVERIES_MAX: Final = 1_000_000
#: Between two sends of a producer: what is sent must also be received, on a busy machine.
_PAUSE_S: Final = 0.01
_DELAYS_S: Final = (0.2, 0.6, 1.5)


class RetryingWorkload(Workload):
    """With the SDK's own retries."""

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[ServiceBusClient]:
        client = ServiceBusClient.from_connection_string(
            self._connection_string,
            retry_total=4,
            retry_backoff_factor=0.1,
            retry_backoff_max=1.0,
            logging_enable=False,
        )
        try:
            yield client
        finally:
            with suppress(*BROKEN):
                await asyncio.wait_for(client.close(), CLOSE_S)

    async def schedule(self) -> None:
        """Messages for a moment from now on."""
        await self._keep_going(self._schedule, _SCHEDULED)

    async def _schedule(self, name: str) -> None:
        async with self._client() as client, self._sender(client) as sender:
            number = 0
            while not self._stopping.is_set():
                number += 1
                value = f"{self._run}-{name}-{time.monotonic_ns()}"
                message = ServiceBusMessage(value, message_id=value)
                due = datetime.now(UTC) + timedelta(seconds=_DELAYS_S[number % len(_DELAYS_S)])
                invoked, result = time.monotonic(), INFO
                try:
                    await sender.schedule_messages(message, due, timeout=CALL_S)
                    result = OK
                    self.acknowledged += 1
                finally:
                    done = time.monotonic()
                    self._history.add(Operation("send", value, invoked, done, result, consumer=name))
                await asyncio.sleep(5 * _PAUSE_S)


class Line:
    """One entity that is sent to, and everything its messages may come out of."""

    def __init__(
        self,
        server: RunningServer,
        path: str,
        *,
        is_topic: bool = False,
        sessions: Sequence[str] = (),
        is_partitioned: bool = False,
        detects_duplicates: bool = True,
        schedules: bool = False,
    ) -> None:
        self.path = path
        self.is_topic = is_topic
        self.targets = (f"{path}-aside", f"{path}-beyond")
        self.exactly_once = detects_duplicates
        self._server = server
        self._sessions = sessions
        self._is_partitioned = is_partitioned
        self._schedules = schedules
        #: By subscription; one without a name for a queue.
        self.histories = {name: History() for name in ((WATCHED, "every") if is_topic else ("",))}
        #: When it was deleted, until it was gone for certain.
        self.deletions: list[tuple[float, float]] = []
        self._loads: list[RetryingWorkload] = []
        self._running: list[asyncio.Task[None]] = []

    # -- entities

    def made(self) -> tuple[Made, ...]:
        """The entity, then its subscriptions."""
        if not self.is_topic:
            return (Made(self._queue(self.path, self._sessions, self.exactly_once, self._is_partitioned)),)
        topic = TopicDescription(self.path, requires_duplicate_detection=self.exactly_once)
        subscriptions = [
            SubscriptionDescription(
                subscription_path(self.path, name),
                lock_duration_ms=_LOCK_MS,
                max_delivery_count=_DELIVERIES_MAX,
            )
            for name in self.histories
        ]
        return (Made(topic), *map(Made, subscriptions))

    def targets_made(self) -> list[Description]:
        return [self._queue(path) for path in self.targets]

    @staticmethod
    def _queue(
        path: str,
        sessions: Sequence[str] = (),
        detects_duplicates: bool = False,
        is_partitioned: bool = False,
    ) -> QueueDescription:
        return QueueDescription(
            path,
            lock_duration_ms=_LOCK_MS,
            max_delivery_count=_DELIVERIES_MAX,
            requires_session=bool(sessions),
            requires_duplicate_detection=detects_duplicates,
            enable_partitioning=is_partitioned,
        )

    # -- traffic

    def start(self) -> None:
        for place, (name, history) in enumerate(self.histories.items()):
            load = self._load(self.path, history, name)
            self._run(load, load.run(0 if place else 2, 2))
            if place == 0 and self._schedules:
                self._run(load, load.schedule())
        for target in self.targets:  # of the first, which is the one that is changed
            load = self._load(target, next(iter(self.histories.values())), "", is_target=True)
            self._run(load, load.run(0, 1))

    def _load(
        self, queue: str, history: History, subscription: str, *, is_target: bool = False
    ) -> RetryingWorkload:
        return RetryingWorkload(
            self._server.connection_string,
            queue,
            history,
            run=self.path,
            sessions=() if is_target else self._sessions,
            resends=self.exactly_once,
            subscription=subscription,
            keys=_KEYS if self._is_partitioned else (),
            pause_s=_PAUSE_S,
        )

    def _run(self, load: RetryingWorkload, work: object) -> None:
        assert asyncio.iscoroutine(work)
        if load not in self._loads:
            self._loads.append(load)
        self._running.append(asyncio.create_task(work))

    @property
    def acknowledged(self) -> int:
        return sum(load.acknowledged for load in self._loads)

    @property
    def completed(self) -> int:
        return sum(load.completed for load in self._loads)

    def note_restart(self, began: float, ended: float) -> None:
        for history in self.histories.values():
            history.note_restart(began, ended)

    async def stop(self, seconds_max: float = 90.0) -> None:
        for load in self._loads:
            load.stop()
        await asyncio.wait_for(asyncio.gather(*self._running), seconds_max)

    # -- the end

    async def verdict(self) -> Verdict:
        together = Verdict()
        names = list(self.histories)
        sends = list(self.histories[names[0]].of("send"))
        for name in names[1:]:
            for send in sends:
                self.histories[name].add(send)
        try:
            for name in names:
                await drain(
                    self._server, self.path, self.histories[name], sessions=self._sessions, subscription=name
                )
            for target in self.targets:
                await drain(self._server, target, self.histories[names[0]])
        except NotDrained as error:
            together.found("not drained", str(error))
        for name, history in self.histories.items():
            self._judge(name, history, together)
        return together

    def _judge(self, name: str, history: History, together: Verdict) -> None:
        judged = self._loosened(history)
        if not self._sessions:
            judged = _ranked(judged)
        found = check(judged, exactly_once=self.exactly_once)
        for what, values in found.violations.items():
            for value in values:
                is_once = self.exactly_once and f"-{_SCHEDULED}-" not in value
                if (is_once or what not in _ABOUT_COPIES) and what not in _ABOUT_HOLDS:
                    together.found(what, f"{self.path} {name} {value}")
        for what, count in found.counts.items():
            together.counts[what] = together.counts.get(what, 0) + count
        if together.violations:
            history.save(self._server.folder / f"{self.path}-{name}.jsonl")

    def _loosened(self, history: History) -> History:
        """What was sent to an entity that was deleted afterwards may be gone with it."""
        last = max((ended for _, ended in self.deletions), default=0.0)
        loosened = History()
        loosened.operations = [
            replace(each, result=INFO) if each.kind == "send" and each.invoked <= last else each
            for each in history.operations
        ]
        return loosened


def _ranked(history: History) -> History:
    """Messages that move on get another number: here each has one for its whole life, in the order of sending."""
    ranks: dict[str, int] = {}
    for send in sorted(history.of("send"), key=lambda each: each.invoked):
        ranks.setdefault(send.value, len(ranks) + 1)
    ranked = History()
    ranked.operations = [
        replace(each, sequence=ranks.get(each.value, 0)) if each.kind in ("receive", "drain") else each
        for each in history.operations
    ]
    return ranked
