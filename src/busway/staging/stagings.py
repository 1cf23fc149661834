"""The surface of staging: what routes ask for, what the namespace tells, what time brings.

Steps of one write wait for one another (`_turn`): its decisions, what drops its stages, and what forgets it.
Parts do not: they wait for the parts of their own stage only. A stage that is being decided or dropped takes no
part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from busway.broker.admission import namespace_fault
from busway.broker.errors import BadArgument, BrokerError, QuotaExceeded, ServerBusy
from busway.broker.namespace import Namespace
from busway.broker.store_keeper import StoreKeeper
from busway.staging.decisions import STREAM, Decision, Decisions
from busway.staging.joined import Joined, open_batch
from busway.staging.pace import Pace
from busway.staging.part import Part
from busway.staging.publisher import Publisher
from busway.staging.refusals import CHANGED, GAP, GONE, StagingRefused
from busway.staging.stage import EntityName, Stage
from busway.staging.stage_table import StageTable
from busway.staging.targets import LOOSE, MessageCodec, Target, Targets
from busway.store.contract import FragmentKey, StoreError
from busway.store.log_contract import LogChanges
from busway.streams.event_hubs import EventHubs

_log = logging.getLogger("busway.staging")

_LOOK_EVERY_S: Final = 60.0
#: Decisions that are looked at before others get their turn, and those that are forgotten in one look.
_LOOKED_AT_ONCE: Final = 5_000
_FORGOTTEN_AT_ONCE: Final = 1_000
#: Parts that are taken apart or written at once: each holds its rows some times over.
_PARTS_AT_ONCE: Final = 8
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
class PartName:
    stage_id: str
    number: int
    #: The client has sent it before and does not know what became of it.
    is_again: bool


@dataclass(frozen=True)
class Decided:
    decision: Decision
    rows: int
    is_known: bool


class Stagings:
    """Made before the namespace is opened, which tells it of stores."""

    def __init__(self, namespace: Namespace, hubs: EventHubs | None, codec: MessageCodec) -> None:
        self._namespace = namespace
        self._runtime = namespace.runtime
        self._targets = Targets(namespace, hubs, codec)
        self._pace = Pace()
        self.table = StageTable(namespace.runtime)
        self.decisions = Decisions()
        self.publisher = Publisher(
            namespace.runtime, self.table, self._targets, self._pace, self._stage_published
        )
        #: By write; one is there while somebody has or awaits it.
        self._turns: dict[str, _Turn] = {}
        #: Grows when a store is lost: what was looked at before is worth nothing.
        self._losses = 0
        self._looks = False
        self._is_looking = False
        self._room = asyncio.Semaphore(_PARTS_AT_ONCE)
        #: Stores in which logs were dropped whose rows had left before: no hurry.
        self._to_sweep: set[str] = set()
        #: Since the start: rows of undecided stages that were dropped.
        self.rows_abandoned = 0
        namespace.staged = self

    # -- for the namespace (`StagedRows`)

    def store_opened(self, keeper: StoreKeeper, notes: Mapping[str, str]) -> None:
        if keeper is self._namespace.catalogue.home:
            self.decisions.load(notes)
            for stage_id in self.decisions.stage_ids():
                if stage_id in self.table.stages:
                    self.table.decided(self.table.stages[stage_id])
        self.table.store_opened(keeper, notes, self.decisions.stage_ids())

    def regain_store(self, store_name: str) -> None:
        keepers = self._namespace.keepers
        if not self._looks:
            self._looks = True
            self._look_later()
        if not self.decisions.are_known:
            return
        is_home = keepers[store_name] is self._namespace.catalogue.home
        names = list(keepers) if is_home else [store_name]
        waiting = [decision for decision in self.decisions.all() if decision.stages]
        if waiting:
            self._namespace.background.spawn(self._publish_again(waiting, names))

    async def _publish_again(self, decisions: list[Decision], store_names: list[str]) -> None:
        for decision in decisions:
            await self._publish(decision, store_names)

    def lose_store(self, store_name: str) -> None:
        self._losses += 1
        self.table.lose_store(store_name)
        self.publisher.lose_store(store_name)

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        return self.table.keys_in(store_name)

    def figures(self) -> list[float]:
        """`signals.metric_names.STAGING_METRICS`."""
        publisher = self.publisher
        return [
            len(self.table.stages),
            self.table.undecided_bytes,
            len(self.decisions),
            publisher.waiting_logs(),
            publisher.rows_published,
            publisher.rows_dropped,
            self.rows_abandoned,
        ]

    # -- parts

    async def stage(
        self, name: WriteName, part: PartName, target_path: str, partition: str | None, body: bytes
    ) -> Stage | None:
        """The stage as it is now; None when its batch is decided already. Raises StagingRefused, RowRefused,
        BrokerError."""
        return await self._namespace.background.finish(self._stage(name, part, target_path, partition, body))

    async def _stage(
        self, name: WriteName, part: PartName, target_path: str, partition: str | None, body: bytes
    ) -> Stage | None:
        self._check_known()
        if self.decisions.is_known(name.write, name.batch):
            return None
        self.decisions.check_room(name.write, name.kind)
        target = self._targets.find(target_path, partition)
        target.check_open()
        stage = self.table.stages.get(part.stage_id)
        if stage is None:
            stage = Stage(part.stage_id, name.write, name.batch, name.kind)
            self.table.begin(stage)
        elif (stage.write, stage.batch) != (name.write, name.batch):
            raise BadArgument("The stage belongs to another batch.")
        async with stage.lock:
            try:
                async with self._room:
                    return await self._stage_part(stage, part, target, body)
            finally:
                self.table.forget_empty(stage)

    async def _stage_part(self, stage: Stage, part: PartName, target: Target, body: bytes) -> Stage | None:
        if self.table.stages.get(stage.id) is not stage or stage.is_closed:
            if self.decisions.is_known(stage.write, stage.batch):
                return None
            raise ServerBusy("The stage is being decided or dropped. Please try again.")
        losses = self._losses
        loose, skipped = self._place(stage, part, target, len(body))
        now_ms = self._runtime.clock.wall_ms()
        read = Part(target, loose, skipped, self._firsts(stage, target), now_ms)
        await read.read(body, self._pace)
        # From here to the last join nothing is waited for.
        fresh = self._targets.named(target.name)
        if fresh is None or not fresh.is_same(target) or losses != self._losses:
            raise ServerBusy(f"'{target.name.path}' was changed just now. Please try again.")
        if stage.is_closed:
            raise ServerBusy("The stage is being decided or dropped. Please try again.")
        self._check_room(target, read)
        joined = self._join_part(stage, part, target, read, now_ms)
        await self._durable(joined)
        return stage

    def _place(self, stage: Stage, part: PartName, target: Target, size_bytes: int) -> tuple[int, set[int]]:
        """The fragment of rows without a key, and fragments whose rows an earlier try has staged. Raises why
        the part cannot come now."""
        places = target.places()
        keepers = self._namespace.keepers
        last = stage.part()
        if part.number > last + 1:
            if not all(keeper.is_open for keeper in keepers.values()):
                raise ServerBusy("A store that may hold earlier parts is not available. Please try again.")
            raise StagingRefused(GAP, f"Part {part.number} was sent before part {last + 1}.")
        start = int(stage.id[:8], 16) + part.number
        if not part.is_again and part.number > last:
            return self._first_that_takes(target, start, len(places), size_bytes), set()
        if not all(keepers[store_name].is_open for store_name, _ in places):
            raise ServerBusy(
                f"A store of '{target.name.path}' that may hold the part is not available. Please try again."
            )
        notes = stage.notes
        if any(note.loose_part >= part.number for note in notes.values()):
            loose = LOOSE
        else:
            loose = self._first_that_takes(target, start, len(places), size_bytes)
        has_it = {name for name, note in notes.items() if note.part >= part.number}
        return loose, {index for index, (name, _) in enumerate(places) if name in has_it}

    def _first_that_takes(self, target: Target, start: int, count: int, size_bytes: int) -> int:
        for step in range(count):
            index = (start + step) % count
            if target.fault(index, size_bytes) is None:
                return index
        return start % count  # it will say why

    def _firsts(self, stage: Stage, target: Target) -> list[int]:
        """How many rows each fragment's log has; by fragment."""
        firsts: list[int] = []
        for index, (store_name, _) in enumerate(target.places()):
            note = stage.notes.get(store_name)
            log = None if note is None else note.log(target.name, index)
            firsts.append(0 if log is None else log.counters.last_counter)
        return firsts

    def _check_room(self, target: Target, part: Part) -> None:
        limits = self._namespace.limits
        for index, share in part.shares.items():
            fault = target.fault(index, share.bytes)
            if fault is not None:
                raise fault
        if self.table.undecided_bytes + part.bytes > limits.staging_bytes_max:
            raise QuotaExceeded(
                f"More than {limits.staging_bytes_max} bytes would be staged in batches that are not committed yet."
                " Make batches smaller (maxEventsPerTrigger, maxBytesPerTrigger), or raise --staging-bytes-max."
            )
        size = self._runtime.namespace_size
        if not size.take(part.bytes):
            raise namespace_fault(size.bytes_max)

    def _join_part(
        self, stage: Stage, part: PartName, target: Target, read: Part, now_ms: int
    ) -> list[Joined]:
        """One batch in each store. Raises ServerBusy: then some of them may have joined, and a repetition finds
        them."""
        places = target.places()
        by_store: dict[str, list[int]] = {}
        for index in read.shares:
            by_store.setdefault(places[index][0], []).append(index)
        joined: list[Joined] = []
        for store_name, indexes in by_store.items():
            keeper = self._namespace.keepers[store_name]
            batch = open_batch(keeper)
            note = self.table.note_in(stage, store_name)
            for index in indexes:
                share = read.shares[index]
                log = note.log(target.name, index)
                if log is None:
                    log = self.table.new_log(batch, keeper, note, target.name, index, places[index][1])
                if batch.logs is None:
                    batch.logs = LogChanges()
                batch.logs.chunks.extend([(log.key, builder) for builder in share.builders])
                self.table.added(batch, store_name, log, share.rows, share.bytes)
                target.touch(index, now_ms)
            note.part = max(note.part, part.number)
            if read.has_loose_rows and read.loose in indexes:
                note.loose_part = max(note.loose_part, part.number)
            note.at_ms = max(note.at_ms, now_ms)
            self.table.write_note(batch, stage, note)
            joined.append(Joined(keeper, batch))
        return joined

    async def _durable(self, joined: list[Joined]) -> None:
        """Raises ServerBusy."""
        failed = [each.keeper.name for each in joined if await each.outcome() is not None]
        if failed:
            raise ServerBusy(f"The store {failed[0]} failed. Please send the part again.")

    # -- decisions

    async def decide(self, name: WriteName, stages: Mapping[str, int], may_send: MaySend) -> Decided:
        """`stages`: how many rows the client has sent in each. Raises StagingRefused, BrokerError."""
        return await self._namespace.background.finish(self._decide(name, stages, may_send))

    async def _decide(self, name: WriteName, stages: Mapping[str, int], may_send: MaySend) -> Decided:
        async with self._turn(name.write):
            self._check_home()
            previous = self.decisions.get(name.write)
            if previous is not None:
                may_send(path for path in previous.entities if self._targets.exists(path))
            if self.decisions.is_known(name.write, name.batch):
                assert previous is not None
                await self._tidy(name.write, name.batch)
                return Decided(previous, sum(stages.values()), True)
            self.decisions.check_room(name.write, name.kind)
            closed: list[Stage] = []
            try:
                found = await self._whole_stages(name, stages, closed, may_send)
                decision = await self._write_decision(name, found, previous)
            except BaseException:
                for stage in closed:
                    stage.is_closed = stage.is_decided
                raise
            await self._publish(decision, list(self._namespace.keepers))
            await self._tidy(name.write, name.batch)
            return Decided(decision, sum(stages.values()), False)

    async def _whole_stages(
        self, name: WriteName, stages: Mapping[str, int], closed: list[Stage], may_send: MaySend
    ) -> list[Stage]:
        """All of them, closed. Raises why they cannot be decided."""
        losses = self._losses
        found: list[Stage] = []
        entities: set[EntityName] = set()
        for count, (stage_id, rows) in enumerate(stages.items(), 1):
            if count % _STAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            stage = self.table.stages.get(stage_id)
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
        if losses != self._losses:
            raise ServerBusy("A store was lost just now. Please try again.")
        for entity in entities:
            if self._targets.named(entity) is None:
                raise StagingRefused(
                    CHANGED,
                    f"'{entity.path}' was deleted or made again since the rows were sent: send them again.",
                )
        return found

    def _gone(self, stage_id: str) -> Exception:
        if not all(keeper.is_open for keeper in self._namespace.keepers.values()):
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
        home = self._namespace.catalogue.home
        batch = open_batch(home)
        batch.catalogue[decision.row_key] = decision.text()
        if await Joined(home, batch).outcome() is not None:
            raise ServerBusy("Whether the batch was committed is not known yet. Please ask again.")
        present = self.decisions.get(name.write)
        if present is not None and present.batch == name.batch:  # the home was read again meanwhile
            return present
        decision.follow(previous)
        self.decisions.put(decision)
        for stage in stages:
            self.table.decided(stage)
        return decision

    async def _publish(self, decision: Decision, store_names: list[str]) -> None:
        """What it names of the stores that are in service. Whatever happens meanwhile, each stage is looked at
        as it is at that moment, and told again of the same nobody does anything."""
        for count, stage_id in enumerate(list(decision.stages), 1):
            if count % _STAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            for name in store_names:
                if (stage_id, name) in decision.left:
                    self._publish_stage(decision, stage_id, self._namespace.keepers[name])
        if decision.is_published and decision.stages:
            self._namespace.background.spawn(self._empty(decision))

    def _publish_stage(self, decision: Decision, stage_id: str, keeper: StoreKeeper) -> None:
        """A stage without a note in a store that is in service is published there already."""
        if not keeper.is_open or self.publisher.is_at(stage_id, keeper.name):
            return  # it will be told, or tells
        stage = self.table.stages.get(stage_id)
        if stage is not None and keeper.name in stage.notes:
            self.publisher.add(keeper, stage)
            return
        decision.published(stage_id, keeper.name)
        if stage is not None:
            self.table.forget_empty(stage)

    def _stage_published(self, stage: Stage, store_name: str) -> None:
        decision = self.decisions.of_stage(stage.id)
        self.table.forget_empty(stage)
        if decision is None:
            return
        decision.published(stage.id, store_name)
        if decision.is_published:
            self._namespace.background.spawn(self._empty(decision))

    async def _empty(self, decision: Decision) -> None:
        """The row names no stages any more; should that fail it is done when the home is back."""
        async with self._turn(decision.write):
            if self.decisions.get(decision.write) is not decision or not decision.stages:
                return
            now_ms = self._runtime.clock.wall_ms()
            emptied = Decision(
                decision.write, decision.batch, decision.kind, decision.at_ms, {}, decision.entities
            )
            emptied.published_ms = now_ms
            if await self._put_rows({decision.row_key: emptied.text()}):
                self._to_sweep.update(name for names in decision.stages.values() for name in names)
                self.decisions.emptied(decision)
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
        return await self._namespace.background.finish(self._drop(write, batch, stage_id, may_send))

    async def _drop(self, write: str, batch: int, stage_id: str, may_send: MaySend) -> bool:
        async with self._turn(write):
            self._check_home()
            stage = self.table.stages.get(stage_id)
            if stage is None or (stage.write, stage.batch) != (write, batch):
                return False
            may_send(sorted({entity.path for entity in stage.entities()}))
            return await self._drop_stage(stage)

    async def _tidy(self, write: str, batch: int) -> None:
        """What is decided stays decided, whether its rest can be dropped now or when its time is over."""
        try:
            await self._drop_rest(write, batch)
        except BrokerError as error:
            _log.info("What is left of batch %d of %s is dropped later: %s", batch, write, error.sentence)

    async def _drop_rest(self, write: str, batch: int) -> None:
        """What tasks left behind that nobody decided for."""
        for stage in self.table.of_batch(write, batch):
            if not stage.is_decided:
                await self._drop_stage(stage)

    async def _drop_stage(self, stage: Stage) -> bool:
        """While it is the write's turn. A store that is away keeps its note until its time is over."""
        if stage.is_decided or self.decisions.of_stage(stage.id) is not None:
            return False
        stage.is_closed = True
        try:
            async with stage.lock:
                joined = self._join_drop(stage)
                await self._durable(joined)
                self.table.forget_empty(stage)
        except BaseException:
            stage.is_closed = False
            raise
        self._sweep_dropped(each.keeper.name for each in joined)
        return True

    def _join_drop(self, stage: Stage) -> list[Joined]:
        """Raises ServerBusy."""
        joined: list[Joined] = []
        for store_name in list(stage.notes):
            keeper = self._namespace.keepers[store_name]
            batch = open_batch(keeper)
            self.rows_abandoned += stage.notes[store_name].rows()
            self.table.drop_note(batch, keeper, stage)
            joined.append(Joined(keeper, batch))
        return joined

    def _sweep_dropped(self, store_names: Iterable[str]) -> None:
        for name in list(store_names):
            keeper = self._namespace.keepers[name]
            if keeper.is_open:
                self._namespace.background.spawn(keeper.sweep_dropped(self._namespace.limits.sweep_rows_max))

    async def forget(self, write: str) -> bool:
        """An operator's word: a batch of it that comes again will be written again. False when nothing is known of
        it, or something of it is not published. Raises ServerBusy."""
        return await self._namespace.background.finish(self._forget_one(write))

    async def _forget_one(self, write: str) -> bool:
        async with self._turn(write):
            self._check_home()
            decision = self.decisions.get(write)
            if decision is None or decision.stages:
                return False
            if not await self._put_rows({decision.row_key: None}):
                raise ServerBusy("Whether the write is forgotten is not known yet. Please ask again.")
            self.decisions.remove(decision)
            _log.info("The write %s was forgotten.", write)
            return True

    # -- time

    def _look_later(self) -> None:
        timers, clock = self._runtime.timers, self._runtime.clock
        timers.at(clock.monotonic() + _LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._look_later()
        if not self._is_looking and self._namespace.catalogue.home.is_open and self.decisions.are_known:
            self._is_looking = True
            self._namespace.background.spawn(self._look_around(), self._looked)

    def _looked(self) -> None:
        self._is_looking = False

    async def _look_around(self) -> None:
        """What time has ended: batches that nobody decided, and memories of those that were."""
        now_ms = self._runtime.clock.wall_ms()
        ended: list[Decision] = []
        for count, decision in enumerate(self.decisions.all(), 1):
            if count % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if decision.stages and decision.is_published:
                await self._empty(decision)
            elif decision.is_at_end(now_ms) and len(ended) < _FORGOTTEN_AT_ONCE:
                ended.append(decision)
        await self._forget(ended)
        for count, (write, batch) in enumerate(self.table.batches(), 1):
            if count % _STAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_abandoned(write, batch, now_ms):
                await self._end_batch(write, batch)
        names, self._to_sweep = self._to_sweep, set()
        self._sweep_dropped(names)

    def _is_abandoned(self, write: str, batch: int, now_ms: int) -> bool:
        stages = self.table.of_batch(write, batch)
        if any(stage.is_decided or stage.lock.locked() for stage in stages):
            return False
        last_ms = max([stage.last_at_ms() for stage in stages], default=now_ms)
        return now_ms - last_ms > self._namespace.limits.staging_s * 1000

    async def _end_batch(self, write: str, batch: int) -> None:
        async with self._turn(write):
            if not self._namespace.catalogue.home.is_open:
                return
            rows = sum(stage.rows() for stage in self.table.of_batch(write, batch))
            _log.warning(
                "%d rows of batch %d of %s are dropped: nobody committed them in time.", rows, batch, write
            )
            try:
                await self._drop_rest(write, batch)
            except BrokerError as error:
                _log.warning("They are dropped later: %s", error.sentence)

    async def _forget(self, ended: list[Decision]) -> None:
        """In one commit. Whoever decides meanwhile writes over it, in the same batch or a later one."""
        ended = [decision for decision in ended if decision.write not in self._turns]
        stones = {decision.write: decision.tombstone() for decision in ended if decision.kind == STREAM}
        rows: dict[str, str | None] = {decision.row_key: None for decision in ended}
        rows.update({stone.row_key: stone.text() for stone in stones.values()})
        if not rows or not await self._put_rows(rows):
            return
        for decision in ended:
            if self.decisions.get(decision.write) is not decision:
                continue
            if decision.kind == STREAM:
                self.decisions.put(stones[decision.write])
            else:
                self.decisions.remove(decision)

    async def _put_rows(self, rows: Mapping[str, str | None]) -> bool:
        """In the home; False when it is away."""
        home = self._namespace.catalogue.home
        if not home.is_open:
            return False
        try:
            await home.commit(lambda batch: batch.catalogue.update(rows))
        except StoreError:
            return False
        return True

    # -- all of these

    def _check_known(self) -> None:
        if not self.decisions.are_known:
            raise ServerBusy(
                "The store that keeps the decisions is not available: nothing can be written in two phases."
                " Please try again later."
            )

    def _check_home(self) -> None:
        self._check_known()
        self._namespace.catalogue.check_changeable()

    @asynccontextmanager
    async def _turn(self, write: str) -> AsyncIterator[None]:
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
