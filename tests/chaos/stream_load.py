"""Publishers and readers of one event hub, who go on through whatever happens to its server, and write down what they
did and saw.

Publishers: with a key, without one, to a partition, alone and in batches, and idempotent ones that repeat what had no
answer. Readers, one of each kind for a partition: see the kinds in `stream_checker`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from busway.amqp.errors import Condition
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.errors import ClientError
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.chaos.checker import Verdict
from tests.chaos.history import FAIL, INFO, OK
from tests.chaos.hub_reading import (
    body_of,
    number_in,
    partitions_of,
    read_in_bulk,
    read_partition,
    seen_of,
)
from tests.chaos.idempotent_producer import IdempotentProducer
from tests.chaos.stream_checker import (
    CHECKPOINTS,
    FOLLOWS,
    REPLAYS,
    Publication,
    Reading,
    StreamHistory,
    check_streams,
)
from tests.harness.running_server import RunningServer

PARTITIONS: Final = 4
KEYED, KEYLESS, DIRECT, IDEMPOTENT = "keyed", "keyless", "direct", "idempotent"
PUBLISHERS: Final = (KEYED, KEYLESS, DIRECT, IDEMPOTENT)
BATCH_MAX: Final = 8
#: A checkpoint follows so many events; a replay ends after so many at most.
_CHECKPOINT_EVERY: Final = 40
_REPLAY_EVENTS_MAX: Final = 3_000
_AGAIN_S: Final = 0.03
#: Without an answer for so long a send has none.
_ANSWER_S: Final = 10.0
_STOP_S: Final = 15.0
#: Certainly nothing was stored.
_REFUSALS: Final = (Condition.SERVER_BUSY, Condition.RESOURCE_LIMIT_EXCEEDED)

Sends = Callable[[list[ServiceBusMessage]], Awaitable[None]]


class StreamLoad:
    """`create`, `start`, hurt the server, `stop`, `verdict`. `through`: where clients connect to."""

    def __init__(
        self,
        server: RunningServer,
        hub: str,
        seed: int,
        through: str | None = None,
        *,
        filler_bytes: int | None = None,
    ) -> None:
        self._server = server
        self._through = server.connection_string if through is None else through
        self.hub = hub
        self._chance = random.Random(seed)
        self._filler_bytes = filler_bytes
        self.history = StreamHistory()
        self._by_publisher: dict[str, list[Publication]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        #: Events acknowledged by kind of publisher, and read by kind of reader.
        self.done: Counter[str] = Counter()

    def create(self, properties: dict[str, object] | None = None) -> None:
        with ServiceBusAdministrationClient.from_connection_string(
            self._server.connection_string
        ) as administration:
            administration.hubs.create(
                self.hub, {"PartitionCount": PARTITIONS, **(properties or {})}, ["second"]
            )

    def start(self) -> None:
        for number in range(PARTITIONS):
            self._begin(self._publish(KEYED, number))
            self._begin(self._publish(DIRECT, number))
            self._begin(self._publish_idempotently(number))
            for kind in (FOLLOWS, REPLAYS, CHECKPOINTS):
                self._begin(self._read(kind, str(number)))
        self._begin(self._publish(KEYLESS, 0))
        self._begin(self._publish(KEYLESS, 1))

    def _begin(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def stop(self) -> None:
        """Publishers finish what they are at, then everybody goes."""
        self._is_over = True
        _, pending = await asyncio.wait(self._tasks, timeout=_STOP_S)
        for task in pending:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._tasks.clear()

    # -- publishers

    async def _publish(self, kind: str, number: int) -> None:
        name = f"{kind}-{number}"
        partition = str(number) if kind == DIRECT else None
        address = self.hub if partition is None else f"{self.hub}/Partitions/{number}"
        key = f"key-{number}" if kind == KEYED else None
        while not self._is_over:
            with suppress(ClientError, TimeoutError):
                async with ServiceBusClient.from_connection_string(self._through) as client:
                    sender = client.get_queue_sender(address)
                    async with asyncio.timeout(_ANSWER_S):
                        await sender.open()
                    while not self._is_over:
                        await self._publish_once(name, kind, partition, key, sender.send_messages)
            await asyncio.sleep(_AGAIN_S)

    async def _publish_once(
        self, name: str, kind: str, partition: str | None, key: str | None, send: Sends
    ) -> None:
        """Raises unless the server has taken or refused it."""
        values = self._values(name)
        messages = [
            ServiceBusMessage(body_of(value, self._filler_bytes), partition_key=key) for value in values
        ]
        outcome = INFO
        try:
            async with asyncio.timeout(_ANSWER_S):
                await send(messages)
            outcome = OK
        except ClientError as error:
            outcome = FAIL if error.condition in _REFUSALS else INFO
            if outcome == INFO:
                raise
            await asyncio.sleep(_AGAIN_S)
        finally:
            self._note(kind, Publication(name, values, outcome, time.monotonic(), partition))

    def _values(self, name: str) -> tuple[str, ...]:
        count = 1 if self._chance.random() < 0.4 else self._chance.randint(2, BATCH_MAX)
        first = len(self._by_publisher.get(name, ()))
        return tuple(f"{name}/{first}/{place}" for place in range(count))

    def _note(self, kind: str, publication: Publication) -> None:
        self._by_publisher.setdefault(publication.publisher, []).append(publication)
        if publication.outcome == OK:
            self.done[kind] += len(publication.values)

    async def _publish_idempotently(self, number: int) -> None:
        """What has no answer is sent again under its numbers, until it has one."""
        name, partition = f"{IDEMPOTENT}-{number}", str(number)
        producer = IdempotentProducer(self.hub, partition)
        values, attempts = self._values(name), 0
        while not self._is_over:
            with suppress(ClientError, TimeoutError):
                async with ServiceBusClient.from_connection_string(self._through) as client:
                    async with asyncio.timeout(_ANSWER_S):
                        await producer.attach(client)
                    while not self._is_over:
                        attempts += 1
                        async with asyncio.timeout(_ANSWER_S):
                            await producer.send([body_of(value, self._filler_bytes) for value in values])
                        self._note_group(name, partition, values, OK, attempts)
                        values, attempts = self._values(name), 0
            await asyncio.sleep(_AGAIN_S)
        if attempts:
            self._note_group(name, partition, values, INFO, attempts)

    def _note_group(
        self, name: str, partition: str, values: tuple[str, ...], outcome: str, attempts: int
    ) -> None:
        now = time.monotonic()
        self._note(
            IDEMPOTENT,
            Publication(name, values, outcome, now, partition, attempts=attempts, is_idempotent=True),
        )

    # -- readers

    async def _read(self, kind: str, partition: str) -> None:
        checkpoint = -1
        while not self._is_over:
            reading = Reading(f"{kind}-{partition}", kind, partition)
            events_max = self._chance.randint(1, _REPLAY_EVENTS_MAX)
            with suppress(ClientError, TimeoutError):
                await self._follow(reading, _start(kind, checkpoint), events_max)
            if reading.events:
                self.history.readings.append(reading)
                last = reading.events[-1].number
                if kind == FOLLOWS:
                    checkpoint = last
                elif kind == CHECKPOINTS:
                    checkpoint = max(checkpoint, last - last % _CHECKPOINT_EVERY - 1)
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, reading: Reading, start: StartPosition, events_max: int) -> None:
        """A follower for ever, the others for a while: they go on somewhere else then."""
        group = "$Default" if reading.kind == FOLLOWS else "second"
        async with ServiceBusClient.from_connection_string(self._through) as client:
            reader = client.get_event_reader(self.hub, reading.partition, start, group)
            async with asyncio.timeout(_ANSWER_S):
                await reader.open()
            while not self._is_over and (reading.kind == FOLLOWS or len(reading.events) < events_max):
                await self._take(reading, await reader.receive(0.5))

    async def _take(self, reading: Reading, messages: list[ServiceBusReceivedMessage]) -> None:
        """Where something is missing the partition is asked at once where it begins."""
        for event in map(seen_of, messages):
            last = reading.events[-1].number if reading.events else event.number - 1
            if event.number != last + 1:
                reading.begins[last] = await asyncio.to_thread(self._begin_of, reading.partition)
            reading.events.append(event)
        self.done[reading.kind] += len(messages)

    async def dawdle(self, partition: str, until: asyncio.Event) -> bool:
        """Reads the first events, and the next ones only when told. Whether something has left meanwhile."""
        reading = Reading(f"dawdles-{partition}", REPLAYS, partition)
        self.history.readings.append(reading)
        with suppress(ClientError, TimeoutError):
            async with (
                ServiceBusClient.from_connection_string(self._through) as client,
                client.get_event_reader(self.hub, partition, StartPosition.first(), "second") as reader,
            ):
                await self._take(reading, await reader.receive(_ANSWER_S))
                await until.wait()
                deadline = time.monotonic() + _ANSWER_S
                while not reading.begins and time.monotonic() < deadline:
                    await self._take(reading, await reader.receive(1.0))
        return bool(reading.begins)

    def _begin_of(self, partition: str) -> int:
        rows = partitions_of(self._server.connection_string, self.hub)
        return number_in(rows[int(partition)], "beginSequenceNumber")

    # -- the end

    async def verdict(self, *, known_before: float = float("inf"), may_have_left: bool = False) -> Verdict:
        """`may_have_left`: by retention."""
        history = self.history
        history.publications = [each for mine in self._by_publisher.values() for each in mine]
        rows = await asyncio.to_thread(partitions_of, self._server.connection_string, self.hub)
        async with ServiceBusClient.from_connection_string(self._server.connection_string) as client:
            for index, row in enumerate(rows):
                await self._read_all(client, str(index), number_in(row, "lastSequenceNumber") + 1)
        for index, row in enumerate(rows):
            if may_have_left:
                history.begins[str(index)] = max(0, number_in(row, "beginSequenceNumber"))
        return check_streams(history, known_before=known_before)

    async def _read_all(self, client: ServiceBusClient, partition: str, end: int) -> None:
        """By a link, in bulk, and by the reader with checkpoints, who has to come to the end."""
        history = self.history
        history.final[partition] = await read_partition(client, self.hub, partition, end)
        bulk = await asyncio.to_thread(read_in_bulk, self._server.connection_string, self.hub, partition, end)
        history.readings.append(Reading("bulk", CHECKPOINTS, partition, bulk))
        mine = [each for each in history.readings if each.kind == CHECKPOINTS and each.reader != "bulk"]
        last = max((each.events[-1].number for each in mine if each.partition == partition), default=-1)
        checkpoint = last - last % _CHECKPOINT_EVERY - 1
        rest = Reading(f"{CHECKPOINTS}-{partition}", CHECKPOINTS, partition)
        history.readings.append(rest)
        while checkpoint < end - 1 and (not rest.events or rest.events[-1].number < end - 1):
            start = _start(CHECKPOINTS, rest.events[-1].number if rest.events else checkpoint)
            async with client.get_event_reader(self.hub, partition, start) as reader:
                came = await reader.receive(5.0)
            if not came:
                return  # the checker says what it has missed
            rest.events += [seen_of(message) for message in came]


def _start(kind: str, checkpoint: int) -> StartPosition:
    if kind == REPLAYS:
        return StartPosition.first()
    if checkpoint < 0:
        return StartPosition.latest() if kind == FOLLOWS else StartPosition.first()
    return StartPosition(f"amqp.annotation.x-opt-sequence-number > '{checkpoint}'")
