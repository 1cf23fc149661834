"""The cells: kind × change × traffic; which there cannot be, and why; and few of them that meet every pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.changes.change import Change
from tests.changes.changes import CHANGE_OF, CHANGES
from tests.changes.kinds import KINDS
from tests.changes.traffic import TRAFFIC, TRAFFIC_OF, Traffic

#: (which two of the three, their values)
Pair = tuple[str, str, str]


@dataclass(frozen=True)
class Cell:
    kind: str
    change: Change
    traffic: Traffic

    @property
    def name(self) -> str:
        return f"{self.kind} / {self.change.name} / {self.traffic.name}"

    def pairs(self) -> tuple[Pair, Pair, Pair]:
        return (
            ("kind × change", self.kind, self.change.name),
            ("kind × traffic", self.kind, self.traffic.name),
            ("change × traffic", self.change.name, self.traffic.name),
        )

    def impossible(self) -> str | None:
        """Why there is no such cell."""
        reason = self.change.impossible.get(self.kind) or self.traffic.impossible.get(self.kind)
        if (
            reason is None
            and self._detects_duplicates()
            and "requires_duplicate_detection" in self.change.needs
        ):
            reason = "not for entities that detect duplicates"
        only_with = self.change.only_with
        if reason is None and only_with is not None and only_with[0] != self.traffic.name:
            reason = only_with[1]
        return reason

    def _detects_duplicates(self) -> bool:
        return self.traffic.name == "duplicates"


def cell_of(name: str) -> Cell:
    """Raises ValueError with what is not known, or why there is no such cell."""
    parts = [part.strip() for part in name.split(" / ")]
    if len(parts) != 3:
        raise ValueError(f"{name!r}: a cell is 'kind / change / traffic'.")
    kind, change, traffic = parts
    for part, known in ((kind, KINDS), (change, CHANGE_OF), (traffic, TRAFFIC_OF)):
        if part not in known:
            raise ValueError(f"{part!r} is none of: {', '.join(known)}.")
    cell = Cell(kind, CHANGE_OF[change], TRAFFIC_OF[traffic])
    reason = cell.impossible()
    if reason is not None:
        raise ValueError(f"{name}: there is no such cell: {reason}.")
    return cell


def _all() -> list[Cell]:
    return [Cell(kind, change, traffic) for kind in KINDS for change in CHANGES for traffic in TRAFFIC]


def possible_cells() -> list[Cell]:
    return [cell for cell in _all() if cell.impossible() is None]


def impossible_cells() -> dict[str, int]:
    """Reason, with what it concerns → how many cells it rules out."""
    counts: dict[str, int] = {}
    for cell in _all():
        reason = cell.impossible()
        if reason is None:
            continue
        if cell.kind in cell.change.impossible:
            what = f"{cell.kind} / {cell.change.name}: {reason}"
        elif cell.kind in cell.traffic.impossible:
            what = f"{cell.kind} / {cell.traffic.name}: {reason}"
        else:
            what = f"{cell.change.name} / {cell.traffic.name}: {reason}"
        counts[what] = counts.get(what, 0) + 1
    return counts


def pairs_of(cells: Iterable[Cell]) -> set[Pair]:
    return {pair for cell in cells for pair in cell.pairs()}


def covering(cells: Sequence[Cell]) -> list[Cell]:
    """Few cells in which every pair of values that any cell has occurs, all kinds about as often. Always the same
    ones: for each change and traffic that go together the kind that brings most pairs, of these the one that was
    chosen least; then whatever is still missing."""
    left = pairs_of(cells)
    used: Counter[str] = Counter()
    chosen: list[Cell] = []
    together: dict[Pair, list[Cell]] = {}
    for cell in cells:
        together.setdefault(cell.pairs()[2], []).append(cell)
    for alike in (*together.values(), *([cell] for cell in cells)):
        best = max(alike, key=lambda cell: (len(left.intersection(cell.pairs())), -used[cell.kind]))
        if left.isdisjoint(best.pairs()):
            continue
        chosen.append(best)
        used[best.kind] += 1
        left.difference_update(best.pairs())
    return chosen
