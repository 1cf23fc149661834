"""Decisions: which batch of which write counts, one row for each write in the catalogue's home.

A row names the stages that are still to be published and the stores that each of them lies in; when all are, it
names none. It outlives publication, so that a repetition of its batch is known: that of a job with a name made by
chance, kind `job`, by an hour, as nobody comes with that name again once the job has its answer; that of a job that
somebody named, kind `write`, by a day; that of a stream by 90 days after its last decision. Then a stream's row
becomes a tombstone, which says no more than that there was one: whatever comes under its name is refused, never
sent twice in silence. There is a bound of rows of each kind; when it is met new names are refused, and none is
forgotten early.

A batch that is decided before the one before it is published takes over what is left of that one.

What a writer is told that staging alone knows is said in exceptions of its own, with a word for programs
(`StagingRefused`): many of them come of decisions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from busway.model.errors import BadArgument, QuotaExceeded
from busway.model.json_rows import Json, integer_at, list_at, object_at, read_row, text_at

BEHIND: Final = "behind"
FORGOTTEN: Final = "forgotten"
GAP: Final = "gap"
GONE: Final = "gone"
CHANGED: Final = "changed"


class StagingRefused(Exception):
    """It makes no sense to repeat the request as it is. `code` is for programs, the sentence for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


class TooManyRows(Exception):
    """A part has more rows than it may have."""


