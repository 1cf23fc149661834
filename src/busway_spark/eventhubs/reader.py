"""Batch reading of a hub: positions and filters become ranges on the driver, ranges become rows on executors.

Filters that Spark hands down become bounds of what must be read (`ReadBounds`). Spark applies the filters to the rows
once more, so bounds may be wider than filters, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from busway.client.service_bus_client import ServiceBusClient
from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS
from busway_spark.eventhubs.facts import HubFacts, PartitionFacts, ask_hub
from busway_spark.eventhubs.offsets import EventRange, PositionFinder, split
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.ranges import RangePartition, read_range, transport_of
from busway_spark.wire.bridge import ask
from busway_spark.wire.bus import BUSWAY, failing

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


class EventHubsReader(DataSourceReader):
    def __init__(self, options: EventHubsOptions, names: Sequence[str] = ALL_COLUMNS.names) -> None:
        self._options = options
        self._names = tuple(names)
        self._bounds = ReadBounds()
        if options.pushes_filters:
            vars(self)["pushFilters"] = _TakenFilters(self._bounds)

    def partitions(self) -> list[InputPartition]:
        with failing(f"find the events of the hub '{self._options.hub}'"):
            is_busway = self._options.bus.kind(self._options.operation_s) == BUSWAY
            hub, ranges = ask(
                self._options.bus,
                self._options.operation_s,
                lambda client: self._ranges(client, is_busway=is_busway),
            )
        transport = transport_of(self._options)
        pieces = split(ranges, self._options.min_partitions)
        return [RangePartition(piece, transport, hub.created_at_ms) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition, self._names)

    async def _ranges(
        self, client: ServiceBusClient, *, is_busway: bool
    ) -> tuple[HubFacts, list[EventRange]]:
        options = self._options
        hub = await ask_hub(client, options.bus, options.hub)
        finder = PositionFinder(client, options.hub, options.consumer_group, options.receiver_timeout_s)
        wanted = [facts for name, facts in hub.partitions.items() if self._bounds.wants(name)]
        return hub, [await self._range(finder, facts, is_busway=is_busway) for facts in wanted]

    async def _range(self, finder: PositionFinder, facts: PartitionFacts, *, is_busway: bool) -> EventRange:
        options, bounds = self._options, self._bounds
        first = await finder.number_at(options.start_of(facts.partition), facts)
        end = await finder.number_at(options.end_of(facts.partition), facts)
        firsts, ends = [first, facts.first_number], [end, facts.next_number]
        limits = [bounds.numbers]
        if is_busway:
            limits.append(bounds.offsets)
        for low, high in limits:
            firsts += [] if low is None else [low]
            ends += [] if high is None else [high + 1]
        low, high = bounds.times_ms
        if low is not None:
            firsts.append(await finder.number_since(low, facts))
        if high is not None:
            ends.append(await finder.number_since(high + 1, facts))
        return EventRange(facts.partition, max(firsts), min(ends))


class _TakenFilters:
    """Takes the filters that a session hands down: they shrink the ranges, and Spark keeps all of them.

    A session that hands none down (`spark.sql.python.filterPushdown.enabled` is false) refuses a reader that could
    take some, so that nobody waits for filters in vain. Nothing depends on them here, so the reader looks to such a
    session as if it had left Spark's own method alone."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, bounds: ReadBounds) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds.take_all(filters)
        return filters
