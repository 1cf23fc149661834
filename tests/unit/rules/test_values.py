"""Moments and durations as values."""

from busway.rules.subject import MISSING, Instant, Span


def test_equal_times_are_one_key() -> None:
    """T-29: a moment is never a duration, nor a number."""
    assert Instant(5) == Instant(5)
    assert Span(5) == Span(5)
    assert len({Instant(5), Instant(5), Instant(6), Span(5), Span(5), 5}) == 4


def test_values_show_what_they_are() -> None:
    """T-25: in a failed test or a log of ours."""
    assert (repr(Instant(5)), repr(Span(-5)), repr(MISSING)) == ("Instant(5)", "Span(-5)", "MISSING")
