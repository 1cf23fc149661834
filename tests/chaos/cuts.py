"""F9: connections that break in the middle of a frame, again and again, while the server lives on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.provision import create_queue
from tests.chaos.scenario import Outcome, outcome
from tests.chaos.workload import Workload, drain
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import RunningServer

SECONDS_MAX = 120.0


def cut_connections(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_cut_connections(folder, rounds, seed))


async def _cut_connections(folder: Path, rounds: int, seed: int) -> Outcome:
    with RunningServer(folder) as server:
        create_queue(server, "chaos")
        history = History()
        async with CuttingProxy(server.port, seed=seed, slice_bytes_max=900, cut_after_bytes=40_000) as proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            workload = Workload(through, "chaos", history)
            running = asyncio.create_task(workload.run(producers=4, consumers=4))
            with suppress(TimeoutError):
                await asyncio.wait_for(proxy.wait_for_cuts(rounds), SECONDS_MAX)
            workload.stop()
            await asyncio.wait_for(running, 60)
            cut = proxy.cuts
        await drain(server.connection_string, "chaos", history)
    return outcome("connections cut mid-frame", cut, rounds, check(history))
