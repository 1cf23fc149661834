"""Every stage, by the stores that are there, and what their rows hold back of the space of entities (S-9, L-4).

A stage is what one call of `write` has staged, in each store that some of it lies in. A store has one note of a
stage, a text beside its copy of the catalogue, and the stage's logs there. The counters of a log say the rest:
`next_number` is how many rows were staged, `first_number` the first that is not published, `active` and `bytes`
what is left. A note is written with the rows that it tells of, and goes with the last of them.

Memory follows the stores: what joins a batch is entered here in the same step. Should the commit fail, the store
is lost and all that is known of it is forgotten, to be read again when it is back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.namespace.namespace import StoreKeeper
from busway.model.errors import BadArgument, QuotaExceeded
from busway.model.json_rows import Json, integer_at, list_at, read_row, text_at
from busway.store.contract import CommitBatch, Counters, FragmentKey, FragmentRow, LogCounters

NOTE_PREFIX: Final = "stage:"
_FORMAT: Final = 1


@dataclass(frozen=True)
class EntityName:
    """An entity in one of its incarnations: made again under the same name it is another one."""

    row_key: str
    path: str
    incarnation: int


class StageLog:
    """Rows for one fragment of one entity. `target`: the key of that fragment, which lies in the same store."""

    __slots__ = ("counters", "entity", "index", "key", "target")

    def __init__(
        self, entity: EntityName, index: int, target: FragmentKey, key: FragmentKey, counters: Counters
    ) -> None:
        self.entity = entity
        self.index = index
        self.target = target
        self.key = key
        #: Live, those of the store's keeper.
        self.counters = LogCounters(counters)


class StageNote:
    """What one store holds of a stage."""

    __slots__ = ("at_ms", "logs", "loose_part", "part", "stage_id")

    def __init__(self, stage_id: str) -> None:
        self.stage_id = stage_id
        self.logs: list[StageLog] = []
        #: The last part that has rows here, and the last one whose rows without a key are here.
        self.part = -1
        self.loose_part = -1
        #: When the last one came.
        self.at_ms = 0

    @property
    def row_key(self) -> str:
        return NOTE_PREFIX + self.stage_id

    def log(self, entity: EntityName, index: int) -> StageLog | None:
        return next((log for log in self.logs if log.index == index and log.entity == entity), None)

    def rows(self) -> int:
        return sum([log.counters.next_number for log in self.logs])

    def bytes(self) -> int:
        return sum([log.counters.bytes for log in self.logs])


class Stage:
    """Whole: over all stores that are there."""

    __slots__ = ("batch", "id", "is_closed", "is_decided", "kind", "lock", "notes", "write")

    def __init__(self, stage_id: str, write: str, batch: int, kind: str) -> None:
        self.id = stage_id
        self.write = write
        self.batch = batch
        self.kind = kind
        #: By store.
        self.notes: dict[str, StageNote] = {}
        #: Its parts wait for one another.
        self.lock = asyncio.Lock()
        #: It is being decided or dropped: no more parts.
        self.is_closed = False
        #: A decision names it.
        self.is_decided = False

    def part(self) -> int:
        """The last one that is here, in any store; -1 before the first."""
        return max([note.part for note in self.notes.values()], default=-1)

    def rows(self) -> int:
        return sum([note.rows() for note in self.notes.values()])

    def bytes(self) -> int:
        return sum([note.bytes() for note in self.notes.values()])

    def last_at_ms(self) -> int:
        return max([note.at_ms for note in self.notes.values()], default=0)

    def entities(self) -> set[EntityName]:
        return {log.entity for _, log in self.logs()}

    def logs(self) -> Iterator[tuple[str, StageLog]]:
        """With the store of each."""
        for store_name, note in self.notes.items():
            for log in note.logs:
                yield store_name, log


def note_text(stage: Stage, note: StageNote) -> str:
    entities: dict[EntityName, list[list[int]]] = {}
    for log in note.logs:
        entities.setdefault(log.entity, []).append([log.index, log.target, log.key])
    known: Json = {
        "format": _FORMAT,
        "write": stage.write,
        "batch": stage.batch,
        "kind": stage.kind,
        "part": note.part,
        "loose": note.loose_part,
        "at_ms": note.at_ms,
        "entities": [
            {"row": name.row_key, "path": name.path, "incarnation": name.incarnation, "logs": logs}
            for name, logs in entities.items()
        ],
    }
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def read_note(row_key: str, text: str, counters: dict[FragmentKey, Counters]) -> tuple[Stage, StageNote]:
    """The note, and the stage as far as it tells of it. `counters`: of the store's fragments. Raises StoreError."""
    stage_id = row_key.removeprefix(NOTE_PREFIX)
    note = StageNote(stage_id)
    with read_row(row_key, text) as data:
        stage = Stage(stage_id, text_at(data, "write"), integer_at(data, "batch"), text_at(data, "kind"))
        note.part, note.loose_part = integer_at(data, "part"), integer_at(data, "loose")
        note.at_ms = integer_at(data, "at_ms")
        for entry in list_at(data, "entities"):
            if not isinstance(entry, dict):
                raise BadArgument("entities: each must be an object.")
            name = EntityName(text_at(entry, "row"), text_at(entry, "path"), integer_at(entry, "incarnation"))
            note.logs += [_log_of(name, numbers, counters) for numbers in list_at(entry, "logs")]
    return stage, note


def _log_of(name: EntityName, numbers: object, counters: dict[FragmentKey, Counters]) -> StageLog:
    match numbers:
        case [int(index), int(target), int(key)]:
            return StageLog(name, index, FragmentKey(target), FragmentKey(key), counters[FragmentKey(key)])
    raise BadArgument("logs: three numbers of each are expected.")


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
    """Every stage, by the stores that are there, and what their rows hold back of the space of entities (S-9,
    L-4)."""

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
