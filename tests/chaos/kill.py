"""F1: kill -9 under load, again and again, on one data directory. After each its files are looked at, too."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from busway.data_directory import DataDirectory
from busway.safekeeping.directory_check import DirectoryCheck
from busway.safekeeping.stopped_copy import held
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.harness.running_server import RunningServer

#: A round counts only when at least so many sends were acknowledged in it.
ACKNOWLEDGED_MIN = 60


def damage_in(data: Path) -> list[str]:
    """What `busway check` says of a directory that nobody serves."""
    directory = DataDirectory(data)
    if not any(directory.stores.glob("*.db")):
        return []  # they lie in a database, which looks after itself
    with held(directory) as files:
        report = DirectoryCheck(directory, files, lambda *_: None).run()
    return [
        sentence
        for findings in report.every_finding()
        for told in findings.told.values()
        for sentence in told
    ]


def kill_under_load(folder: Path, rounds: int, seed: int, *arguments: str) -> Outcome:
    """`arguments` of the server."""
    return asyncio.run(_kill_under_load(RunningServer(folder, *arguments), rounds, random.Random(seed)))


async def _kill_under_load(server: RunningServer, rounds: int, chance: random.Random) -> Outcome:
    server.start()
    load = MixedLoad(server, "kill")
    load.create_queues()
    load.start()
    done = 0
    damage: list[str] = []
    try:
        for _ in range(rounds):
            done += await load.wait_for_work(ACKNOWLEDGED_MIN)
            await asyncio.sleep(chance.uniform(0.0, 0.6))
            began = time.monotonic()
            await asyncio.to_thread(server.kill)
            load.note_restart(began, time.monotonic())
            damage += await asyncio.to_thread(damage_in, server.data)
            await asyncio.to_thread(server.start)
        await load.wait_for_work(ACKNOWLEDGED_MIN)
        await load.stop()
        verdict = await load.verdict()
        for sentence in damage:
            verdict.found("a kill is no damage", sentence)
    finally:
        await asyncio.to_thread(server.__exit__)
    return outcome("kill -9 under load", done, rounds, verdict)
