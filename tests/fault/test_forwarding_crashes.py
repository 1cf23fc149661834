"""In equals out: what forwarding acknowledged arrives exactly once, whatever dies on the way."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from busway.client.errors import ClientError
from busway.client.messages import ServiceBusMessage
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from busway.model.descriptions import Description
from busway.model.errors import BrokerError, StoreOutcomeUnknown
from busway.store.contract import FragmentKey, Page
from tests.fault.forwarding_world import (
    FIRST,
    LAST,
    ForwardingWorld,
    from_the_first_store,
    queue_to_queue,
    through_a_topic,
)
from tests.harness.running_server import RunningServer
from tests.harness.shares import SHARES, one_of_them
from tests.store_contract.faulty_disk import FaultyDisk, reboot
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench

pytestmark = pytest.mark.fault

KILLED, POWER_CUT, ERROR = "killed", "power cut", "error"
IDS: Final = ["a", "b", "c"]

CHAINS: Final[dict[str, tuple[Callable[[], list[Description]], int]]] = {
    "to a queue of the same store": (queue_to_queue, 1),
    "to a queue of another store": (queue_to_queue, 2),
    "from the first store to the second": (from_the_first_store, 2),
    "through a topic between two stores": (through_a_topic, 2),
}


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: the disk's faults are our own. The log would be nothing but complaints."""
    memory = Path("/dev/shm")
    logger = logging.getLogger("busway")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        if os.access(memory, os.W_OK):
            with tempfile.TemporaryDirectory(prefix="busway-forwarding-", dir=memory) as folder:
                yield Path(folder)
        else:
            yield tmp_path
    finally:
        logger.setLevel(level)


@dataclass
class Sent:
    """What the sender knows in the end."""

    acknowledged: set[str] = field(default_factory=set)
    #: Nobody told it: they may be there or not.
    unknown: set[str] = field(default_factory=set)

    def check(self, arrived: list[str]) -> None:
        double = [name for name, count in Counter(arrived).items() if count > 1]
        lost = self.acknowledged - set(arrived)
        foreign = set(arrived) - self.acknowledged - self.unknown
        assert (double, lost, foreign) == ([], set(), set())


@pytest.mark.parametrize(
    ("way", "share"),
    [
        pytest.param(way, *row.values, id=f"{way}-{row.id}", marks=row.marks)
        for at, way in enumerate((KILLED, POWER_CUT, ERROR))
        for row in one_of_them(at)
    ],
)
@pytest.mark.parametrize("chain", CHAINS)
def test_a_fault_at_any_write_of_a_move_neither_loses_nor_doubles(
    quick: Path, chain: str, way: str, share: int
) -> None:
    """F2, F5: F-1, F-7: at every write, sync and truncation from the send to the end of the move."""
    trial = Trial(quick, chain)
    first, last = trial.prepare()
    met = [trial.play(step, way) for step in range(first + share, last + 1, SHARES)]
    assert all(met), "some fault was never met"
    assert len(met) > 3


def test_rows_that_have_arrived_do_not_move_again_when_their_store_opens_late(quick: Path) -> None:
    """F1: F-1: the forwarder has read its rows before the destination's store says what lies there already."""
    trial = Trial(quick, "from the first store to the second")
    first, last = trial.prepare()
    halves = [folder for step in range(first, last + 1) if (folder := trial.half_done(step)) is not None]
    assert halves, "no crash left a move half done"
    for folder in halves:
        asyncio.run(_open_late(folder))


async def _open_late(folder: Path) -> None:
    world = ForwardingWorld(folder, None, 2)
    all_open = asyncio.Event()
    read = world.stores[0].messages

    async def read_and_wait(
        fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        page = await read(fragment, place, after, limit, bytes_max)
        await all_open.wait()
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.stores[0], "messages", read_and_wait)
        await world.open()
        all_open.set()
        await world.until_at_rest()
        assert await world.arrived() == IDS
        await world.close()


