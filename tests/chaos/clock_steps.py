"""F10: somebody sets the clock, by hours and by ten years, forwards and backwards, in this process.

Locks run on monotonic time and do not notice. What lives for a while ends when the wall clock says so, and nothing
else does; a clock set back ends nothing. The enqueued times of a queue never go back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from busway.message.message import Message
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from tests.chaos.crash_scenarios import START_MS, text
from tests.chaos.crash_world import CrashWorld, NeverAnswered, queue
from tests.chaos.scenario import Outcome
from tests.harness.manual_clock import ManualClock

NAME: Final = "steps of the clock"
HOUR_S: Final = 3_600.0
TEN_YEARS_S: Final = 10 * 365.25 * 24 * HOUR_S
STEPS_S: Final = (TEN_YEARS_S, -TEN_YEARS_S, HOUR_S / 2, -HOUR_S / 2, -TEN_YEARS_S, TEN_YEARS_S)
#: Deadlines are looked at again within five minutes, and after an opening within one more.
_LOOKING_S: Final = 420
_LASTING, _BRIEF = 4, 2


def steps_of_the_clock(folder: Path, rounds: int, _: int) -> Outcome:
    trial = ClockTrial(folder)
    done = 0
    try:
        done = asyncio.run(trial.play(STEPS_S[:rounds]))
    except (BrokerError, NeverAnswered) as error:
        trial.wrong(f"{type(error).__name__}: {error}")
    return Outcome(NAME, done, rounds, sent=trial.sent, received=trial.received, violations=trial.violations)


class ClockTrial:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._clock = ManualClock(wall_ms=START_MS)
        self._folder = folder
        #: By body, what must be in the queue.
        self._lasting: set[bytes] = set()
        self._ended = 0
        self.sent = 0
        self.received = 0
        self.violations: dict[str, int] = {}

    def wrong(self, what: str) -> None:
        self.violations[what] = self.violations.get(what, 0) + 1

    async def play(self, steps_s: tuple[float, ...]) -> int:
        """How many steps were made."""
        world = self._new_world()
        await world.open()
        await world.create(queue(dead_lettering_on_message_expiration=True))
        try:
            for number, step_s in enumerate(steps_s):
                await self._step(world, number, step_s)
            await world.close()
            world = self._new_world()
            await world.open()
            await self._drain(world)
        finally:
            await world.close()
        if not self._ended:
            self.wrong("ten years passed and nothing expired")
        return len(steps_s)

    def _new_world(self) -> CrashWorld:
        return CrashWorld(self._folder, self._clock, None, 1)

    async def _step(self, world: CrashWorld, number: int, step_s: float) -> None:
        lasting = [text(f"lasting-{number}-{each}") for each in range(_LASTING)]
        brief = [text(f"brief-{number}-{each}", ttl_ms=int(HOUR_S * 1000)) for each in range(_BRIEF)]
        await world.send(*lasting, *brief)
        self.sent += len(lasting) + len(brief)
        self._lasting.update(each.bare for each in lasting)
        held = await world.receive(1)
        self._clock.step_wall(step_s)
        # Its lock has a minute left, whatever the wall says.
        await world.settle(held, Settlement(Verb.COMPLETE))
        self.received += 1
        self._lasting.discard(held[0].message.bare)
        for _ in range(_LOOKING_S):
            self._clock.advance(1.0)
            world.namespace.tick()
            await asyncio.sleep(0)
        await self._look(world, brief, step_s)

    async def _look(self, world: CrashWorld, brief: list[Message], step_s: float) -> None:
        """A message's hour begins at its enqueued time, which after a step back may lie ahead."""
        over = {each.bare for each in brief if each.expires_at_ms <= self._clock.wall_ms()}
        self._ended += len(over)
        counters = world.queue.dead_letter.counters
        await world.pass_until(0, lambda: counters.active >= self._ended)
        found = await world.queue.main.peek(1, 250)
        here = {each.bare for each in found}
        dead = {each.bare for each in await world.queue.dead_letter.peek(1, 250)}
        if not self._lasting <= here:
            self.wrong(f"{len(self._lasting - here)} messages without an end are gone after {step_s:+.0f} s")
        if not over <= dead:
            self.wrong(f"{len(over - dead)} messages outlived their hour after {step_s:+.0f} s")
        left = {each.bare for each in brief} - over
        if not left <= here:
            self.wrong(f"{len(left - here)} messages ended before their hour after {step_s:+.0f} s")
        if not _in_order(found):
            self.wrong(f"the enqueued time of a queue went back after {step_s:+.0f} s")

    async def _drain(self, world: CrashWorld) -> None:
        """In a new process: everything comes, and comes once."""
        count = world.queue.main.counters.active
        taken = await world.receive(count, deletes=True)
        self.received += count
        bodies = [each.message.bare for each in taken]
        if not self._lasting <= set(bodies) or len(set(bodies)) != len(bodies):
            self.wrong("after a restart not everything came, or not once")


def _in_order(messages: list[Message]) -> bool:
    times = [each.enqueued_at_ms for each in messages]
    return times == sorted(times)
