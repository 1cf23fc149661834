"""Every pair of kind, change and traffic, under the history checker; and that the matrix is whole and can fail."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from busway.broker.entity.entity import Attachments
from busway.model.descriptions import PROPERTIES, DescribedProperty, PropertyKind, QueueDescription
from busway.store.contract import CommitBatch, StoreError
from tests.changes import property_changes
from tests.changes.cell import Report, run_cell
from tests.changes.change import Administrator, Change, Subject
from tests.changes.changes import CHANGE_OF, CHANGES
from tests.changes.kinds import KINDS
from tests.changes.matrix import (
    Cell,
    cell_of,
    covering,
    impossible_cells,
    pairs_of,
    possible_cells,
)
from tests.changes.traffic import TRAFFIC
from tests.simulator.simulated_store import SimulatedStore

#: Each cell of the pairs is run with each of them.
SEEDS = (1, 2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_double_or_stuck_while_an_entity_is_changed_under_traffic(kind: str) -> None:
    """E-84, E-86, F-1: every pair of kind × change × traffic; what a change does not drop on purpose comes once."""
    began = time.process_time()
    cells = [cell for cell in covering(possible_cells()) if cell.kind == kind]
    reports = [run_cell(cell, seed) for cell in cells for seed in SEEDS]
    failed = [report for report in reports if not report.holds]
    ruled_out = {what: count for what, count in impossible_cells().items() if what.startswith(f"{kind} / ")}
    print(
        f"{kind}: {len(cells)} cells with {len(SEEDS)} seeds, {sum(ruled_out.values())} impossible,", end=" "
    )
    print(f"{len(failed)} failed, {sum(each.sent for each in reports)} messages,", end=" ")
    print(f"{time.process_time() - began:.1f} s of CPU")
    print("\n".join(f"  no cell: {what}" for what in ruled_out))
    assert not failed, "\n" + "\n".join(report.told() for report in failed)


def test_the_cells_of_a_run_meet_every_pair_that_there_is() -> None:
    """House style: no change is left out with a kind or a traffic that it goes with."""
    cells = possible_cells()
    chosen = covering(cells)
    assert pairs_of(chosen) == pairs_of(cells)
    assert covering(cells) == chosen, "always the same ones"
    assert {cell.kind for cell in chosen} == set(KINDS)
    assert {cell.traffic.name for cell in chosen} == {traffic.name for traffic in TRAFFIC}
    assert {cell.change.name for cell in chosen} == {change.name for change in CHANGES}


def test_each_cell_is_possible_or_has_a_reason() -> None:
    """House style: the matrix is kind × change × traffic, and says what it leaves out."""
    ruled_out = impossible_cells()
    assert len(possible_cells()) + sum(ruled_out.values()) == len(KINDS) * len(CHANGES) * len(TRAFFIC)
    assert all(what.partition(": ")[2] for what in ruled_out)
    with pytest.raises(ValueError, match="a topic forwards nothing"):
        cell_of("topic / UserMetadata / forwarding out")
    with pytest.raises(ValueError, match="is none of"):
        cell_of("queue / Colour / send")


def test_every_updatable_property_is_a_change() -> None:
    """House style: the list is the broker's own; fixed ones have no row."""
    for table in PROPERTIES.values():
        for entry in table:
            rows = [name for name in CHANGE_OF if name.split(" ")[0] == entry.name]
            assert bool(rows) is not entry.fixed, entry.name


def test_a_new_property_without_values_to_try_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: nobody adds a property that is never changed under traffic."""
    new = DescribedProperty("Colour", "colour", PropertyKind.TEXT)
    more = {**PROPERTIES, QueueDescription: (*PROPERTIES[QueueDescription], new)}
    monkeypatch.setattr(property_changes, "PROPERTIES", more)
    with pytest.raises(property_changes.NoValues, match="Colour"):
        property_changes.property_changes()
    new_flag = {**PROPERTIES, QueueDescription: (replace(new, kind=PropertyKind.FLAG),)}
    monkeypatch.setattr(property_changes, "PROPERTIES", new_flag)
    assert next(change.name for change in property_changes.property_changes()) == "Colour"


def test_the_same_cell_and_seed_do_the_same() -> None:
    """House style: a failure can be replayed."""
    cell = cell_of("partitioned subscription / ForwardTo moved / peek-lock")
    assert run_cell(cell, 5).trace == run_cell(cell, 5).trace != run_cell(cell, 6).trace


# -- it can fail


def _found(name: str, *wanted: str, seeds: int = 4) -> None:
    reports = [run_cell(cell_of(name), seed) for seed in range(1, seeds + 1)]
    met = {what for report in reports for what in report.violations}
    assert met & set(wanted), met
    told = next(report for report in reports if not report.holds).told()
    assert f'python -m tests.changes --cell "{name}" --seed' in told


def _spoil(monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    """Some commits lose something."""
    apply = SimulatedStore._apply

    def spoiled(store: SimulatedStore, batch: CommitBatch) -> StoreError | None:
        if store.commits % 7 == 6 and getattr(batch, attribute):
            setattr(batch, attribute, getattr(batch, attribute)[:-1])
        return apply(store, batch)

    monkeypatch.setattr(SimulatedStore, "_apply", spoiled)


def test_a_message_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: a store that forgets a row it has acknowledged; memory forgets it when the entity is made anew."""
    _spoil(monkeypatch, "puts")
    _found("queue / ForwardTo set / send", "lost")


def test_a_message_that_comes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: a store that forgets a deletion; the entity is loaded anew and shows the row again."""
    _spoil(monkeypatch, "deletes")
    _found("queue / ForwardTo set / peek-lock", "resurrected", "double", "delivered after complete")


def test_a_subscription_that_goes_under_its_receiver_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: a broker that lets receivers in while somebody stands for the end of what they receive from."""
    monkeypatch.setattr(Attachments, "is_ending", lambda _: False)
    _found("subscription / unsubscribed / visits", "link ended")


def test_whoever_waits_for_ever_is_named() -> None:
    """House style: every wait has an end in virtual time."""
    change = CHANGE_OF["Status Disabled"]
    report = run_cell(replace(cell_of("queue / Status Disabled / send"), change=replace(change, back=())), 1)
    assert any("sender-0" in which for which in report.violations["waits for ever"])


async def _nothing(administrator: Administrator, subject: Subject) -> None:
    """An operator who does not press the button."""


def test_a_change_that_changes_nothing_counts_as_never_hit() -> None:
    """House style: a cell that was not hit proves nothing."""
    idle = Cell("queue", Change("idle", {}, (_nothing,), ()), cell_of("queue / UserMetadata / send").traffic)
    assert run_cell(idle, 1).missed == ["the change changed nothing"]


def test_a_failure_says_how_to_see_it_again() -> None:
    """House style: cell, seed and command."""
    report = Report(
        cell_of("hub / keys rotated / publishing to a hub"), 9, {"lost": ["1"]}, ["no 'read' after it"]
    )
    assert not report.holds
    assert '--cell "hub / keys rotated / publishing to a hub" --seed 9' in report.told()
    assert "lost: 1" in report.told()
    assert "never hit: no 'read' after it" in report.told()
