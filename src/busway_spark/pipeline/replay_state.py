"""How far a replay has come, in one note below the root of the captured files.

    ROOT/_capture/replay/3f9a…/state.json

A replay is known by what it replays and where to: the same call goes on with it. What it may replay is fixed when it
begins, so that messages that are captured meanwhile do not change it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from busway_spark.pipeline.capture_root import NOTES, CaptureRoot
from busway_spark.pipeline.captured_history import START, Mark
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.notes import note_text, read_note

REPLAYS: Final = NOTES / "replay"
_STATE: Final = "state.json"


@dataclass
class ReplayState:
    name: str
    run: int
    #: By source partition: where the replay ends, and how far it has come.
    ends: dict[int, Mark]
    marks: dict[int, Mark] = field(default_factory=dict)
    #: By partition of the hub that it goes into: events stored up to the marks.
    counts: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    is_done: bool = False

    @property
    def folder(self) -> PurePosixPath:
        return REPLAYS / self.name

    def mark(self, partition: int) -> Mark:
        return self.marks.get(partition, START)

    def save(self, root: CaptureRoot) -> None:
        facts = {
            "run": self.run,
            "ends": self.ends,
            "marks": self.marks,
            "counts": self.counts,
            "rows": self.rows,
            "done": self.is_done,
        }
        root.write_text(self.folder / _STATE, note_text(facts))


def replay_name(facts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def load_state(root: CaptureRoot, name: str) -> ReplayState | None:
    """Raises JobFailed when it is damaged."""
    note = read_note(root, REPLAYS / name / _STATE)
    if not note:
        return None
    try:
        return ReplayState(
            name,
            int(note["run"]),
            _marks(note["ends"]),
            _marks(note["marks"]),
            {str(partition): int(count) for partition, count in note["counts"].items()},
            int(note["rows"]),
            bool(note["done"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFailed(
            f"{root.full(REPLAYS / name / _STATE)} is damaged; remove it to begin anew."
        ) from error


def _marks(found: dict[str, Any]) -> dict[int, Mark]:
    return {int(partition): Mark(int(hour), int(number)) for partition, (hour, number) in found.items()}
