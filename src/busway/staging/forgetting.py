"""What is forgotten: by time, batches that nobody decided and memories of those that were; and everything at once.

Time is looked at once a minute, while the home is there, since it alone knows what is decided. Whatever cannot be
done at one look is done at the next.

Everything that writers have staged and written is forgotten when the namespace is made as new (`broker.reset`). Its
entities are gone already. So stages that nobody decided for are dropped, and those that are decided publish to
nobody, which drops their rows; then the memory of the writes goes too, and a batch that comes again is written again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.model.errors import BrokerError, ServerBusy
from busway.staging.decider import Decider
from busway.staging.decisions import STREAM, Decision, Decisions
from busway.staging.stage_table import StageTable

_log = logging.getLogger("busway.staging")

_LOOK_EVERY_S: Final = 60.0
#: Decisions that are looked at before others get their turn, and those that are forgotten in one look.
_LOOKED_AT_ONCE: Final = 5_000
_FORGOTTEN_AT_ONCE: Final = 1_000
#: Batches that are looked at before others get their turn.
_BATCHES_AT_ONCE: Final = 200
#: Writes that are forgotten at once: their commits become one.
_WRITES_AT_ONCE: Final = 100
#: A line of the publisher may be in a pause after a refusal.
_PUBLISHED_S_MAX: Final = 10.0


class TimeLimits:
    def __init__(
        self, namespace: Namespace, decider: Decider, table: StageTable, decisions: Decisions
    ) -> None:
        self._namespace = namespace
        self._runtime = namespace.runtime
        self._decider = decider
        self._table = table
        self._decisions = decisions
        self._is_started = False
        self._is_looking = False

    def start(self) -> None:
        """Told again it does nothing."""
        if not self._is_started:
            self._is_started = True
            self._look_later()

    def _look_later(self) -> None:
        timers, clock = self._runtime.timers, self._runtime.clock
        timers.at(clock.monotonic() + _LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._look_later()
        if (
            not self._is_looking
            and self._namespace.contents.catalogue.home.is_open
            and self._decisions.are_known
        ):
            self._is_looking = True
            self._namespace.background.spawn(self._look_around(), self._looked)

    def _looked(self) -> None:
        self._is_looking = False

    async def _look_around(self) -> None:
        """What time has ended: batches that nobody decided, and memories of those that were."""
        now_ms = self._runtime.clock.wall_ms()
        ended: list[Decision] = []
        for count, decision in enumerate(self._decisions.all(), 1):
            if count % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if decision.stages and decision.is_published:
                await self._decider.empty(decision)
            elif decision.is_at_end(now_ms) and len(ended) < _FORGOTTEN_AT_ONCE:
                ended.append(decision)
        await self._forget(ended)
        for count, (write, batch) in enumerate(self._table.batches(), 1):
            if count % _BATCHES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_abandoned(write, batch, now_ms):
                await self._end_batch(write, batch)
        self._decider.sweep()

    def _is_abandoned(self, write: str, batch: int, now_ms: int) -> bool:
        stages = self._table.of_batch(write, batch)
        if any(stage.is_decided or stage.lock.locked() for stage in stages):
            return False
        last_ms = max([stage.last_at_ms() for stage in stages], default=now_ms)
        return now_ms - last_ms > self._namespace.limits.staging_s * 1000

    async def _end_batch(self, write: str, batch: int) -> None:
        async with self._decider.turn(write):
            if not self._namespace.contents.catalogue.home.is_open:
                return
            rows = sum(stage.rows() for stage in self._table.of_batch(write, batch))
            _log.warning(
                "%d rows of batch %d of %s are dropped: nobody committed them in time.", rows, batch, write
            )
            try:
                await self._decider.drop_rest(write, batch)
            except BrokerError as error:
                _log.warning("They are dropped later: %s", error.sentence)

    async def _forget(self, ended: list[Decision]) -> None:
        """In one commit. Whoever decides meanwhile writes over it, in the same batch or a later one."""
        ended = [decision for decision in ended if not self._decider.is_at_work(decision.write)]
        stones = {decision.write: decision.tombstone() for decision in ended if decision.kind == STREAM}
        rows: dict[str, str | None] = {decision.row_key: None for decision in ended}
        rows.update({stone.row_key: stone.text() for stone in stones.values()})
        if not rows or not await self._decider.put_rows(rows):
            return
        for decision in ended:
            if self._decisions.get(decision.write) is not decision:
                continue
            if decision.kind == STREAM:
                self._decisions.put(stones[decision.write])
            else:
                self._decisions.remove(decision)


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
