"""Filters that Spark hands down, as bounds of what must be read. Spark applies the filters to the rows once more, so
bounds may be wider than filters, never narrower."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_MS: Final = 1000

#: A lowest and a highest value, both included; None where there is none.
Bounds = tuple[int | None, int | None]


@dataclass
class ReadBounds:
    """What is left to read when all filters hold."""

    partitions: set[str] | None = None
    numbers: Bounds = (None, None)
    times_ms: Bounds = (None, None)
    #: Only where offsets are numbers.
    offsets: Bounds = (None, None)

    def take_all(self, filters: Iterable[Filter]) -> None:
        for one in filters:
            self._take(one)

    def _take(self, one: Filter) -> None:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        column = attribute[0].lower() if len(attribute) == 1 else ""
        if column == "partition":
            self._take_partition(one)
        elif column == "sequencenumber":
            self.numbers = _both(self.numbers, _bounds(one, _whole))
        elif column == "enqueuedtime":
            self.times_ms = _both(self.times_ms, _time_bounds(one))
        elif column == "offset" and isinstance(one, EqualTo | EqualNullSafe | In):
            # Texts are compared as texts: only equality means the same for numbers.
            self.offsets = _both(self.offsets, _bounds(one, _digits))

    def _take_partition(self, one: Filter) -> None:
        if isinstance(one, EqualTo | EqualNullSafe):
            wanted = {one.value}
        elif isinstance(one, In):
            wanted = set(one.value)
        else:
            return
        names = {str(name) for name in wanted if name is not None}
        self.partitions = names if self.partitions is None else self.partitions & names

    def wants(self, partition: str) -> bool:
        return self.partitions is None or partition in self.partitions


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _digits(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _us(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _time_bounds(one: Filter) -> Bounds:
    """Events have whole milliseconds: a bound between two of them goes to the wider one."""
    low, high = _bounds(one, _us)
    return None if low is None else low // _US_PER_MS, None if high is None else -(-high // _US_PER_MS)


def _bounds(one: Filter, number: Callable[[object], int | None]) -> Bounds:
    if isinstance(one, In):
        read = [number(value) for value in one.value if value is not None]
        found = [value for value in read if value is not None]
        return (min(found), max(found)) if found and len(found) == len(read) else (None, None)
    value = number(getattr(one, "value", None))
    if value is None:
        return None, None
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return value + (1 if isinstance(one, GreaterThan) else 0), None
    if isinstance(one, LessThan | LessThanOrEqual):
        return None, value - (1 if isinstance(one, LessThan) else 0)
    return None, None


def _both(first: Bounds, second: Bounds) -> Bounds:
    lows = [low for low in (first[0], second[0]) if low is not None]
    highs = [high for high in (first[1], second[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)
