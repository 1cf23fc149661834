"""Which rows a batch had: of each partition how many, and the first and the last number.

Spark repeats a batch with the rows that it had. It does not when its own note of the batch was lost, as by a power
failure, while ours was not: then a batch of that number is planned anew, and whoever left out all of its rows as
known would lose those that are new. So what is left out is compared with what was captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from busway_spark.pipeline.capture.captured_writer import StagedFile


@dataclass(frozen=True)
class Extent:
    rows: int
    first: int
    last: int

    def __or__(self, other: Extent) -> Extent:
        return Extent(self.rows + other.rows, min(self.first, other.first), max(self.last, other.last))

    def may_hold(self, other: Extent) -> bool:
        """Fewer rows are no loss: somebody else may have removed messages meanwhile."""
        return other.rows <= self.rows and self.first <= other.first and other.last <= self.last


#: By partition or fragment.
Extents = dict[int, Extent]


def extents_of(parts: Iterable[tuple[int, Extent]]) -> Extents:
    found: Extents = {}
    for partition, extent in parts:
        found[partition] = found[partition] | extent if partition in found else extent
    return found


def extents_of_files(files: Iterable[StagedFile]) -> Extents:
    return extents_of(
        (file.partition, Extent(file.rows, file.first_number, file.last_number)) for file in files
    )


def has_more(repeated: Extents, captured: Extents) -> bool:
    """Rows that are not among those that were captured."""
    return any(
        partition not in captured or not captured[partition].may_hold(extent)
        for partition, extent in repeated.items()
    )


def to_note(extents: Extents) -> dict[str, list[int]]:
    return {str(partition): [each.rows, each.first, each.last] for partition, each in extents.items()}


def of_note(note: Mapping[str, object]) -> Extents | None:
    """None in notes of earlier versions."""
    rows = note.get("rows")
    return {int(name): Extent(*each) for name, each in rows.items()} if isinstance(rows, dict) else None
