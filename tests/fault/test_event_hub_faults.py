"""Event hubs whose server, disk and files fail: the chaos runs, in short. Power cuts are for `make chaos` only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.crash_scenarios import CrashScenario
from tests.chaos.crash_streams import STREAM_SCENARIOS, crash_scenarios
from tests.chaos.scenario import Outcome
from tests.chaos.stream_damage import damage_copies, hit_chunks
from tests.chaos.stream_room import fill_streams, retention_under_readers
from tests.chaos.streams import kill_streams

pytestmark = pytest.mark.fault

#: One write in so many: all of them take a minute.
EVERY = 12


def _check(result: Outcome) -> None:
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.violations == {}, result
    assert result.holds, result


def test_a_killed_server_changes_no_event_and_loses_none(tmp_path: Path) -> None:
    """F15, H-16, H-18, H-20: kill -9 and cut connections, under every kind of publisher and reader."""
    _check(kill_streams(tmp_path, 2, 3))


def test_readers_of_what_retention_takes_see_where_the_partition_begins(tmp_path: Path) -> None:
    """F15, H-30: no other gap, and never another value."""
    _check(retention_under_readers(tmp_path, 1, 3))


def test_a_full_disk_refuses_events_and_nothing_else(tmp_path: Path) -> None:
    """F6, F15: reading, reading in bulk and retention go on, and it heals without a restart."""
    _check(fill_streams(tmp_path, 1, 3))


def test_damaged_files_give_out_no_changed_event_and_leave_none_out_in_silence(tmp_path: Path) -> None:
    """F4, F15: twenty-five damages by seed."""
    violations, ways = damage_copies(tmp_path, 25, random.Random(4))
    assert dict(violations) == {}
    assert len(ways) >= 3, ways


def test_one_flipped_bit_costs_one_chunk_and_its_numbers_are_told(tmp_path: Path) -> None:
    """F4, F15: readers that begin behind it read on."""
    assert dict(hit_chunks(tmp_path, 6, random.Random(4))) == {}


@pytest.mark.parametrize("scenario", STREAM_SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_at_any_write_leaves_whole_steps(tmp_path: Path, scenario: CrashScenario) -> None:
    """F2, F15, H-18, H-30, H-31: a crash at any write leaves whole steps."""
    _check(crash_scenarios((scenario,), tmp_path, 3, EVERY))
