"""How far a pipeline is behind, looked at when somebody asks: in events, in bytes and in seconds.

Of a hub that is a matter of numbers. Where each partition ends is in memory; bytes are those events at the mean size
of what the partition holds. Seconds are the age of the event that is read next: how long it has waited, 0 when there
is none. Its time is in the head of its chunk, one small read of the store; it never changes, so it is read once for
each position that a report brings. At most READS_MAX are made for one question; what is left is told without seconds.

Of a queue, a subscription or their dead letters it is what waits there and is not claimed; its seconds are the age of
the oldest message that is there, claimed or not.

Nothing here fails: what cannot be told (a hub that is gone or was made again, a store that is away) is told as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from busway.broker.namespace.namespace import Queue
from busway.clock import Clock
from busway.message.message import PLACE_SCHEDULED
from busway.model.descriptions import RuntimeCounts
from busway.model.entity_path import EntityAddress, path_key
from busway.model.errors import BrokerError
from busway.signals.pipelines import Pipeline, ReadSource
from busway.store.contract import StoreError
from busway.streams.event_hub import EventHub
from busway.streams.partition_log import PartitionLog

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
