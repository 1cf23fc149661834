"""Writes in two phases, whatever dies on the way: nothing lost, nothing double, nothing seen before its decision."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from busway.client.connection_string import ConnectionString, token_for
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.service_bus_client import ServiceBusClient
from tests.fault.staging_world import (
    PART_ROWS,
    PARTS,
    DeadWorld,
    StagingWorld,
    make_hub,
    make_partitioned_queue,
    make_queue,
    make_queue_without_duplicates,
    make_topic,
)
from tests.harness.running_server import RunningServer
from tests.harness.shares import SHARES, one_of_them
from tests.store_contract.faulty_disk import FaultyDisk, reboot
from tests.unit.broker.topic_bench import encoded
from tests.unit.staging.staging_bench import part_of

pytestmark = pytest.mark.fault

WAYS: Final = ("killed", "power cut", "error")
KILLED, POWER_CUT, ERROR = WAYS
STAGE_ROWS: Final = PARTS * PART_ROWS
ALL: Final = sorted(f"row {number}" for number in range(2 * STAGE_ROWS))

TARGETS: Final[dict[str, tuple[Callable[[StagingWorld], Awaitable[None]], int]]] = {
    "a queue": (make_queue, 1),
    "a queue without duplicates": (make_queue_without_duplicates, 1),
    "a partitioned queue": (make_partitioned_queue, 2),
    "a topic": (make_topic, 1),
    "a hub": (make_hub, 2),
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
            with tempfile.TemporaryDirectory(prefix="busway-staging-", dir=memory) as folder:
                yield Path(folder)
        else:
            yield tmp_path
    finally:
        logger.setLevel(level)


@dataclass
class Known:
    """What the writer knows in the end."""

    has_asked: bool = False
    is_told: bool = False

    def check(self, seen: list[list[str]]) -> None:
        for place in seen:
            found = sorted(place)
            assert found in ([], ALL), f"a part of the batch is there, or some of it twice: {found}"
            if not self.has_asked:
                assert found == [], "rows of a batch that nobody decided are seen"
            if self.is_told:
                assert found == ALL, "rows of a batch that was decided are lost"
        assert len({tuple(sorted(place)) for place in seen}) == 1


@pytest.mark.parametrize(
    ("way", "share"),
    [
        pytest.param(way, *row.values, id=f"{way}-{row.id}", marks=row.marks)
        for at, way in enumerate(WAYS)
        for row in one_of_them(at)
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_a_fault_at_any_write_neither_loses_nor_doubles(
    quick: Path, target: str, way: str, share: int
) -> None:
    """Staging: at every write, sync and truncation from the first part to the end of the publication."""
    trial = Trial(quick, target)
    first, last = trial.prepare()
    is_daily = share == WAYS.index(way) % SHARES
    stride = SHARES * (trial.thinned if is_daily else 1)
    met = [trial.play(step, way) for step in range(first + share, last + 1, stride)]
    # What is swept behind everybody's back joins other commits each time.
    assert sum(met) >= 0.8 * len(met), "many faults were never met"
    assert len(met) > 5


class Trial:
    """One kind of target. `prepare` once, then `play` each point."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        self._make, self._store_count = TARGETS[target]
        #: Of many points that are much alike only some are tried every day.
        self.thinned = 3 if self._store_count == 1 else 8

    def prepare(self) -> tuple[int, int]:
        """The first and the last step of a life without faults that lie between its opening and its end."""
        (self._folder / "start").mkdir()
        asyncio.run(self._fill())
        return asyncio.run(self._count())

    async def _fill(self) -> None:
        world = StagingWorld(self._folder / "start", None, self._store_count)
        await world.open()
        await self._make(world)
        await world.close()

    async def _count(self) -> tuple[int, int]:
        with FaultyDisk() as disk:
            world = StagingWorld(self._copy("whole"), disk, self._store_count)
            await world.open()
            opened = disk.steps
            known = Known()
            await self._write(world, known, is_dying=False)
            await world.until_at_rest()
            written = disk.steps
            known.check(await world.seen())
            assert await world.leftovers() == ["decision:query"]
            await world.close()
            return opened + 1, written

    def _copy(self, name: str) -> Path:
        shutil.copytree(self._folder / "start", self._folder / name)
        return self._folder / name

    def play(self, step: int, way: str) -> bool:
        """Whether the fault was met at all."""
        folder = self._copy(f"write-{step}")
        known = Known()
        with FaultyDisk() as disk:
            if way == ERROR:
                disk.fail_at(step)
                asyncio.run(self._survive(folder, disk, known))
            else:
                disk.die_at(step)
                asyncio.run(self._die(folder, disk, known))
            met = disk.faults > 0
            if way == POWER_CUT:
                disk.cut_power()
        for file in folder.glob("*.db"):
            reboot(file)
        asyncio.run(self._recount(folder, known))
        asyncio.run(self._repeat(folder))
        shutil.rmtree(folder)
        return met

    async def _write(self, world: StagingWorld, known: Known, *, is_dying: bool) -> None:
        """Two tasks, one that died and left its stage, and the driver."""
        await world.stage(1, 0, is_dying=is_dying)
        await world.stage(2, 0, is_dying=is_dying)
        await world.stage(3, STAGE_ROWS, is_dying=is_dying)
        if not world.has_failed():
            known.check(await world.seen())
        known.has_asked = True
        await world.decide({2: STAGE_ROWS, 3: STAGE_ROWS}, is_dying=is_dying)
        known.is_told = True

    async def _die(self, folder: Path, disk: FaultyDisk, known: Known) -> None:
        """A life that ends at a write: nothing is written from there on."""
        world = StagingWorld(folder, disk, self._store_count)
        await world.open()
        try:
            await self._write(world, known, is_dying=True)
            await world.until_published_or_failed()
        except DeadWorld:
            pass
        await world.close()

    async def _survive(self, folder: Path, disk: FaultyDisk, known: Known) -> None:
        """One call fails; the stores come back by themselves and the same process goes on."""
        world = StagingWorld(folder, disk, self._store_count)
        await world.open()
        await self._write(world, known, is_dying=False)
        known.check(await world.seen_at_rest())
        await world.close()

    async def _recount(self, folder: Path, known: Known) -> None:
        """In the next life."""
        world = StagingWorld(folder, None, self._store_count)
        await world.open()
        known.check(await world.seen_at_rest())
        await world.close()

    async def _repeat(self, folder: Path) -> None:
        """The driver is started again and repeats the batch, in other pieces and under other ids."""
        world = StagingWorld(folder, None, self._store_count)
        await world.open()
        await world.stage(8, STAGE_ROWS, is_dying=False)
        await world.stage(9, 0, is_dying=False)
        await world.decide({8: STAGE_ROWS, 9: STAGE_ROWS}, is_dying=False)
        Known(has_asked=True, is_told=True).check(await world.seen_at_rest())
        assert await world.leftovers() == ["decision:query"]
        assert world.stagings.table.undecided_bytes == 0
        assert not world.stagings.table.stages
        assert not world.namespace.runtime.reserved_bytes
        await world.close()


