"""F5: fdatasync fails under load. What was in the commit has no outcome, the store comes back by itself."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.chaos.homes import homes_of
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.server_log import store_failures
from tests.chaos.syscall_faults import SyscallFault, why_not_here
from tests.harness.running_server import RunningServer

NAME = "fdatasync fails under load"
FAULT_S_MAX = 10.0
SENT_MIN = 40
ATTEMPTS_MAX = 8


def failing_syncs(folder: Path, rounds: int, seed: int) -> Outcome:
    folder.mkdir(exist_ok=True)
    reason = why_not_here(folder)
    if reason is not None:
        return Outcome(NAME, 0, rounds, skipped=reason)
    return asyncio.run(_failing_syncs(folder, rounds, random.Random(seed)))


async def _failing_syncs(folder: Path, rounds: int, chance: random.Random) -> Outcome:
    done, failures = 0, 0
    with RunningServer(folder) as server:
        load = MixedLoad(server, "sync")
        load.create_queues()
        load.start()
        for _ in range(rounds):
            hit = await _fail_a_store(server, folder, chance)
            failures += hit
            # After the fault every queue takes messages again, without a restart.
            done += hit > 0 and await load.wait_for_work(SENT_MIN, seconds_max=20)
        await load.stop()
        said = server.log.read_text()
        load.note_store_failures(await asyncio.to_thread(_failures_by_queue, server, said))
        verdict = await load.verdict()
    if "is back in service" not in said:
        verdict.found("no store said that it is back", "")
    return outcome(NAME, done, rounds, verdict, note=f"({failures} calls failed)")


async def _fail_a_store(server: RunningServer, folder: Path, chance: random.Random) -> int:
    """A sync that fails may be one of a high-water file, which harms no store: then another one."""
    known = sum(map(len, store_failures(server.log.read_text()).values()))
    hits = 0
    for _ in range(ATTEMPTS_MAX):
        hits += await _fail_once(server, folder, chance.randint(1, 6))
        await asyncio.sleep(0.2)  # the log is another process's
        failed = store_failures(server.log.read_text())
        if sum(map(len, failed.values())) > known:
            break
    return hits


async def _fail_once(server: RunningServer, folder: Path, nth: int) -> int:
    """The nth sync of some thread fails."""
    fault = SyscallFault(server.pid, f"fdatasync:error=EIO:when={nth}", folder)
    await asyncio.to_thread(_hold_until_hit, fault)
    return fault.injected()


def _hold_until_hit(fault: SyscallFault) -> None:
    with fault:
        deadline = time.monotonic() + FAULT_S_MAX
        while not fault.injected() and time.monotonic() < deadline:
            time.sleep(0.02)


def _failures_by_queue(server: RunningServer, said: str) -> dict[str, list[tuple[float, float]]]:
    """A store that fails forgets its locks and gives no outcomes; its queues alone may show that, and only then.
    Locks stay comparable while strace is attached: the server may be slow, but its clock is ours."""
    failures = store_failures(said)
    return {path: failures.get(row.store_name, []) for path, row in homes_of(server).items()}
