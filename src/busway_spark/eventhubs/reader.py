"""Reading a hub, in batches and as a stream: the driver plans ranges, executors make rows of them.

In a batch positions and filters become ranges. Filters that Spark hands down become bounds of what must be read
(`ReadBounds`). Spark applies the filters to the rows once more, so bounds may be wider than filters, never
narrower.

Theory of operation of a stream. Its reader lives in one process on the driver for the life of the query; `read`
runs on executors. Everything that counts is in the offsets (`offsets`), which Spark writes to its checkpoint
before a batch is read: a batch that is planned again after a crash has the same ranges and gets the same events,
the first one too, whose beginning is in its end. The server keeps no position for us, and `commit` has nothing to
do.

What is lost is looked for when a batch is planned, and by each task that gets fewer events than its range has.

Spark asks a source without end, a hundred times a second where there is nothing new. So a question about a hub of
which nothing is new is put to the server with what is known, and the server waits for news before it answers
(`gateway.http.hubs.partitions_route`): one request a second on a connection that is kept. Servers that cannot wait
(Azure) are asked, and once more after as long a pause. Spark asks the sources of a query one after the other, so
each that waits holds up the others. Therefore only a source of a query that did nothing since its last question
waits: while others bring batches, `commit` comes between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
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
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from busway.client.errors import Refused
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.eventhubs.offsets import (
    END,
    DataLoss,
    EventRange,
    HubFacts,
    HubOffset,
    Json,
    PartitionFacts,
    PositionFinder,
    ask_hub,
    limited,
    read_hub,
    split,
)
from busway_spark.eventhubs.options import (
    ALL_COLUMNS,
    BULK,
    EVENTS_PER_PARTITION,
    STARTING_POSITION,
    BadOption,
    EventHubsOptions,
)
from busway_spark.eventhubs.ranges import AmqpReader, BulkReader, RangePartition, read_range, transport_of
from busway_spark.wire.bus import BUSWAY, ask, failing
from busway_spark.wire.http_client import HttpClient

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


#: About how large an event is where none came to tell.
_EVENT_BYTES_GUESS = 1024.0


class HubWatch:
    """Of one stream, on the driver."""

    def __init__(self, options: EventHubsOptions) -> None:
        self._options = options
        self._http = HttpClient(options.bus, options.hub, options.operation_s)
        self._target = "/" + "/".join(quote(part, safe="") for part in options.hub.split("/")) + "/partitions"

    def look(self) -> HubFacts:
        """As it is now. Raises ClientError."""
        if self._options.bus.kind(self._options.operation_s) != BUSWAY:
            return self._read()
        return self._facts(self._http.get(self._target))

    def wait(self, known: HubFacts) -> HubFacts:
        """As soon as something is new, or after a while. Raises ClientError."""
        wait_s = self._options.idle_wait_s
        if self._options.bus.kind(self._options.operation_s) == BUSWAY:
            numbers = ",".join(str(facts.next_number) for facts in known.partitions.values())
            return self._facts(
                self._http.get(f"{self._target}?known={numbers}&wait={wait_s:.3f}", wait_s=wait_s)
            )
        found = self._read()
        if found.partitions == known.partitions and found.created_at_ms == known.created_at_ms:
            time.sleep(wait_s)
            found = self._read()
        return found

    def _read(self) -> HubFacts:
        return read_hub(self._options.bus, self._options.hub, operation_s=self._options.operation_s)

    def _facts(self, text: bytes) -> HubFacts:
        try:
            told: dict[str, Any] = json.loads(text)
            partitions = {
                str(index): PartitionFacts(
                    str(index),
                    int(each["first"]),
                    int(each["next"]),
                    each["lastOffset"],
                    int(each["lastAtMs"]),
                )
                for index, each in enumerate(told["partitions"])
            }
            return HubFacts(self._options.hub, int(told["createdAtMs"]), len(partitions), partitions)
        except (ValueError, KeyError, TypeError):
            raise Refused("The server's answer about a hub cannot be read.") from None


class EventHubsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: EventHubsOptions, names: Sequence[str] = ALL_COLUMNS.names) -> None:
        self._options = options
        self._names = tuple(names)
        self._watch = HubWatch(options)
        #: What the last `latestOffset` saw, if it found nothing new and no batch was committed since.
        self._idle: HubFacts | None = None
        #: With availableNow: where the query ends.
        self._target: HubOffset | None = None
        #: The hub as the last `latestOffset` saw it, for the batch that is planned next.
        self._seen: HubFacts | None = None
        self._reported: Json | None = None
        #: What Spark was told when it found no offset in its checkpoint.
        self._beginning: HubOffset | None = None

    # -- offsets

    def initialOffset(self) -> Json:
        with failing(f"find where the hub '{self._options.hub}' begins"):
            options = self._options
            self._beginning = ask(options.bus, options.operation_s, self._initial)
        return self._beginning.to_json()

    async def _initial(self, client: ServiceBusClient) -> HubOffset:
        options = self._options
        hub = await ask_hub(client, options.bus, options.hub)
        finder = PositionFinder(client, options.hub, options.consumer_group, options.receiver_timeout_s)
        numbers = {name: await self._first(finder, facts) for name, facts in hub.partitions.items()}
        return HubOffset(options.hub, hub.created_at_ms, numbers)

    async def _first(self, finder: PositionFinder, facts: PartitionFacts) -> int:
        number = await finder.number_at(self._options.start_of(facts.partition, END), facts)
        if number > facts.next_number:
            raise BadOption(
                STARTING_POSITION,
                f"partition {facts.partition} ends before event {facts.next_number}, so {number} cannot be first.",
            )
        return max(number, facts.first_number)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_events is not None:
            return ReadMaxRows(options.max_events)
        return ReadMaxRows(EVENTS_PER_PARTITION * len(self._hub().partitions))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _end_of(self._hub())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        hub = self._hub() if self._idle is None else self._news(self._idle)
        self._seen, self._idle = hub, None
        end = _end_of(hub)
        self._reported = {
            **end.to_json(),
            "consumerGroup": self._options.consumer_group,
            "bus": self._options.bus.target.authority,
        }
        before = HubOffset.of_json(start)
        firsts = self._firsts(before, hub)
        ends = {name: max(self._reachable(name, hub, end), first) for name, first in firsts.items()}
        numbers = self._limited(firsts, ends, limit)
        if before.is_of(hub) and before.next_numbers == numbers:
            if self._target is None and numbers == end.next_numbers and self._options.idle_wait_s > 0:
                self._idle = hub
            return start  # in every word: else Spark would take it for something new
        begin = firsts if before == self._beginning else None
        return HubOffset(self._options.hub, hub.created_at_ms, numbers, begin).to_json()

    def _hub(self) -> HubFacts:
        with failing(f"ask how far the hub '{self._options.hub}' is"):
            return self._watch.look()

    def _news(self, known: HubFacts) -> HubFacts:
        with failing(f"wait for events of the hub '{self._options.hub}'"):
            return self._watch.wait(known)

    def reportLatestOffset(self) -> Json | None:
        """The hub's end: what Spark shows beside the end of a batch, so that the difference is the lag."""
        return self._reported

    def _reachable(self, partition: str, hub: HubFacts, end: HubOffset) -> int:
        """Not behind the target of availableNow; a hub that was made again is no longer the one it was set for."""
        number = end.next_numbers[partition]
        if self._target is None:
            return number
        if not self._target.is_of(hub):
            return hub.partitions[partition].first_number
        return min(number, self._target.number_of(partition))

    def _limited(self, firsts: dict[str, int], ends: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if isinstance(limit, ReadMaxRows):
            return limited(firsts, ends, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            waiting = [EventRange(name, firsts[name], number) for name, number in ends.items()]
            return limited(firsts, ends, max(1, int(limit.max_bytes / self._event_bytes(waiting))))
        if not isinstance(limit, ReadAllAvailable):
            raise ValueError(f"The limit {type(limit).__name__} is not one that a hub can be read by.")
        return ends

    def _event_bytes(self, waiting: list[EventRange]) -> float:
        """The mean over the partitions, each by the events that come next, weighted by how many wait."""
        options, filled = self._options, [one for one in waiting if one.count]
        if not filled:
            return _EVENT_BYTES_GUESS
        with failing(f"ask how large the events of the hub '{options.hub}' are"):
            if transport_of(options) != BULK:
                amqp = AmqpReader(
                    options.bus,
                    options.hub,
                    options.consumer_group,
                    options.receiver_timeout_s,
                    options.operation_s,
                )
                return amqp.event_bytes(filled) or _EVENT_BYTES_GUESS
            bulk = BulkReader(options.bus, options.hub, options.operation_s)
            total = sum(one.count * (bulk.event_bytes(one) or _EVENT_BYTES_GUESS) for one in filled)
        return total / sum(one.count for one in filled)

    # -- loss

    def _firsts(self, start: HubOffset, hub: HubFacts) -> dict[str, int]:
        """Where reading goes on in each partition. Raises DataLoss when events before that are gone."""
        start.check_hub(self._options.hub)
        if not start.is_of(hub):
            self._lost(DataLoss.by_creation(self._options.hub))
            return {name: facts.first_number for name, facts in hub.partitions.items()}
        return {name: self._go_on(start.number_of(name), facts) for name, facts in hub.partitions.items()}

    def _go_on(self, number: int, facts: PartitionFacts) -> int:
        name = self._options.hub
        if number < facts.first_number:
            self._lost(DataLoss.by_retention(name, facts.partition, number, facts.first_number))
            return facts.first_number
        if number > facts.next_number:
            self._lost(DataLoss.by_rewind(name, facts.partition, number, facts.next_number))
            return facts.next_number
        return number

    def _lost(self, loss: DataLoss) -> None:
        if self._options.fails_on_data_loss:
            raise loss

    # -- batches

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        options = self._options
        seen, self._seen = self._seen, None
        hub = seen if seen is not None else self._hub()
        until = HubOffset.of_json(end)
        if not until.is_of(hub):
            self._lost(DataLoss.by_creation(options.hub))
            return []
        before = HubOffset.of_json(start)
        if until.begin is not None:
            before = HubOffset(until.hub, until.created_at_ms, until.begin)
        firsts = self._firsts(before, hub)
        ranges = [EventRange(name, firsts[name], until.number_of(name)) for name in firsts]
        transport = transport_of(options)
        pieces = split(ranges, options.min_partitions)
        return [RangePartition(piece, transport, hub.created_at_ms) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition, self._names)

    def commit(self, end: Json) -> None:  # noqa: ARG002
        """The server keeps no position for us. The query has done something: the next question does not wait."""
        self._idle = None

    def stop(self) -> None:
        """Connections are kept for the process; `latestOffset` returns within `idleWait`."""


def _end_of(hub: HubFacts) -> HubOffset:
    numbers = {name: facts.next_number for name, facts in hub.partitions.items()}
    return HubOffset(hub.name, hub.created_at_ms, numbers)