def test_a_source_that_comes_back_does_not_overtake_its_own_run() -> None:
    """F1: F-1, F-7: its store fails and is opened again while a run still waits for the destination's disk."""

    async def test(bench: TopicBench) -> None:
        await bench.queue(LAST)
        await bench.queue(FIRST, forward_to=LAST)
        slow, failing = bench.stores
        slow.hold_commits()
        await bench.publish(FIRST, encoded("a"))
        failing.refuse_next_commit()
        assert len(await bench.try_publish(FIRST, encoded("refused"))) == 1
        await bench.advance(30.0)
        await bench.publish(FIRST, encoded("b"))
        slow.release_commits()
        await bench.advance(10.0, 0.5)
        assert await bench.bodies(LAST) == ["a", "b"]
        assert (await bench.namespace.counts(FIRST)).active == 0
        assert [await store.transfer_marks() for store in bench.stores] == [[], []]

    on_a_topic_bench(test, 2)


class Trial:
    """One chain. `prepare` once, then `play` each point."""

    def __init__(self, folder: Path, chain: str) -> None:
        self._folder = folder
        self._descriptions, self._store_count = CHAINS[chain]

    def prepare(self) -> tuple[int, int]:
        """The first and the last step of a life without faults that lie between its opening and its end."""
        (self._folder / "start").mkdir()
        asyncio.run(self._fill())
        return asyncio.run(self._count())

    async def _fill(self) -> None:
        world = ForwardingWorld(self._folder / "start", None, self._store_count)
        await world.open()
        await world.create(*self._descriptions())
        names = {world.store_of(FIRST), world.store_of(LAST)}
        assert len(names) == 1 or self._store_count > 1
        await world.close()

    async def _count(self) -> tuple[int, int]:
        with FaultyDisk() as disk:
            world = ForwardingWorld(self._copy("whole"), disk, self._store_count)
            await world.open()
            opened = disk.steps
            assert await world.send(IDS) == []
            await world.until_at_rest()
            assert await world.arrived() == IDS
            moved = disk.steps
            await world.close()
            return opened + 1, moved

    def _copy(self, name: str) -> Path:
        shutil.copytree(self._folder / "start", self._folder / name)
        return self._folder / name

    def play(self, step: int, way: str) -> bool:
        """Whether the fault was met at all."""
        folder = self._copy(f"write-{step}")
        with FaultyDisk() as disk:
            if way == ERROR:
                disk.fail_at(step)
                sent = asyncio.run(self._survive(folder, disk))
            else:
                disk.die_at(step)
                sent = asyncio.run(self._die(folder, disk))
            met = disk.faults > 0
            if way == POWER_CUT:
                disk.cut_power()
        for file in folder.glob("*.db"):
            reboot(file)
        asyncio.run(self._recount(folder, sent))
        shutil.rmtree(folder)
        return met

    def half_done(self, step: int) -> Path | None:
        """A folder after a crash that left rows both at their source and, with marks, at their destination."""
        folder = self._copy(f"half-{step}")
        with FaultyDisk() as disk:
            disk.die_at(step)
            asyncio.run(self._die(folder, disk))
        for file in folder.glob("*.db"):
            reboot(file)
        return folder if asyncio.run(self._is_half_done(folder)) else None

    async def _is_half_done(self, folder: Path) -> bool:
        """Looked at without a namespace, which would finish it."""
        marks, rows = 0, 0
        for store in ForwardingWorld(folder, None, self._store_count).stores:
            await store.open()
            marks += len(await store.transfer_marks())
            rows += sum([row.counters.active for row in await store.fragments()])
            await store.close()
        return marks > 0 and rows > len(IDS)

    async def _die(self, folder: Path, disk: FaultyDisk) -> Sent:
        """A life that ends at a write: nothing is written from there on."""
        world = ForwardingWorld(folder, disk, self._store_count)
        await world.open()
        sent = await _sent(world)
        await world.until_moved_or_failed()
        await world.close()
        return sent

    async def _survive(self, folder: Path, disk: FaultyDisk) -> Sent:
        """One call fails; the stores come back by themselves and the same process goes on."""
        world = ForwardingWorld(folder, disk, self._store_count)
        await world.open()
        sent = await _sent(world)
        await world.until_at_rest()
        await _check(world, sent)
        await world.close()
        return sent

    async def _recount(self, folder: Path, sent: Sent) -> None:
        """In the next life, and again in the one after it."""
        for _ in range(2):
            world = ForwardingWorld(folder, None, self._store_count)
            await world.open()
            await world.until_at_rest()
            await _check(world, sent)
            await world.close()


