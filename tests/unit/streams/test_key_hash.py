"""Which partition a key belongs to."""

import pytest

from busway.streams.key_hash import partition_of_key

#: Measured with the JavaScript SDK at 32 partitions.
MEASURED = {
    "7149583486996073602": 17,
    "FWfAT": 5,
    "sOdeEAsyQoEuEFPGerWO": 7,
    "alphabet": 22,
    "key-1": 6,
    "ключ": 14,
    "é": 12,
    "日本": 12,
    "a": 28,
}


@pytest.mark.parametrize(("key", "partition"), MEASURED.items())
def test_a_key_belongs_to_the_partition_that_clients_choose(key: str, partition: int) -> None:
    """H-10: pinned by what the SDK computes."""
    assert partition_of_key(key, 32) == partition


def test_an_empty_key_belongs_to_the_first_partition() -> None:
    """H-10: as in the SDKs."""
    assert partition_of_key("", 32) == 0


def test_keys_of_every_length_spread_over_all_partitions() -> None:
    """H-10: also where the last block is full, and behind several."""
    chosen = {partition_of_key("k" * length, 7) for length in range(1, 200)}
    assert chosen == set(range(7))


def test_text_that_has_no_bytes_still_belongs_somewhere() -> None:
    """H-10: whatever a door lets through."""
    assert 0 <= partition_of_key("\ud800", 4) < 4
