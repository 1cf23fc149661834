"""F4, F15: files of an event hub that bear what nobody wrote. Most rounds damage copies of one filled hub and read
them in this process; the last ones damage a store of a real server and read it by links and in bulk.

No event ever comes changed. What is missing was reported with its numbers, or lies in a store that says it has lost
its last commits or cannot be read; whoever begins behind the damage reads on; other stores do not notice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from busway.client.errors import ClientError
from busway.client.events import StartPosition
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from busway.message.event_record import Event, event_of
from busway.model.errors import BrokerError, EventsLost
from busway.store.contract import StoreError
from busway.streams.cursor import Cursor, EventReader
from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.partition_log import PartitionLog
from tests.chaos.crash_streams import HUB, StreamWorld
from tests.chaos.damage import hurt
from tests.chaos.damaged_server import NOTICES, store_files
from tests.chaos.hub_reading import body_of, bulk_pages, partitions_of, seen_of, value_of
from tests.chaos.scenario import Outcome
from tests.chaos.stream_load import PARTITIONS, StreamLoad
from tests.harness.manual_clock import ManualClock
from tests.harness.running_server import RunningServer

NAME: Final = "event hub, damaged files"
EVENTS: Final = 400
_RUN: Final = 8
_STORES: Final = 2
#: One round in so many is played on a server as well.
SERVER_SHARE: Final = 50
_IDLE_S: Final = 0.4
_REMEMBERED_S: Final = 3.0
_LOST: Final = re.compile(r"\D(\d+) to (\d+)\D")


_Read = Callable[[RunningServer, int, int], Awaitable[list[tuple[int, str]]]]


def value_at(partition: int, number: int) -> str:
    return f"{partition}/{number}"


def damaged_streams(folder: Path, rounds: int, seed: int) -> Outcome:
    chance = random.Random(seed)
    violations, ways = damage_copies(folder, rounds, chance)
    served = max(2, rounds // SERVER_SHARE)
    violations.update(hit_chunks(folder / "hits", served, chance))
    violations.update(damage_servers(folder / "server", served, chance))
    note = ", ".join(f"{way} {count}" for way, count in ways.most_common())
    events = EVENTS * PARTITIONS
    return Outcome(
        NAME,
        rounds,
        rounds,
        events,
        events,
        violations=dict(violations),
        note=f"({note}; events hit {served}, servers {served})",
    )


# -- in this process


def hit_chunks(folder: Path, rounds: int, chance: random.Random) -> Counter[str]:
    """The violations of rounds that flip one bit of one known event: exactly its chunk is lost, and said to be."""
    violations: Counter[str] = Counter()
    filled = folder / "filled"
    asyncio.run(_fill(filled, is_killed=False))
    for number in range(rounds):
        copy = folder / f"hit-{number}"
        shutil.copytree(filled, copy)
        partition, victim = chance.randrange(PARTITIONS), chance.randrange(EVENTS)
        with _said() as said:
            wrong = asyncio.run(_hit(copy, partition, victim, chance, said))
        if wrong is not None:
            violations[f"one bit of event {victim} of partition {partition} flipped: {wrong}"] += 1
        else:
            shutil.rmtree(copy)
    return violations


async def _hit(
    folder: Path, partition: int, victim: int, chance: random.Random, said: list[str]
) -> str | None:
    flip_value(folder, value_at(partition, victim), chance)
    world = StreamWorld(folder, ManualClock(), None, _STORES)
    await world.open()
    try:
        found = [await _read_partition(world, each) for each in range(PARTITIONS)]
    finally:
        await world.close()
    first = victim - victim % _RUN
    for index, each in enumerate(found):
        expected = set(range(first, first + _RUN)) if index == partition else set()
        wrong = each.wrong(index)
        if wrong is not None or not each.missing() == each.lost == expected:
            return wrong or f"partition {index} lost {sorted(each.missing())} and says {sorted(each.lost)}"
    notice = f"Events {first} to {first + _RUN - 1} of partition {partition} of '{HUB}' are damaged"
    return None if any(notice in line for line in said) else "nobody said so in the log"


def flip_value(folder: Path, value: str, chance: random.Random) -> None:
    """One bit of its body, in whichever store and however often it lies there."""
    body = body_of(value)
    bit = 1 << chance.randrange(8)
    flipped = 0
    for file in folder.glob("*.db"):
        data = bytearray(file.read_bytes())
        at = data.find(body[: len(value) + 1])
        while at >= 0:
            data[at] ^= bit
            flipped += 1
            at = data.find(body[: len(value) + 1], at + 1)
        file.write_bytes(data)
    assert flipped, f"{value} is in no file"


def damage_copies(folder: Path, rounds: int, chance: random.Random) -> tuple[Counter[str], Counter[str]]:
    """(violations, how the rounds went)."""
    violations: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    filled = folder / "filled"
    asyncio.run(_fill(filled))
    for number in range(rounds):
        copy = folder / f"copy-{number}"
        shutil.copytree(filled, copy)
        store = chance.randrange(_STORES)
        file = chance.choice([f"store-{store}.db", f"store-{store}.db", f"store-{store}.db-wal"])
        what = hurt(copy / file, chance)
        with _said() as said:
            way, wrong = asyncio.run(_judge(copy, store, said))
        if wrong is not None:
            violations[f"{what}: {wrong}"] += 1
        else:
            ways[way] += 1
            shutil.rmtree(copy)
    return violations, ways


async def _fill(folder: Path, *, is_killed: bool = True) -> None:
    """The files of a hub whose server was killed, with the newest commits in the log still; or was stopped."""
    live = folder.with_name("live")
    live.mkdir(parents=True)
    world = StreamWorld(live, ManualClock(), None, _STORES)
    await world.open()
    await world.hubs.create(EventHubDescription(HUB, partition_count=PARTITIONS))
    for first in range(0, EVENTS, _RUN):
        for partition in range(PARTITIONS):
            events = [_event(value_at(partition, first + place)) for place in range(_RUN)]
            await world.publish(events, partition)
    await asyncio.sleep(1.3)  # the high-water mark follows within a second
    if not is_killed:
        await world.close()
    shutil.copytree(live, folder, ignore=shutil.ignore_patterns("*-shm"))
    if is_killed:
        await world.close()


def _event(value: str) -> Event:
    body = body_of(value)
    return event_of(b"\x00Su\xb0" + len(body).to_bytes(4, "big") + body)


class _Listener(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


@contextmanager
def _said() -> Iterator[list[str]]:
    """What the broker and its stores log, and nobody else hears."""
    said: list[str] = []
    handler = _Listener(said)
    logger = logging.getLogger("busway")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


async def _judge(folder: Path, hurt_store: int, said: list[str]) -> tuple[str, str | None]:
    """(how it went, what is wrong or None)."""
    world = StreamWorld(folder, ManualClock(), None, _STORES)
    try:
        await world.open()
    except (StoreError, BrokerError) as error:
        return "refused at opening", None if "store-" in str(error) else f"unclear sentence: {error}"
    try:
        return await _judge_partitions(world, hurt_store, said)
    finally:
        await world.close()


async def _judge_partitions(world: StreamWorld, hurt_store: int, said: list[str]) -> tuple[str, str | None]:
    way = "nothing is missing"
    try:
        stores = world.hubs.store_names(HUB)
    except BrokerError:
        is_home = hurt_store == 0 and _is_noticed(said)
        return "the hub is gone with its catalogue", None if is_home else "the hub is gone without a word"
    for partition, store in enumerate(stores):
        found = await _read_partition(world, partition)
        wrong = found.wrong(partition)
        if wrong is None and found.missing():
            way = found.how
            if store != f"store-{hurt_store}":
                wrong = f"partition {partition} of another store lost {len(found.missing())} events"
            elif found.unexplained() and not _is_noticed(said):
                wrong = f"partition {partition} lost {len(found.unexplained())} events without a word"
        if wrong is not None:
            return way, wrong
    return way, None


def _is_noticed(said: list[str]) -> bool:
    return any(notice in line for line in said for notice in (*NOTICES, "annot read"))


class _Found:
    """What could be read of one partition, and what was said to be lost."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str]] = []
        self.lost: set[int] = set()
        self.how = ""

    def missing(self) -> set[int]:
        return set(range(EVENTS)) - {number for number, _ in self.events}

    def unexplained(self) -> set[int]:
        return self.missing() - self.lost

    def wrong(self, partition: int) -> str | None:
        for number, value in self.events:
            if value != value_at(partition, number):
                return f"partition {partition} delivered '{value}' as number {number}"
        numbers = [number for number, _ in self.events]
        if numbers != sorted(set(numbers)):
            return f"partition {partition} came out of order"
        return self._skips(partition)

    def _skips(self, partition: int) -> str | None:
        """Whatever lies between two events that came was said to be lost."""
        if not self.events:
            return None
        inner = {number for number in self.unexplained() if number < self.events[-1][0]}
        if inner:
            return f"partition {partition} skipped {len(inner)} events in silence: {sorted(inner)[:5]}"
        return None


