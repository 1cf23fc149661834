"""Chaos: what may not be seen of a short fault of PostgreSQL is seen by its check."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Verdict
from tests.chaos.history import FAIL, INFO, OK, Operation
from tests.chaos.postgres_faults import failed_sends, note_seen

_SHORT, _LONG = (10.0, 12.0), (15.0, 23.0)


def test_sends_that_are_not_known_to_have_arrived_have_failed() -> None:
    """Chaos: refused or unknown; a batch counts once."""
    results = ((FAIL, 1.0), (FAIL, 1.0), (INFO, 3.0), (OK, 5.0))
    sends = [Operation("send", "a", at, at + 1, result) for result, at in results]
    assert failed_sends(sends) == [(1.0, 2.0), (3.0, 4.0)]


@pytest.mark.parametrize("what", ["send", "store"])
@pytest.mark.parametrize("span", [(9.5, 10.1), (10.5, 11.0), (12.5, 14.0)])
def test_what_fails_by_it_is_found(what: str, span: tuple[float, float]) -> None:
    """Chaos: begun before, during or right behind the fault."""
    verdict = Verdict()
    sends, failures = ([span], []) if what == "send" else ([], [span])
    note_seen(verdict, [_SHORT], [_LONG], sends, failures)
    assert list(verdict.violations) == [f"a short fault of PostgreSQL fails no {what}"]


def test_what_fails_at_another_time_is_no_violation() -> None:
    """Chaos: before it, after it, and while a longer one lasts."""
    verdict = Verdict()
    note_seen(
        verdict, [_SHORT], [_LONG], [(1.0, 9.9), (13.5, 14.0), (11.9, 19.0)], [(5.0, 5.1), (16.0, 16.1)]
    )
    assert verdict.holds
