"""F9: connections that break in the middle of a frame, again and again, while the server lives on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import RunningServer

SECONDS_MAX = 120.0
CUT_AFTER_BYTES = 60_000


def cut_connections(folder: Path, rounds: int, seed: int) -> Outcome:
    return asyncio.run(_cut_connections(folder, rounds, seed))


class _NotingProxy(CuttingProxy):
    """Every cut goes into the histories: what was under way then may or may not have arrived."""

    load: MixedLoad | None = None

    def _count_cut(self) -> None:
        super()._count_cut()
        if self.load is not None:
            self.load.note_cut()


async def _cut_connections(folder: Path, rounds: int, seed: int) -> Outcome:
    with RunningServer(folder) as server:
        proxy = _NotingProxy(server.port, seed=seed, slice_bytes_max=900, cut_after_bytes=CUT_AFTER_BYTES)
        async with proxy:
            through = server.connection_string.replace(f":{server.port};", f":{proxy.port};")
            proxy.load = load = MixedLoad(server, "cuts", through)
            load.create_queues()
            load.start(plain_workers=4)
            with suppress(TimeoutError):
                await asyncio.wait_for(proxy.wait_for_cuts(rounds), SECONDS_MAX)
            await load.stop()
            cut = proxy.cuts
        verdict = await load.verdict()
    return outcome("connections cut mid-frame", cut, rounds, verdict)
