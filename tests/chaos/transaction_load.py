"""Transactions under load: jobs are completed and their results sent, together or not at all.

Three lines at once, each with its own shape of a transaction: a topic, one of whose subscriptions holds the jobs and
another gets the results (one entity); a queue whose results go by its way to a queue of another store; and the same
between two partitioned queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from azure.servicebus.management import CorrelationRuleFilter, ServiceBusAdministrationClient

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.client.errors import ClientError, NothingTookPlace
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.receiver import ServiceBusReceiver
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from tests.chaos.checker import Verdict
from tests.chaos.draining import drain
from tests.chaos.history import FAIL, INFO, OK, History
from tests.chaos.provision import create_queue, create_topic
from tests.chaos.scenario import add_verdict
from tests.chaos.transaction_checker import Attempt, TransactionHistory, check_transactions
from tests.harness.running_server import RunningServer

WORKERS: Final = 3
RESULTS: Final = 2
#: So many jobs wait, so that the workers never do.
JOBS_WAITING: Final = 120
_FEED: Final = 40
_TAKE: Final = 6
_ROLLED_BACK: Final = 0.2
_RECONNECT_S: Final = 0.05
_PEEK_EVERY_S: Final = 0.2
_BROKEN: Final = (ClientError, OSError)
_CALL_S: Final = 12.0
JOB, RESULT = "job", "result"
T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """Where jobs are sent and received, and where their results are sent and found."""

    name: str
    jobs_to: str
    jobs_from: str
    results_to: str
    results_from: str
    #: Of a partitioned line: each job has one of these.
    keys: tuple[str, ...] = ()


LINES: Final = (
    Line("topic", "tx-topic", "tx-topic/Subscriptions/jobs", "tx-topic", "tx-topic/Subscriptions/results"),
    Line("queue", "tx-jobs", "tx-jobs", "tx-results", "tx-results"),
    Line(
        "spread",
        "tx-spread-jobs",
        "tx-spread-jobs",
        "tx-spread-results",
        "tx-spread-results",
        tuple("abdelm"),
    ),
)
FRAGMENTS: Final = 4
assert {fragment_of_key(key, FRAGMENTS) for key in LINES[2].keys} == set(range(FRAGMENTS))


class RolledBack(Exception):
    """A worker that changes its mind."""


class TransactionLoad:
    """`create`, `start`, hurt the server, `stop`, `verdict`."""

    def __init__(self, server: RunningServer, connection_string: str, chance: random.Random) -> None:
        self._server = server
        self._connection_string = connection_string
        self._chance = chance
        self._numbers = itertools.count()
        self._histories = {line: TransactionHistory() for line in LINES}
        #: Jobs that wait, at least so many: those whose sending was not answered do not count.
        self._waiting = dict.fromkeys(LINES, 0)
        self._is_stopping = False
        self._running: list[asyncio.Task[None]] = []

    def create(self) -> None:
        create_topic(self._server, "tx-topic", ("jobs", "results"))
        with ServiceBusAdministrationClient.from_connection_string(
            self._server.connection_string, connection_verify=self._server.ca_file
        ) as management:
            for name, label in (("jobs", JOB), ("results", RESULT)):
                management.create_rule("tx-topic", name, "only", filter=CorrelationRuleFilter(label=label))
                management.delete_rule("tx-topic", name, "$Default")
        for name in ("tx-jobs", "tx-results"):
            create_queue(self._server, name)
        for name in ("tx-spread-jobs", "tx-spread-results"):
            create_queue(self._server, name, enable_partitioning=True)

    def start(self) -> None:
        for line in LINES:
            work = [self._feed(line), self._glimpse(line), *[self._work(line) for _ in range(WORKERS)]]
            self._running += [asyncio.create_task(each) for each in work]

    def committed(self) -> dict[str, int]:
        return {line.name: history.committed() for line, history in self._histories.items()}

    async def stop(self, seconds_max: float = 90.0) -> None:
        self._is_stopping = True
        await asyncio.wait_for(asyncio.gather(*self._running), seconds_max)

    # -- clients

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string)

    async def _feed(self, line: Line) -> None:
        while not self._is_stopping:
            with contextlib.suppress(*_BROKEN):
                async with self._client() as client, client.get_queue_sender(line.jobs_to) as sender:
                    while not self._is_stopping:
                        await self._feed_some(line, sender)
            await asyncio.sleep(_RECONNECT_S)

    async def _feed_some(self, line: Line, sender: ServiceBusSender) -> None:
        history = self._histories[line]
        if self._waiting[line] > JOBS_WAITING:
            await asyncio.sleep(_RECONNECT_S)
            return
        key = self._chance.choice(line.keys) if line.keys else None
        names = [f"{line.name}-{next(self._numbers)}" for _ in range(_FEED)]
        history.jobs.update(dict.fromkeys(names, INFO))
        messages = [ServiceBusMessage(name.encode(), subject=JOB, partition_key=key) for name in names]
        await _soon(sender.send_messages(messages))
        history.jobs.update(dict.fromkeys(names, OK))
        self._waiting[line] += _FEED

    async def _work(self, line: Line) -> None:
        while not self._is_stopping:
            with contextlib.suppress(*_BROKEN):
                async with (
                    self._client() as client,
                    client.get_queue_receiver(line.jobs_from) as receiver,
                    client.get_queue_sender(line.results_to) as sender,
                ):
                    while not self._is_stopping:
                        for job in await receiver.receive_messages(_TAKE, 1.0):
                            await self._attempt(line, client, receiver, sender, job)
            await asyncio.sleep(_RECONNECT_S)

    async def _attempt(
        self,
        line: Line,
        client: ServiceBusClient,
        receiver: ServiceBusReceiver,
        sender: ServiceBusSender,
        job: ServiceBusReceivedMessage,
    ) -> None:
        name = job.body.decode()
        number = next(self._numbers)
        results = tuple(f"{name}/{number}/{place}" for place in range(RESULTS))
        key = job.partition_key if isinstance(job.partition_key, str) else None
        wants_to = self._chance.random() >= _ROLLED_BACK
        with self._noting(line, name, results) as fate:
            async with asyncio.timeout(_CALL_S), client.transaction():
                await receiver.complete_message(job)
                for result in results:
                    message = ServiceBusMessage(result.encode(), subject=RESULT, partition_key=key)
                    await sender.send_messages(message)
                if not wants_to:
                    raise RolledBack
                fate.is_asked = True
            fate.outcome = OK
        if not wants_to:  # the lock is as it was before: somebody takes the job again
            await _soon(receiver.abandon_message(job))

    @contextlib.contextmanager
    def _noting(self, line: Line, job: str, results: tuple[str, ...]) -> Iterator[_Fate]:
        """Whatever breaks before the commit is asked for has rolled back for certain."""
        fate = _Fate()
        try:
            yield fate
        except RolledBack:
            pass
        except NothingTookPlace:
            fate.is_asked = False
        except TimeoutError as error:
            raise OSError("the server did not answer") from error
        finally:
            if fate.outcome != OK:
                fate.outcome = INFO if fate.is_asked else FAIL
            if fate.outcome != FAIL:
                self._waiting[line] -= 1
            self._histories[line].attempts.append(Attempt(job, results, fate.outcome))

    async def _glimpse(self, line: Line) -> None:
        """Looks at results all the time: what a rollback takes back must never be seen."""
        while not self._is_stopping:
            with contextlib.suppress(*_BROKEN):
                async with self._client() as client:
                    await self._walk(line, client)
            await asyncio.sleep(_PEEK_EVERY_S)

    async def _walk(self, line: Line, client: ServiceBusClient) -> None:
        management = client.get_management(line.results_from)
        after = 0
        while page := await _soon(management.peek_messages(250, after)):
            self._histories[line].glimpsed |= {message.body.decode() for message in page}
            after = 1 + max(message.sequence_number or 0 for message in page)

    # -- the end

    async def verdict(self) -> Verdict:
        """Everything that was committed arrives; then all is drained and counted."""
        together = Verdict()
        for line, history in self._histories.items():
            stranded = await self._until_moved(line)
            history.left = await self._drained(line.jobs_from)
            history.found = await self._drained(line.results_from)
            verdict = check_transactions(history)
            if stranded:
                verdict.found("moved nowhere", line.name)
            if not verdict.holds:
                history.save(self._server.folder / f"{line.name}.jsonl")
            add_verdict(together, verdict)
        return together

    async def _drained(self, address: str) -> Counter[str]:
        name, _, subscription = address.partition("/Subscriptions/")
        history = History()
        await drain(self._server, name, history, subscription=subscription)
        return Counter(operation.value for operation in history.of("drain"))

    async def _until_moved(self, line: Line, seconds_max: float = 30.0) -> bool:
        """Whether anything sent by way of another entity stays there."""
        deadline = time.monotonic() + seconds_max
        while line.jobs_to != line.results_to:
            waiting, dead = await asyncio.to_thread(self._transfers, line.jobs_to)
            if dead or time.monotonic() > deadline:
                return True
            if not waiting:
                return False
            await asyncio.sleep(_RECONNECT_S)
        return False

    def _transfers(self, queue: str) -> tuple[int, int]:
        with ServiceBusAdministrationClient.from_connection_string(
            self._server.connection_string, connection_verify=self._server.ca_file
        ) as management:
            counts = management.get_queue_runtime_properties(queue)
        return counts.transfer_message_count or 0, counts.transfer_dead_letter_message_count or 0


async def _soon(work: Coroutine[None, None, T]) -> T:
    """A server that is gone without a word must not keep anybody waiting."""
    try:
        return await asyncio.wait_for(work, _CALL_S)
    except TimeoutError as error:
        raise OSError("the server did not answer") from error


class _Fate:
    """Of one attempt. `is_asked`: from here on only the server knows."""

    def __init__(self) -> None:
        self.is_asked = False
        self.outcome = ""
