"""The surface of staging: what routes ask for, what the namespace tells.

Parts wait for the parts of their own stage only (`decider` has what waits for more).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.fragment.intake import namespace_fault
from busway.broker.namespace.namespace import Namespace, StoreKeeper
from busway.model.errors import BadArgument, QuotaExceeded, ServerBusy
from busway.staging.decider import (
    Decided,
    Decider,
    Forgetting,
    Joined,
    MaySend,
    TimeLimits,
    WriteName,
    all_durable,
    open_batch,
)
from busway.staging.decisions import GAP, Decision, Decisions, StagingRefused, read_decisions
from busway.staging.publisher import Pace
from busway.staging.stage_table import Stage, StageTable, read_stages
from busway.staging.targets import LOOSE, MessageCodec, StagePart, StagingTarget, Targets
from busway.store.contract import FragmentKey, LogChanges
from busway.streams.event_hubs import EventHubs

#: Parts that are taken apart or written at once: each holds its rows some times over.
_PARTS_AT_ONCE: Final = 8


@dataclass(frozen=True)
class PartName:
    stage_id: str
    number: int
    #: The client has sent it before and does not know what became of it.
    is_again: bool


class Stagings:
    """Made before the namespace is opened, which tells it of stores."""

    def __init__(self, namespace: Namespace, hubs: EventHubs | None, codec: MessageCodec) -> None:
        self._namespace = namespace
        self._runtime = namespace.runtime
        self._targets = Targets(namespace, hubs, codec)
        self._pace = Pace()
        self.table = StageTable(namespace.runtime)
        self.decisions = Decisions()
        self.decider = Decider(namespace, self._targets, self.table, self.decisions, self._pace)
        self._time_limits = TimeLimits(namespace, self.decider, self.table, self.decisions)
        self._parts_at_once = asyncio.Semaphore(_PARTS_AT_ONCE)
        namespace.contents.staged = self

    # -- for the namespace (`StagedRows`)

    async def store_opened(self, keeper: StoreKeeper, notes: Mapping[str, str]) -> None:
        is_home = keeper is self._namespace.contents.catalogue.home
        decisions = await read_decisions(notes) if is_home else []
        stages = await read_stages(notes, keeper.counters)
        # What was read takes effect in one step.
        if is_home:
            self.decisions.load(decisions)
            for stage_id in self.decisions.stage_ids():
                if stage_id in self.table.stages:
                    self.table.decided(self.table.stages[stage_id])
        self.table.store_opened(keeper, stages, self.decisions.stage_ids())

    def regain_store(self, store_name: str) -> None:
        keepers = self._namespace.contents.keepers
        self._time_limits.start()
        if not self.decisions.are_known:
            return
        is_home = keepers[store_name] is self._namespace.contents.catalogue.home
        names = list(keepers) if is_home else [store_name]
        waiting = [decision for decision in self.decisions.all() if decision.stages]
        if waiting:
            self._namespace.background.spawn(self._publish_again(waiting, names))

    async def _publish_again(self, decisions: list[Decision], store_names: list[str]) -> None:
        for decision in decisions:
            await self.decider.publish(decision, store_names)

    def lose_store(self, store_name: str) -> None:
        self.table.losses += 1
        self.table.lose_store(store_name)
        self.decider.publisher.lose_store(store_name)

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        return self.table.keys_in(store_name)

    async def forget_all(self) -> None:
        await Forgetting(self.decider, self.table, self.decisions).all()

    def figures(self) -> list[float]:
        """`signals.metric_names.STAGING_METRICS`."""
        publisher = self.decider.publisher
        return [
            len(self.table.stages),
            self.table.undecided_bytes,
            len(self.decisions),
            publisher.waiting_logs(),
            publisher.rows_published,
            publisher.rows_dropped,
            self.decider.rows_abandoned,
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
        self.decider.check_known()
        if self.decisions.is_known(name.write, name.batch):
            return None
        self.decisions.check_capacity(name.write, name.kind)
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
                async with self._parts_at_once:
                    return await self._stage_part(stage, part, target, body)
            finally:
                self.table.forget_empty(stage)

    async def _stage_part(
        self, stage: Stage, part: PartName, target: StagingTarget, body: bytes
    ) -> Stage | None:
        if self.table.stages.get(stage.id) is not stage or stage.is_closed:
            if self.decisions.is_known(stage.write, stage.batch):
                return None
            raise ServerBusy("The stage is being decided or dropped. Please try again.")
        losses = self.table.losses
        loose, skipped = self._place(stage, part, target, len(body))
        now_ms = self._runtime.clock.wall_ms()
        read = StagePart(target, body, loose, skipped, self._firsts(stage, target), now_ms)
        is_whole = False
        while not is_whole:
            async with self._pace:
                is_whole = not read.read_some()
        # From here to the last join nothing is waited for.
        fresh = self._targets.named(target.name)
        if fresh is None or not fresh.is_same(target) or losses != self.table.losses:
            raise ServerBusy(f"'{target.name.path}' was changed just now. Please try again.")
        if stage.is_closed:
            raise ServerBusy("The stage is being decided or dropped. Please try again.")
        self._take_space(target, read)
        joined = self._join_part(stage, part, target, read, now_ms)
        await all_durable(joined)
        return stage

    def _place(
        self, stage: Stage, part: PartName, target: StagingTarget, size_bytes: int
    ) -> tuple[int, set[int]]:
        """The fragment of rows without a key, and fragments whose rows an earlier try has staged. Raises why
        the part cannot come now."""
        places = target.places()
        keepers = self._namespace.contents.keepers
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

    def _first_that_takes(self, target: StagingTarget, start: int, count: int, size_bytes: int) -> int:
        for step in range(count):
            index = (start + step) % count
            if target.fault(index, size_bytes) is None:
                return index
        return start % count  # it will say why

    def _firsts(self, stage: Stage, target: StagingTarget) -> list[int]:
        """How many rows each fragment's log has; by fragment."""
        firsts: list[int] = []
        for index, (store_name, _) in enumerate(target.places()):
            note = stage.notes.get(store_name)
            log = None if note is None else note.log(target.name, index)
            firsts.append(0 if log is None else log.counters.next_number)
        return firsts

    def _take_space(self, target: StagingTarget, part: StagePart) -> None:
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
        fault = namespace_fault(self._runtime.namespace_size, part.bytes)
        if fault is not None:
            raise fault

    def _join_part(
        self, stage: Stage, part: PartName, target: StagingTarget, read: StagePart, now_ms: int
    ) -> list[Joined]:
        """One batch in each store. Raises ServerBusy: then some of them may have joined, and a repetition finds
        them."""
        places = target.places()
        by_store: dict[str, list[int]] = {}
        for index in read.shares:
            by_store.setdefault(places[index][0], []).append(index)
        joined: list[Joined] = []
        for store_name, indexes in by_store.items():
            keeper = self._namespace.contents.keepers[store_name]
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

    # -- batches

    async def decide(self, name: WriteName, stages: Mapping[str, int], may_send: MaySend) -> Decided:
        """`stages`: how many rows the client has sent in each. Raises StagingRefused, BrokerError."""
        return await self._namespace.background.finish(self.decider.decide(name, stages, may_send))

    async def published(self, decision: Decision, wait_s: float) -> bool:
        """Waits so long for it."""
        return await self.decider.published(decision, wait_s)

    async def drop(self, write: str, batch: int, stage_id: str, may_send: MaySend) -> bool:
        """False when a decision names it, or nobody knows it. Raises BrokerError."""
        return await self._namespace.background.finish(self.decider.drop(write, batch, stage_id, may_send))

    async def forget(self, write: str) -> bool:
        """An operator's word: a batch of it that comes again will be written again. False when nothing is known of
        it, or something of it is not published. Raises ServerBusy."""
        return await self._namespace.background.finish(self.decider.forget(write))
