"""One partition of an event hub: an append-only log in one store.

Theory of operation. Appending is one step, as in a fragment: take the store's open batch, give out numbers and one
time, bake the records, lay them into the chunk that this log has in that batch, count. Nothing suspends between, so
memory and batch tell the same story. All appends of one batch share one chunk (several once it is large), one
callback and one waking of readers; each has its own `done`.

`counters.next_number` is the number that comes next, joined events included; `durable_end` is behind the last event
whose commit was reported. Readers see nothing beyond it, and neither does `info`. Times never go back: not with the
wall clock, and not over restarts, because the latest one is in the counters.

When a commit fails memory is worth nothing: the log closes, everybody is evicted, and the owner makes another one
from what the store has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.runtime import BrokerRuntime, broker_error
from busway.message.event_chunk import Chunk, ChunkBuilder, ChunkDamaged
from busway.message.event_record import Event, FrontWriter
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    EventsLost,
    MessageTooLarge,
    QuotaExceeded,
    ServerBusy,
)
from busway.model.limits import Limits
from busway.store.contract import (
    ChunkPage,
    CommitBatch,
    Counters,
    FragmentKey,
    LogChanges,
    LogCounters,
    ProducerRow,
    Store,
    StoreError,
    StoreState,
    StoreUnavailable,
)
from busway.streams.cursor import LATEST, NUMBER, START, Cursor, Cursors, EventReader, Position, Readers
from busway.streams.producers import Producer, ProducerBook
from busway.streams.retention import Retention

if TYPE_CHECKING:
    from busway.streams.hub_descriptions import EventHubDescription

_log = logging.getLogger(__name__)

#: One callback for each append: None once it is durable.
AppendDone = Callable[[BrokerError | None], None]

#: A chunk with so many bytes of records takes no more.
CHUNK_BYTES_MAX: Final = 1024 * 1024
#: Reads of a page for somebody who can ask again.
_PAGE_TRIES: Final = 2
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


class LogSettings:
    """The part of a hub's description that a log works by."""

    __slots__ = (
        "allows_receive",
        "allows_send",
        "bytes_max",
        "compaction_lag_ms",
        "compacts",
        "event_bytes_max",
        "path",
        "retention_ms",
        "tombstone_ms",
    )

    def __init__(self, description: EventHubDescription, limits: Limits) -> None:
        retention = description.retention
        self.path = description.path
        self.event_bytes_max = limits.event_bytes_max
        self.allows_send = description.status not in ("Disabled", "SendDisabled")
        self.allows_receive = description.status not in ("Disabled", "ReceiveDisabled")
        deletes = retention.cleanup_policy != "Compact" and retention.retention_hours >= 0
        #: -1 = for ever.
        self.retention_ms = retention.retention_hours * _HOUR_MS if deletes else -1
        #: 0 = no bound.
        self.bytes_max = retention.partition_bytes_max
        self.compacts = retention.cleanup_policy != "Delete"
        self.tombstone_ms = retention.tombstone_retention_hours * _HOUR_MS
        self.compaction_lag_ms = retention.min_compaction_lag_minutes * _MINUTE_MS


class LogInfo:
    """What is known of a log without a look into the store (H-27). Durable events only."""

    __slots__ = (
        "begin_number",
        "bytes",
        "events",
        "is_empty",
        "last_at_ms",
        "last_number",
        "last_offset",
    )

    def __init__(
        self,
        begin_number: int,
        last_number: int,
        last_at_ms: int,
        is_empty: bool,
        events: int,
        size_bytes: int,
    ) -> None:
        #: -1 when it was never used; the next number when everything has left.
        self.begin_number = begin_number
        #: -1 when it was never used.
        self.last_number = last_number
        self.last_offset = str(last_number)
        #: 0 when it was never used.
        self.last_at_ms = last_at_ms
        self.is_empty = is_empty
        self.events = events
        self.bytes = size_bytes


