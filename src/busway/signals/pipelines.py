"""Which streams read this bus: how far they are, as they report it, and how far behind, as the bus sees it.

Theory of operation. A bus keeps no position for its readers: a stream's is in Spark's checkpoint. So whoever
watches a stream (`busway_spark.watching`) reports it here every few seconds under the stream's name: which
entities it reads, and of each partition the number of the event that it will read next. What the bus knows itself,
where each partition ends, how large and how old its events are, is not in a report: that is looked at when
somebody asks (`LagMeter`), so the lag is right at that moment, also while a stream hangs or its driver is dead.

A report replaces the one before it. One that was not renewed three times in a row is *stale*; an hour after its
last report a pipeline is forgotten, whatever it said. Nothing of this is stored: after a restart of the bus the
next reports bring everything back.

Everything is bounded: pipelines, those of one entity, positions of all together. When all places are taken, the
ended or stale pipeline that was silent for longest makes room; one that lives never does. A name belongs to the
query that reports under it for as long as that lives, so two streams cannot take turns in overwriting each other.

Lag is told in events, in bytes and in seconds. Of a hub that is a matter of numbers. Where each partition ends is
in memory; bytes are those events at the mean size of what the partition holds. Seconds are the age of the event
that is read next: how long it has waited, 0 when there is none. Its time is in the head of its chunk, one small
read of the store; it never changes, so it is read once for each position that a report brings. At most READS_MAX
are made for one question; what is left is told without seconds. Of a queue, a subscription or their dead letters
it is what waits there and is not claimed; its seconds are the age of the oldest message that is there, claimed or
not. Nothing of this fails: what cannot be told (a hub that is gone or was made again, a store that is away) is
told as such.

`PipelineFigures` copies all of it for one scrape.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from busway.broker.namespace.namespace import Queue
from busway.clock import Clock
from busway.message.message import PLACE_SCHEDULED
from busway.model.descriptions import RuntimeCounts
from busway.model.entity_path import EntityAddress, path_key
from busway.model.errors import BrokerError, QuotaExceeded
from busway.signals import metrics as names
from busway.signals.metrics import ExpositionText, labels_text
from busway.store.contract import StoreError
from busway.streams.event_hub import EventHub
from busway.streams.partition_log import PartitionLog

RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
STATES: Final = (RUNNING, STOPPED, FAILED)

PIPELINES_MAX: Final = 1_000
#: Whoever may listen to one entity only cannot take all places.
ENTITY_PIPELINES_MAX: Final = 100
#: Partitions of all sources of all pipelines.
POSITIONS_MAX: Final = 20_000
#: So many times a report may be late.
STALE_AFTER: Final = 3
FORGOTTEN_AFTER_S: Final = 3_600.0


class NameTaken(Exception):
    """Another query that lives reports under this name."""


@dataclass(frozen=True)
class ReadSource:
    """One entity that a stream reads."""

    entity: str
    #: Of a hub; "" elsewhere.
    consumer_group: str = ""
    #: Of a hub: which one of this name the numbers are of. 0: not told.
    created_at_ms: int = 0
    #: Of a hub: partition → number of the event that is read next.
    next_numbers: Mapping[int, int] = field(default_factory=dict)
    #: Of a queue or subscription: messages that the stream's claim holds.
    held: int = 0


@dataclass(frozen=True)
class PipelineReport:
    """What a stream says of itself."""

    #: The same after a restart from its checkpoint.
    query: str
    #: Another one with each start.
    run: str
    state: str = RUNNING
    #: How often it reports.
    every_s: float = 10.0
    sources: tuple[ReadSource, ...] = ()
    batch: int = -1
    #: Since the driver began to watch.
    rows: int = 0
    batches: int = 0
    #: Of the last batch.
    rows_per_s: float = 0.0
    batch_ms: int = 0
    failures: int = 0
    failed_at_ms: int = 0
    #: The last failure, for people.
    sentence: str = ""

    @property
    def positions(self) -> int:
        return sum(len(source.next_numbers) for source in self.sources)

    def entity_keys(self) -> set[str]:
        return {path_key(source.entity) for source in self.sources}


class Pipeline:
    """A name, and the last report under it."""

    __slots__ = ("came_at_s", "event_times", "name", "report", "reported_at_ms")

    def __init__(self, name: str, report: PipelineReport, came_at_s: float, reported_at_ms: int) -> None:
        self.name = name
        self.report = report
        self.came_at_s = came_at_s
        self.reported_at_ms = reported_at_ms
        #: Hub and partition → log, number, and when that event was enqueued, which never changes (`LagMeter`).
        self.event_times: dict[tuple[str, int], tuple[int, int, int]] = {}


class Pipelines:
    """See the head of this file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The one that has been silent for longest comes first.
        self._by_name: dict[str, Pipeline] = {}
        self._of_entity: Counter[str] = Counter()
        self._positions = 0

    # -- asking

    def get(self, name: str) -> Pipeline | None:
        self._forget_old()
        return self._by_name.get(name)

    def all(self) -> list[Pipeline]:
        """By name."""
        self._forget_old()
        return sorted(self._by_name.values(), key=lambda each: each.name)

    def age_s(self, pipeline: Pipeline) -> float:
        """Since its last report."""
        return max(self._clock.monotonic() - pipeline.came_at_s, 0.0)

    def is_stale(self, pipeline: Pipeline) -> bool:
        """It says that it runs, but not often enough."""
        report, now = pipeline.report, self._clock.monotonic()
        return report.state == RUNNING and now - pipeline.came_at_s > STALE_AFTER * report.every_s

    def is_alive(self, pipeline: Pipeline) -> bool:
        return pipeline.report.state == RUNNING and not self.is_stale(pipeline)

    # -- reporting

    def put(self, name: str, report: PipelineReport) -> Pipeline:
        """Raises NameTaken, QuotaExceeded; what was known stays then."""
        self._forget_old()
        known = self._by_name.get(name)
        if known is not None and known.report.query != report.query and self.is_alive(known):
            raise NameTaken
        self._make_room(report, known)
        fresh = Pipeline(name, report, self._clock.monotonic(), self._clock.wall_ms())
        if known is not None:
            if known.report.entity_keys() == report.entity_keys():  # else it might grow
                fresh.event_times = known.event_times
            self._drop(known)
        self._add(fresh)
        return fresh

    def delete(self, name: str) -> bool:
        """False when there is none."""
        known = self._by_name.get(name)
        if known is not None:
            self._drop(known)
        return known is not None

    def clear(self) -> None:
        """The bus is as new."""
        self._by_name.clear()
        self._of_entity.clear()
        self._positions = 0

    def _make_room(self, report: PipelineReport, known: Pipeline | None) -> None:
        """For a report that takes the place of `known`."""
        before = set[str]() if known is None else known.report.entity_keys()
        for key in report.entity_keys() - before:
            if self._of_entity[key] >= ENTITY_PIPELINES_MAX and not self._drop_silent(known, key):
                raise QuotaExceeded(f"At most {ENTITY_PIPELINES_MAX} pipelines report about one entity.")
        more = report.positions - (0 if known is None else known.report.positions)
        while self._is_full(known) or self._positions + more > POSITIONS_MAX:
            if self._drop_silent(known):
                continue
            if self._is_full(known):
                raise QuotaExceeded(f"At most {PIPELINES_MAX} pipelines are known at once.")
            raise QuotaExceeded(f"All pipelines together report about at most {POSITIONS_MAX} partitions.")

    def _is_full(self, known: Pipeline | None) -> bool:
        return known is None and len(self._by_name) >= PIPELINES_MAX

    def _drop_silent(self, known: Pipeline | None, key: str | None = None) -> bool:
        """The one that was silent for longest, of those that do not live, and are about this entity. False when
        there is none but `known`."""
        for each in self._by_name.values():
            is_about = key is None or key in each.report.entity_keys()
            if is_about and each is not known and not self.is_alive(each):
                self._drop(each)
                return True
        return False

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        while self._by_name:
            oldest = next(iter(self._by_name.values()))
            if now - oldest.came_at_s <= FORGOTTEN_AFTER_S:
                return
            self._drop(oldest)

    def _add(self, pipeline: Pipeline) -> None:
        self._by_name[pipeline.name] = pipeline
        self._of_entity.update(pipeline.report.entity_keys())
        self._positions += pipeline.report.positions

    def _drop(self, pipeline: Pipeline) -> None:
        del self._by_name[pipeline.name]
        for key in pipeline.report.entity_keys():
            self._of_entity[key] -= 1
            if self._of_entity[key] <= 0:
                del self._of_entity[key]
        self._positions -= pipeline.report.positions


