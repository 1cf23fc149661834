"""F1: kill -9 under load, again and again, on one data directory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.provision import create_queue
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.workload import Workload, drain
from tests.harness.running_server import RunningServer


def kill_under_load(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_kill_under_load(folder, rounds, random.Random(seed)))


async def _kill_under_load(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    server = RunningServer(folder).start()
    create_queue(server, "chaos")
    history = History(folder / "history.jsonl")
    workload = Workload(server.connection_string, "chaos", history)
    running = asyncio.create_task(workload.run(producers=4, consumers=4))
    done = 0
    for _ in range(rounds):
        before = workload.acknowledged
        await asyncio.sleep(chance.uniform(0.3, 1.2))
        await asyncio.to_thread(server.kill)
        done += workload.acknowledged > before
        await asyncio.to_thread(server.start)
    await asyncio.sleep(1)
    workload.stop()
    await running
    await drain(server.connection_string, "chaos", history)
    await asyncio.to_thread(server.stop)
    history.close()
    return outcome("kill -9 under load", done, rounds, check(history))
