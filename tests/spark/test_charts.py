"""Charts and pages, without Spark: well-formed, escaped, and drawn where the numbers say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from busway_spark.pipeline.report.page import (
    Bar,
    Scale,
    Series,
    bar_chart,
    bytes_text,
    card,
    details,
    duration_text,
    heat_map,
    histogram,
    line_chart,
    notes,
    number_text,
    number_ticks,
    page,
    section,
    table,
    text_of,
    tiles,
    time_text,
    time_ticks,
    write_whole,
)

HOSTILE = "</title><script>alert('x')</script><img src=\"//evil\" onerror=a>&amp;\x00\x1b]]>\ud800"
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    """Fails when it is not well-formed."""
    return ET.fromstring(svg)


def titles(svg: str) -> list[str]:
    return [each.text or "" for each in parsed(svg).iter(f"{SVG}title")]


# -- scales


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1.0]),
        (7, [0, 2, 4, 6, 8]),
        (97, [0, 25, 50, 75, 100]),
        (1_000, [0, 250, 500, 750, 1_000]),
        (float("nan"), [0, 1]),
        (float("inf"), [0, 1]),
    ],
)
def test_an_axis_names_round_numbers_that_reach_the_highest(high: float, ticks: list[float]) -> None:
    """Charts: from 0, in steps of 1, 2, 2.5 or 5, to at least the highest value."""
    assert number_ticks(high) == ticks


def test_an_axis_of_time_names_round_instants_inside_of_its_ends() -> None:
    """Charts: three hours from 09:10 have ticks at whole half hours."""
    low = datetime(2026, 11, 15, 9, 10, tzinfo=UTC).timestamp()
    ticks = time_ticks(low, low + 3 * 3_600)
    assert [time_text(tick, 3 * 3_600) for tick in ticks] == [
        "09:30",
        "10:00",
        "10:30",
        "11:00",
        "11:30",
        "12:00",
    ]
    assert time_ticks(5.0, 5.0) == [5.0]
    assert len(time_ticks(0.0, 4e9)) < 400


def test_a_scale_maps_both_ends_and_has_a_middle_for_a_single_value() -> None:
    """Charts: also backwards, as heights are counted downwards."""
    down = Scale(0, 10, 200, 0)
    assert (down(0), down(10), down(5)) == (200, 0, 100)
    assert Scale(3, 3, 0, 10)(3) == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_200, "1.2k"),
        (3_400_000, "3.4M"),
        (0.004, "0.004"),
        (12.5, "12.5"),
        (None, "–"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    """Charts: at most three figures and a letter."""
    assert number_text(value) == text


def test_durations_and_sizes_have_the_unit_that_fits() -> None:
    """Charts: from microseconds to days, from bytes to TiB."""
    seconds = [0, 0.000_25, 0.0125, 1.5, 90, 7_200, 172_800]
    assert [duration_text(each) for each in seconds] == [
        "0",
        "250 µs",
        "12.5 ms",
        "1.5 s",
        "1.5 min",
        "2 h",
        "2 d",
    ]
    assert [bytes_text(each) for each in (0, 512, 2_048, 3 << 30)] == ["0 B", "512 B", "2 KiB", "3 GiB"]


# -- charts


def test_a_line_goes_through_its_points() -> None:
    """Charts: the highest value on the highest tick is at the top, 0 at the foot, ends at both sides."""
    chart = line_chart("load", [Series("a", [(0, 0), (60, 8)])], width=560, height=220)
    [line] = [
        each for each in parsed(chart).iter(f"{SVG}path") if (each.get("class") or "").startswith("line")
    ]
    assert line.get("d") == "M58.0 194.0L546.0 12.0"
    assert titles(chart) == ["a: 0 at 1970-01-01 00:00:00 UTC", "a: 8 at 1970-01-01 00:01:00 UTC"]


def test_lines_differ_by_colour_and_dash_and_are_named() -> None:
    """Charts: who does not see colours sees dashes; a legend names them."""
    chart = line_chart("load", [Series(name, [(0, 1), (1, 2)]) for name in "abcd"])
    lines = [
        each for each in parsed(chart).iter(f"{SVG}path") if (each.get("class") or "").startswith("line")
    ]
    assert len({(each.get("class"), each.get("stroke-dasharray")) for each in lines}) == 4
    words = [each.text for each in parsed(chart).iter(f"{SVG}text")]
    assert {"a", "b", "c", "d"} <= set(words)


def test_bars_are_as_long_as_their_values() -> None:
    """Charts: half the value, half the length; the chosen part inside of it."""
    chart = bar_chart("reasons", [Bar("x", 10, "100 %", 5), Bar("y", 5)], part_name="chosen")
    widths = [float(each.get("width") or 0) for each in parsed(chart).iter(f"{SVG}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[0] == pytest.approx(2 * widths[2], abs=0.2)
    assert titles(chart)[0] == "x: 10, 5 chosen · 100 %"


def test_a_heat_map_has_a_cell_for_each_pair() -> None:
    """Charts: the fullest is opaque, the empty one hollow, each says what it is."""
    chart = heat_map("when", ["a", "b"], ["1", "2"], [[0, 4], [2, 1]])
    cells = list(parsed(chart).iter(f"{SVG}rect"))
    assert [cell.get("class") for cell in cells] == ["hollow", "f0", "f0", "f0"]
    assert [cell.get("fill-opacity") for cell in cells] == [None, "1.000", "0.560", "0.340"]
    assert titles(chart)[1] == "a · 2: 4"


def test_a_histogram_needs_an_edge_more_than_bins() -> None:
    """Charts: bins with their ends in the hint, marks where they lie."""
    chart = histogram("latency", [0, 1, 2], [3, 6], marks=[("p50", 1.5)])
    assert titles(chart) == ["0 – 1: 3", "1 – 2: 6"]
    [mark] = [each for each in parsed(chart).iter(f"{SVG}path") if each.get("class") == "rule"]
    assert (mark.get("d") or "").startswith("M424.0 ")  # three quarters of the way from 58 to 546
    with pytest.raises(ValueError, match="one edge more"):
        histogram("latency", [0, 1], [3, 6])


def test_nothing_to_show_is_said() -> None:
    """Charts: an empty chart is a chart that says so."""
    for chart in (
        line_chart("x", []),
        bar_chart("x", []),
        heat_map("x", [], [], []),
        histogram("x", [0.0], []),
    ):
        assert "nothing to show" in "".join(parsed(chart).itertext())


# -- strangers


def test_names_of_strangers_cannot_become_markup() -> None:
    """Attack: a name that closes its tag, brings a script, control characters and half a surrogate pair."""
    charts = [
        line_chart(HOSTILE, [Series(HOSTILE, [(0, 1), (1, 2)]), Series("b", [(0, 1)])]),
        bar_chart(HOSTILE, [Bar(HOSTILE, 1, HOSTILE)], part_name=HOSTILE),
        heat_map(HOSTILE, [HOSTILE], [HOSTILE], [[1]]),
        histogram(HOSTILE, [0, 1], [1], marks=[(HOSTILE, 0.5)]),
    ]
    for chart in charts:
        names = {each.tag.removeprefix(SVG) for each in parsed(chart).iter()}
        assert names <= {"svg", "g", "title", "text", "path", "rect", "circle"}
    whole = page(
        HOSTILE,
        HOSTILE,
        [
            notes([HOSTILE]),
            tiles([(HOSTILE, HOSTILE)]),
            section(HOSTILE, [card(HOSTILE, "".join(charts), HOSTILE)]),
            details(HOSTILE, table([HOSTILE], [[HOSTILE], [None], [1_234], [True]])),
        ],
    )
    whole.encode("utf-8")
    assert {"script", "img"}.isdisjoint(tags(whole))
    assert "<th>" in whole
    assert "1,234" in whole


def tags(text: str) -> set[str]:
    found: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add(tag)
            assert not [name for name, _ in attrs if name.startswith("on")]

    Reader().feed(text)
    return found


def test_a_page_asks_no_network_and_runs_no_script() -> None:
    """Report: one file that needs nothing; a policy forbids the rest."""
    whole = page("a", "b", [card("c", line_chart("d", [Series("e", [(0, 1)])]))])
    assert "default-src &#x27;none&#x27;" in whole
    links = set(re.findall(r"(?:https?:)?//[\w.]+", whole))
    assert links == {"http://www.w3.org"}  # a name, not an address
    assert {"link", "script", "img", "iframe"}.isdisjoint(tags(whole))
    assert "prefers-color-scheme: dark" in whole


def test_text_is_cut_before_it_is_escaped() -> None:
    """Charts: a cut does not go through the middle of an entity."""
    assert text_of("&&&&", 3) == "&amp;&amp;…"
    assert text_of('"<') == "&quot;&lt;"


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """Report: what cannot be written leaves the old file and nothing else."""
    path = tmp_path / "report.html"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
