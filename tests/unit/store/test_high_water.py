"""The file that remembers how many commits a store has seen."""

from pathlib import Path

import pytest

from busway.store.sqlite.companion_files import HighWater


def test_without_a_file_nothing_was_seen(tmp_path: Path) -> None:
    assert HighWater(tmp_path / "a.high-water").read() == 0


def test_the_highest_number_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    mark = HighWater(tmp_path / "a.high-water")
    for number in (1, 7, 1 << 62):
        mark.write(number)
        assert HighWater(tmp_path / "a.high-water").read() == number
    assert (tmp_path / "a.high-water").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("position", range(60))
def test_one_damaged_byte_leaves_the_other_line(tmp_path: Path, position: int) -> None:
    """F4: the answer is one of the two numbers written last, never another."""
    path = tmp_path / "a.high-water"
    mark = HighWater(path)
    mark.write(41)
    mark.write(42)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x11
    path.write_bytes(data)
    assert mark.read() == (42 if position < 30 else 41)


@pytest.mark.parametrize("content", [b"", b"\0" * 60, b"nonsense", b"9" * 200, "٤".encode() * 40])
def test_a_file_of_nonsense_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.high-water"
    path.write_bytes(content)
    assert HighWater(path).read() == 0
