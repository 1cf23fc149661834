"""F2, F5: the disk fails at every write, sync and truncation of every scenario, opening and closing included.

Three ways for each point: the process dies there (`killed`), the machine does (`power cut`: what was not synced is
gone, and the next opening is cut off as well), or one call fails and the process lives on (`error`). Then the whole
of what a client can see must be what it is after some number of steps: all that were acknowledged, the one under way
wholly or not at all, and not at all where it was refused for certain. From there the rest is played to its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from busway.model.errors import BrokerError, StoreOutcomeUnknown
from busway.store.contract import StoreError
from tests.chaos.crash_picture import Picture
from tests.chaos.crash_scenarios import SCENARIOS, START_MS, CrashScenario
from tests.chaos.crash_spread import SPREAD_SCENARIOS
from tests.chaos.crash_transactions import TRANSACTION_SCENARIOS
from tests.chaos.crash_world import CrashWorld, NeverAnswered, forget_shared_memory
from tests.chaos.scenario import Outcome
from tests.harness.manual_clock import ManualClock
from tests.store_contract.faulty_disk import FaultyDisk

NAME: Final = "crash at every write"
SPREAD_NAME: Final = "crash in fan-out and moves"
TRANSACTIONS_NAME: Final = "crash in transactions"
KILLED, POWER_CUT, ERROR = "killed", "power cut", "error"
WAYS: Final = (KILLED, POWER_CUT, ERROR)
#: One fault can be met more than once: by whoever waited for the commit, and by the next who comes.
_FAILURES_MAX: Final = 4
#: The opening after a power cut is cut off at one of its first writes.
_RECOVERY_STEPS: Final = 6
#: How the folder of a point begins.
_POINT: Final = "write-"


class Wrong(Exception):
    """What a point showed that must not be."""


@dataclass(frozen=True)
class Progress:
    """How far a life came: so many steps were acknowledged, and the next may be done too, or may not."""

    done: int
    next_may_be_done: bool = False
    #: The next consists of parts, and some of them may be done: these bodies must be there then, and these must not.
    is_in_parts: bool = False
    promised: frozenset[bytes] = frozenset()
    gone: frozenset[bytes] = frozenset()

    def allowed(self, pictures: list[Picture]) -> list[int]:
        last = min(self.done + self.next_may_be_done, len(pictures) - 1)
        return list(range(self.done, last + 1))

    def allows_parts(self, picture: Picture, pictures: list[Picture]) -> bool:
        if not self.is_in_parts:
            return False
        is_between = picture.is_between(pictures[self.done], pictures[self.done + 1])
        return is_between and picture.holds(set(self.promised), set(self.gone))


def crash_at_every_write(folder: Path, rounds: int, seed: int) -> Outcome:
    """`rounds`: how many scenarios; all of them in a whole run."""
    return _crash(NAME, SCENARIOS, folder, rounds, seed, whole_lives=True)


def crash_in_spread_entities(folder: Path, rounds: int, seed: int) -> Outcome:
    """F2, F14: topics, forwarding and partitioned entities, over several stores. They are opened and closed as plain
    queues are, so the points lie between."""
    return _crash(SPREAD_NAME, SPREAD_SCENARIOS, folder, rounds, seed)


def crash_in_transactions(folder: Path, rounds: int, seed: int) -> Outcome:
    """F2, F13."""
    return _crash(TRANSACTIONS_NAME, TRANSACTION_SCENARIOS, folder, rounds, seed)


def _crash(
    name: str,
    scenarios: tuple[CrashScenario, ...],
    folder: Path,
    rounds: int,
    seed: int,
    *,
    whole_lives: bool = False,
) -> Outcome:
    violations: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    planned = 0
    with _quiet(), fast_folder(folder) as quick:
        for scenario in scenarios[:rounds]:
            trial = Trial(scenario, quick / scenario.name.replace(" ", "-"), random.Random(seed))
            total = trial.prepare()
            points = range(1, total + 1) if whole_lives else trial.points_of_steps
            planned += len(points) * len(WAYS)
            for step in points:
                for way in WAYS:
                    reached[way] += trial.play(step, way, violations)
    note = ", ".join(f"{reached[way]} {way}" for way in WAYS)
    return Outcome(
        name,
        sum(reached.values()),
        planned,
        violations=dict(violations),
        note=f"({min(rounds, len(scenarios))} scenarios: {note})",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """A thousand failing stores have much to complain about."""
    logger = logging.getLogger("busway")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def fast_folder(folder: Path) -> Iterator[Path]:
    """In memory where that can be had: this disk's syncs are our own, a real one's would only cost time. What is
    left in the end, the files of points that went wrong, comes to the folder."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="busway-crash-", dir=memory) as quick:
        yield Path(quick)
        for wrong in Path(quick).glob(f"*/{_POINT}*"):
            shutil.copytree(wrong, folder / wrong.parent.name / wrong.name)


