"""A stage: what one call of `write` has staged, in each store that some of it lies in.

A store has one note of a stage, a text beside its copy of the catalogue, and the stage's logs there. The
counters of a log say the rest: `next_number` is how many rows were staged, `first_number` the first that is not
published, `active` and `bytes` what is left. A note is written with the rows that it tells of, and goes with
the last of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.namespace import damaged_row, read_row
from busway.model.descriptions import Json, integer_at, list_at, text_at
from busway.model.errors import BadArgument
from busway.store.contract import Counters, FragmentKey, LogCounters

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
    data = read_row(row_key, text)
    stage_id = row_key.removeprefix(NOTE_PREFIX)
    note = StageNote(stage_id)
    try:
        stage = Stage(stage_id, text_at(data, "write"), integer_at(data, "batch"), text_at(data, "kind"))
        note.part, note.loose_part = integer_at(data, "part"), integer_at(data, "loose")
        note.at_ms = integer_at(data, "at_ms")
        for entry in list_at(data, "entities"):
            if not isinstance(entry, dict):
                raise BadArgument("entities: each must be an object.")
            name = EntityName(text_at(entry, "row"), text_at(entry, "path"), integer_at(entry, "incarnation"))
            note.logs += [_log_of(name, numbers, counters) for numbers in list_at(entry, "logs")]
    except (BadArgument, KeyError) as error:
        raise damaged_row(row_key) from error
    return stage, note


def _log_of(name: EntityName, numbers: object, counters: dict[FragmentKey, Counters]) -> StageLog:
    match numbers:
        case [int(index), int(target), int(key)]:
            return StageLog(name, index, FragmentKey(target), FragmentKey(key), counters[FragmentKey(key)])
    raise BadArgument("logs: three numbers of each are expected.")