async def _sent(world: ForwardingWorld) -> Sent:
    errors: list[BrokerError] = await world.send(IDS)
    if not errors:
        return Sent(acknowledged=set(IDS))
    return Sent(
        unknown=set(IDS) if any(isinstance(error, StoreOutcomeUnknown) for error in errors) else set()
    )


async def _check(world: ForwardingWorld, sent: Sent) -> None:
    arrived = await world.arrived()
    sent.check(arrived)
    assert arrived == sorted(arrived), "the order was lost"
    assert await world.arrived(dead_letter=True) == []
    assert await world.marks() == 0, "a mark has outlived its move"


# -- a real server


KILLS: Final = 5
SENDERS: Final = 3
RUN_MESSAGES: Final = 10


def test_a_killed_server_forwards_everything_exactly_once(tmp_path: Path) -> None:
    """F1: F-1, F-7, T-9: queue, topic, subscription, queue over several stores, kill -9 under load, counted by id."""
    config = tmp_path / "chain.json"
    config.write_text(json.dumps(_chain_config()))
    server = RunningServer(tmp_path / "server", "--config", str(config))
    with server:
        sent, arrived = asyncio.run(_kill_and_count(server, random.Random(11)))
    assert len(sent.acknowledged) >= KILLS * RUN_MESSAGES
    sent.check(arrived)


def _chain_config() -> dict[str, object]:
    subscription = {"Name": "on", "Properties": {"ForwardTo": LAST}}
    namespace = {
        "Name": "busway",
        "Queues": [{"Name": LAST}, {"Name": FIRST, "Properties": {"ForwardTo": "topic"}}],
        "Topics": [{"Name": "topic", "Subscriptions": [subscription]}],
    }
    return {"Format": "busway/1", "UserConfig": {"Namespaces": [namespace]}}


async def _kill_and_count(server: RunningServer, chance: random.Random) -> tuple[Sent, list[str]]:
    senders = [Sender(server, number) for number in range(SENDERS)]
    tasks = [asyncio.create_task(sender.run()) for sender in senders]
    for _ in range(KILLS):
        for sender in senders:
            await sender.next_acknowledged()
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    for sender in senders:
        sender.is_over = True
    await asyncio.gather(*tasks)
    sent = Sent()
    for sender in senders:
        sent.acknowledged |= sender.sent.acknowledged
        sent.unknown |= sender.sent.unknown
    return sent, await _drained(server, sent)


class Sender:
    """Sends run after run. One that was not answered is never sent again: nobody but the server can double it."""

    def __init__(self, server: RunningServer, number: int) -> None:
        self._server = server
        self._number = number
        self._runs = 0
        self._acknowledged = asyncio.Event()
        self.sent = Sent()
        self.is_over = False

    async def next_acknowledged(self) -> None:
        self._acknowledged.clear()
        await self._acknowledged.wait()

    async def run(self) -> None:
        while not self.is_over:
            try:
                async with (
                    ServiceBusClient.from_connection_string(self._server.connection_string) as client,
                    client.get_queue_sender(FIRST) as sender,
                ):
                    while not self.is_over:
                        await self._send(sender)
            except (ClientError, OSError):
                await asyncio.sleep(0.05)

    async def _send(self, sender: ServiceBusSender) -> None:
        self._runs += 1
        names = {f"{self._number}-{self._runs}-{index}" for index in range(RUN_MESSAGES)}
        self.sent.unknown |= names
        await sender.send_messages([ServiceBusMessage(b"x", message_id=name) for name in names])
        self.sent.unknown -= names
        self.sent.acknowledged |= names
        self._acknowledged.set()


async def _drained(server: RunningServer, sent: Sent) -> list[str]:
    """Receives until all that was acknowledged has come and then nothing more for a while."""
    arrived: list[str] = []
    quiet = 0
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(LAST, receive_mode=RECEIVE_AND_DELETE) as receiver,
    ):
        while quiet < 2 and len(arrived) < 2 * len(sent.acknowledged | sent.unknown):
            found = await receiver.receive_messages(max_message_count=500, max_wait_time=1)
            arrived += [str(message.message_id) for message in found]
            quiet = 0 if found or not sent.acknowledged <= set(arrived) else quiet + 1
    return arrived
