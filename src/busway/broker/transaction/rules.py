"""Rules that a transaction adds and removes (T-13, TX-20).

They change before the transaction's own messages are published, which are published by the new rules; everybody
else's stand in line behind those. The changes are in its batch, so they are durable with it or not at all; a commit
that fails takes them back. Other changes of entities and rules wait meanwhile. What a rule is and where it is written
down the namespace knows: it gives the functions that do it (`RuleWork`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from busway.model.errors import BrokerError
from busway.rules.rule import Rule
from busway.store.contract import CommitBatch

_log = logging.getLogger("busway.broker")


class RuleStep:
    """A rule to add, or one to remove."""

    __slots__ = ("name", "rule", "subscription_path")

    def __init__(self, subscription_path: str, name: str, rule: Rule | None) -> None:
        self.subscription_path = subscription_path
        self.name = name
        #: None: remove it.
        self.rule = rule


@dataclass(frozen=True)
class ChangedRules:
    """All steps of one transaction, done in memory and nowhere else yet."""

    #: What the batch carries, and under which key of its catalogue.
    key: str
    text: str
    take_back: Callable[[], None]
    #: They are durable in the store of this name.
    decided: Callable[[str], None]


@dataclass(frozen=True)
class RuleWork:
    """How rules are changed, as the namespace does it."""

    #: Held from before `carry_out` until the changes are taken over or taken back.
    changing: asyncio.Lock
    #: All steps or none, in memory. Raises what adding and removing a rule raise.
    carry_out: Callable[[Sequence[RuleStep]], ChangedRules]
    #: What was decided becomes part of the catalogue. Raises BrokerError when that must wait.
    take_over: Callable[[], Awaitable[None]]


class TransactionRules:
    """Of one transaction."""

    __slots__ = ("_batch", "_changed", "_is_decided", "_over", "_steps", "_work")

    def __init__(self, work: RuleWork) -> None:
        self._work = work
        self._steps: list[RuleStep] = []
        self._changed: ChangedRules | None = None
        self._batch: CommitBatch | None = None
        self._is_decided = False
        self._over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: RuleStep) -> None:
        self._steps.append(step)

    async def commit(self, advance: Callable[[], None]) -> None:
        """Lets the commit go on while nobody else changes the catalogue, and takes the rules over into it. When that
        fails it is done as soon as the catalogue's home is back."""
        async with self._work.changing:
            advance()
            await self._over.wait()
            if not self._is_decided:
                return
            try:
                await self._work.take_over()
            except BrokerError as error:
                _log.warning("Rules that a transaction changed are written down later: %s", error.sentence)

    def carry_out(self) -> BrokerError | None:
        """In memory, all of them or none, and why not. `decide` follows, or `ended` with an error."""
        try:
            self._changed = self._work.carry_out(self._steps)
        except BrokerError as error:
            return error
        return None

    def decide(self, batch: CommitBatch) -> None:
        """In the one step."""
        assert self._changed is not None, "they are carried out first"
        self._batch = batch
        batch.catalogue[self._changed.key] = self._changed.text

    def take_back(self) -> None:
        """The commit has failed, or did not take place. Idempotent."""
        changed, self._changed = self._changed, None
        if changed is None:
            return
        changed.take_back()
        if self._batch is not None:
            self._batch.catalogue.pop(changed.key, None)
            self._batch = None

    def ended(self, error: BrokerError | None, store_name: str) -> None:
        """The transaction is over; called once."""
        if error is not None:
            self.take_back()
        elif self._batch is not None and self._changed is not None:
            self._is_decided = True
            self._changed.decided(store_name)
        self._over.set()
