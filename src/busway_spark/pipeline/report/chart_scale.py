"""Scales of charts: from values to places, and the round values that an axis names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
#: Steps of an axis of time, in seconds: people count in these.
_TIME_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
)  # fmt: skip
_DAY_S: Final = 86_400
_TIMES_MAX: Final = 400
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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


def number_ticks(high: float, count: int = 4) -> list[float]:
    """Round values from 0 up to at least `high`, about so many steps."""
    if not math.isfinite(high) or high <= 0:
        return [0.0, 1.0]
    rough = high / count
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
