"""Durations between text and milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.model.durations import (
    FOREVER_MS,
    FOREVER_TEXT,
    format_duration,
    parse_duration,
    parse_duration_or_clock,
)
from busway.model.errors import BadArgument

_PAIRS = [
    ("PT0S", 0),
    ("PT5S", 5_000),
    ("PT0.5S", 500),
    ("PT1M", 60_000),
    ("PT1M30S", 90_000),
    ("PT1H", 3_600_000),
    ("P7D", 604_800_000),
    ("P1DT12H", 129_600_000),
    ("P14DT0.001S", 1_209_600_001),
    (FOREVER_TEXT, FOREVER_MS),
]


@pytest.mark.parametrize(("text", "milliseconds"), _PAIRS)
def test_a_duration_is_read_and_written_as_dotnet_does(text: str, milliseconds: int) -> None:
    """E-20, E-26: durations are ISO 8601, the maximum is written P10675199DT2H48M5.4775807S."""
    assert parse_duration(text) == milliseconds
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(
    "text",
    ["P10675199DT2H48M5.477539S", "P10675199DT2H48M5.4775807S", "P10675199DT3H", "P99999999D", "P99999Y"],
)
def test_what_reaches_the_maximum_is_forever(text: str) -> None:
    """E-26, E-30: Python's SDK sends the maximum back a little shorter; it still means never."""
    assert parse_duration(text) == FOREVER_MS
    assert format_duration(parse_duration(text)) == FOREVER_TEXT


@pytest.mark.parametrize(("text", "days"), [("P1Y", 365), ("P1M", 30), ("P2W", 14), ("P1Y2M3D", 428)])
def test_years_months_and_weeks_count_as_dotnet_counts_them(text: str, days: int) -> None:
    """E-26: the long units of ISO 8601 have fixed lengths."""
    assert parse_duration(text) == days * 86_400_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "60",
        "1M",
        "-PT1M",
        "pt1m",
        "PT1.5M",
        "PT1H ",
        " PT1H",
        "PT1H\n",
        "PT1S1M",
        "PT.5S",
        "PT5.S",
        "PT٣S",
        "PT１S",
        "P1D2H",
        "PTINFS",
        "PT" + "9" * 100 + "S",
        "P" + "1D" * 1000,
    ],
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    """E-20: the sentence names the property, and nothing long or strange is parsed."""
    with pytest.raises(BadArgument, match="LockDuration") as caught:
        parse_duration(text, "LockDuration")
    assert len(caught.value.sentence) < 250


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("00:01:00", 60_000), ("1.02:03:04.5", 93_784_500), ("12:30", 45_000_000), ("PT5S", 5_000)],
)
def test_a_clock_form_is_read_where_files_have_it(text: str, milliseconds: int) -> None:
    """E-20: files may also hold .NET's own form."""
    assert parse_duration_or_clock(text) == milliseconds


@pytest.mark.parametrize("text", ["24:00:00", "00:60:00", "00:00:60", "1:2:3:4", ":::", "00:00:00.12345678"])
def test_a_clock_form_out_of_range_is_refused(text: str) -> None:
    """E-20: 24 hours are a day."""
    with pytest.raises(BadArgument):
        parse_duration_or_clock(text)


@given(st.integers(min_value=0, max_value=FOREVER_MS))
def test_every_duration_comes_back_as_it_was_written(milliseconds: int) -> None:
    """E-20, E-24, E-26, E-30: reading what was written gives the same value."""
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.text(max_size=80))
def test_any_text_is_a_duration_or_a_clear_refusal(text: str) -> None:
    """E-20: no text makes the parser fail in another way."""
    try:
        parsed = parse_duration_or_clock(text)
    except BadArgument:
        return
    assert 0 <= parsed <= FOREVER_MS
