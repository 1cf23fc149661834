"""F15: an event hub of four partitions over four stores under load, while its server is killed, its connections are
cut and its stores come and go; while the power goes; and while retention takes chunks from under its readers.

Every number has one value for ever and none is left out; what was acknowledged is there once, in its publisher's
order; whoever goes on at a checkpoint misses nothing, and whoever repeats with numbers of its own leaves no double.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.chaos.checker import Verdict
from tests.chaos.power_cut import LoopDisk, why_not_here
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.chaos.stream_checker import CHECKPOINTS, FOLLOWS, REPLAYS
from tests.chaos.stream_load import PARTITIONS, PUBLISHERS, StreamLoad
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import BUSWAY, RunningServer

NAME: Final = "event hub, killed and cut"
POWER_NAME: Final = "event hub, power cut"
#: A round counts only when every kind of publisher has had so many events acknowledged in it, and readers read some.
ACKNOWLEDGED_MIN: Final = 30
ROUND_S_MAX: Final = 30.0
_STORES: Final = ("--stores", str(PARTITIONS))


def kill_streams(folder: Path, rounds: int, seed: int) -> Outcome:
    """`rounds`: how often the server is killed. Before every second kill connections are cut, or a store goes."""
    return asyncio.run(_kill_streams(folder, rounds, random.Random(seed)))


async def _kill_streams(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    server = RunningServer(folder, *_STORES).start()
    done = 0
    try:
        async with CuttingProxy(server.port, seed=chance.randrange(1 << 30)) as proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            load = StreamLoad(server, "clicks", chance.randrange(1 << 30), through)
            await asyncio.to_thread(load.create)
            load.start()
            for number in range(rounds):
                done += await wait_for_work(load)
                await asyncio.sleep(chance.uniform(0.0, 0.2))
                if number % 4 == 3:
                    await _take_a_store_out(server, f"store-{chance.randrange(PARTITIONS)}", load)
                elif number % 2:
                    proxy.cut_all()
                    await _wait_for_events(load, 200)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await wait_for_work(load)
            await load.stop()
        verdict = await load.verdict()
    finally:
        await asyncio.to_thread(server.__exit__)
    note = f"({verdict.counts['repeated']} repeats by idempotent producers)"
    return outcome(NAME, done, rounds, verdict, note)


async def wait_for_work(load: StreamLoad, acknowledged_min: int = ACKNOWLEDGED_MIN) -> bool:
    before = load.done.copy()

    def did_enough() -> bool:
        gained = load.done - before
        publishes = all(gained[kind] >= acknowledged_min for kind in PUBLISHERS)
        return publishes and all(gained[kind] for kind in (FOLLOWS, REPLAYS, CHECKPOINTS))

    return await wait_until(did_enough, ROUND_S_MAX)


async def wait_until(happened: Callable[[], bool], seconds_max: float) -> bool:
    deadline = time.monotonic() + seconds_max
    while not happened():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def _take_a_store_out(server: RunningServer, store: str, load: StreamLoad) -> None:
    """For a moment, by the command that an operator has."""
    for verb in ("disable", "enable"):
        command = [str(BUSWAY), "stores", verb, store, "--data", str(server.data)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=30)
        await _wait_for_events(load, 200)


async def _wait_for_events(load: StreamLoad, count: int) -> None:
    wanted = load.done.total() + count
    await wait_until(lambda: load.done.total() >= wanted, 5.0)


# -- power cuts


def cut_power_of_streams(folder: Path, rounds: int, seed: int) -> Outcome:
    reason = why_not_here()
    if reason is not None:
        return Outcome(POWER_NAME, 0, rounds, skipped=reason)
    disk = LoopDisk(folder)
    try:
        disk.create()
    except subprocess.CalledProcessError as error:
        return Outcome(POWER_NAME, 0, rounds, skipped=f"loop mount refused: {error.stderr!r}")
    try:
        return asyncio.run(_cut_power(disk, folder, rounds, random.Random(seed)))
    finally:
        disk.unmount()


async def _cut_power(disk: LoopDisk, folder: Path, rounds: int, chance: random.Random) -> Outcome:
    """Each round has a hub of its own: its answers are judged against its own cut."""
    server = RunningServer(folder / "server", *_STORES)
    server.data = disk.mount_point / "data"
    done = 0
    together = Verdict()
    try:
        await asyncio.to_thread(server.start)
        for number in range(rounds):
            load = StreamLoad(server, f"clicks-{number}", chance.randrange(1 << 30))
            did_enough, verdict = await _one_cut(server, disk, load, chance.uniform(0.0, 0.4))
            done += did_enough
            add_verdict(together, verdict)
    finally:
        await asyncio.to_thread(server.__exit__)
    return outcome(POWER_NAME, done, rounds, together)


async def _one_cut(
    server: RunningServer, disk: LoopDisk, load: StreamLoad, wait_s: float
) -> tuple[bool, Verdict]:
    await asyncio.to_thread(load.create)
    load.start()
    did_enough = await wait_for_work(load)
    await asyncio.sleep(wait_s)
    cut_at = time.monotonic()
    disk.cut_power()
    await asyncio.to_thread(server.kill)
    await load.stop()
    disk.unmount()
    disk.mount()
    await asyncio.to_thread(server.start)
    return did_enough, await load.verdict(known_before=cut_at)
