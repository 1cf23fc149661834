"""A scenario in a world of its own: opened before it, closed whatever happens, in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from busway.broker.namespace.namespace import Namespace


class World(Protocol):
    """A bench, a store: whatever is opened and closed."""

    async def open(self) -> object: ...
    async def close(self) -> None: ...


W = TypeVar("W", bound=World)


class NamespaceWorld:
    """A namespace, and what a bench has beside it."""

    namespace: Namespace

    async def open(self) -> None:
        await self.namespace.open()

    async def close(self) -> None:
        await self.namespace.close()


def play(
    make: Callable[[], W],
    scenario: Callable[[W], Awaitable[None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def whole() -> None:
        world = make()
        await world.open()
        try:
            await scenario(world)
        finally:
            await world.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(whole())
