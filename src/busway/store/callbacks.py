"""Telling everybody who joined a batch what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from busway.store.contract import CommitCallback, StoreError


def report(
    loop: asyncio.AbstractEventLoop, callbacks: Sequence[CommitCallback], outcome: StoreError | None
) -> None:
    """Calls each callback; one that raises is a bug of its owner and must not keep the others uninformed."""
    for callback in callbacks:
        try:
            callback(outcome)
        except Exception as error:
            loop.call_exception_handler({"message": "A commit callback failed.", "exception": error})


def resolving(waiter: asyncio.Future[None]) -> Callable[[StoreError | None], None]:
    """A callback that ends the wait of a coroutine."""

    def resolve(outcome: StoreError | None) -> None:
        if waiter.done():  # The coroutine was cancelled meanwhile.
            return
        if outcome is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(outcome)

    return resolve
