"""Times of rules as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.rules.rule import TypedValue
from busway.rules.time_text import format_span, has_zone, instant_of, moment_text, parse_span


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_duration_reads_back_to_the_last_tick(ticks: int) -> None:
    """E-74: from the shortest to the longest."""
    assert parse_span(format_span(ticks)) == ticks


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, "PT0S"),
        (1, "PT0.0000001S"),
        (300_000_000, "PT30S"),
        (-15_000_000, "-PT1.5S"),
        (864_000_000_000, "P1D"),
        (36_610_000_000, "PT1H1M1S"),
        ((1 << 63) - 1, "P10675199DT2H48M5.4775807S"),
    ],
)
def test_durations_are_written_as_people_know_them(ticks: int, text: str) -> None:
    """E-74: ISO 8601, as .NET writes it."""
    assert format_span(ticks) == text


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "5", "PT5", "P1Y", "P99999999999D", "PT1.S", "x" * 100, "PT٣S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """E-74: what is no duration is refused."""
    with pytest.raises(ValueError, match="a duration"):
        parse_span(text)


@given(st.integers(0, 3_155_378_975_999_999_999), st.booleans())
def test_a_moment_reads_back_with_and_without_a_zone(ticks: int, is_zoned: bool) -> None:
    """E-74, E-64: a moment reads back with and without a zone."""
    text = moment_text(TypedValue("dateTime", ticks, is_zoned))
    found = instant_of(text)
    assert found is not None
    assert (found.ticks, has_zone(text)) == (ticks, is_zoned)


def test_an_offset_is_a_zone() -> None:
    """E-74: an offset is a zone."""
    assert has_zone("2030-01-01T00:00:00-05:00")
    assert has_zone("2030-01-01T00:00:00+05:00")
    assert not has_zone("2030-01-01T00:00:00")
