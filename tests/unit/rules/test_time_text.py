"""Moments and durations as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.rules.subject import INSTANT_TICKS_MAX, INTEGER_MAX, Instant, Span
from busway.rules.time_text import instant_of, instant_text, span_of, span_text


@given(st.integers(0, INSTANT_TICKS_MAX))
def test_a_moment_survives_its_text(ticks: int) -> None:
    """T-51: a moment survives its text."""
    assert instant_of(instant_text(Instant(ticks))) == Instant(ticks)


@given(st.integers(-INTEGER_MAX, INTEGER_MAX))
def test_a_duration_survives_its_text(ticks: int) -> None:
    """T-51: a duration survives its text."""
    assert span_of(span_text(Span(ticks))) == Span(ticks)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("0001-01-01", 0),
        ("0001-01-01T00:00", 0),
        ("0001-01-01 00:00:01", 10_000_000),
        ("0001-01-01T00:00:00.1Z", 1_000_000),
        ("0001-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00Z", 621_355_968_000_000_000),
        ("1969-12-31T22:30:00-01:30", 621_355_968_000_000_000),
        ("9999-12-31T23:59:59.9999999Z", INSTANT_TICKS_MAX),
    ],
)
def test_moments_are_read(text: str, ticks: int) -> None:
    """T-51: moments are read."""
    assert instant_of(text) == Instant(ticks)


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2020-13-01", "2020-02-30", "0000-01-01", "2020-01-01T24:00:00", "2020-01-01T00:60:00",
        "2020-01-01T00:00:60", "2020-01-01T00:00:00.12345678", "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-00:01", "2020-01-01\n", "٢٠٢٠-01-01",
    ],
)  # fmt: skip
def test_other_texts_are_no_moments(text: str) -> None:
    """T-51: other texts are no moments."""
    assert instant_of(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:01", 1), ("1:00", 3600), ("-00:01:00", -60), ("1.00:00:00", 86_400), ("PT1S", 1), ("P1D", 86_400),
        ("-PT1M", -60), ("P1DT1H1M1S", 90_061), ("PT90M", 5400),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, seconds: int) -> None:
    """T-51: durations are read."""
    assert span_of(text) == Span(seconds * 10_000_000)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "P1Y", "24:00:00", "1", "x", "P99999999DT", "PT1S\n"]
)
def test_other_texts_are_no_durations(text: str) -> None:
    """T-51: other texts are no durations."""
    assert span_of(text) is None


def test_a_duration_longer_than_64_bits_is_none() -> None:
    """T-51: a duration longer than 64 bits is none."""
    assert span_of("P99999999D") is None