READS_MAX: Final = 500

MISSING: Final = "there is no such entity"
MADE_AGAIN: Final = "it was deleted and made again since the stream read it"
AWAY: Final = "its store is away"


class ReadNamespace(Protocol):
    """The part of the namespace that is looked at."""

    def queue(self, path: str) -> Queue: ...
    async def counts(self, path: str) -> RuntimeCounts: ...


class ReadHubs(Protocol):
    """The part of the event hubs that is looked at."""

    def exists(self, path: str) -> bool: ...
    def hub(self, path: str) -> EventHub: ...


@dataclass(frozen=True)
class PartitionLag:
    #: "" for what has none.
    partition: str
    #: -1 for what has no positions.
    next_number: int = -1
    events: int = 0
    bytes: int = 0
    #: None: not known.
    seconds: float | None = None
    #: Events that retention took before they were read.
    lost: int = 0


@dataclass(frozen=True)
class SourceLag:
    source: ReadSource
    partitions: list[PartitionLag] = field(default_factory=list)
    #: Why some or all of it is not told.
    problem: str = ""

    @property
    def events(self) -> int:
        return sum(each.events for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def seconds(self) -> float | None:
        known = [each.seconds for each in self.partitions if each.seconds is not None]
        return max(known) if known else None


class Reads:
    """How many reads a question may still make."""

    def __init__(self, count: int = READS_MAX) -> None:
        self._left = count

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


class LagMeter:
    def __init__(self, namespace: ReadNamespace, hubs: ReadHubs | None, clock: Clock) -> None:
        self._namespace = namespace
        self._hubs = hubs
        self._clock = clock

    async def of(self, pipeline: Pipeline, reads: Reads) -> list[SourceLag]:
        """In the order of its sources."""
        return [await self._of_source(pipeline, source, reads) for source in pipeline.report.sources]

    async def _of_source(self, pipeline: Pipeline, source: ReadSource, reads: Reads) -> SourceLag:
        if self._hubs is not None and self._hubs.exists(source.entity):
            return await self._of_hub(pipeline, source, self._hubs.hub(source.entity), reads)
        if source.next_numbers:
            return SourceLag(source, [], MISSING)
        try:
            return await self._of_queue(source, reads)
        except BrokerError:
            return SourceLag(source, [], MISSING)

    # -- hubs

    async def _of_hub(self, pipeline: Pipeline, source: ReadSource, hub: EventHub, reads: Reads) -> SourceLag:
        if source.created_at_ms and source.created_at_ms != hub.description.created_at_ms:
            return SourceLag(source, [], MADE_AGAIN)
        found: list[PartitionLag] = []
        for index in range(hub.partition_count):
            log = hub.present_partition(index)
            if log is not None and log.is_usable():
                found.append(await self._of_partition(pipeline, source, log, reads))
        return SourceLag(source, found, AWAY if len(found) < hub.partition_count else "")

    async def _of_partition(
        self, pipeline: Pipeline, source: ReadSource, log: PartitionLog, reads: Reads
    ) -> PartitionLag:
        # A partition that came to the hub later is read from its first event.
        number = source.next_numbers.get(log.index, 0)
        info = log.info()
        end = info.last_number + 1
        first = max(number, end if info.is_empty else info.begin_number)
        events = min(max(end - first, 0), info.events)  # compaction leaves gaps
        return PartitionLag(
            str(log.index),
            number,
            events,
            events * info.bytes // info.events if info.events else 0,
            await self._seconds(pipeline, source, log, first, reads) if events else 0.0,
            max(first - number, 0) if number < end else 0,
        )

    async def _seconds(
        self, pipeline: Pipeline, source: ReadSource, log: PartitionLog, number: int, reads: Reads
    ) -> float | None:
        place = (path_key(source.entity), log.index)
        *known, at_ms = pipeline.event_times.get(place, (-1, -1, 0))
        if known != [log.key, number]:
            found = await _enqueued_at_ms(log, number) if reads.take() else None
            if found is None:
                return None
            at_ms = found
            pipeline.event_times[place] = (log.key, number, at_ms)
        return max(self._clock.wall_ms() - at_ms, 0) / 1000

    # -- queues and subscriptions

    async def _of_queue(self, source: ReadSource, reads: Reads) -> SourceLag:
        """Raises BrokerError."""
        address = EntityAddress.parse(source.entity)
        counts = await self._namespace.counts(address.path)
        if counts.availability == "Unknown":
            return SourceLag(source, [], AWAY)
        waiting = counts.dead_letter if address.dead_letter else counts.active
        size = counts.size_bytes * waiting // counts.total if counts.total else 0
        is_idle = waiting == 0 and source.held == 0
        seconds = 0.0 if is_idle else await self._oldest_s(address, reads)
        return SourceLag(source, [PartitionLag("", -1, waiting, size, seconds)])

    async def _oldest_s(self, address: EntityAddress, reads: Reads) -> float | None:
        """By the store itself: a look by somebody who peeks would count as use of the entity (E-111). Raises
        BrokerError."""
        outlet = self._namespace.queue(address.path).outlet(address.dead_letter)
        times_ms: list[int] = []
        for fragment in outlet.fragments():
            if not reads.take():
                return None
            try:
                page = await fragment.store.peek(fragment.key, 0, 1, 1, None)
            except StoreError:
                continue
            times_ms += [each.enqueued_at_ms for each in page.messages if each.state != PLACE_SCHEDULED]
        return max(self._clock.wall_ms() - min(times_ms), 0) / 1000 if times_ms else None


async def _enqueued_at_ms(log: PartitionLog, number: int) -> int | None:
    try:
        heads = await log.store.chunk_heads(log.key, number, 1)
    except StoreError:
        return None
    return heads[0].first_at_ms if heads else None


_PIPELINE: Final = ("pipeline",)
_PARTITION: Final = ("pipeline", "entity", "consumer_group", "partition")


@dataclass(frozen=True)
class MeasuredPipelines:
    table: Pipelines
    meter: LagMeter


class PipelineFigures:
    """The figures of pipelines, copied for one scrape."""

    def __init__(self) -> None:
        #: In the order of PIPELINE_METRICS.
        self._pipelines: list[tuple[str, list[float]]] = []
        #: Labels' values; events, bytes, seconds.
        self._partitions: list[tuple[list[str], tuple[float, float, float | None]]] = []

    async def copy(self, measured: MeasuredPipelines) -> None:
        table, reads = measured.table, Reads()
        for pipeline in table.all():
            report = pipeline.report
            self._pipelines.append(
                (
                    pipeline.name,
                    [
                        table.is_alive(pipeline),
                        table.age_s(pipeline),
                        report.rows,
                        report.rows_per_s,
                        report.batch_ms / 1000,
                        report.failures,
                    ],
                )
            )
            for lag in await measured.meter.of(pipeline, reads):
                self._copy_lag(pipeline.name, lag)
            await asyncio.sleep(0)

    def _copy_lag(self, name: str, lag: SourceLag) -> None:
        for each in lag.partitions:
            labels = [name, lag.source.entity, lag.source.consumer_group, each.partition]
            self._partitions.append((labels, (each.events, each.bytes, each.seconds)))

    def write(self, text: ExpositionText) -> None:
        labelled = [(labels_text(_PIPELINE, [name]), values) for name, values in self._pipelines]
        for place, metric in enumerate(names.PIPELINE_METRICS):
            text.add(metric, [(labels, values[place]) for labels, values in labelled])
        partitions = [(labels_text(_PARTITION, labels), values) for labels, values in self._partitions]
        for place, metric in enumerate(names.PIPELINE_LAG_METRICS):
            known = [(labels, values[place]) for labels, values in partitions]
            text.add(metric, [(labels, value) for labels, value in known if value is not None])
