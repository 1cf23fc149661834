"""Reads that are under way, and the batches by which they are corrected.

Theory of operation. A read is a *span*: it begins with the number of the last reported commit, asks reader threads
(once or more often), and at its end looks at the shadows of every batch after that number. `Spans` keeps those
batches while any span needs them. From the correction to the caller's next statement nothing is awaited.

Both belong to the loop. What a database offers to them is `ReadThreads`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, Protocol, Self, TypeVar

from busway.store.contract import StoreError, StoreUnavailable
from busway.store.shadow import Shadow, Shadows

T = TypeVar("T")
#: The half of a read that runs in a thread, on a connection of its own.
R = TypeVar("R")
#: The same where it is only used.
Used = TypeVar("Used", covariant=True)


class ReadThreads(Protocol[Used]):
    """Reading connections of a store and the threads that use them."""

    @property
    def threads(self) -> Executor | None:
        """None while the store is closed."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a connection raises when it cannot be read."""

    def run(self, work: Callable[[Used], T]) -> T:
        """In a reader thread."""


class Spans(Generic[R]):
    """The reads of one store, and what was written while they run."""

    def __init__(self, name: str, readers: ReadThreads[R], require_open: Callable[[], None]) -> None:
        self.name = name
        self.readers = readers
        self.require_open = require_open
        #: The last commit that was reported.
        self.commit_number = 0
        #: Batches not yet reported, and reported ones that some span still needs; oldest first.
        self.shadows: deque[Shadow] = deque()
        #: Counts openings: a read that began before another opening is void.
        self.generation = 0
        #: Commit number at the beginning of a span → how many such spans there are.
        self.begun: dict[int, int] = {}

    def begin(self, commit_number: int) -> None:
        """The store is open, anew."""
        self.generation += 1
        self.commit_number = commit_number
        self.begun.clear()
        self.shadows.clear()

    def reported(self, commit_number: int) -> None:
        """A batch is durable; another gathers behind it."""
        self.commit_number = commit_number
        self.forget_shadows()
        self._condense_shadows()

    def forget_shadows(self) -> None:
        """Lets go of reported batches that no span needs any more."""
        needed = min(self.begun, default=self.commit_number)
        while self.shadows and self.shadows[0].number <= needed:
            self.shadows.popleft()

    def _condense_shadows(self) -> None:
        """When a span needs the batch that was just reported, it lets go of its messages, and joins the one before
        unless a span began between the two: a slow read costs no memory for what is sent meanwhile."""
        shadows = self.shadows
        if len(shadows) < 2:
            return
        reported = shadows[-2]
        reported.let_go()
        if len(shadows) > 2 and shadows[-3].number not in self.begun:
            shadows[-3].absorb(reported)
            del shadows[-2]


class ReadSpan(Generic[R]):
    """One read from its call to its return."""

    __slots__ = ("_began_at", "_generation", "_spans")

    def __init__(self, spans: Spans[R]) -> None:
        self._spans = spans

    def __enter__(self) -> Self:
        spans = self._spans
        spans.require_open()
        self._generation = spans.generation
        self._began_at = spans.commit_number
        spans.begun[self._began_at] = spans.begun.get(self._began_at, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        spans = self._spans
        if spans.generation != self._generation:
            return
        spans.begun[self._began_at] -= 1
        if spans.begun[self._began_at] == 0:
            del spans.begun[self._began_at]
            spans.forget_shadows()

    async def run(self, work: Callable[[R], T]) -> T:
        readers = self._spans.readers
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(readers.threads, readers.run, work)
        except readers.errors as error:
            raise self.unreadable(error) from error
        self.require_same_opening()
        return result

    def unreadable(self, error: Exception) -> StoreError:
        return StoreError(f"The store {self._spans.name} cannot be read: {error}.")

    def require_same_opening(self) -> None:
        self._spans.require_open()
        if self._spans.generation != self._generation:
            raise StoreUnavailable(f"The store {self._spans.name} was opened anew meanwhile.")

    def shadows(self) -> Shadows:
        """All batches that were not reported when the span began."""
        return Shadows([shadow for shadow in self._spans.shadows if shadow.number > self._began_at])
