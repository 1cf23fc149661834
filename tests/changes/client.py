"""What all clients of a cell share: they try again as SDKs do, for a bounded time, and say what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.locks import Attachment
from busway.model.errors import BrokerError

if TYPE_CHECKING:
    from tests.changes.world import World

_FIRST_PAUSE_S: Final = 0.002
_LAST_PAUSE_S: Final = 0.25


class GaveUp(Exception):
    """Patience has an end, and nothing that an operator did lasts so long."""


class Client:
    """Acts until the world is over."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.chance
        self.record = world.record
        #: What it waits for.
        self.doing = ""
        self._pause_s = _FIRST_PAUSE_S

    async def run(self) -> None:
        try:
            while not self.world.is_over:
                self.doing = "pauses"
                await asyncio.sleep(self.pause_s())
                await self.act()
        finally:
            self.leave()

    def pause_s(self) -> float:
        if self.world.has_much():
            return 0.02
        return 0.0 if self.chance.random() < 0.3 else self.chance.random() * 0.003

    async def act(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Its links go."""

    async def refused(self, error: BrokerError) -> None:
        """Waits a little before the next try; longer each time."""
        if self.record.now() > self.world.deadline:
            raise GaveUp(f"{self.name} {self.doing}: {type(error).__name__}: {error.sentence}")
        await asyncio.sleep(self._pause_s * (0.5 + self.chance.random()))
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)

    def served(self) -> None:
        self._pause_s = _FIRST_PAUSE_S


class SendLink(Attachment):
    """A sending link. Whoever is evicted attaches again."""

    def __init__(self) -> None:
        self.is_gone = False

    def evict(self, error: BrokerError) -> None:
        del error
        self.is_gone = True


class Answer:
    """What the broker calls back about a run (`RunDone`)."""

    def __init__(self, client: Client, count: int, *, is_atomic: bool = False) -> None:
        self._client = client
        self._is_atomic = is_atomic
        self._told = False
        self.errors: list[BrokerError | None] = [None] * count
        self._waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, refused: Sequence[tuple[int, BrokerError]]) -> None:
        if self._told:
            self._client.record.find("answered twice", self._client.doing)
            return
        self._told = True
        for place, error in refused:
            self.errors[place] = error
        if self._is_atomic and refused:
            self.errors = [refused[0][1]] * len(self.errors)
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def come(self) -> list[BrokerError | None]:
        await self._waiter
        return self.errors