class RowRefused(Exception):
    """Nothing of the part is staged, because of this row of it."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


DECISION_PREFIX: Final = "decision:"
STREAM: Final = "stream"
WRITE: Final = "write"
JOB: Final = "job"
KINDS: Final = (STREAM, WRITE, JOB)
#: Of each kind.
DECISIONS_MAX: Final = 100_000
JOB_LIFE_MS: Final = 3_600_000
WRITE_LIFE_MS: Final = 24 * 3_600_000
STREAM_LIFE_MS: Final = 90 * 24 * 3_600_000
_FORMAT: Final = 1
#: Rows that are read before others get their turn.
_READ_AT_ONCE: Final = 500

PublishedCallback = Callable[[], None]


class Decision:
    """`stages`: the stores that each one was in when it was decided; none once all are published."""

    __slots__ = (
        "_before",
        "at_ms",
        "batch",
        "entities",
        "is_tombstone",
        "kind",
        "left",
        "published_ms",
        "stages",
        "waiting",
        "write",
    )

    def __init__(
        self,
        write: str,
        batch: int,
        kind: str,
        at_ms: int,
        stages: dict[str, list[str]],
        entities: Iterable[str],
    ) -> None:
        self.write = write
        self.batch = batch
        self.kind = kind
        self.at_ms = at_ms
        self.stages = stages
        #: Paths: who may send to these may go on with the write.
        self.entities = sorted(entities)
        self.published_ms = 0
        self.is_tombstone = False
        #: (stage, store) that is not published yet.
        self.left = {(stage_id, name) for stage_id, names in stages.items() for name in names}
        #: Told once when nothing is left.
        self.waiting: list[PublishedCallback] = []
        #: The one before it, while something of that one is left.
        self._before: Decision | None = None

    @property
    def row_key(self) -> str:
        return DECISION_PREFIX + self.write

    @property
    def is_published(self) -> bool:
        return not self.left

    def text(self) -> str:
        known: Json = {"format": _FORMAT, "batch": self.batch, "kind": self.kind, "at_ms": self.at_ms}
        if self.is_tombstone:
            known["forgotten"] = True
        else:
            known |= {"stages": self.stages, "entities": self.entities, "published_ms": self.published_ms}
        return json.dumps(known, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, row_key: str, text: str) -> Decision:
        """Raises StoreError."""
        write = row_key.removeprefix(DECISION_PREFIX)
        with read_row(row_key, text) as data:
            stages = object_at(data, "stages") if "stages" in data else {}
            found = cls(
                write,
                integer_at(data, "batch"),
                text_at(data, "kind"),
                integer_at(data, "at_ms"),
                {stage_id: [str(name) for name in list_at(stages, stage_id)] for stage_id in stages},
                [str(path) for path in list_at(data, "entities")],
            )
            if found.kind not in KINDS:
                raise BadArgument(f"kind: one of {', '.join(KINDS)} is expected.")
            found.published_ms = integer_at(data, "published_ms")
            found.is_tombstone = data.get("forgotten") is True
        return found

    def tombstone(self) -> Decision:
        stone = Decision(self.write, self.batch, self.kind, self.at_ms, {}, ())
        stone.is_tombstone = True
        return stone

    def follow(self, before: Decision | None) -> None:
        """It takes the place of that one, which may have somebody who waits for it."""
        if before is not None and before.left:
            self._before = before

    def is_at_end(self, now_ms: int) -> bool:
        """It should be forgotten."""
        if self.is_tombstone or not self.published_ms:
            return False
        if self.kind == STREAM:
            return now_ms - self.at_ms > STREAM_LIFE_MS
        return now_ms - self.published_ms > (JOB_LIFE_MS if self.kind == JOB else WRITE_LIFE_MS)

    def published(self, stage_id: str, store_name: str) -> None:
        if self._before is not None:
            self._before.published(stage_id, store_name)
            self._before = self._before if self._before.left else None
        self.left.discard((stage_id, store_name))
        if not self.left:
            waiting, self.waiting = self.waiting, []
            for tell in waiting:
                tell()


async def read_decisions(notes: Mapping[str, str]) -> list[Decision]:
    """Over many turns of the loop: there may be 300,000. Raises StoreError."""
    found: list[Decision] = []
    for key, text in notes.items():
        if key.startswith(DECISION_PREFIX):
            found.append(Decision.parse(key, text))
            if len(found) % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


class Decisions:
    """All of them, as the home has them. Before it was read for the first time nothing is known."""

    def __init__(self) -> None:
        self.are_known = False
        self._by_write: dict[str, Decision] = {}
        #: Stage → the decision that names it, until it is published.
        self._by_stage: dict[str, Decision] = {}
        self._counts = dict.fromkeys(KINDS, 0)

    def __len__(self) -> int:
        return len(self._by_write)

    def all(self) -> list[Decision]:
        return list(self._by_write.values())

    def get(self, write: str) -> Decision | None:
        return self._by_write.get(write)

    def of_stage(self, stage_id: str) -> Decision | None:
        return self._by_stage.get(stage_id)

    def stage_ids(self) -> Iterable[str]:
        return self._by_stage

    def load(self, rows: Iterable[Decision]) -> None:
        """The home was read. Whoever waited for a decision that memory had goes on waiting for it."""
        before, self._by_write, self._by_stage = self._by_write, {}, {}
        self._counts = dict.fromkeys(KINDS, 0)
        for decision in rows:
            decision.follow(before.get(decision.write))
            self.put(decision)
        self.are_known = True

    def put(self, decision: Decision) -> None:
        """It is durable."""
        present = self._by_write.get(decision.write)
        if present is not None:
            self._counts[present.kind] -= 1
        self._counts[decision.kind] += 1
        self._by_write[decision.write] = decision
        for stage_id in decision.stages:
            self._by_stage[stage_id] = decision

    def emptied(self, decision: Decision) -> None:
        """The row names no stages any more."""
        for stage_id in decision.stages:
            if self._by_stage.get(stage_id) is decision:
                del self._by_stage[stage_id]
        decision.stages = {}

    def remove(self, decision: Decision) -> None:
        if self._by_write.get(decision.write) is decision:
            del self._by_write[decision.write]
            self._counts[decision.kind] -= 1
            self.emptied(decision)

    def is_known(self, write: str, batch: int) -> bool:
        """True: it was decided before. Raises StagingRefused for one that comes too late."""
        decision = self._by_write.get(write)
        if decision is None or (decision.batch < batch and not decision.is_tombstone):
            return False
        if decision.is_tombstone:
            raise StagingRefused(
                FORGOTTEN,
                f"{write} wrote its last batch more than {STREAM_LIFE_MS // (24 * 3_600_000)} days ago, and what it"
                " wrote is not remembered any more: nothing can be written under this name without the danger of"
                " writing it twice. Begin with a new checkpoint.",
            )
        if decision.batch > batch:
            raise StagingRefused(
                BEHIND,
                f"Batch {batch} of {write} comes behind batch {decision.batch}, which is written already: the"
                " checkpoint of the query went back. Begin with a new checkpoint, or restore the right one.",
            )
        return True

    def check_capacity(self, write: str, kind: str) -> None:
        """Raises QuotaExceeded when a new name cannot be remembered."""
        if write not in self._by_write and self._counts[kind] >= DECISIONS_MAX:
            raise QuotaExceeded(
                f"The server remembers {DECISIONS_MAX} writes of the kind '{kind}' and takes no new name: a batch"
                " that it could not know again might be written twice."
            )
