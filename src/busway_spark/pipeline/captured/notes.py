"""Notes that jobs keep below the root of captured files: JSON objects, each with the version of its form.

A note without a version is older than versions and reads the same. One of a later version is not guessed at: whoever
wrote it may have meant something else by the same words.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from busway_spark.pipeline.captured.captured import entity_folder
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.capture_root import NOTES, CaptureRoot

#: The last batch of an entity that is captured.
COMMITTED: Final = "committed.json"
#: In it, where there are objects: what is being put in place.
MOVING_KEY: Final = "moving"
_VERSION: Final = 1
_NAME: Final = "version"


def notes_of(entity: str) -> PurePosixPath:
    """The folder of an entity's notes."""
    return NOTES / entity_folder(entity)


def note_text(facts: Mapping[str, object], version: int = _VERSION) -> str:
    return json.dumps({_NAME: version, **facts})


def read_note(root: CaptureRoot, path: PurePosixPath) -> dict[str, Any]:
    """Empty where there is none. Raises JobFailed when it is damaged, or of a later version."""
    data = root.read_bytes(path)
    return {} if data is None else parsed_note(root, path, data)


def parsed_note(
    root: CaptureRoot, path: PurePosixPath, data: bytes, versions: Collection[int] = (_VERSION,)
) -> dict[str, Any]:
    """`versions`: those that the caller knows. Raises JobFailed."""
    try:
        note = json.loads(data)
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise JobFailed(f"{root.full(path)} is damaged: it is no JSON object.")
    if note.pop(_NAME, _VERSION) not in versions:
        raise JobFailed(
            f"{root.full(path)} was written by a later version of Busway: go on with that version."
        )
    return note
