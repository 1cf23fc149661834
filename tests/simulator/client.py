"""What all simulated clients share: a name, chances of their own, pauses, and calls that are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from busway.broker.namespace.namespace import Namespace
from busway.model.errors import BrokerError
from tests.simulator.journal import Call, Journal

if TYPE_CHECKING:
    from tests.simulator.world import World

#: A client that has so many calls under way waits for an answer.
_UNDER_WAY_MAX: Final = 6


class Client:
    """Acts until the world has no operations left. A crash of the broker ends its work; then it begins anew."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = Random(f"{world.seed}:{name}")
        self.journal: Journal = world.journal
        self.under_way = 0
        #: It is where something is being changed, and wants to be there when it happens.
        self.hurries = False

    @property
    def namespace(self) -> Namespace:
        return self.world.namespace

    async def run(self) -> None:
        life = self.journal.life
        self.begin()
        try:
            while self.may_act():
                await self.act()
                await self.pause()
        finally:
            if life == self.journal.life:  # whoever is dead cannot be left
                self.leave()

    def may_act(self) -> bool:
        return self.world.take_operation()

    def begin(self) -> None:
        """A new connection."""
        self.under_way = 0

    async def act(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """The connection ends."""

    async def pause(self) -> None:
        draw = self.chance.random()
        if self.hurries and self.world.is_changing:
            await asyncio.sleep(draw * 0.015)
            return
        if draw < 0.3:
            return
        if draw < 0.85:
            await asyncio.sleep(self.chance.random() * 0.01)
        elif draw < 0.985:
            await asyncio.sleep(self.chance.random() * 0.5)
        else:
            await asyncio.sleep(self.chance.random() * 30)

    async def heard(self, question: Question) -> None:
        """Waits for the answer, or leaves it to come later."""
        if self.under_way >= _UNDER_WAY_MAX or self.chance.random() < 0.6:
            await question.answered()

    def note(self, text: str) -> None:
        self.journal.note(f"{self.name} {text}")


class Question:
    """A call about several things. It is what the broker calls back (`RunDone`)."""

    __slots__ = ("_asker", "_calls", "_is_answered", "_is_atomic", "_waiter", "_what")

    def __init__(self, asker: Client, calls: Sequence[Call], what: str, *, is_atomic: bool = False) -> None:
        self._asker = asker
        self._calls = calls
        self._what = what
        self._is_atomic = is_atomic
        self._is_answered = False
        self._waiter: asyncio.Future[None] | None = None
        asker.under_way += 1

    def __call__(self, refused: list[tuple[int, BrokerError]]) -> None:
        journal = self._asker.journal
        if self._calls and self._calls[0].life != journal.life:  # a voice from the grave
            return
        errors = dict(refused)
        whole = refused[0][1] if self._is_atomic and refused else None
        for place, call in enumerate(self._calls):
            journal.end(call, whole or errors.get(place), self._what)
            self.told(place, call)
        self._asker.under_way -= 1
        self._is_answered = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def told(self, place: int, call: Call) -> None:
        """For those who want to know more."""

    def fail(self, error: BrokerError) -> None:
        """It could not even be asked."""
        self([(place, error) for place in range(len(self._calls))])

    async def answered(self) -> None:
        if not self._is_answered:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
