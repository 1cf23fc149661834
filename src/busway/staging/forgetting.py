"""Everything that writers have staged and written, forgotten: the namespace is made as new (`broker.reset`).

Its entities are gone already. So stages that nobody decided for are dropped, and those that are decided publish to
nobody, which drops their rows; then the memory of the writes goes too, and a batch that comes again is written again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.errors import ServerBusy
from busway.staging.decider import Decider
from busway.staging.decisions import Decisions
from busway.staging.stage_table import StageTable

#: Writes that are forgotten at once: their commits become one.
_WRITES_AT_ONCE: Final = 100
#: A line of the publisher may be in a pause after a refusal.
_PUBLISHED_S_MAX: Final = 10.0


class Forgetting:
    def __init__(self, decider: Decider, table: StageTable, decisions: Decisions) -> None:
        self._decider = decider
        self._table = table
        self._decisions = decisions

    async def all(self) -> None:
        """What is known now. Raises ServerBusy."""
        batches: dict[str, list[int]] = {decision.write: [] for decision in self._decisions.all()}
        for write, batch in self._table.batches():
            batches.setdefault(write, []).append(batch)
        writes = list(batches)
        for first in range(0, len(writes), _WRITES_AT_ONCE):
            some = writes[first : first + _WRITES_AT_ONCE]
            ended = await asyncio.gather(
                *(self._forget(write, batches[write]) for write in some), return_exceptions=True
            )
            for outcome in ended:
                if outcome is not None:
                    raise outcome

    async def _forget(self, write: str, batches: list[int]) -> None:
        async with self._decider.turn(write):
            for batch in batches:
                await self._decider.drop_rest(write, batch)
        decision = self._decisions.get(write)
        if decision is None:
            return
        if not await self._decider.published(decision, _PUBLISHED_S_MAX):
            raise ServerBusy(f"What {write} has written is still being published. Please try again.")
        await self._decider.empty(decision)
        await self._decider.forget(write)
