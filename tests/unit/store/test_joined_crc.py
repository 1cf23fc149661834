"""CRCs of several runs of bytes together."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from busway.store.log_rows import joined_crc


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 3_000)), max_size=6))
def test_the_joined_crc_is_that_of_all_bytes_in_a_row(parts: list[tuple[bytes, int]]) -> None:
    """F4: whatever the lengths are, none included."""
    runs = [content * times for content, times in parts]
    assert joined_crc((crc32(run), len(run)) for run in runs) == crc32(b"".join(runs))


def test_long_runs_join_as_well() -> None:
    """F4: lengths of more than one, two and three bytes."""
    runs = [b"a" * 255, b"b" * 256, b"c" * 65_535, b"d" * 65_536, b"e" * ((1 << 24) + 7)]
    assert joined_crc((crc32(run), len(run)) for run in runs) == crc32(b"".join(runs))