async def _read_partition(world: StreamWorld, partition: int) -> _Found:
    """From the beginning, and from behind each loss that is reported."""
    found = _Found()
    try:
        log = world.log(partition)
    except BrokerError:
        found.how = "a store is away"
        return found
    number = 0
    while number < EVENTS:
        reader = _Reader(log, number)
        await reader.finish()
        found.events += reader.events
        if reader.lost is None:
            found.how = "a read failed" if reader.is_stuck() else found.how or "the end is missing"
            return found
        found.how = "a damaged chunk was reported"
        first, last = reader.lost
        found.lost |= set(range(first, last + 1))
        number = last + 1
    return found


class _Reader(EventReader):
    def __init__(self, log: PartitionLog, number: int) -> None:
        self._log = log
        self.events: list[tuple[int, str]] = []
        self.lost: tuple[int, int] | None = None
        self._is_over = False
        self._cursor: Cursor = log.cursor(number, self)

    async def finish(self) -> None:
        """Until the end of the log, an eviction, or nothing more comes."""
        deadline = time.monotonic() + _IDLE_S
        self.wake()
        while not self._is_over and self._cursor.next_number < self._log.durable_end:
            await asyncio.sleep(0.002)
            if time.monotonic() > deadline and not self._cursor.is_fetching():
                break
        self._cursor.close()

    def is_stuck(self) -> bool:
        return self._cursor.next_number < self._log.durable_end

    def wake(self) -> None:
        while (run := self._cursor.next_run(100, 1 << 20)) is not None:
            for place in range(run.first, run.end):
                body = run.chunk.data[run.chunk.body_at(place) : run.chunk.end(place)]
                self.events.append((run.chunk.number(place), value_of(body)))

    def evict(self, error: BrokerError) -> None:
        self._is_over = True
        if isinstance(error, EventsLost):
            self.lost = _lost_in(error.sentence)


