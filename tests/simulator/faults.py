"""What goes wrong, and when: drawn by lot, so that some runs are calm and others are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from busway.model.errors import BrokerError
from tests.simulator.simulated_store import SimulatedStore

if TYPE_CHECKING:
    from tests.simulator.world import World

#: How often each of them is drawn.
_WEIGHTS: Final = {
    "refused": 6,
    "unknown": 8,
    "hang": 4,
    "slow": 3,
    "lost": 4,
    "disabled": 3,
    "reads": 4,
    "full": 2,
    "clock": 3,
    "crash": 4,
}


class Faults:
    """One coroutine that hurts the world until it is told to stop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = Random(f"{world.seed}:faults")
        #: Between two faults, on average. Some seeds are mild.
        self._every_s = self._chance.choice((0.15, 0.5, 2.0, 6.0))
        self._kinds: dict[str, Callable[[SimulatedStore], None]] = {
            "refused": self._refuse,
            "unknown": self._make_unknown,
            "hang": self._hang,
            "slow": self._slow_down,
            "lost": self._lose,
            "disabled": self._disable,
            "reads": self._spoil_reads,
            "full": self._fill,
            "clock": self._step,
        }
        #: Each seed has its favourites.
        self._weights = [weight * self._chance.choice((0, 1, 1, 3)) for weight in _WEIGHTS.values()]
        if not any(self._weights):
            self._weights = list(_WEIGHTS.values())
        self.is_over = False
        #: Stores that an operator is taking out of service, or is about to put back.
        self._outages: set[asyncio.Task[None]] = set()

    async def outages_over(self) -> None:
        """A disk that hangs holds an operator up: what he began before all was healed may happen long after it."""
        if self._outages:
            await asyncio.wait(self._outages)

    async def run(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._chance.expovariate(1 / self._every_s))
            if self.is_over:
                return
            (kind,) = self._chance.choices(list(_WEIGHTS), self._weights)
            self._world.journal.count(f"fault: {kind}")
            if kind == "crash":
                await self._world.crash(self._chance)
                continue
            store = self._chance.choice(self._world.stores)
            self._world.journal.note(f"fault {kind} {store.name}")
            self._kinds[kind](store)

    def _refuse(self, store: SimulatedStore) -> None:
        store.mood.next_end = "refused"

    def _make_unknown(self, store: SimulatedStore) -> None:
        store.mood.next_end = self._chance.choice(("unknown and applied", "unknown and not applied"))

    def _hang(self, store: SimulatedStore) -> None:
        store.mood.hang_s = self._chance.choice((0.2, 1.0, 5.0, 25.0))

    def _slow_down(self, store: SimulatedStore) -> None:
        store.mood.commit_factor = self._chance.choice((10.0, 60.0))
        self._later(self._chance.random() * 10, lambda: setattr(store.mood, "commit_factor", 1.0))

    def _lose(self, store: SimulatedStore) -> None:
        store.lose(self._chance.choice((0.05, 0.5, 3.0, 20.0)))

    def _disable(self, store: SimulatedStore) -> None:
        outage = asyncio.get_running_loop().create_task(
            self._world.out_of_service(store.name, self._chance.random() * 10)
        )
        self._outages.add(outage)
        outage.add_done_callback(self._outages.discard)

    def _spoil_reads(self, store: SimulatedStore) -> None:
        if self._chance.random() < 0.5:
            store.mood.failing_reads += self._chance.randint(1, 4)
            return
        store.mood.read_factor = self._chance.choice((30.0, 500.0))
        self._later(self._chance.random() * 5, lambda: setattr(store.mood, "read_factor", 1.0))

    def _fill(self, store: SimulatedStore) -> None:
        self._world.set_full(store.name, True)
        self._later(self._chance.random() * 8, lambda: self._world.set_full(store.name, False))

    def _step(self, store: SimulatedStore) -> None:
        del store
        seconds = self._chance.choice((-3600.0, -10.0, -1.0, 1.0, 10.0, 3600.0))
        self._world.journal.note(f"clock step {seconds:+} s")
        if seconds < 0:
            self._world.journal.count("clock set back")
        self._world.clock.step(seconds)

    def _later(self, seconds: float, change: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, change)


async def out_of_service(world: World, name: str, seconds: float) -> None:
    """An operator takes a store out of service and puts it back. Both may be refused; the second is tried again."""
    try:
        await world.namespace.stores.disable(name)
    except BrokerError as error:
        world.journal.note(f"disable {name} {type(error).__name__}")
        world.journal.count("disable fail")
        return
    world.journal.count("disable ok")
    await asyncio.sleep(seconds)
    await world.back_in_service(name)
