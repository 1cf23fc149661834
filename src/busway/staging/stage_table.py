"""Every stage, by the stores that are there, and what their rows hold back of the room of entities (S-9, L-4).

Memory follows the stores: what joins a batch is entered here in the same step. Should the commit fail, the
store is lost and all that is known of it is forgotten, to be read again when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.namespace import StoreKeeper
from busway.model.errors import QuotaExceeded
from busway.staging.stage import NOTE_PREFIX, EntityName, Stage, StageLog, StageNote, note_text, read_note
from busway.store.contract import CommitBatch, Counters, FragmentKey, FragmentRow

#: Of all writers, decided or not: each is some objects in memory and some rows.
STAGES_MAX: Final = 100_000
#: Notes that are read before others get their turn.
_READ_AT_ONCE: Final = 500


async def read_stages(
    notes: Mapping[str, str], counters: dict[FragmentKey, Counters]
) -> list[tuple[Stage, StageNote]]:
    """What a store tells of stages, over many turns of the loop. `counters`: of its fragments. Raises StoreError."""
    found: list[tuple[Stage, StageNote]] = []
    for row_key, text in notes.items():
        if row_key.startswith(NOTE_PREFIX):
            found.append(read_note(row_key, text, counters))
            if len(found) % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


class StageTable:
    def __init__(self, runtime: BrokerRuntime) -> None:
        self._runtime = runtime
        self.stages: dict[str, Stage] = {}
        #: Of one batch of one write.
        self._of_batch: dict[tuple[str, int], dict[str, Stage]] = {}
        #: By store: its logs.
        self._logs: dict[str, set[FragmentKey]] = {}
        #: Of stages that no decision names.
        self.undecided_bytes = 0
        #: How often a store was lost: what was looked at before is worth nothing.
        self.losses = 0

    # -- what there is

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        return set(self._logs.get(store_name, ()))

    def of_batch(self, write: str, batch: int) -> list[Stage]:
        return list(self._of_batch.get((write, batch), {}).values())

    def batches(self) -> list[tuple[str, int]]:
        return list(self._of_batch)

    def begin(self, stage: Stage) -> None:
        """Its first part is about to come. Raises QuotaExceeded."""
        if len(self.stages) >= STAGES_MAX:
            raise QuotaExceeded(
                f"The server has {STAGES_MAX} stages whose batches were neither committed nor aborted. Those of"
                " writers that have died go by themselves."
            )
        self._enter(stage)

    def _enter(self, stage: Stage) -> None:
        self.stages[stage.id] = stage
        self._of_batch.setdefault((stage.write, stage.batch), {})[stage.id] = stage

    def forget_empty(self, stage: Stage) -> None:
        """No store that is there has anything of it."""
        if stage.notes or self.stages.get(stage.id) is not stage:
            return
        del self.stages[stage.id]
        siblings = self._of_batch.get((stage.write, stage.batch), {})
        siblings.pop(stage.id, None)
        if not siblings:
            self._of_batch.pop((stage.write, stage.batch), None)

    # -- stores

    def store_opened(
        self, keeper: StoreKeeper, told_stages: Iterable[tuple[Stage, StageNote]], decided: Iterable[str]
    ) -> None:
        """`told_stages`: as `read_stages` found them there."""
        self.lose_store(keeper.name)
        names = set(decided)
        for told, note in told_stages:
            stage = self.stages.get(told.id)
            if stage is None:
                stage = told
                stage.is_closed = stage.is_decided = stage.id in names
                self._enter(stage)
            stage.notes[keeper.name] = note
            for log in note.logs:
                self._logs.setdefault(keeper.name, set()).add(log.key)
                self._hold(keeper.name, log, log.counters.bytes)
            if not stage.is_decided:
                self.undecided_bytes += note.bytes()

    def lose_store(self, store_name: str) -> None:
        for stage in list(self.stages.values()):
            note = stage.notes.pop(store_name, None)
            if note is None:
                continue
            for log in note.logs:
                self._hold(store_name, log, -log.counters.bytes)
            if not stage.is_decided:
                self.undecided_bytes -= note.bytes()
            if not stage.lock.locked():
                self.forget_empty(stage)
        self._logs.pop(store_name, None)

    def notes_in(self, store_name: str) -> Iterator[tuple[Stage, StageNote]]:
        for stage in list(self.stages.values()):
            note = stage.notes.get(store_name)
            if note is not None:
                yield stage, note

    # -- steps: memory and the open batch tell the same story

    def note_in(self, stage: Stage, store_name: str) -> StageNote:
        note = stage.notes.get(store_name)
        if note is None:
            note = stage.notes[store_name] = StageNote(stage.id)
        return note

    def new_log(
        self,
        batch: CommitBatch,
        keeper: StoreKeeper,
        note: StageNote,
        entity: EntityName,
        index: int,
        target: FragmentKey,
    ) -> StageLog:
        key = keeper.store.next_fragment_key()
        counters = keeper.counters[key] = Counters()
        log = StageLog(entity, index, target, key, counters)
        note.logs.append(log)
        self._logs.setdefault(keeper.name, set()).add(key)
        batch.fragments_created.append(FragmentRow(key, note.row_key, 0, counters))
        return log

    def added(self, batch: CommitBatch, store_name: str, log: StageLog, rows: int, size_bytes: int) -> None:
        """So many rows have come."""
        counters = log.counters
        counters.next_number += rows
        counters.events += rows
        counters.bytes += size_bytes
        batch.counters[log.key] = counters.row
        batch.bytes += size_bytes
        self.undecided_bytes += size_bytes
        self._hold(store_name, log, size_bytes)

    def write_note(self, batch: CommitBatch, stage: Stage, note: StageNote) -> None:
        batch.catalogue[note.row_key] = note_text(stage, note) if note.logs else None

    def published(
        self, batch: CommitBatch, keeper: StoreKeeper, stage: Stage, log: StageLog, upto: int
    ) -> int:
        """Rows before this number have left; their bytes are said by `uncount`. How many these were."""
        counters = log.counters
        rows = upto - counters.first_number
        counters.first_number = upto
        counters.events -= rows
        batch.counters[log.key] = counters.row
        if upto >= counters.next_number:
            self.drop_log(batch, keeper, stage, log)
        return rows

    def uncount(self, store_name: str, log: StageLog, size_bytes: int) -> None:
        """Of a decided stage."""
        log.counters.bytes -= size_bytes
        self._hold(store_name, log, -size_bytes)

    def drop_log(self, batch: CommitBatch, keeper: StoreKeeper, stage: Stage, log: StageLog) -> None:
        """With what is left in it."""
        note = stage.notes[keeper.name]
        left_bytes = log.counters.bytes
        if not stage.is_decided:
            self.undecided_bytes -= left_bytes
        self.uncount(keeper.name, log, left_bytes)
        note.logs.remove(log)
        keeper.counters.pop(log.key, None)
        self._logs.get(keeper.name, set()).discard(log.key)
        batch.fragments_dropped.append(log.key)
        self.write_note(batch, stage, note)
        if not note.logs:
            del stage.notes[keeper.name]

    def drop_note(self, batch: CommitBatch, keeper: StoreKeeper, stage: Stage) -> None:
        for log in list(stage.notes[keeper.name].logs):
            self.drop_log(batch, keeper, stage, log)

    def decided(self, stage: Stage) -> None:
        if not stage.is_decided:
            stage.is_closed = stage.is_decided = True
            self.undecided_bytes -= stage.bytes()

    def _hold(self, store_name: str, log: StageLog, size_bytes: int) -> None:
        reserved = self._runtime.reserved_bytes
        place = (store_name, log.target)
        left = reserved.get(place, 0) + size_bytes
        if left:
            reserved[place] = left
        else:
            reserved.pop(place, None)
