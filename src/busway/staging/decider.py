"""Which stages count: decisions and what follows from them, what nobody decides for, and what is forgotten.

Steps of one write wait for one another (`turn`): its decisions, what drops its stages, and what forgets it. A
stage that is being decided or dropped is closed: it takes no part. A step joins the open batches of one store or
several, without a wait in between, and waits for them then (`Joined`).

By time are forgotten batches that nobody decided and memories of those that were. Time is looked at once a minute,
while the home is there, since it alone knows what is decided. Whatever cannot be done at one look is done at the
next.

Everything that writers have staged and written is forgotten at once when the namespace is made as new
(`broker.reset`). Its entities are gone already. So stages that nobody decided for are dropped, and those that are
decided publish to nobody, which drops their rows; then the memory of the writes goes too, and a batch that comes
again is written again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.namespace import Namespace, StoreKeeper
from busway.model.errors import BrokerError, ServerBusy
from busway.staging.decisions import CHANGED, GONE, STREAM, Decision, Decisions, StagingRefused
from busway.staging.publisher import Pace, Publisher
from busway.staging.stage_table import EntityName, Stage, StageTable
from busway.staging.targets import Targets
from busway.store.contract import CommitBatch, StoreError, StoreUnavailable


class Joined:
    """Something that has joined a store's open batch."""

    __slots__ = ("_outcome", "keeper")

    def __init__(self, keeper: StoreKeeper, batch: CommitBatch) -> None:
        self.keeper = keeper
        outcome: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        batch.callbacks.append(lambda error: None if outcome.done() else outcome.set_result(error))
        self._outcome = outcome

    async def outcome(self) -> StoreError | None:
        """A failed commit takes the store out of service."""
        error = await self._outcome
        if error is not None:
            self.keeper.fail(error)
        return error


def open_batch(keeper: StoreKeeper) -> CommitBatch:
    """Raises ServerBusy."""
    try:
        if keeper.is_open:
            return keeper.store.batch()
    except StoreUnavailable as error:
        keeper.fail(error)
    raise ServerBusy.without(f"The store {keeper.name}")


async def all_durable(joined: list[Joined]) -> None:
    """Raises ServerBusy."""
    failed = [each.keeper.name for each in joined if await each.outcome() is not None]
    if failed:
        raise ServerBusy(f"The store {failed[0]} failed. Please send the part again.")


_log = logging.getLogger("busway.staging")

#: Stages that are looked at before others get their turn.
_STAGES_AT_ONCE: Final = 200

#: Told the paths of entities; raises when the caller may not send to one of them.
MaySend = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class WriteName:
    """Whose rows, and of which batch."""

    write: str
    batch: int
    kind: str


@dataclass(frozen=True)
class Decided:
    decision: Decision
    rows: int
    is_known: bool


