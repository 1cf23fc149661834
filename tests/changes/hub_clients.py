"""Clients of an event hub: they publish, with and without keys, and follow its partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.message.event_chunk import Chunk
from busway.message.event_record import Event
from busway.model.errors import BrokerError, EntityNotFound
from busway.streams.cursor import Cursor, EventReader
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import DEFAULT_GROUP
from busway.streams.partition_log import PartitionLog
from tests.changes.client import Client, SendLink
from tests.changes.messages import VALUE_CHARACTERS, bare_of
from tests.changes.record import Work, result_of
from tests.chaos.history import FAIL, INFO
from tests.chaos.stream_checker import FOLLOWS, Publication, Reading, Seen

if TYPE_CHECKING:
    from tests.changes.world import World

_KEYS: Final = ("k0", "k1", "k2")
_BYTES_MAX: Final = 1 << 20


class Publisher(Client):
    """One publication after the other, each repeated until it is accepted."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._link: SendLink | None = None
        self._hub: EventHub | None = None

    def leave(self) -> None:
        if self._link is not None and self._hub is not None and not self._link.is_gone:
            self._hub.detach(self._link)

    async def act(self) -> None:
        drafts = [self.world.draft() for _ in range(self.chance.choice((1, 1, 2, 5)))]
        values = tuple(draft.value for draft in drafts)
        key = self.chance.choice((None, *_KEYS))
        work = self.record.begin("publish")
        began, attempts, result = self.record.now(), 0, FAIL
        while result == FAIL:
            self.doing = f"publishes {values[0]}"
            problem = await self._try(values, key)
            result = result_of(problem)
            attempts += 1
            self.record.note(f"publish {values[0]} {result} {type(problem).__name__}")
            self.record.count(f"publish {result} {'' if problem is None else type(problem).__name__}".strip())
            if problem is not None and result == FAIL:
                await self.refused(problem)
        self.served()
        self.record.first_sent[values[0]] = began
        self.record.publications.append(
            Publication(self.name, values, result, self.record.now(), attempts=attempts)
        )
        if result != INFO:
            self.record.end(work)

    async def _try(self, values: tuple[str, ...], key: str | None) -> BrokerError | None:
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        events = [Event(bare_of(value)) for value in values]
        try:
            hub = self._attached()
            if key is None:
                hub.publish(events, answer.set_result)
            else:
                for event in events:
                    event.set_partition_key(key)
                hub.publish_keyed(key, events, answer.set_result)
        except BrokerError as error:
            return error
        return await answer

    def _attached(self) -> EventHub:
        if self._link is None or self._link.is_gone or self._hub is None:
            link = SendLink()
            hub = self.world.hubs.hub(self.world.subject.path)
            hub.attach(link, sends=True)
            self._link, self._hub = link, hub
        return self._hub


class _Link(EventReader):
    """A reading link."""

    def __init__(self, client: Follower, hub: EventHub, log: PartitionLog, reading: Reading) -> None:
        self.client = client
        self.hub = hub
        self.log = log
        self.reading = reading
        self.cursor: Cursor | None = None
        self.is_gone = False

    def wake(self) -> None:
        self.client.pull(self)

    def evict(self, error: BrokerError) -> None:
        self.is_gone = True
        if self.cursor is not None:
            self.cursor.close()
        self.client.evicted(error)

    def leave(self) -> None:
        if not self.is_gone and self.cursor is not None:
            self.is_gone = True
            self.cursor.close()
            self.log.readers.remove(DEFAULT_GROUP, self)
            self.hub.detach(self)


class Follower(Client):
    """Reads one partition, and goes on behind the last event that it saw."""

    def __init__(self, world: World, name: str, partition: str) -> None:
        super().__init__(world, name)
        self._partition = partition
        self._next = 0
        self._link: _Link | None = None
        self._work: Work | None = None

    def leave(self) -> None:
        if self._link is not None:
            self._link.leave()

    async def act(self) -> None:
        self.doing = f"reads partition {self._partition}"
        if self._link is None or self._link.is_gone:
            try:
                self._attach()
            except BrokerError as error:
                self.evicted(error)
                await self.refused(error)
                return
            self.served()
        if self._work is None:
            self._work = self.record.begin("read")
        link = self._link
        if link is not None:
            self.pull(link)

    def _attach(self) -> None:
        hub = self.world.hubs.hub(self.world.subject.path)
        log = hub.partition(self._partition)
        reading = Reading(self.name, FOLLOWS, self._partition)
        link = _Link(self, hub, log, reading)
        hub.attach(link, sends=False)
        link.cursor = log.cursor(self._next, link)
        log.readers.add(DEFAULT_GROUP, link)
        self.record.readings.append((self.record.now(), reading))
        self._link = link

    def evicted(self, error: BrokerError) -> None:
        self.record.note(f"{self.name} {type(error).__name__}")
        if isinstance(error, EntityNotFound):  # a hub of that name is another one
            self._next = 0

    def pull(self, link: _Link) -> None:
        while not link.is_gone and link.cursor is not None:
            run = link.cursor.next_run(10, _BYTES_MAX)
            if run is None:
                return
            link.reading.events += seen_in(run.chunk, run.first, run.end, self.record.now())
            self._next = link.reading.events[-1].number + 1
            if self._work is not None:
                self.record.end(self._work)
                self._work = None


def seen_in(chunk: Chunk, first: int, end: int, now: float) -> list[Seen]:
    return [
        Seen(
            chunk.number(place),
            str(chunk.number(place)),
            chunk.at_ms(place),
            chunk.record(place)[-VALUE_CHARACTERS:].decode(),
            now,
        )
        for place in range(first, end)
    ]


async def final_reading(world: World) -> tuple[dict[str, list[Seen]], dict[str, int]]:
    """By partition everything that is there, and where it begins."""
    hub = world.hubs.hub(world.subject.path)
    found: dict[str, list[Seen]] = {}
    begins: dict[str, int] = {}
    for partition in hub.partition_ids():
        log = hub.partition(partition)
        found[partition], number = [], max(0, log.info().begin_number)
        begins[partition] = number
        reading = Reading("finale", FOLLOWS, partition)
        client = Follower(world, "finale", partition)
        link = _Link(client, hub, log, reading)
        link.cursor = log.cursor(number, link)
        while link.cursor.next_number < log.durable_end:
            client.pull(link)
            await asyncio.sleep(0.01)
        link.cursor.close()
        found[partition] = reading.events
    return found, begins