class AppendedRun:
    """What one log has in one batch, until that is durable."""

    __slots__ = ("builders", "end_number", "last_at_ms", "log", "noted", "waiting")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        #: The last one is gathering.
        self.builders: list[ChunkBuilder] = []
        self.end_number = 0
        self.last_at_ms = 0
        #: (done, events, their bytes, when they came)
        self.waiting: list[tuple[AppendDone, int, int, float]] = []
        #: For the journal: (number of the first, their time, the events).
        self.noted: list[tuple[int, int, list[Event]]] = []

    def committed(self, error: StoreError | None) -> None:
        log = self.log
        log.run_ended(self)
        if error is None:
            log.committed(self)
            return
        self.tell(broker_error(error))
        log.commit_failed(error)

    def tell(self, outcome: BrokerError | None) -> None:
        """One that fails is a bug of its owner and must not keep the others uninformed."""
        for done, _, _, _ in self.waiting:
            try:
                done(outcome)
            except Exception:
                _log.exception("The answer to a publisher failed.")


class PartitionLog:
    """See the head of this file."""

    __slots__ = (
        "_batch",
        "_durable_at_ms",
        "_run",
        "counters",
        "cursors",
        "durable_end",
        "flow",
        "index",
        "is_closed",
        "key",
        "name",
        "producers",
        "readers",
        "retention",
        "runtime",
        "settings",
        "store",
    )

    def __init__(
        self,
        key: FragmentKey,
        index: int,
        counters: Counters,
        store: Store,
        description: EventHubDescription,
        runtime: BrokerRuntime,
    ) -> None:
        self.key = key
        self.index = index
        self.counters = LogCounters(counters)
        self.store = store
        self.runtime = runtime
        self.settings = LogSettings(description, runtime.limits)
        #: For sentences.
        self.name = log_name(description.path, index)
        self.flow = runtime.flows.of_fragment(description.path)
        self.is_closed = False
        self.durable_end = self.counters.next_number
        self._durable_at_ms = self.counters.latest_ms
        self.readers = Readers(runtime.limits.readers_per_group_max)
        self.producers = ProducerBook(self)
        self.retention = Retention(self)
        #: The batch that `_run` is in, while it is open.
        self._batch: CommitBatch | None = None
        self._run: AppendedRun | None = None
        self.cursors = Cursors(self.name, runtime)

    # -- life

    def start(self) -> None:
        """Once: sets up what time must bring."""
        self.retention.start()

    def is_usable(self) -> bool:
        return not self.is_closed and self.store.state is StoreState.OPEN

    def replace_description(self, description: EventHubDescription) -> None:
        self.settings = LogSettings(description, self.runtime.limits)
        self.retention.settings_changed()

    def close(self, error: BrokerError) -> None:
        """The store failed or the hub is gone: readers are evicted, appends refused from now on. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self.retention.stop()
        self.evict(error)
        self.cursors.tell_watchers()

    def evict(self, error: BrokerError) -> None:
        """Every reader, once."""
        readers = dict.fromkeys(self.readers.all())
        for reader in self.cursors.close():
            readers[reader] = None
        self.readers.clear()
        for reader in readers:
            reader.evict(error)

    def commit_failed(self, error: StoreError) -> None:
        """Called by whatever waited for a commit that failed."""
        if not self.is_closed:
            self.close(broker_error(error))
            self.runtime.store_failed(self.store, error)

    def batch(self) -> CommitBatch:
        """The store's open batch. Raises ServerBusy while there is none."""
        if self.is_closed:
            raise self._away()
        try:
            return self.store.batch()
        except StoreUnavailable:
            raise self._away() from None

    def watch(self, batch: CommitBatch) -> None:
        """Something of this log has joined that nobody waits for; only its failure matters."""
        batch.counters[self.key] = self.counters.row
        batch.callbacks.append(self._written)

    def _written(self, error: StoreError | None) -> None:
        if error is not None:
            self.commit_failed(error)

    async def durable(self) -> None:
        """Returns when everything joined so far is durable. Raises ServerBusy, StoreOutcomeUnknown."""
        try:
            await self.store.flush()
        except StoreError as error:
            self.commit_failed(error)
            raise broker_error(error) from None

    async def read_producers(self) -> list[ProducerRow]:
        try:
            return await self.store.producers(self.key)
        except StoreError:
            raise self._away() from None

    def _away(self) -> ServerBusy:
        return ServerBusy.without(f"The {self.name}")

    # -- what it holds

    def info(self) -> LogInfo:
        counters = self.counters
        is_used = self.durable_end > 0
        return LogInfo(
            self.counters.first_number if is_used else -1,
            self.durable_end - 1,
            self._durable_at_ms if is_used else 0,
            self.counters.first_number >= self.durable_end,
            counters.events,
            counters.bytes,
        )

    async def page(self, from_number: int, bytes_max: int) -> ChunkPage:
        """Durable chunks as they are stored. Raises ServerBusy while the store is away, EventsLost when it is there
        and cannot read them."""
        for _ in range(_PAGE_TRIES):
            try:
                return await self.store.chunks(self.key, from_number, bytes_max)
            except StoreError as error:
                if not self.is_usable():
                    raise self._away() from None
                _log.warning("Cannot read events of %s from %d on: %s", self.name, from_number, error)
        raise EventsLost.from_number(self.name, from_number)

    # -- appending

    def append(self, events: list[Event], done: AppendDone) -> None:
        """Stores all of them, in order and next to each other, or none. Raises nothing: `done` is told."""
        if events:
            self._append(events, None, done)
        else:
            done(None)

    def append_as(self, producer: Producer, events: list[Event], done: AppendDone) -> None:
        """The same for an idempotent producer: what it repeats is dropped (H-18)."""
        if not events:
            done(None)
            return
        try:
            repeats = self.producers.repeats_among(producer, events)
        except BrokerError as error:
            done(error)
            return
        if repeats == len(events):
            self._acknowledge(done)
        else:
            self._append(events[repeats:], producer, done)

    def refusal(self) -> BrokerError | None:
        """Why nothing can be appended now."""
        if not self.settings.allows_send:
            return EntityDisabled()
        if not self.is_usable():
            return self._away()
        if self.store.accepts_payload():
            return None
        if self.store.is_congested():
            return ServerBusy("The store is writing at its limit. Please try again later.")
        return QuotaExceeded("The server is short of disk space and takes no new events just now.")

    def takes_events(self) -> bool:
        """Whether an append would be taken just now. A keyless one goes elsewhere if not (H-11)."""
        return self.is_usable() and self.store.accepts_payload()

    def _append(self, events: list[Event], producer: Producer | None, done: AppendDone) -> None:
        """The hot path: numbers, one time, records, counters."""
        fault = self.refusal()
        size_bytes = 0
        bytes_max = self.settings.event_bytes_max
        for event in events:
            event_bytes = event.size_bytes()
            size_bytes += event_bytes
            if event_bytes > bytes_max and fault is None:
                fault = _too_large(event_bytes, bytes_max)
        if fault is not None:
            done(fault)
            return
        try:
            batch = self.store.batch()
        except StoreUnavailable:
            done(self._away())
            return
        counters = self.counters
        now_ms = self.runtime.clock.wall_ms()
        if now_ms < counters.latest_ms:
            now_ms = counters.latest_ms
        run = self._run_in(batch)
        if self.runtime.journal is not None:
            run.noted.append((counters.next_number, now_ms, events))
        stored_bytes = self._lay_down(batch, run, events, now_ms)
        counters.next_number += len(events)
        counters.events += len(events)
        counters.bytes += stored_bytes
        counters.latest_ms = now_ms
        batch.bytes += stored_bytes
        batch.counters[self.key] = counters.row
        run.end_number = counters.next_number
        run.last_at_ms = now_ms
        run.waiting.append((done, len(events), size_bytes, self.runtime.clock.monotonic()))
        if producer is not None:
            self.producers.joined(batch, producer, events, now_ms)

    def _run_in(self, batch: CommitBatch) -> AppendedRun:
        """What this log has in the batch; begun when it has nothing yet."""
        run = self._run
        if run is None or self._batch is not batch:
            run = AppendedRun(self)
            run.end_number = self.counters.next_number
            run.last_at_ms = self.counters.latest_ms
            self._run = run
            self._batch = batch
            batch.callbacks.append(run.committed)
        return run

    def _lay_down(self, batch: CommitBatch, run: AppendedRun, events: list[Event], now_ms: int) -> int:
        """Returns by how many bytes the chunks have grown."""
        builder = run.builders[-1] if run.builders else self._begin_chunk(batch, run)
        grown = -builder.size_bytes() if builder.count > 0 else 0
        number = self.counters.next_number
        fronts = FrontWriter()
        for event in events:
            if builder.record_bytes >= CHUNK_BYTES_MAX:
                grown += builder.size_bytes()
                builder = self._begin_chunk(batch, run)
            front = fronts.front(event, number, now_ms)
            builder.add_event(number, now_ms, front, event.bare, event.body_at)
            number += 1
        return grown + builder.size_bytes()

    def _begin_chunk(self, batch: CommitBatch, run: AppendedRun) -> ChunkBuilder:
        builder = ChunkBuilder()
        run.builders.append(builder)
        logs = batch.logs
        if logs is None:
            logs = batch.logs = LogChanges()
        logs.chunks.append((self.key, builder))
        return builder

    def _acknowledge(self, done: AppendDone) -> None:
        """All of it was accepted before: it is told when that is durable."""
        if not self.is_usable():
            done(self._away())
        elif self.durable_end == self.counters.next_number:
            done(None)
        else:
            try:
                batch = self.store.batch()
            except StoreUnavailable:
                done(self._away())
                return
            self._run_in(batch).waiting.append((done, 0, 0, self.runtime.clock.monotonic()))

    # -- what waited for a commit

    def run_ended(self, run: AppendedRun) -> None:
        if self._run is run:
            self._run = None
            self._batch = None

    def committed(self, run: AppendedRun) -> None:
        """Its events are durable: publishers are told, then readers."""
        self.durable_end = run.end_number
        self._durable_at_ms = run.last_at_ms
        self.cursors.keep(run.builders)
        now = self.runtime.clock.monotonic()
        for _, count, size_bytes, came_at in run.waiting:
            if count > 0:
                self.flow.taken_in(count, size_bytes, now - came_at)
        journal = self.runtime.journal
        if journal is not None:
            for first_number, at_ms, events in run.noted:
                journal.events(self.settings.path, self.index, first_number, at_ms, events)
        run.tell(None)
        self.cursors.end_moved()

    # -- reading

    def cursor(self, from_number: int, reader: EventReader) -> Cursor:
        """Raises EntityDisabled, ServerBusy."""
        if not self.settings.allows_receive:
            raise EntityDisabled
        if not self.is_usable():
            raise self._away()
        cursor = Cursor(self, from_number, reader)
        self.cursors.add(cursor)
        return cursor

    async def start_number(self, position: Position) -> int:
        """The first number to deliver (H-20). Raises BadArgument for one behind the end (H-22), ServerBusy."""
        kind = position.kind
        if kind == LATEST:
            return self.durable_end
        if kind == START:
            return min(self.counters.first_number, self.durable_end)
        if kind == NUMBER:
            if position.value >= self.durable_end:
                raise position.behind_the_end(self.durable_end - 1)
            return max(position.first_number(), min(self.counters.first_number, self.durable_end))
        if position.first_ms() > self.counters.latest_ms:
            return self.durable_end
        try:
            return await self._number_since(position.first_ms())
        except StoreError:
            raise self._away() from None

    async def _number_since(self, at_ms: int) -> int:
        # A read shows at least what was reported before it began.
        end = self.durable_end
        first = await self.store.first_number_since(self.key, at_ms)
        if first is None or first >= end:
            return end
        try:
            page = await self.store.chunks(self.key, first, 1)
        except StoreError:
            if not self.is_usable():
                raise
            return first  # the reader is told that it cannot be read
        for data in page.chunks:
            try:
                chunk = Chunk(data)
            except ChunkDamaged:
                return first
            place = chunk.index_since(at_ms)
            if page.damaged and page.damaged[0].first_number < chunk.first_number:
                return first  # the reader is told what is lost
            return min(end, chunk.number(place) if place < chunk.count else chunk.last_number + 1)
        return first if page.damaged else end


def log_name(hub_path: str, index: int) -> str:
    """For sentences."""
    return f"partition {index} of '{hub_path}'"


def _too_large(size_bytes: int, bytes_max: int) -> MessageTooLarge:
    """H-14: what the publisher is told."""
    return MessageTooLarge(
        f"An event of {size_bytes} bytes is larger than the {bytes_max} bytes that are allowed."
    )
