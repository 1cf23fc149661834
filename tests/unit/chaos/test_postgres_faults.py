"""Chaos: what may not be seen of a short fault of PostgreSQL is seen by its check."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Verdict
from tests.chaos.history import FAIL, INFO, OK, Operation
from tests.chaos.postgres_faults import note_seen

_SPAN = (10.0, 12.0)


def _send(result: str, invoked: float, done: float) -> Operation:
    return Operation("send", "a", invoked, done, result)


@pytest.mark.parametrize("result", [FAIL, INFO])
@pytest.mark.parametrize("times", [(9.5, 10.1), (10.5, 11.0), (12.5, 19.0)])
def test_a_send_that_fails_by_it_is_found(result: str, times: tuple[float, float]) -> None:
    """Chaos: refused or unknown, begun before, during or right behind the fault."""
    verdict = Verdict()
    note_seen(verdict, [_SPAN], [_send(OK, 10.5, 11.0), _send(result, *times)], [])
    assert verdict.violations == {"a short fault of PostgreSQL fails no send": ["a"]}


def test_a_store_that_fails_by_it_is_found() -> None:
    """Chaos: also when nobody sent to it."""
    verdict = Verdict()
    note_seen(verdict, [_SPAN], [], [(11.0, 11.2)])
    assert list(verdict.violations) == ["a short fault of PostgreSQL fails no store"]


def test_what_fails_at_another_time_is_no_violation() -> None:
    """Chaos: a send that failed in a long fault, before or after."""
    verdict = Verdict()
    note_seen(verdict, [_SPAN], [_send(FAIL, 1.0, 9.9), _send(INFO, 13.5, 14.0)], [(5.0, 5.1), (14.0, 14.1)])
    assert verdict.holds
