"""F13: kill -9 of the server and cut connections under a load of transactions. None is torn, none that was rolled
back is seen, none that was committed is lost."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Final

from tests.chaos.scenario import Outcome, outcome
from tests.chaos.transaction_load import FRAGMENTS, LINES, TransactionLoad
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import RunningServer

NAME: Final = "transactions, killed and cut"
#: A round counts only when so many were committed in it, some of each line.
COMMITTED_MIN: Final = 100
ROUND_S_MAX: Final = 30.0


def kill_transactions(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_kill_transactions(folder, rounds, random.Random(seed)))


async def _kill_transactions(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    """Kills and cuts in turn."""
    stores = str(FRAGMENTS)
    server = RunningServer(folder, "--stores", stores, "--partition-count", stores).start()
    done = 0
    try:
        async with CuttingProxy(server.port, seed=chance.randrange(1 << 30)) as proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            load = TransactionLoad(server, through, chance)
            await asyncio.to_thread(load.create)
            load.start()
            for number in range(rounds):
                done += await _wait_for_commits(load)
                await asyncio.sleep(chance.uniform(0.0, 0.2))
                if number % 2:
                    proxy.cut_all()
                else:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
            await _wait_for_commits(load)
            await load.stop()
            verdict = await load.verdict()
    finally:
        await asyncio.to_thread(server.__exit__)
    counts = verdict.counts
    note = f"({counts['rolled back']} rolled back, {counts['unknown']} without an answer)"
    return outcome(NAME, done, rounds, verdict, note)


async def _wait_for_commits(load: TransactionLoad) -> bool:
    before = load.committed()
    deadline = time.monotonic() + ROUND_S_MAX
    while time.monotonic() < deadline:
        gained = {name: count - before[name] for name, count in load.committed().items()}
        if sum(gained.values()) >= COMMITTED_MIN and all(gained[line.name] for line in LINES):
            return True
        await asyncio.sleep(0.01)
    return False
