"""Batch reading of a hub: positions and filters become ranges on the driver, ranges become rows on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from busway.client.service_bus_client import ServiceBusClient
from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS
from busway_spark.eventhubs.facts import HubFacts, PartitionFacts, ask_hub
from busway_spark.eventhubs.filters import ReadBounds
from busway_spark.eventhubs.offsets import EventRange, split
from busway_spark.eventhubs.options import EventHubsOptions
from busway_spark.eventhubs.positions import PositionFinder
from busway_spark.eventhubs.ranges import RangePartition, read_range, transport_of
from busway_spark.wire.bridge import asked
from busway_spark.wire.bus import BUSWAY, failing


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
            hub, ranges = asked(
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
