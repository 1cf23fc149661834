"""Telling everybody who joined a batch what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from busway.clock import Clock
from busway.store.contract import CommitCallback, StoreError

#: A batch may have thousands of callbacks: after about this time others get a turn of the loop.
_TURN_S: Final = 0.01
#: The clock is looked at after so many.
_LOOK_AFTER: Final = 32


def report(
    loop: asyncio.AbstractEventLoop, callbacks: list[CommitCallback], outcome: StoreError | None
) -> None:
    """Calls each callback; one that raises is a bug of its owner and must not keep the others uninformed. They are
    forgotten then: whoever waits for a batch may know it, and memory is given back without the cyclic collector."""
    for callback in callbacks:
        _call(loop, callback, outcome)
    callbacks.clear()


def report_some(
    loop: asyncio.AbstractEventLoop, callbacks: Sequence[CommitCallback], start: int, clock: Clock
) -> int:
    """The same for a batch that is durable, from one place on, for as long as a turn of the loop may last. The place
    of the first that is not told yet. Others may be added meanwhile, at the end."""
    ends_at = clock.monotonic() + _TURN_S
    at = start
    while at < len(callbacks):
        _call(loop, callbacks[at], None)
        at += 1
        if at % _LOOK_AFTER == 0 and clock.monotonic() >= ends_at:
            break
    return at


def _call(loop: asyncio.AbstractEventLoop, callback: CommitCallback, outcome: StoreError | None) -> None:
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
