"""Free space and the reserve file."""

from pathlib import Path

import pytest

from busway.store.sqlite.companion_files import SpaceGuard, free_bytes_of

MIB = 1 << 20


class Disk:
    """A disk of our own size; the reserve counts as used."""

    def __init__(self, reserve: Path, free: int) -> None:
        self.reserve = reserve
        self.free = free

    def __call__(self) -> int:
        return self.free - (self.reserve.stat().st_size if self.reserve.exists() else 0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "a.reserve", 100 * MIB)


def guard_of(disk: Disk) -> SpaceGuard:
    guard = SpaceGuard(disk.reserve, low_bytes=8 * MIB, reserve_bytes=2 * MIB, free_bytes=disk)
    guard.sample()
    return guard


def test_with_enough_space_the_reserve_is_made_of_real_blocks(disk: Disk) -> None:
    """F6: a hole would be no reserve."""
    guard = guard_of(disk)
    assert not guard.is_low
    stats = disk.reserve.stat()
    assert stats.st_size == 2 * MIB
    assert stats.st_blocks * 512 >= 2 * MIB
    assert stats.st_mode & 0o777 == 0o600


def test_below_the_low_water_mark_payload_is_refused_and_the_reserve_kept(disk: Disk) -> None:
    """F6: refusing comes long before the reserve is needed."""
    guard = guard_of(disk)
    disk.free = 9 * MIB
    guard.sample()
    assert guard.is_low
    assert disk.reserve.exists()


def test_the_reserve_goes_when_the_disk_is_nearly_full_and_comes_back(disk: Disk) -> None:
    """F6: it heals by itself."""
    guard = guard_of(disk)
    disk.free = 3 * MIB
    guard.sample()
    assert guard.is_low
    assert not disk.reserve.exists()
    disk.free = 11 * MIB
    guard.sample()
    assert not guard.is_low
    assert not disk.reserve.exists()
    disk.free = 30 * MIB
    guard.sample()
    assert disk.reserve.exists()


def test_what_is_written_between_two_samples_counts(disk: Disk) -> None:
    """F6: a quarter of a second of writing must not run through the mark unseen."""
    guard = guard_of(disk)
    disk.free = 30 * MIB
    guard.sample()
    assert not guard.is_low
    guard.spend(12 * MIB)
    assert guard.is_low
    guard.sample()
    assert not guard.is_low


def test_a_truncated_reserve_is_made_again(disk: Disk) -> None:
    guard = guard_of(disk)
    disk.reserve.write_bytes(b"")
    guard.sample()
    assert disk.reserve.stat().st_size == 2 * MIB


def test_the_real_disk_has_some_space(tmp_path: Path) -> None:
    assert free_bytes_of(tmp_path)() > 0