class Trial:
    """One scenario. `prepare` once, then `play` each point in each way."""

    def __init__(self, scenario: CrashScenario, folder: Path, chance: random.Random) -> None:
        self._scenario = scenario
        self._folder = folder
        self._chance = chance
        self._pictures: list[Picture] = []
        #: The writes of a whole run between its opening and its closing.
        self.points_of_steps = range(0)

    def prepare(self) -> int:
        """The files to begin with, what they show after each step, and how often a whole run writes."""
        self._folder.mkdir(parents=True)
        (self._folder / "start").mkdir()
        asyncio.run(self._fill(self._folder / "start"))
        self._pictures = asyncio.run(self._pictures_of(self._copy("pictures")))
        return asyncio.run(self._count_steps(self._copy("whole")))

    def _copy(self, name: str) -> Path:
        shutil.copytree(self._folder / "start", self._folder / name)
        return self._folder / name

    def _world(self, folder: Path, clock: ManualClock, disk: FaultyDisk | None = None) -> CrashWorld:
        return CrashWorld(folder, clock, disk, self._scenario.store_count)

    async def _fill(self, folder: Path) -> None:
        world = self._world(folder, _clock())
        await world.open()
        for description in (self._scenario.description, *self._scenario.others):
            await world.create(description)
        if self._scenario.prepare is not None:
            await self._scenario.prepare(world)
        await world.close()

    async def _pictures_of(self, folder: Path) -> list[Picture]:
        """Each in a life of its own, as after a crash."""
        clock = _clock()
        pictures = []
        for step in (None, *self._scenario.steps):
            world = self._world(folder, clock)
            await world.open()
            if step is not None:
                await step.act(world)
                await world.close()
                world = self._world(folder, clock)
                await world.open()
            pictures.append(await self._picture(world))
            await world.close()
        return pictures

    async def _picture(self, world: CrashWorld) -> Picture:
        return await world.picture(loosely=self._scenario.is_loose)

    async def _count_steps(self, folder: Path) -> int:
        with FaultyDisk() as disk:
            world = self._world(folder, _clock(), disk)
            await world.open()
            opened = disk.steps
            progress = await self._advance(world, 0)
            self.points_of_steps = range(opened + 1, disk.steps + 1)
            await world.close()
            assert progress.done == len(self._scenario.steps)
            return disk.steps

    # -- one point

    def play(self, step: int, way: str, violations: Counter[str]) -> bool:
        """Whether the fault was met at all."""
        folder = self._copy(f"{_POINT}{step}-{way.replace(' ', '-')}")
        try:
            met = asyncio.run(self._play(folder, step, way))
        except (Wrong, NeverAnswered, StoreError, BrokerError, AssertionError) as error:
            violations[f"{self._scenario.name}, {way} at write {step}: {type(error).__name__} {error}"] += 1
            return True
        shutil.rmtree(folder)
        return met

    async def _play(self, folder: Path, step: int, way: str) -> bool:
        clock = _clock()
        with FaultyDisk() as disk:
            if way == ERROR:
                disk.fail_at(step)
                await self._survive(self._world(folder, clock, disk))
            else:
                disk.die_at(step)
                progress = await self._die(self._world(folder, clock, disk))
                if way == POWER_CUT:
                    disk.cut_power()
            met = disk.faults > 0
        forget_shared_memory(folder)
        if way == ERROR:
            await self._check_end(folder, clock)
            return met
        if way == POWER_CUT:
            await self._cut_recovery(folder, clock)
        await self._check_what_is_left(folder, clock, progress)
        return met

    async def _advance(self, world: CrashWorld, first: int) -> Progress:
        """Plays from a step on, as far as it goes."""
        for position in range(first, len(self._scenario.steps)):
            step = self._scenario.steps[position]
            world.promised, world.gone = set(), set()
            try:
                await step.act(world)
            except (BrokerError, StoreError) as error:
                if not step.is_in_parts:
                    return Progress(
                        position, next_may_be_done=step.by_time or isinstance(error, StoreOutcomeUnknown)
                    )
                return Progress(position, True, True, frozenset(world.promised), frozenset(world.gone))
        return Progress(len(self._scenario.steps))

    async def _die(self, world: CrashWorld) -> Progress:
        """A life that ends at a write. The dead process writes nothing more; what it holds is let go."""
        try:
            await world.open()
        except StoreError:
            return Progress(0)
        try:
            return await self._advance(world, 0)
        finally:
            await world.close()

    async def _cut_recovery(self, folder: Path, clock: ManualClock) -> None:
        """The power goes again while the files are opened."""
        with FaultyDisk() as disk:
            disk.die_at(self._chance.randint(1, _RECOVERY_STEPS))
            world = self._world(folder, clock, disk)
            with suppress(StoreError):
                await world.open()
            await world.close()
            disk.cut_power()
        forget_shared_memory(folder)

    async def _check_what_is_left(self, folder: Path, clock: ManualClock, progress: Progress) -> None:
        world = self._world(folder, clock)
        await world.open()
        try:
            found = self._found(await self._picture(world), progress)
            if world.lost_commits:
                raise Wrong(f"{world.lost_commits} commits are said to be lost")
            await self._probe(world, found)
            if (await self._advance(world, found)).done != len(self._scenario.steps):
                raise Wrong("the rest cannot be done after the crash")
        finally:
            await world.close()
        await self._check_end(folder, clock)

    async def _survive(self, world: CrashWorld) -> None:
        """One call fails: the store comes back by itself, and the same process goes on."""
        try:
            await world.open()
        except StoreError:
            await world.open()
        progress = Progress(0)
        try:
            for _ in range(_FAILURES_MAX):
                progress = await self._advance(world, progress.done)
                if progress.done == len(self._scenario.steps):
                    return
                await world.recover()
                progress = Progress(self._found(await self._picture(world), progress))
            raise Wrong(f"one failed call, and step {progress.done} fails again and again")
        finally:
            await world.close()

    async def _probe(self, world: CrashWorld, steps: int) -> None:
        if self._scenario.probe is None:
            return
        await self._scenario.probe(world, steps)
        if await self._picture(world) != self._pictures[steps]:
            raise Wrong("what was stored was not recognised when it was sent again")

    async def _check_end(self, folder: Path, clock: ManualClock) -> None:
        world = self._world(folder, clock)
        await world.open()
        try:
            self._found(await self._picture(world), Progress(len(self._scenario.steps)))
        finally:
            await world.close()

    def _found(self, picture: Picture, progress: Progress) -> int:
        """How many steps a picture shows, out of those it may show."""
        allowed = progress.allowed(self._pictures)
        for steps in allowed:
            if self._pictures[steps] == picture:
                return steps
        if progress.allows_parts(picture, self._pictures):
            return progress.done
        shown = [steps for steps, each in enumerate(self._pictures) if each == picture]
        told = f"{progress.done} steps were acknowledged"
        told += " and one more has no outcome" if progress.next_may_be_done else ""
        raise Wrong(
            f"{told}, but {shown[0] if shown else 'a part of one'} is there{self._told(picture, progress)}"
        )

    def _told(self, picture: Picture, progress: Progress) -> str:
        """What should be there and is not, and the other way round."""
        wanted = self._pictures[progress.done].bodies
        missing, foreign = wanted - picture.bodies, picture.bodies - wanted
        return f": missing {_names(missing)}, foreign {_names(foreign)}"


def _names(bodies: Counter[tuple[str, bytes]]) -> list[str]:
    return [f"{path}: {body[:12].decode()}" for path, body in bodies.elements()][:6]


def _clock() -> ManualClock:
    return ManualClock(wall_ms=START_MS)
