"""The faults of `tests.chaos.mutations`: what is broken on purpose must be there to be broken."""

from __future__ import annotations

import ast

import pytest

from tests.chaos.mutations.fault import ROOT, Fault, PlaceLost
from tests.chaos.mutations.play import FAULTS

every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@every_fault
def test_every_fault_finds_its_place(fault: Fault) -> None:
    """House style: whoever changes the code moves the fault along."""
    broken = fault.broken()
    assert fault.text != fault.replacement
    if fault.file.endswith(".py"):  # SQL is read by the tests that must see the fault
        ast.parse(broken)


@every_fault
def test_every_fault_names_tests_that_exist(fault: Fault) -> None:
    """House style: else nobody could see it."""
    assert fault.tests
    for path in fault.tests:
        file, _, name = path.partition("::")
        assert (ROOT / file).exists(), path
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), path


def test_faults_are_told_apart_by_their_names() -> None:
    """House style"""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_lost_place_is_an_error() -> None:
    """House style: a fault that is applied to nothing proves nothing."""
    gone = Fault("gone", "", "busway/clock.py", "no such text", "", ("tests",))
    with pytest.raises(PlaceLost, match="0 times"):
        gone.broken()
    with pytest.raises(PlaceLost, match="not there"):
        Fault("gone", "", "busway/no_such_file.py", "x", "", ("tests",)).broken()
