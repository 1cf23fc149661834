"""F1: kill -9 under load, again and again, on one data directory."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.harness.running_server import RunningServer

#: A round counts only when at least so many sends were acknowledged in it.
ACKNOWLEDGED_MIN = 60


def kill_under_load(folder: Path, rounds: int, seed: int, *arguments: str) -> Outcome:
    """`arguments` of the server."""
    return asyncio.run(_kill_under_load(RunningServer(folder, *arguments), rounds, random.Random(seed)))


async def _kill_under_load(server: RunningServer, rounds: int, chance: random.Random) -> Outcome:
    server.start()
    load = MixedLoad(server, "kill")
    load.create_queues()
    load.start()
    done = 0
    try:
        for _ in range(rounds):
            done += await load.wait_for_work(ACKNOWLEDGED_MIN)
            await asyncio.sleep(chance.uniform(0.0, 0.6))
            began = time.monotonic()
            await asyncio.to_thread(server.kill)
            load.note_restart(began, time.monotonic())
            await asyncio.to_thread(server.start)
        await load.wait_for_work(ACKNOWLEDGED_MIN)
        await load.stop()
        verdict = await load.verdict()
    finally:
        await asyncio.to_thread(server.__exit__)
    return outcome("kill -9 under load", done, rounds, verdict)
