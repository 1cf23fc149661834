"""A bus is copied while clients work, and the copy is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.backups import backups_under_load

pytestmark = [pytest.mark.fault, pytest.mark.sdk]


def test_a_copy_holds_what_clients_were_told_and_nothing_twice(tmp_path: Path) -> None:
    """F1, F-10: sends, settlements, sessions, duplicates, forwards over stores and events, recounted in a copy."""
    result = backups_under_load(tmp_path, rounds=1, seed=5)
    assert result.violations == {}
    assert result.rounds == 1
    assert result.sent >= 60
