"""A report as one HTML file: style (`page.css`), sections, tables, notes, charts. No script, nothing from a network.

Everything that is not made here is escaped on its way in; `Markup` is text that already is HTML. The page forbids
itself scripts and requests besides (Content-Security-Policy), in case that one day something slips through.

Charts are inline SVG: lines over time, bars, heat maps and histograms. Each function answers with one well-formed
`<svg>` whose colours are variables of the page, so that it looks right in light and in dark. Lines differ by
colour and by dashes. Every mark has a `<title>`, which a browser shows when the mouse rests on it and a screen
reader reads. Whatever is shown comes from strangers: it goes through `text_of`. Scales lead from values to places,
and name round values on their axes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Final, NewType
from uuid import uuid4

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
#: Steps of an axis of time, in seconds: people count in these.
_TIME_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
)  # fmt: skip
_DAY_S: Final = 86_400
_TIMES_MAX: Final = 400
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
#: Classes `c0`…`c7` of the page's style.
COLOURS: Final = 8
_DASHES: Final = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4", "4 2 1 2", "3 5")
_WIDTH: Final = 560
_HISTOGRAM_HEIGHT: Final = 200
_LABEL_LETTERS: Final = 34
_LETTER: Final = 6.8
_BAR: Final = 22
_CELL: Final = 18
_MARKS_MAX: Final = 400
_LEGEND_COLUMNS: Final = 3
_LEGEND_ROW: Final = 17
NumberText = Callable[[float], str]
Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Maps `low`…`high` to `start`…`end`, which may run backwards."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = 0.5 if span <= 0 else (value - self.low) / span
        return self.start + share * (self.end - self.start)


def number_ticks(high: float) -> list[float]:
    """Round values from 0 up to at least `high`, in about four steps."""
    if not math.isfinite(high) or high <= 0:
        return [0.0, 1.0]
    rough = high / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in _STEPS if power * each >= rough * (1 - 1e-9))
    return [step * at for at in range(math.ceil(high / step - 1e-9) + 1)]


def time_ticks(low_s: float, high_s: float, count: int = 6) -> list[float]:
    """Round instants inside of low…high, at most about so many."""
    span = high_s - low_s
    if not math.isfinite(span) or span <= 0:
        return [low_s]
    step = next((each for each in _TIME_STEPS_S if span / each <= count), _TIME_STEPS_S[-1])
    first = math.ceil(low_s / step) * step
    found = [float(first + at * step) for at in range(_TIMES_MAX) if first + at * step <= high_s]
    return found or [low_s]


def slot_seconds(span_s: int, slots: int = 48) -> int:
    """A width that people count in, so that the span has at most so many."""
    widths = (60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
    return next((width for width in widths if span_s / width < slots), 31_536_000)


def time_text(instant_s: float, span_s: float) -> str:
    """As fine as the span needs, in UTC."""
    moment = _moment(instant_s)
    if span_s >= 4 * _DAY_S:
        return f"{moment:%d %b}" if span_s < 300 * _DAY_S else f"{moment:%b %Y}"
    if span_s >= _DAY_S:
        return f"{moment:%d %b %H:%M}"
    return f"{moment:%H:%M:%S}" if span_s < 300 else f"{moment:%H:%M}"


def full_time_text(instant_s: float) -> str:
    return f"{_moment(instant_s):%Y-%m-%d %H:%M:%S} UTC"


def _moment(instant_s: float) -> datetime:
    try:
        return datetime.fromtimestamp(instant_s, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime(1970, 1, 1, tzinfo=UTC)


def number_text(value: float | int | None) -> str:
    """Short: 1.2M, 340k, 12.5, 0.004."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    for unit, letter in _UNITS:
        if size >= unit:
            return f"{_short(value / unit)}{letter}"
    return _short(value)


