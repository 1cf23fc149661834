"""F5: fdatasync fails under load. What was in the commit has no outcome, the store comes back by itself."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.chaos.history import INFO
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.syscall_faults import SyscallFault, why_not_here
from tests.harness.running_server import RunningServer

NAME = "fdatasync fails under load"
FAULT_S_MAX = 10.0
SENT_MIN = 40


def failing_syncs(folder: Path, rounds: int, seed: int) -> Outcome:
    folder.mkdir(exist_ok=True)
    reason = why_not_here(folder)
    if reason is not None:
        return Outcome(NAME, 0, rounds, skipped=reason)
    return asyncio.run(_failing_syncs(folder, rounds, random.Random(seed)))


async def _failing_syncs(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    done, failures = 0, 0
    with RunningServer(folder) as server:
        load = MixedLoad(server, "sync", lock_lost=INFO)
        load.create_queues()
        load.start()
        for _ in range(rounds):
            hit = await _fail_once(server, load, folder, chance.randint(1, 6))
            failures += hit
            # After the fault every queue takes messages again, without a restart.
            done += hit > 0 and await load.wait_for_work(SENT_MIN, seconds_max=20)
        await load.stop()
        verdict = await load.verdict()
        said = server.log.read_text()
    if "is back in service" not in said:
        verdict.found("no store said that it is back", "")
    return outcome(NAME, done, rounds, verdict, note=f"({failures} calls failed)")


async def _fail_once(server: RunningServer, load: MixedLoad, folder: Path, nth: int) -> int:
    """The nth sync of some thread fails. A store that fails forgets its locks, so they count for nothing here."""
    fault = SyscallFault(server.pid, f"fdatasync:error=EIO:when={nth}", folder)
    load.note_restart()
    await asyncio.to_thread(fault.__enter__)
    deadline = time.monotonic() + FAULT_S_MAX
    while not fault.injected() and time.monotonic() < deadline:
        load.note_restart()
        await asyncio.sleep(0.02)
    await asyncio.to_thread(fault.__exit__)
    load.note_restart()
    return fault.injected()
