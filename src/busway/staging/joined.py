"""A step that joins the open batches of one store or several, without a wait in between, and waits for them then."""

from __future__ import annotations

import asyncio

from busway.broker.namespace.namespace import StoreKeeper
from busway.model.errors import ServerBusy
from busway.store.contract import CommitBatch, StoreError, StoreUnavailable


class Joined:
    """Something that has joined a store's open batch."""

    __slots__ = ("_outcome", "keeper")

    def __init__(self, keeper: StoreKeeper, batch: CommitBatch) -> None:
        self.keeper = keeper
        outcome: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        batch.callbacks.append(lambda error: None if outcome.done() else outcome.set_result(error))
        self._outcome = outcome

    async def outcome(self) -> StoreError | None:
        """A failed commit takes the store out of service."""
        error = await self._outcome
        if error is not None:
            self.keeper.fail(error)
        return error


def open_batch(keeper: StoreKeeper) -> CommitBatch:
    """Raises ServerBusy."""
    try:
        if keeper.is_open:
            return keeper.store.batch()
    except StoreUnavailable as error:
        keeper.fail(error)
    raise ServerBusy(f"The store {keeper.name} is not available just now. Please try again.")


async def all_durable(joined: list[Joined]) -> None:
    """Raises ServerBusy."""
    failed = [each.keeper.name for each in joined if await each.outcome() is not None]
    if failed:
        raise ServerBusy(f"The store {failed[0]} failed. Please send the part again.")
