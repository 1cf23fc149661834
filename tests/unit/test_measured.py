"""Harness: what may be tried again, and what may not."""

from __future__ import annotations

import pytest

from tests.harness.measured import TRIES, TooSlow, check_within, measured


def test_what_is_slow_every_time_fails() -> None:
    """Harness: after a few tries."""
    seen: list[int] = []

    @measured
    def slow() -> None:
        seen.append(1)
        check_within(2, 1)

    with pytest.raises(TooSlow):
        slow()
    assert len(seen) == TRIES


def test_what_is_wrong_is_not_tried_again() -> None:
    """Harness: a second try would hide a race."""
    seen: list[int] = []

    @measured
    def wrong() -> None:
        seen.append(1)
        assert seen == []

    with pytest.raises(AssertionError):
        wrong()
    assert len(seen) == 1