# -- a real server

KILLS: Final = 4
BATCHES_MIN: Final = 8
BATCH_STAGES: Final = 3


def test_a_killed_server_publishes_every_batch_once(tmp_path: Path) -> None:
    """F1: Staging: batch after batch into a partitioned queue over four stores, kill -9, counted by row."""
    queue = {"Name": "target", "Properties": {"EnablePartitioning": True}}
    namespace = {"Name": "busway", "Queues": [queue]}
    config = tmp_path / "queue.json"
    config.write_text(json.dumps({"Format": "busway/1", "UserConfig": {"Namespaces": [namespace]}}))
    server = RunningServer(tmp_path / "server", "--config", str(config))
    with server:
        query = Query(server)
        thread = threading.Thread(target=query.run)
        thread.start()
        chance = random.Random(5)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.8))
            server.kill()
            server.start()
        while query.batch < BATCHES_MIN and thread.is_alive():
            time.sleep(0.05)
        query.is_over = True
        thread.join()
        assert query.failure is None
        arrived = Counter(asyncio.run(_drained(server, len(query.rows))))
    assert [row for row, count in arrived.items() if count > 1] == []
    assert set(arrived) == query.rows


class Query:
    """A driver and its tasks. What is not answered is asked again; a batch that is refused is staged anew."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._connection: HTTPConnection | None = None
        self.batch = 0
        self.rows: set[str] = set()
        self.is_over = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over:
                rows = [f"{self.batch}-{number}" for number in range(60)]
                while not self._written(rows):
                    pass
                self.rows.update(rows)
                self.batch += 1
        except BaseException as error:
            self.failure = error
        finally:
            if self._connection is not None:
                self._connection.close()

    def _written(self, rows: list[str]) -> bool:
        """False when the batch must be sent again from the beginning."""
        stages: dict[str, int] = {}
        for task in range(BATCH_STAGES):
            stage, mine = uuid4().hex, rows[task::BATCH_STAGES]
            for part, start in enumerate(range(0, len(mine), 7)):
                body = part_of(*[encoded(row) for row in mine[start : start + 7]])
                target = f"/$staging/query/{self.batch}/{stage}?entity=target&part={part}&kind=stream"
                status, _ = self._ask("POST", target, body)
                if status != 200:
                    return False
            stages[stage] = len(mine)
        decision = json.dumps({"kind": "stream", "stages": stages}).encode()
        status, answer = self._ask("POST", f"/$staging/query/{self.batch}?wait=5", decision)
        assert status == 200 or json.loads(answer)["code"] == "gone", answer
        return status == 200

    def _ask(self, method: str, target: str, body: bytes) -> tuple[int, str]:
        """Until there is an answer that is one."""
        again = ""
        while True:
            try:
                status, answer = self._try(method, target + again, body)
                if status != 503:
                    return status, answer
            except (OSError, HTTPException):
                self._connection = None
            again = "&again=1"
            time.sleep(0.02)

    def _try(self, method: str, target: str, body: bytes) -> tuple[int, str]:
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self._server.port, timeout=20)
        host = f"127.0.0.1:{self._server.port}"
        key = ConnectionString.parse(self._server.connection_string)
        headers = {"Authorization": token_for(key, f"http://{host}/", time.time()), "Host": host}
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode()


async def _drained(server: RunningServer, least: int) -> list[str]:
    """Receives until all that was written has come and then nothing more for a while."""
    arrived: list[str] = []
    quiet = 0
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("target", receive_mode=RECEIVE_AND_DELETE) as receiver,
    ):
        while quiet < 2 and len(arrived) < 3 * least:
            found = await receiver.receive_messages(max_message_count=500, max_wait_time=1)
            arrived += [message.body.decode() for message in found]
            quiet = 0 if found or len(arrived) < least else quiet + 1
    return arrived
