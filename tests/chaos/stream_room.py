"""F6, F15: events that must go. Retention takes chunks from under readers, and a full disk refuses what is published
and nothing else: reading, reading in bulk and retention go on, and it heals without a restart.

A log is looked at some seconds after its store was opened, and then every minute: so a round begins with a restart.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Final

from busway.amqp.errors import Condition
from busway.client.errors import ClientError
from busway.client.messages import ServiceBusMessage
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from tests.chaos.checker import Verdict
from tests.chaos.disk_full import SmallDisk
from tests.chaos.history import FAIL, OK
from tests.chaos.hub_reading import body_of, number_in, partitions_of, read_in_bulk, read_partition
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.chaos.stream_checker import REPLAYS, Publication, Reading, StreamHistory, check_streams
from tests.chaos.stream_load import PARTITIONS, StreamLoad
from tests.chaos.streams import wait_for_work
from tests.harness.running_server import RunningServer

RETENTION_NAME: Final = "event hub, retention under readers"
FULL_NAME: Final = "event hub, full disk"
HUB: Final = "clicks"
#: Retention by size: some chunks of the load below, and few of the full disk's.
SIZE_BYTES_MAX: Final = 200_000
LOOK_S_MAX: Final = 30.0
HEAL_S_MAX: Final = 15.0
_FILLER_BYTES: Final = 1_200
_LARGE_BYTES: Final = 200_000
_SENDS_MAX: Final = 2_000
_READ_EVENTS: Final = 5
_STORES: Final = ("--stores", str(PARTITIONS))
_SMALL: Final[dict[str, object]] = {"RetentionDescription": {"PartitionSizeInBytes": SIZE_BYTES_MAX}}


# -- retention under readers


def retention_under_readers(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_retention(folder, rounds, random.Random(seed)))


async def _retention(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    server = RunningServer(folder, *_STORES).start()
    load = StreamLoad(server, HUB, chance.randrange(1 << 30), filler_bytes=_FILLER_BYTES)
    done = 0
    try:
        await asyncio.to_thread(load.create, _SMALL)
        load.start()
        for number in range(rounds):
            if number:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            done += await _one_look(server, load)
        await load.stop()
        verdict = await load.verdict(may_have_left=True)
    finally:
        await asyncio.to_thread(server.__exit__)
    begins = ", ".join(str(load.history.begins[str(index)]) for index in range(PARTITIONS))
    return outcome(RETENTION_NAME, done, rounds, verdict, f"(partitions begin at {begins})")


async def _one_look(server: RunningServer, load: StreamLoad) -> bool:
    """Whether chunks have left, everybody went on, and somebody who was slow has found them gone."""
    has_left = asyncio.Event()
    dawdlers = [asyncio.create_task(load.dawdle(str(index), has_left)) for index in range(PARTITIONS)]
    leaves = await _chunks_leave(server)
    has_left.set()
    return any(await asyncio.gather(*dawdlers)) and leaves and await wait_for_work(load)


async def _chunks_leave(server: RunningServer) -> bool:
    """In every partition."""
    before = await _begins(server)
    deadline = time.monotonic() + LOOK_S_MAX
    while time.monotonic() < deadline:
        now = await _begins(server)
        if all(there > then for there, then in zip(now, before, strict=True)):
            return True
        await asyncio.sleep(0.2)
    return False


async def _begins(server: RunningServer) -> list[int]:
    rows = await asyncio.to_thread(partitions_of, server.connection_string, HUB)
    return [max(0, number_in(row, "beginSequenceNumber")) for row in rows]


# -- a full disk


def fill_streams(folder: Path, rounds: int, _: int) -> Outcome:
    disk = SmallDisk(folder)
    reason = disk.why_not()
    if reason is not None:
        return Outcome(FULL_NAME, 0, rounds, skipped=reason)
    server = RunningServer(folder / "server", "--stores", "1")
    server.data = disk.path / "data"
    together = Verdict()
    try:
        server.start()
        for number in range(rounds):
            add_verdict(together, asyncio.run(_FullRound(server, disk, f"{HUB}-{number}").play()))
    finally:
        server.__exit__()
        disk.unmount()
    return outcome(FULL_NAME, rounds, rounds, together)


class _FullRound:
    """One hub of one partition."""

    def __init__(self, server: RunningServer, disk: SmallDisk, hub: str) -> None:
        self._server = server
        self._disk = disk
        self._hub = hub
        self._history = StreamHistory()
        self._wrong: list[str] = []

    async def play(self) -> Verdict:
        properties = {**_SMALL, "PartitionCount": 1}
        await asyncio.to_thread(StreamLoad(self._server, self._hub, 0).create, properties)
        await self._fill_up()
        self._disk.fill_up()
        await asyncio.sleep(0.6)  # two looks at the free space: the reserve is given back
        await self._use_when_full("a full disk")
        await asyncio.to_thread(self._server.stop)
        await asyncio.to_thread(self._server.start)
        await self._use_when_full("a full disk after a restart")
        if not await self._begin_moves():
            self._wrong.append("retention stands still on a full disk")
        self._disk.make_room()
        if not await self._heals():
            self._wrong.append("nothing can be published though there is room again")
        return await self._verdict()

    async def _fill_up(self) -> None:
        async with self._client() as client, client.get_queue_sender(self._hub) as sender:
            for _ in range(_SENDS_MAX):
                if not await self._publish(sender):
                    return
        self._wrong.append("never refused")

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._server.connection_string)

    async def _publish(self, sender: ServiceBusSender) -> bool:
        value = f"{self._hub}/{len(self._history.publications)}"
        result = OK
        try:
            await sender.send_messages(ServiceBusMessage(body_of(value, _LARGE_BYTES)))
        except ClientError as error:
            if error.condition != Condition.RESOURCE_LIMIT_EXCEEDED:
                self._wrong.append(f"refused with {error.condition}: {error}")
            result = FAIL
        self._history.publications.append(Publication("one", (value,), result, time.monotonic(), "0"))
        return result == OK

    async def _use_when_full(self, when: str) -> None:
        """Publishing is refused; reading works, both ways."""
        row = await self._row()
        begin, end = number_in(row, "beginSequenceNumber"), number_in(row, "lastSequenceNumber") + 1
        async with self._client() as client, client.get_queue_sender(self._hub) as sender:
            if await self._publish(sender):
                self._wrong.append(f"published on {when}")
            seen = await read_partition(client, self._hub, "0", begin + _READ_EVENTS)
        bulk = await asyncio.to_thread(
            read_in_bulk, self._server.connection_string, self._hub, "0", min(end, begin + _READ_EVENTS)
        )
        self._history.readings += [Reading(when, REPLAYS, "0", seen), Reading("bulk", REPLAYS, "0", bulk)]
        if not seen or not bulk:
            self._wrong.append(f"nothing can be read on {when}")

    async def _row(self) -> dict[str, object]:
        rows = await asyncio.to_thread(partitions_of, self._server.connection_string, self._hub)
        return rows[0]

    async def _begin_moves(self) -> bool:
        deadline = time.monotonic() + LOOK_S_MAX
        while time.monotonic() < deadline:
            if number_in(await self._row(), "sizeInBytes") <= 2 * _LARGE_BYTES:
                return True
            await asyncio.sleep(0.2)
        return False

    async def _heals(self) -> bool:
        deadline = time.monotonic() + HEAL_S_MAX
        async with self._client() as client, client.get_queue_sender(self._hub) as sender:
            while not await self._publish(sender):
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(0.1)
        return True

    async def _verdict(self) -> Verdict:
        row = await self._row()
        end = number_in(row, "lastSequenceNumber") + 1
        self._history.begins["0"] = number_in(row, "beginSequenceNumber")
        async with self._client() as client:
            self._history.final["0"] = await read_partition(client, self._hub, "0", end)
        verdict = check_streams(self._history)
        for what in self._wrong:
            verdict.found(what, self._hub)
        return verdict
