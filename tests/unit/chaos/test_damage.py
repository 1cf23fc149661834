"""What counts as explained after a damage."""

import random
from pathlib import Path

import pytest

from tests.chaos.damaged_server import flip_body, is_one_gap

ALL = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("found", [ALL, ALL[1:], ALL[:3], ["a", "e"], [], ["a", "c", "d", "e"]])
def test_what_is_missing_side_by_side_is_one_gap(found: list[str]) -> None:
    assert is_one_gap(found, ALL)


@pytest.mark.parametrize("found", [["a", "c", "e"], ["b", "a", "c", "d", "e"], ["a", "b", "b"], ["b", "d"]])
def test_two_gaps_doubles_and_another_order_are_not(found: list[str]) -> None:
    assert not is_one_gap(found, ALL)


def test_one_bit_of_a_body_is_flipped_wherever_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"..body-7-x..body-8-x..body-7-x")
    flip_body(file, "body-7-x", random.Random(1))
    hurt = file.read_bytes()
    assert b"body-7-x" not in hurt
    assert b"body-8-x" in hurt
    assert len(hurt) == 30