class Decider:
    """Which stages count: decisions and what follows from them, and what nobody decides for."""

    def __init__(
        self, namespace: Namespace, targets: Targets, table: StageTable, decisions: Decisions, pace: Pace
    ) -> None:
        self._namespace = namespace
        self._runtime = namespace.runtime
        self._targets = targets
        self._table = table
        self._decisions = decisions
        self.publisher = Publisher(namespace.runtime, table, targets, pace, self._stage_published)
        #: By write; one is there while somebody has or awaits it.
        self._turns: dict[str, _Turn] = {}
        #: Stores in which logs were dropped whose rows had left before: no hurry.
        self._to_sweep: set[str] = set()
        #: Since the start: rows of undecided stages that were dropped.
        self.rows_abandoned = 0

    # -- decisions

    async def decide(self, name: WriteName, stages: Mapping[str, int], may_send: MaySend) -> Decided:
        """`stages`: how many rows the client has sent in each. Raises StagingRefused, BrokerError."""
        async with self.turn(name.write):
            self._check_home()
            previous = self._decisions.get(name.write)
            if previous is not None:
                may_send(path for path in previous.entities if self._targets.exists(path))
            if self._decisions.is_known(name.write, name.batch):
                assert previous is not None
                await self._tidy(name.write, name.batch)
                return Decided(previous, sum(stages.values()), True)
            self._decisions.check_capacity(name.write, name.kind)
            closed: list[Stage] = []
            try:
                found = await self._whole_stages(name, stages, closed, may_send)
                decision = await self._write_decision(name, found, previous)
            except BaseException:
                for stage in closed:
                    stage.is_closed = stage.is_decided
                raise
            await self.publish(decision, list(self._namespace.contents.keepers))
            await self._tidy(name.write, name.batch)
            return Decided(decision, sum(stages.values()), False)

    async def _whole_stages(
        self, name: WriteName, stages: Mapping[str, int], closed: list[Stage], may_send: MaySend
    ) -> list[Stage]:
        """All of them, closed. Raises why they cannot be decided."""
        losses = self._table.losses
        found: list[Stage] = []
        entities: set[EntityName] = set()
        for count, (stage_id, rows) in enumerate(stages.items(), 1):
            if count % _STAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            stage = self._table.stages.get(stage_id)
            if stage is None or (stage.write, stage.batch) != (name.write, name.batch):
                if rows == 0 and stage is None:
                    continue
                raise self._gone(stage_id)
            if stage.lock.locked() or stage.is_closed:
                raise ServerBusy("A part of a stage is still being written. Please try again.")
            if stage.rows() != rows:
                raise self._gone(stage_id)
            stage.is_closed = True
            closed.append(stage)
            found.append(stage)
            entities |= stage.entities()
        may_send(sorted({entity.path for entity in entities}))
        if losses != self._table.losses:
            raise ServerBusy("A store was lost just now. Please try again.")
        for entity in entities:
            if self._targets.named(entity) is None:
                raise StagingRefused(
                    CHANGED,
                    f"'{entity.path}' was deleted or made again since the rows were sent: send them again.",
                )
        return found

    def _gone(self, stage_id: str) -> Exception:
        if not all(keeper.is_open for keeper in self._namespace.contents.keepers.values()):
            return ServerBusy("A store that may hold staged rows is not available. Please try again.")
        return StagingRefused(
            GONE,
            f"The stage {stage_id} is not there any more, or not with the rows that were sent: send the batch again.",
        )

    async def _write_decision(
        self, name: WriteName, stages: list[Stage], previous: Decision | None
    ) -> Decision:
        """The one step: before it nothing is decided, after it everything. Raises ServerBusy."""
        named = {} if previous is None else _still_left(previous)
        named.update({stage.id: list(stage.notes) for stage in stages if stage.notes})
        entities = {entity.path for stage in stages for entity in stage.entities()}
        if previous is not None:
            entities |= set(previous.entities) if not entities or previous.left else set()
        now_ms = self._runtime.clock.wall_ms()
        decision = Decision(name.write, name.batch, name.kind, now_ms, named, entities)
        if not named:
            decision.published_ms = now_ms
        home = self._namespace.contents.catalogue.home
        batch = open_batch(home)
        batch.catalogue[decision.row_key] = decision.text()
        if await Joined(home, batch).outcome() is not None:
            raise ServerBusy("Whether the batch was committed is not known yet. Please ask again.")
        present = self._decisions.get(name.write)
        if present is not None and present.batch == name.batch:  # the home was read again meanwhile
            return present
        decision.follow(previous)
        self._decisions.put(decision)
        for stage in stages:
            self._table.decided(stage)
        return decision

    async def publish(self, decision: Decision, store_names: list[str]) -> None:
        """What it names of the stores that are in service. Whatever happens meanwhile, each stage is looked at
        as it is at that moment, and told again of the same nobody does anything."""
        for count, stage_id in enumerate(list(decision.stages), 1):
            if count % _STAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            for name in store_names:
                if (stage_id, name) in decision.left:
                    self._publish_stage(decision, stage_id, self._namespace.contents.keepers[name])
        if decision.is_published and decision.stages:
            self._namespace.background.spawn(self.empty(decision))

    def _publish_stage(self, decision: Decision, stage_id: str, keeper: StoreKeeper) -> None:
        """A stage without a note in a store that is in service is published there already."""
        if not keeper.is_open or self.publisher.is_at(stage_id, keeper.name):
            return  # it will be told, or tells
        stage = self._table.stages.get(stage_id)
        if stage is not None and keeper.name in stage.notes:
            self.publisher.add(keeper, stage)
            return
        decision.published(stage_id, keeper.name)
        if stage is not None:
            self._table.forget_empty(stage)

    def _stage_published(self, stage: Stage, store_name: str) -> None:
        decision = self._decisions.of_stage(stage.id)
        self._table.forget_empty(stage)
        if decision is None:
            return
        decision.published(stage.id, store_name)
        if decision.is_published:
            self._namespace.background.spawn(self.empty(decision))

    async def empty(self, decision: Decision) -> None:
        """The row names no stages any more; should that fail it is done when the home is back."""
        async with self.turn(decision.write):
            if self._decisions.get(decision.write) is not decision or not decision.stages:
                return
            now_ms = self._runtime.clock.wall_ms()
            emptied = Decision(
                decision.write, decision.batch, decision.kind, decision.at_ms, {}, decision.entities
            )
            emptied.published_ms = now_ms
            if await self.put_rows({decision.row_key: emptied.text()}):
                self._to_sweep.update(name for names in decision.stages.values() for name in names)
                self._decisions.emptied(decision)
                decision.published_ms = now_ms

    async def published(self, decision: Decision, wait_s: float) -> bool:
        """Waits so long for it."""
        if decision.is_published or wait_s <= 0:
            return decision.is_published
        over = asyncio.Event()
        decision.waiting.append(over.set)
        timers = self._runtime.timers
        timer = timers.at(self._runtime.clock.monotonic() + wait_s, over.set)
        try:
            await over.wait()
        finally:
            timers.cancel(timer)
            if over.set in decision.waiting:
                decision.waiting.remove(over.set)
        return decision.is_published

    # -- what is not wanted

    async def drop(self, write: str, batch: int, stage_id: str, may_send: MaySend) -> bool:
        """False when a decision names it, or nobody knows it. Raises BrokerError."""
        async with self.turn(write):
            self._check_home()
            stage = self._table.stages.get(stage_id)
            if stage is None or (stage.write, stage.batch) != (write, batch):
                return False
            may_send(sorted({entity.path for entity in stage.entities()}))
            return await self._drop_stage(stage)

    async def _tidy(self, write: str, batch: int) -> None:
        """What is decided stays decided, whether its rest can be dropped now or when its time is over."""
        try:
            await self.drop_rest(write, batch)
        except BrokerError as error:
            _log.info("What is left of batch %d of %s is dropped later: %s", batch, write, error.sentence)

    async def drop_rest(self, write: str, batch: int) -> None:
        """What tasks left behind that nobody decided for."""
        for stage in self._table.of_batch(write, batch):
            if not stage.is_decided:
                await self._drop_stage(stage)

    async def _drop_stage(self, stage: Stage) -> bool:
        """While it is the write's turn. A store that is away keeps its note until its time is over."""
        if stage.is_decided or self._decisions.of_stage(stage.id) is not None:
            return False
        stage.is_closed = True
        try:
            async with stage.lock:
                joined = self._join_drop(stage)
                await all_durable(joined)
                self._table.forget_empty(stage)
        except BaseException:
            stage.is_closed = False
            raise
        self._sweep_dropped(each.keeper.name for each in joined)
        return True

    def _join_drop(self, stage: Stage) -> list[Joined]:
        """Raises ServerBusy."""
        joined: list[Joined] = []
        for store_name in list(stage.notes):
            keeper = self._namespace.contents.keepers[store_name]
            batch = open_batch(keeper)
            self.rows_abandoned += stage.notes[store_name].rows()
            self._table.drop_note(batch, keeper, stage)
            joined.append(Joined(keeper, batch))
        return joined

    def sweep(self) -> None:
        """What was left behind in no hurry."""
        names, self._to_sweep = self._to_sweep, set()
        self._sweep_dropped(names)

    def _sweep_dropped(self, store_names: Iterable[str]) -> None:
        for name in list(store_names):
            keeper = self._namespace.contents.keepers[name]
            if keeper.is_open:
                self._namespace.background.spawn(keeper.sweep_dropped(self._namespace.limits.sweep_rows_max))

    async def forget(self, write: str) -> bool:
        """False when nothing is known of it, or something of it is not published. Raises ServerBusy."""
        async with self.turn(write):
            self._check_home()
            decision = self._decisions.get(write)
            if decision is None or decision.stages:
                return False
            if not await self.put_rows({decision.row_key: None}):
                raise ServerBusy("Whether the write is forgotten is not known yet. Please ask again.")
            self._decisions.remove(decision)
            _log.info("The write %s was forgotten.", write)
            return True

    async def put_rows(self, rows: Mapping[str, str | None]) -> bool:
        """In the home; False when it is away."""
        home = self._namespace.contents.catalogue.home
        if not home.is_open:
            return False
        try:
            await home.commit(lambda batch: batch.catalogue.update(rows))
        except StoreError:
            return False
        return True

    # -- what all of these ask

    def check_known(self) -> None:
        if not self._decisions.are_known:
            raise ServerBusy(
                "The store that keeps the decisions is not available: nothing can be written in two phases."
                " Please try again later."
            )

    def _check_home(self) -> None:
        self.check_known()
        self._namespace.contents.catalogue.check_changeable()

    def is_at_work(self, write: str) -> bool:
        return write in self._turns

    @asynccontextmanager
    async def turn(self, write: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(write, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if turn.wanted == 0:
                del self._turns[write]


class _Turn:
    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


def _still_left(decision: Decision) -> dict[str, list[str]]:
    left: dict[str, list[str]] = {}
    for stage_id, names in decision.stages.items():
        stores = [name for name in names if (stage_id, name) in decision.left]
        if stores:
            left[stage_id] = stores
    return left


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
    """What is forgotten: by time, batches that nobody decided and memories of those that were; and everything at
    once."""

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
