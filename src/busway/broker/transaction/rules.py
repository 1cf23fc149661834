"""Rules that a transaction adds and removes (T-13, TX-20).

They change before the transaction's own messages are published, which are published by the new rules; everybody
else's stand in line behind those. The changes are in its batch (`decided_rules`), so they are durable with it or
not at all; a commit that fails takes them back. Other changes of entities and rules wait meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.errors import BrokerError
from busway.broker.transaction.decided_rules import DECIDED_KEY, DecidedRules, Text
from busway.rules.rule import Rule
from busway.store.contract import CommitBatch

if TYPE_CHECKING:
    from busway.broker.namespace.rule_changes import CarriedOut, RuleChanges

_log = logging.getLogger("busway.broker")


class RuleStep:
    """A rule to add, or one to remove."""

    __slots__ = ("name", "rule", "subscription_path")

    def __init__(self, subscription_path: str, name: str, rule: Rule | None) -> None:
        self.subscription_path = subscription_path
        self.name = name
        #: None: remove it.
        self.rule = rule


class TransactionRules:
    """Of one transaction."""

    __slots__ = ("_batch", "_carried_out", "_changes", "_is_decided", "_over", "_steps", "_text")

    def __init__(self, changes: RuleChanges) -> None:
        self._changes = changes
        self._steps: list[RuleStep] = []
        self._carried_out: list[CarriedOut] = []
        self._batch: CommitBatch | None = None
        self._text = ""
        self._is_decided = False
        self._over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: RuleStep) -> None:
        self._steps.append(step)

    async def commit(self, advance: Callable[[], None]) -> None:
        """Lets the commit go on while nobody else changes the catalogue, and takes the rules over into it. When that
        fails it is done as soon as the catalogue's home is back."""
        async with self._changes.changing:
            advance()
            await self._over.wait()
            if not self._is_decided:
                return
            try:
                await self._changes.take_over()
            except BrokerError as error:
                _log.warning("Rules that a transaction changed are written down later: %s", error.sentence)

    def carry_out(self) -> BrokerError | None:
        """In memory, all of them or none, and why not. `decide` follows, or `ended` with an error."""
        texts: dict[str, tuple[Text, Text]] = {}
        for step in self._steps:
            try:
                done = self._changes.carry_out(step)
            except BrokerError as error:
                self.take_back()
                return error
            self._carried_out.append(done)
            first = texts.get(done.row.row_key)
            texts[done.row.row_key] = (done.before if first is None else first[0], done.after)
        self._text = DecidedRules(self._changes.next_number(), texts).text()
        return None

    def decide(self, batch: CommitBatch) -> None:
        """In the one step."""
        self._batch = batch
        batch.catalogue[DECIDED_KEY] = self._text

    def take_back(self) -> None:
        """The commit has failed, or did not take place. Idempotent."""
        while self._carried_out:
            self._changes.take_back(self._carried_out.pop())
        if self._batch is not None:
            self._batch.catalogue.pop(DECIDED_KEY, None)
            self._batch = None

    def ended(self, error: BrokerError | None, store_name: str) -> None:
        """The transaction is over; called once."""
        if error is not None:
            self.take_back()
        elif self._batch is not None:
            self._is_decided = True
            self._changes.decided(store_name, self._text, self._carried_out)
        self._over.set()