def _lost_in(sentence: str) -> tuple[int, int]:
    told = _LOST.search(sentence)
    assert told is not None, f"no numbers in: {sentence}"
    return int(told[1]), int(told[2])


# -- a server


def damage_servers(folder: Path, rounds: int, chance: random.Random) -> Counter[str]:
    violations: Counter[str] = Counter()
    for number in range(rounds):
        server = RunningServer(folder / str(number), "--stores", str(PARTITIONS)).start()
        try:
            violations.update(asyncio.run(_damage_a_server(server, chance)))
        finally:
            server.__exit__()
    return violations


async def _damage_a_server(server: RunningServer, chance: random.Random) -> list[str]:
    """Not the first store: with it goes the catalogue, as it does for queues."""
    await asyncio.to_thread(StreamLoad(server, HUB, 0).create)
    for partition in range(PARTITIONS):
        await _fill_partition(server, partition)
    rows = await asyncio.to_thread(partitions_of, server.connection_string, HUB)
    victim = chance.randrange(1, PARTITIONS)
    store = f"store-{victim}"
    # How far a store has come is remembered beside it every second: what is younger can vanish with a damaged log.
    await asyncio.sleep(_REMEMBERED_S)
    await asyncio.to_thread(server.kill)
    what = hurt(chance.choice(store_files(server, store)), chance)
    server.log.write_text("")
    await asyncio.to_thread(server.start)
    faults = []
    for partition, row in enumerate(rows):
        ways: tuple[_Read, ...] = (_read_by_link, _read_bulk)
        for read in ways:
            wrong = await _fault(server, partition, is_hurt=row["store"] == store, read=read)
            way = "by link" if read is _read_by_link else "in bulk"
            faults += [] if wrong is None else [f"{what} in {store}, read {way}: {wrong}"]
    return faults


async def _fill_partition(server: RunningServer, partition: int) -> None:
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(f"{HUB}/Partitions/{partition}") as sender,
    ):
        for first in range(0, EVENTS, _RUN):
            values = [value_at(partition, first + place) for place in range(_RUN)]
            await sender.send_messages([ServiceBusMessage(body_of(value)) for value in values])


async def _fault(server: RunningServer, partition: int, *, is_hurt: bool, read: _Read) -> str | None:
    found = _Found()
    number = 0
    while number < EVENTS:
        try:
            found.events += await read(server, partition, number)
            break
        except _Refusal as refusal:
            found.events += refusal.events
            if refusal.lost is None:
                break
            found.lost |= set(range(refusal.lost[0], refusal.lost[1] + 1))
            number = refusal.lost[1] + 1
    wrong = found.wrong(partition)
    if wrong is not None or not found.missing():
        return wrong
    if not is_hurt:
        return f"partition {partition} of another store lost {len(found.missing())} events"
    if found.unexplained() and not _is_noticed(server.log.read_text().splitlines()):
        return f"partition {partition} lost {len(found.unexplained())} events without a word"
    return None


class _Refusal(Exception):
    """The server would not go on."""

    def __init__(self, events: list[tuple[int, str]], error: ClientError) -> None:
        super().__init__(str(error))
        self.events = events
        self.lost = _lost_in(str(error)) if _LOST.search(str(error)) else None


async def _read_by_link(server: RunningServer, partition: int, number: int) -> list[tuple[int, str]]:
    events: list[tuple[int, str]] = []
    start = StartPosition.at_number(number) if number else StartPosition.first()
    try:
        async with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_event_reader(HUB, str(partition), start) as reader,
        ):
            while messages := await reader.receive(1.5):
                events += [(each.number, each.value) for each in map(seen_of, messages)]
                if events[-1][0] == EVENTS - 1:
                    break
    except ClientError as error:
        raise _Refusal(events, error) from error
    return events


async def _read_bulk(server: RunningServer, partition: int, number: int) -> list[tuple[int, str]]:
    events: list[tuple[int, str]] = []
    try:
        for page in bulk_pages(server.connection_string, HUB, str(partition), EVENTS, number):
            events += [(each.number, each.value) for each in page]
    except ClientError as error:
        raise _Refusal(events, error) from error
    return events
