"""How long an operation is tried while the bus is away or busy: the one back-off of both formats, over HTTP and AMQP.

Pauses double from PAUSE_FIRST_S to PAUSE_MAX_S, and chance takes up to a half off each, so that tasks which failed
together do not come back together. A server that names a time (Retry-After) is not asked earlier. All tries end
within `operationTimeout`; those of a bus that has never answered this process within FIRST_S, because that is more
often a wrong address than a bus that is away. A task need not find out: the driver has met the bus that it reads.

Only what may be done twice is tried again; who calls knows that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from busway.amqp.errors import Condition
from busway.client.errors import ClientError, Unreachable

#: Unless `operationTimeout` says something else.
OPERATION_S: Final = 60.0
FIRST_S: Final = 10.0
PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0

T = TypeVar("T")

#: Buses that have answered this process, by their authority.
_met: set[str] = set()


def meet(authority: str) -> None:
    """The bus has answered, or somebody who sent us here knows it."""
    _met.add(authority)


class Patience:
    """Of one operation, from now on."""

    def __init__(self, authority: str, limit_s: float) -> None:
        self._limit_s = limit_s if authority in _met else min(limit_s, FIRST_S)
        self._began = time.monotonic()
        self._next_s = PAUSE_FIRST_S
        self._tries = 1

    def pause(self, told_s: float = 0.0) -> bool:
        """Waits for the next try, at least as long as the server told; False, at once, when there is no time left."""
        left_s = self._limit_s - (time.monotonic() - self._began)
        if left_s <= 0 or told_s > left_s:
            return False
        pause_s = self._next_s * (1 - random.random() / 2)
        time.sleep(min(max(pause_s, told_s), left_s))
        self._next_s = min(2 * self._next_s, PAUSE_MAX_S)
        self._tries += 1
        return True

    def over(self, error: ClientError) -> ClientError:
        """The error with what was tried, when it was tried more than once."""
        if self._tries == 1:
            return error
        spent_s = time.monotonic() - self._began
        return type(error)(f"{error} It was tried {self._tries} times in {spent_s:.0f} s.", error.condition)


def patiently(authority: str, limit_s: float, work: Callable[[], T]) -> T:
    """What `work` returns; it is called again while the bus is away or busy. Raises ClientError."""
    patience = Patience(authority, limit_s)
    while True:
        try:
            found = work()
        except ClientError as error:
            if not may_pass(error):
                meet(authority)  # it was there to refuse
                raise
            if not patience.pause():
                raise patience.over(error) from error
        else:
            meet(authority)
            return found


def may_pass(error: ClientError) -> bool:
    """Another try may find it gone."""
    return isinstance(error, Unreachable) or error.condition == Condition.SERVER_BUSY
