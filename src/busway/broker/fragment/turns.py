"""Turns of the loop: how much one of them may be given to publishing, and who goes on in the next.

Theory of operation. What a publish costs grows with its messages, the subscriptions and their rules, and everybody
else waits for the end of a turn. So work is counted in steps; one is about what a copy of a message costs, a few
microseconds. What a turn has room for is done at once, without any ado: small publishes know of this file only that
there was room, and what they have spent. Whatever is larger, or comes when the room is used up, lines up here and
goes on for one share of each turn, in rotation, until it is done.

Steps are counted and not timed, so that the same things happen each time. A clock is looked at as well, because a
step may cost more than it should; one that stands still never ends a share.

Nobody tells when a turn begins. `left` is set back by a callback of the next turn, which is asked for once half of
the room is used: what is spent in small coins over many turns costs one such callback in the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from busway.clock import Clock

_log = logging.getLogger(__name__)

#: Of one turn, for all topics together. Pure Python needs 10 ms for them, the compiled modules a third of it.
TURN_STEPS: Final = 5_000
#: What those get of it that go on from turn to turn; the rest is for small publishes that come meanwhile.
SHARE_STEPS: Final = 3_500
#: And no longer than this, by the clock.
SHARE_S: Final = 0.008
#: With less than this the next turn is watched for.
HALF: Final = TURN_STEPS // 2


class TurnShare:
    """What somebody has of one turn for work that may be longer."""

    __slots__ = ("_clock", "_ends_at", "_steps", "left")

    def __init__(self, clock: Clock, steps: int) -> None:
        self._clock = clock
        self._ends_at = clock.monotonic() + SHARE_S
        self._steps = self.left = steps

    def spend(self, steps: int) -> bool:
        """True when nothing is left."""
        self.left -= steps
        if self.left > 0 and self._clock.monotonic() >= self._ends_at:
            self.left = 0
        return self.left <= 0

    def used(self) -> int:
        return self._steps - self.left


class Outcome:
    """What somebody waits for whose work is done in the turns of others."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def set(self, count: int) -> None:
        if not self._ended.done():  # who waited was cancelled
            self._ended.set_result(count)

    def fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def wait(self) -> int:
        return await self._ended


class Worker(Protocol):
    """Somebody with work for several turns."""

    def work(self, share: TurnShare) -> bool:
        """Does some of it. True when more is left that can be done now."""

    def give_up(self) -> None:
        """There will be no more turns: whoever waits for its work is told."""


class Turns:
    """Of one process."""

    __slots__ = ("_clock", "_is_running", "_is_watching", "_line", "_spawn", "grain", "left")

    def __init__(self, clock: Clock, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._clock = clock
        self._spawn = spawn
        #: Steps that may be taken at once; none or less when the turn is full. Whoever takes some says so, and has
        #: the next turn watched for when it has become less than half.
        self.left = TURN_STEPS
        #: Steps that need not be told of one by one.
        self.grain = max(1, SHARE_STEPS // 50)
        self._is_watching = False
        self._line: deque[Worker] = deque()
        self._is_running = False

    def share(self) -> TurnShare:
        """What is left of this turn; to be told of in `used`."""
        return TurnShare(self._clock, min(self.left, SHARE_STEPS))

    def used(self, share: TurnShare) -> None:
        self.left -= share.used()
        if self.left < HALF:
            self.watch()

    def watch(self) -> None:
        """From the next turn on there is room again."""
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_watching = False
        if not self._is_running:
            self.left = TURN_STEPS

    def outcome(self) -> Outcome:
        return Outcome()

    def line_up(self, worker: Worker) -> None:
        """It gets a share of the next turns, until it says that nothing is left. It does not stand in line yet."""
        self._line.append(worker)
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._line:
                await asyncio.sleep(0)
                self._take_turn()
        finally:
            self._is_running = False
            self.left = TURN_STEPS
            left = list(self._line)
            self._line.clear()
            for worker in left:
                worker.give_up()

    def _take_turn(self) -> None:
        share = TurnShare(self._clock, SHARE_STEPS)
        self.left = TURN_STEPS
        for _ in range(len(self._line)):
            worker = self._line.popleft()
            try:
                has_more = worker.work(share)
            except Exception:
                _log.exception("Work of several turns failed.")
                worker.give_up()
                continue
            if has_more:
                self._line.append(worker)
            if share.left <= 0:
                break
        self.left -= share.used()