def _short(value: float) -> str:
    if value == int(value):
        return str(int(value))
    digits = 3 if abs(value) < 0.1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_text(seconds: float | None) -> str:
    """340 µs, 12 ms, 1.5 s, 3 min, 2.5 h, 4 d."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    size = abs(seconds)
    if size == 0:
        return "0"
    for unit, name in ((_DAY_S, "d"), (3_600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if size >= unit:
            return f"{_short(seconds / unit)} {name}"
    return f"{_short(seconds * 1e6)} µs"


def bytes_text(size: float | None) -> str:
    if size is None or not math.isfinite(size):
        return "–"
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(size) >= unit:
            return f"{_short(size / unit)} {name}"
    return f"{_short(size)} B"


@dataclass(frozen=True)
class Series:
    """A line: instants in seconds since 1970, ascending, and values. A gap is simply not there."""

    name: str
    points: Sequence[Point]
    #: So that the same thing looks alike in several charts; None: by its place.
    look: int | None = None


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    #: Said beside the value when the mouse rests on it.
    note: str = ""
    #: Which part of the value is drawn in the second colour.
    part: float = 0.0


def text_of(value: object, letters_max: int | None = None) -> str:
    """Escaped for text and attributes; characters that XML does not have become a mark; cut with an ellipsis."""
    plain = "".join(letter if _is_xml(letter) else "\N{REPLACEMENT CHARACTER}" for letter in str(value))
    if letters_max is not None and len(plain) > letters_max:
        plain = plain[: letters_max - 1] + "…"
    return escape(plain, quote=True)


def _is_xml(letter: str) -> bool:
    code = ord(letter)
    return letter in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


# -- lines


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    width: int = _WIDTH,
    height: int = 220,
    text: NumberText = number_text,
    filled: bool = False,
) -> str:
    """Values over time from 0 up. All points are drawn; at most 400 of a line get a mark of their own."""
    drawn = [each for each in series if each.points]
    if not drawn:
        return _nothing(title, width)
    instants = [at for each in drawn for at, _ in each.points]
    low, high = min(instants), max(instants)
    ticks = number_ticks(max(value for each in drawn for _, value in each.points))
    left, legend = 58, _legend_height(drawn)
    x = Scale(low, high, left, width - 14)
    y = Scale(0, ticks[-1], height - 26, 12 + legend)
    parts = [_y_axis(ticks, y, left, width - 14, text), _time_axis(x, height - 26, width)]
    looks = [at if each.look is None else each.look for at, each in enumerate(drawn)]
    for look, each in zip(looks, drawn, strict=True):
        parts.append(_line(each, look, x, y, filled))
        parts.append(_marks(each, look, x, y, text))
    if legend:
        parts.append(_legend([each.name for each in drawn], looks, left, width))
    return _svg(title, width, height, parts)


def _line(series: Series, at: int, x: Scale, y: Scale, filled: bool) -> str:
    places = [(x(instant), y(value)) for instant, value in series.points]
    path = "M" + "L".join(f"{across:.1f} {up:.1f}" for across, up in places)
    drawn = f'<path {_stroke(at)} d="{path}"/>'
    if not filled or len(places) < 2:
        return drawn
    area = f"{path}L{places[-1][0]:.1f} {y.start:.1f}L{places[0][0]:.1f} {y.start:.1f}Z"
    return f'<path class="area f{at % COLOURS}" d="{area}"/>{drawn}'


def _stroke(at: int) -> str:
    dash = _DASHES[at % len(_DASHES)]
    return f'class="line c{at % COLOURS}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _marks(series: Series, at: int, x: Scale, y: Scale, text: NumberText) -> str:
    """What the mouse finds: a wide invisible circle around each point, and a dot where points stand apart."""
    step = max(1, len(series.points) // _MARKS_MAX)
    radius = 2.2 if len(series.points) <= 30 else 0
    name = f"{text_of(series.name)}: " if series.name else ""
    marks: list[str] = []
    for instant, value in series.points[::step]:
        hint = f"<title>{name}{text_of(text(value))} at {full_time_text(instant)}</title>"
        place = f'cx="{x(instant):.1f}" cy="{y(value):.1f}"'
        dot = f'<circle class="dot f{at % COLOURS}" {place} r="{radius}"/>' if radius else ""
        marks.append(f'<g class="mark">{dot}<circle class="hit" {place} r="7"/>{hint}</g>')
    return "".join(marks)


def _legend_height(series: Sequence[Series]) -> int:
    return 0 if len(series) < 2 else 8 + _LEGEND_ROW * -(-len(series) // _LEGEND_COLUMNS)


def _legend(names: Sequence[str], looks: Sequence[int], left: int, width: int) -> str:
    room = (width - left) / min(len(names), _LEGEND_COLUMNS)
    letters = max(4, int((room - 30) / _LETTER))
    parts: list[str] = []
    for at, (name, look) in enumerate(zip(names, looks, strict=True)):
        across, down = left + at % _LEGEND_COLUMNS * room, 12 + at // _LEGEND_COLUMNS * _LEGEND_ROW
        parts.append(
            f'<g><title>{text_of(name)}</title><path {_stroke(look)} d="M{across:.1f} {down}h18"/>'
            f'<text x="{across + 23:.1f}" y="{down + 4}">{text_of(name, letters)}</text></g>'
        )
    return "".join(parts)


# -- bars


def bar_chart(title: str, bars: Sequence[Bar], *, text: NumberText = number_text, part_name: str = "") -> str:
    """One below the other, in the order given, each with its value at its end."""
    if not bars:
        return _nothing(title)
    letters = min(_LABEL_LETTERS, max(len(bar.label) for bar in bars))
    left = max(40.0, letters * _LETTER + 14)
    high = max((bar.value for bar in bars), default=0.0)
    x = Scale(0, high if high > 0 else 1.0, left, _WIDTH - 74)
    parts: list[str] = []
    for at, bar in enumerate(bars):
        top = 6 + at * _BAR
        parts.append(
            f'<g class="mark"><title>{text_of(_bar_hint(bar, text, part_name))}</title>'
            f'<text class="end" x="{left - 8:.1f}" y="{top + 14}">{text_of(bar.label, letters)}</text>'
            f'<rect class="f0" x="{left:.1f}" y="{top + 2}" width="{max(1.0, x(bar.value) - left):.1f}"'
            f' height="{_BAR - 6}" rx="2"/>{_bar_part(bar, x, left, top)}'
            f'<text class="value" x="{x(bar.value) + 6:.1f}" y="{top + 14}">{text_of(text(bar.value))}</text></g>'
        )
    return _svg(title, _WIDTH, 12 + len(bars) * _BAR, parts)


def _bar_part(bar: Bar, x: Scale, left: float, top: int) -> str:
    if bar.part <= 0:
        return ""
    across = max(1.0, x(min(bar.part, bar.value)) - left)
    return f'<rect class="f1" x="{left:.1f}" y="{top + 2}" width="{across:.1f}" height="{_BAR - 6}" rx="2"/>'


def _bar_hint(bar: Bar, text: NumberText, part_name: str) -> str:
    part = f", {text(bar.part)} {part_name}" if part_name else ""
    note = f" · {bar.note}" if bar.note else ""
    return f"{bar.label}: {text(bar.value)}{part}{note}"


# -- heat maps


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    text: NumberText = number_text,
) -> str:
    """One cell for each row and column, the fuller the darker; empty cells are hollow."""
    if not rows or not columns:
        return _nothing(title)
    letters = min(_LABEL_LETTERS, max(len(row) for row in rows))
    left = max(40.0, letters * _LETTER + 14)
    across = (_WIDTH - left - 10) / len(columns)
    high = max((value for line in values for value in line), default=0.0)
    parts: list[str] = []
    for at, (row, line) in enumerate(zip(rows, values, strict=True)):
        top = 4 + at * _CELL
        parts.append(f'<text class="end" x="{left - 8:.1f}" y="{top + 13}">{text_of(row, letters)}</text>')
        for place, (column, value) in enumerate(zip(columns, line, strict=True)):
            parts.append(
                _heat_cell(
                    left + place * across, top, across, value, high, f"{row} · {column}: {text(value)}"
                )
            )
    foot = 4 + len(rows) * _CELL
    parts.append(_column_names(columns, left, across, foot + 14))
    return _svg(title, _WIDTH, foot + 20, parts)


def _heat_cell(x: float, y: float, width: float, value: float, high: float, hint: str) -> str:
    gap = 1.5 if width > 6 else 0.3
    share = 0.0 if high <= 0 or value <= 0 else 0.12 + 0.88 * value / high
    look = f'class="f0" fill-opacity="{share:.3f}"' if share else 'class="hollow"'
    return (
        f'<rect {look} x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width - gap):.1f}" height="{_CELL - 2}" rx="2">'
        f"<title>{text_of(hint)}</title></rect>"
    )


def _column_names(columns: Sequence[str], left: float, across: float, y: float) -> str:
    longest = max(len(column) for column in columns)
    every = max(1, -(-int(longest * _LETTER + 16) // max(1, int(across))))
    return "".join(
        f'<text class="tick" x="{left + at * across:.1f}" y="{y:.1f}">{text_of(column, _LABEL_LETTERS)}</text>'
        for at, column in enumerate(columns)
        if at % every == 0 and left + at * across + len(column) * _LETTER <= left + across * len(columns) + 10
    )


# -- histograms


def histogram(
    title: str,
    edges: Sequence[float],
    counts: Sequence[float],
    *,
    edge_text: NumberText = number_text,
    marks: Sequence[tuple[str, float]] = (),
) -> str:
    """`edges` has one more than `counts`; bins are drawn equally wide. `marks` are named values with a line each."""
    if len(edges) != len(counts) + 1:
        raise ValueError("a histogram has one edge more than bins")
    if not counts:
        return _nothing(title)
    left, head = 58, 22 if marks else 8
    ticks = number_ticks(max(counts))
    y = Scale(0, ticks[-1], _HISTOGRAM_HEIGHT - 26, head)
    across = (_WIDTH - left - 14) / len(counts)
    parts = [_y_axis(ticks, y, left, _WIDTH - 14, number_text)]
    for at, ((low, high), count) in enumerate(zip(pairwise(edges), counts, strict=True)):
        hint = text_of(f"{edge_text(low)} – {edge_text(high)}: {number_text(count)}")
        parts.append(
            f'<rect class="f0" x="{left + at * across + 0.5:.1f}" y="{y(count):.1f}"'
            f' width="{max(0.5, across - 1):.1f}"'
            f' height="{max(0.0, y.start - y(count)):.1f}"><title>{hint}</title></rect>'
        )
    names = [edge_text(edge) for edge in edges[:-1]]
    parts.append(_column_names(names, left, across, _HISTOGRAM_HEIGHT - 10))
    parts += [_histogram_mark(name, value, edges, left, across, head, y.start) for name, value in marks]
    return _svg(title, _WIDTH, _HISTOGRAM_HEIGHT, parts)


def _histogram_mark(
    name: str, value: float, edges: Sequence[float], left: float, across: float, top: float, foot: float
) -> str:
    """Where the value lies among bins that are drawn equally wide."""
    at = next((index for index, high in enumerate(edges[1:]) if value <= high), len(edges) - 2)
    low, high = edges[at], edges[at + 1]
    share = 0.5 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))
    x = left + (at + share) * across
    return (
        f'<path class="rule" d="M{x:.1f} {top:.1f}V{foot:.1f}"/>'
        f'<text class="tick mid" x="{x:.1f}" y="{top - 6:.1f}">{text_of(name)}</text>'
    )


# -- parts


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    name = text_of(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" viewBox="0 0 {width:g} {height:g}">'
        f"{''.join(parts)}</svg>"
    )


def _nothing(title: str, width: int = _WIDTH) -> str:
    return _svg(title, width, 44, [f'<text class="tick mid" x="{width / 2:g}" y="26">nothing to show</text>'])


def _y_axis(ticks: Sequence[float], y: Scale, left: float, right: float, text: NumberText) -> str:
    return "".join(
        f'<path class="{"axis" if tick == 0 else "gridline"}" d="M{left} {y(tick):.1f}H{right}"/>'
        f'<text class="tick end" x="{left - 7}" y="{y(tick) + 4:.1f}">{text_of(text(tick))}</text>'
        for tick in ticks
    )


def _time_axis(x: Scale, foot: float, width: float) -> str:
    span = x.high - x.low
    parts: list[str] = []
    for tick in time_ticks(x.low, x.high, max(2, int((x.end - x.start) / 95))):
        across = x(tick)
        end = "end" if across > width - 40 else "mid" if across > x.start + 20 else ""
        parts.append(
            f'<path class="axis" d="M{across:.1f} {foot:.1f}v4"/>'
            f'<text class="tick {end}" x="{across:.1f}" y="{foot + 17:.1f}">{time_text(tick, span)}</text>'
        )
    return "".join(parts)


Markup = NewType("Markup", str)
_CELL_LETTERS: Final = 240
_NUMBER: Final = ' class="num"'

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def page(title: str, subtitle: str, parts: Sequence[Markup]) -> str:
    name = text_of(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{text_of(_POLICY)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="referrer" content="no-referrer"/>'
        f"<title>{name}</title><style>{_style()}</style></head>\n<body><main><h1>{name}</h1>"
        f'<p class="sub">{text_of(subtitle)}</p>\n{chr(10).join(parts)}\n</main></body></html>\n'
    )


def _style() -> str:
    return files("busway_spark.pipeline").joinpath("page.css").read_text(encoding="utf-8")


def tiles(pairs: Sequence[tuple[str, str]]) -> Markup:
    """Big numbers: (number, what it is)."""
    inner = "".join(
        f'<div class="tile"><b>{text_of(value)}</b><span>{text_of(name)}</span></div>'
        for value, name in pairs
    )
    return Markup(f'<div class="tiles">{inner}</div>')


def notes(sentences: Sequence[str]) -> Markup:
    """What is remarkable; nothing when there is nothing."""
    if not sentences:
        return Markup("")
    return Markup(f'<ul class="notes">{"".join(f"<li>{text_of(each)}</li>" for each in sentences)}</ul>')


def section(title: str, cards: Sequence[Markup], *, small: bool = False) -> Markup:
    if not cards:
        return Markup("")
    return Markup(
        f'<h2>{text_of(title)}</h2><div class="cards{" small" if small else ""}">{"".join(cards)}</div>'
    )


def card(title: str, content: str, explanation: str = "", more: str = "", *, wide: bool = False) -> Markup:
    """`content` and `more` are HTML already: charts and tables of ours."""
    said = f"<p>{text_of(explanation)}</p>" if explanation else ""
    return Markup(
        f'<div class="card{" wide" if wide else ""}"><h3>{text_of(title)}</h3>{said}{content}{more}</div>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """Numbers to the right."""
    numbers = [_is_number(cell) for cell in rows[0]] if rows else [False] * len(heads)
    top = "".join(
        f"<th{_NUMBER if is_number else ''}>{text_of(head)}</th>"
        for head, is_number in zip(heads, numbers, strict=False)
    )
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return Markup(
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def details(summary: str, content: Markup) -> Markup:
    return Markup(f"<details><summary>{text_of(summary)}</summary>{content}</details>")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, int | float) and _is_number(value):
        return f"<td{_NUMBER}>{text_of(f'{value:,}')}</td>"
    return f"<td>{text_of(value, _CELL_LETTERS)}</td>"


def write_whole(path: Path, text: str) -> None:
    """A file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
