"""Disks that are full, hang up on a sync, or hold what nobody wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.damage import damage_copies
from tests.chaos.disk_full import fill_and_drain
from tests.chaos.sync_errors import failing_syncs

pytestmark = pytest.mark.fault


def test_a_full_disk_is_no_outage(tmp_path: Path) -> None:
    """F6: sends are refused, the rest works, and it heals without a restart."""
    result = fill_and_drain(tmp_path, 1, 1)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.violations == {}
    assert result.sent > 0


def test_a_failed_sync_leaves_no_lie_behind(tmp_path: Path) -> None:
    """F5: no outcome for what was in the commit, the store is back by itself, nothing acknowledged is lost."""
    result = failing_syncs(tmp_path, 1, 2)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.violations == {}
    assert result.rounds == 1


def test_damaged_files_never_give_out_a_changed_body(tmp_path: Path) -> None:
    """F4: twenty-five damages by seed; every loss is noticed."""
    violations, ways = damage_copies(tmp_path, 25, random.Random(2))
    assert dict(violations) == {}
    assert len(ways) >= 3, ways
