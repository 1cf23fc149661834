"""Rules that a transaction adds and removes (T-13, TX-20).

Rules live in the catalogue, whose home may be another store than that of the messages. So they are changed when the
commit begins, one after the other, and changed back when it cannot be completed. What is sent in the same transaction
is published by the new rules. This is the one part of a transaction that is not in its commit batch: between the two
commits others can see the rules change, and a crash just there leaves them changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from busway.broker.errors import BrokerError

Step = Callable[[], Awaitable[object]]


class TransactionRules:
    __slots__ = ("_carried_out", "_changes")

    def __init__(self) -> None:
        #: (what is done, what undoes it)
        self._changes: list[tuple[Step, Step]] = []
        self._carried_out: list[Step] = []

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, change: Step, undo: Step) -> None:
        self._changes.append((change, undo))

    async def carry_out(self) -> BrokerError | None:
        """All of them or none: why not, when one fails."""
        for change, undo in self._changes:
            try:
                await change()
            except BrokerError as error:
                await self.take_back()
                return error
            self._carried_out.append(undo)
        return None

    def are_changed(self) -> bool:
        return bool(self._carried_out)

    async def take_back(self) -> None:
        """The last one first. What somebody else has changed meanwhile stays so."""
        while self._carried_out:
            undo = self._carried_out.pop()
            try:
                await undo()
            except BrokerError:
                continue
