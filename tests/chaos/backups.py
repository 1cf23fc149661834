"""F1: backups under load: each copy is served, and must be what a correct bus can have been at one moment.

The load is a plain queue, one with sessions and one that detects duplicates, queues that forward to each other,
mostly over stores, and an event hub. What clients were told before a backup began is in it; what they did after it
had ended is not; in between either is right, as after a crash. The bus itself goes on and is judged like any other.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from pathlib import Path

from busway.amqp.sections import DATA, AmqpMessage
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.service_bus_client import ServiceBusClient
from tests.chaos.checker import Verdict, check
from tests.chaos.draining import drain
from tests.chaos.history import History
from tests.chaos.hub_reading import body_of, number_in, partitions_of, read_in_bulk
from tests.chaos.kill import damage_in
from tests.chaos.mixed_load import MixedLoad, history_until
from tests.chaos.provision import stored_messages
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.chaos.workload import Workload
from tests.harness.running_server import BUSWAY, RunningServer

#: A round counts only when at least so many sends were acknowledged in it.
ACKNOWLEDGED_MIN = 60
#: Queues are spread over four stores in turn: most targets lie elsewhere.
FORWARDS = 3
HUB = "backup-hub"
_PARTITION = "0"
_FORWARDED_S_MAX = 30.0


class ForwardLoad:
    """What is sent to one queue must be in the other one."""

    def __init__(self, server: RunningServer, number: int) -> None:
        self.source, self.target = f"backup-source-{number}", f"backup-target-{number}"
        self.history = History()
        self.workload = Workload(server.connection_string, self.source, self.history, run=self.source)

    def create(self, administration: ServiceBusAdministrationClient) -> None:
        administration.create_queue(self.target)
        administration.create_queue(self.source, {"ForwardTo": self.target})

    def is_spread(self, administration: ServiceBusAdministrationClient) -> bool:
        """Over two stores."""
        [source], [target] = (administration.fragments(path) for path in (self.source, self.target))
        return source["store"] != target["store"]

    async def judge(self, server: RunningServer, history: History, acknowledged_before: float) -> Verdict:
        """Each message is there once, at its target."""
        deadline = time.monotonic() + _FORWARDED_S_MAX
        while any(stored := await asyncio.to_thread(stored_messages, server, self.source)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{stored} messages stay in {self.source}")
            await asyncio.sleep(0.05)
        await drain(server, self.target, history)
        return check(history, acknowledged_before=acknowledged_before)


class HubLoad:
    """Events by number, one after the other."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        #: When each was sent, and when its sender was told.
        self.sent: list[tuple[float, float]] = []
        self.is_over = False

    async def run(self) -> None:
        async with (
            ServiceBusClient.from_connection_string(self._connection_string) as client,
            client.get_event_producer(HUB, _PARTITION) as producer,
        ):
            while not self.is_over:
                began = time.monotonic()
                await producer.send([AmqpMessage([body_of(str(len(self.sent)))], DATA)])
                await producer.flush()
                self.sent.append((began, time.monotonic()))

    def judge(self, server: RunningServer, began: float, ended: float) -> Verdict:
        verdict = Verdict()
        partition = partitions_of(server.connection_string, HUB)[0]
        end = number_in(partition, "lastSequenceNumber") + 1
        events = read_in_bulk(server.connection_string, HUB, _PARTITION, end)
        values = [event.value for event in events]
        told = sum(done < began for _, done in self.sent)
        asked = sum(sent <= ended for sent, _ in self.sent)
        if values != [str(number) for number in range(len(values))]:
            verdict.found("events out of order", f"{values[:5]} …")
        if not told <= len(values) <= asked + 1:  # one may be under way, and is noted when it is told
            verdict.found("events lost or of later", f"{len(values)}, and {told} to {asked} are right")
        return verdict


class BackedUp:
    """A backup and the time that it took."""

    def __init__(self, folder: Path, began: float, ended: float) -> None:
        self.folder = folder
        self.began = began
        self.ended = ended


def backups_under_load(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_backups_under_load(folder, rounds, random.Random(seed)))


async def _backups_under_load(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    server = RunningServer(folder / "live").start()
    load = MixedLoad(server, "backup")
    load.create_queues()
    forwards = [ForwardLoad(server, number) for number in range(FORWARDS)]
    hub = HubLoad(server.connection_string)
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as administration:
        for forward in forwards:
            forward.create(administration)
        administration.hubs.create(HUB, {"PartitionCount": 1})
        assert any(forward.is_spread(administration) for forward in forwards)
    load.start()
    running = [asyncio.create_task(each.workload.run(1, 0)) for each in forwards]
    running.append(asyncio.create_task(hub.run()))
    copies: list[BackedUp] = []
    done = 0
    together = Verdict()
    try:
        for number in range(rounds):
            done += await load.wait_for_work(ACKNOWLEDGED_MIN)
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            copies.append(await asyncio.to_thread(_back_up, server, folder / f"copy-{number}"))
        await load.wait_for_work(ACKNOWLEDGED_MIN)
        await load.stop()
        hub.is_over = True
        for forward in forwards:
            forward.workload.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60.0)
        for copy in copies:
            add_verdict(together, await _judge_copy(copy, load, forwards, hub))
        for verdict in await asyncio.gather(
            *(forward.judge(server, forward.history, float("inf")) for forward in forwards)
        ):
            add_verdict(together, verdict)
        add_verdict(together, hub.judge(server, float("inf"), float("inf")))
        add_verdict(together, await load.verdict())
    finally:
        await asyncio.to_thread(server.__exit__)
    return outcome("backups under load", done, rounds, together)


def _back_up(server: RunningServer, target: Path) -> BackedUp:
    began = time.monotonic()
    subprocess.run(
        [str(BUSWAY), "backup", str(target), "--data", str(server.data)], check=True, capture_output=True
    )
    return BackedUp(target, began, time.monotonic())


async def _judge_copy(copy: BackedUp, load: MixedLoad, forwards: list[ForwardLoad], hub: HubLoad) -> Verdict:
    together = Verdict()
    for sentence in await asyncio.to_thread(damage_in, copy.folder):
        together.found("a copy is damaged", sentence)
    restored = RunningServer(copy.folder.with_name(f"{copy.folder.name}-served"))
    await asyncio.to_thread(restored.folder.mkdir)
    copy.folder.rename(restored.data)
    await asyncio.to_thread(restored.start)
    try:
        add_verdict(together, await load.verdict_of_copy(restored, copy.began, copy.ended))
        for verdict in await asyncio.gather(
            *(each.judge(restored, history_until(each.history, copy.ended), copy.began) for each in forwards)
        ):
            add_verdict(together, verdict)
        add_verdict(together, await asyncio.to_thread(hub.judge, restored, copy.began, copy.ended))
    finally:
        await asyncio.to_thread(restored.__exit__)
    return together
