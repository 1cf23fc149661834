"""Two nodes on one database behind a balancer: the owner is killed, stopped, made to stand still, again and again,
under load. What clients saw is checked over both; how long nobody was ready is told."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, outcome
from tests.harness.balancer import Balancer
from tests.harness.postgres_server import NoPostgres, PostgresServer, programs
from tests.harness.running_server import RunningServer

#: A round counts only when at least so many sends were acknowledged in it.
ACKNOWLEDGED_MIN: Final = 60
#: The promise is 3 s on a machine that is at most half loaded; with ten processes for each core it was 6.
WITHOUT_SERVICE_S_MAX: Final = 15.0
_SHORT_PAUSE_S: Final = 1.0
_BACK_S_MAX: Final = 40.0


def nodes_killed(folder: Path, rounds: int, seed: int) -> Outcome:
    """kill -9 of the owner, and a clean stop of it now and then; it comes back as a standby."""
    return _played("owner killed", ("kill", "kill", "kill", "stop"), folder, rounds, seed)


def nodes_paused(folder: Path, rounds: int, seed: int) -> Outcome:
    """SIGSTOP of the owner for a second, which nobody notices, and until another one has taken over."""
    return _played("owner stopped", ("pause", "zombie"), folder, rounds, seed)


def _played(name: str, faults: tuple[str, ...], folder: Path, rounds: int, seed: int) -> Outcome:
    try:
        programs()
    except NoPostgres as error:
        return Outcome(name, 0, rounds, skipped=str(error))
    with PostgresServer() as database:
        return asyncio.run(_Run(database, folder, random.Random(seed)).play(name, faults, rounds))


class _Run:
    def __init__(self, database: PostgresServer, folder: Path, chance: random.Random) -> None:
        store = f"{database.database()}?stores=4&name=east"
        self.nodes = [
            RunningServer(folder / name, "--store", store, "--node", name) for name in ("east-1", "east-2")
        ]
        self._chance = chance
        #: By kind of fault: how long nobody was ready.
        self.without_service: dict[str, list[float]] = {}

    async def play(self, name: str, faults: tuple[str, ...], rounds: int) -> Outcome:
        async with AsyncExitStack() as stack:
            for node in self.nodes:
                stack.push_async_callback(asyncio.to_thread, _end, node)
            first, second = self.nodes
            await asyncio.to_thread(first.start)
            await asyncio.to_thread(second.start_standby)
            self._balancer = await stack.enter_async_context(Balancer(self.nodes))
            await self._balancer.wait_for_other_than(None, _BACK_S_MAX)
            through = first.connection_string.replace(f":{first.port};", f":{self._balancer.port};")
            self._load = load = MixedLoad(first, name.replace(" ", "-"), through)
            load.create_queues()
            load.start()
            done = 0
            for number in range(rounds):
                done += await load.wait_for_work(ACKNOWLEDGED_MIN, 20.0)
                await asyncio.sleep(self._chance.uniform(0.0, 0.6))
                await self._hurt(faults[number % len(faults)])
            await load.wait_for_work(ACKNOWLEDGED_MIN, 20.0)
            await load.stop()
            owner = await self._balancer.wait_for_other_than(None, _BACK_S_MAX)
            await asyncio.to_thread(owner.wait_until_served)
            load.drained_from(owner)
            verdict = await load.verdict()
        for kind, spans in self.without_service.items():
            for span in spans:
                if span > WITHOUT_SERVICE_S_MAX:
                    verdict.found("somebody takes over in time", f"{kind}: {span:.1f} s")
        told = [
            f"{kind}: {', '.join(f'{span:.1f}' for span in spans)} s"
            for kind, spans in self.without_service.items()
        ]
        return replace(outcome(name, done, rounds, verdict), note="without service: " + "; ".join(told))

    async def _hurt(self, kind: str) -> None:
        owner = await self._balancer.wait_for_other_than(None, _BACK_S_MAX)
        began = time.monotonic()
        if kind == "pause":
            owner.pause()
            await asyncio.sleep(_SHORT_PAUSE_S)
            owner.resume()
            await self._balancer.wait_for_other_than(None, _BACK_S_MAX)
            self._load.note_cut()  # the balancer may have seen it
            return
        if kind == "zombie":
            owner.pause()
        else:
            await asyncio.to_thread(owner.kill if kind == "kill" else owner.stop)
        heir = await self._balancer.wait_for_other_than(owner, _BACK_S_MAX)
        ended = time.monotonic()
        self._load.note_restart(began, ended)
        self.without_service.setdefault(kind, []).append(ended - began)
        if kind == "zombie":
            await asyncio.sleep(self._chance.uniform(0.0, 5.0))
            owner.resume()
        else:
            await asyncio.to_thread(owner.start_standby)
        await asyncio.to_thread(heir.wait_until_served)


def _end(node: RunningServer) -> None:
    if node.is_running:
        node.resume()
        node.kill()
