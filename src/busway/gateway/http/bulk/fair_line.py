"""A line in which callers are served in turn: one with sixty requests gets no more than one with a single request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class Waiter:
    """One place in one line."""

    __slots__ = ("caller", "come", "size", "what")

    def __init__(self, caller: str, size: int = 0, what: str = "") -> None:
        self.caller = caller
        self.size = size
        self.what = what
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give(self) -> bool:
        """False when it has gone, and was not yet there to say so."""
        if self.come.done():
            return False
        self.come.set_result(None)
        return True


class FairLine:
    """Callers in turn; of one caller whoever came first."""

    __slots__ = ("_by_caller",)

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, deque[Waiter]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_caller.values()))

    def __bool__(self) -> bool:
        return bool(self._by_caller)

    def add(self, waiter: Waiter) -> None:
        self._by_caller.setdefault(waiter.caller, deque()).append(waiter)

    def first(self) -> Waiter:
        return next(iter(self._by_caller.values()))[0]

    def heads(self) -> list[Waiter]:
        """The first of each caller, whose turn it is first."""
        return [own[0] for own in self._by_caller.values()]

    def served(self, waiter: Waiter) -> None:
        """It leaves, and its caller has had its turn."""
        self.left(waiter)
        if waiter.caller in self._by_caller:
            self._by_caller.move_to_end(waiter.caller)

    def left(self, waiter: Waiter) -> None:
        own = self._by_caller.get(waiter.caller)
        if own is None or waiter not in own:
            return
        own.remove(waiter)
        if not own:
            del self._by_caller[waiter.caller]
