"""Old events leave a log: by time, above a size (H-30), and by later ones with the same key (H-31).

Theory of operation. Whole chunks leave, the oldest first: those whose last event is older than the retention time,
and those that keep the log above its size, but never the newest. So an event may stay somewhat longer than it must.
Every log is looked at about once a minute; the look costs nothing while its oldest chunk is known to be young enough.

Chunks leave in slices, each of which is durable before the next begins. Compaction and the producers' memory (H-19)
come after, in the same coroutine: so nobody else takes chunks away while one of them works.

Compaction: of the events with one key only the last stays. What was never compacted, from `counters.compacted_to` on,
is read first: it gives the last number of each key among the events that are old enough (a bounded number of keys at
a time, each as a digest). Then the log is read from its beginning to the end of that stretch, and every page that
holds events with later ones of the same key is written again without them, in place of its chunks and in one commit.
Numbers, offsets and order stay. Events without a key stay. An event without a body is a *tombstone*: it takes those
before it away like any other, and leaves itself when it is old enough. This is work for idle moments: it is done when
enough has come to be worth it, in steps of a few hundred events with a pause after each, and only one page is in
memory. What is appended lies behind. A crash leaves the log compacted up to some page, which is as good as before.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.sections import DATA, VALUE, scan
from busway.message.bare import map_start, text_bytes
from busway.message.event_chunk import Chunk, ChunkBuilder, ChunkDamaged
from busway.model.errors import BrokerError
from busway.store.contract import ChunkHead, ChunkPage, CommitBatch, LogChanges, StoreError
from busway.streams.cursor import PAGE_BYTES_MAX
from busway.timers import Timer

if TYPE_CHECKING:
    from busway.streams.partition_log import PartitionLog

_PARTITION_KEY: Final = b"x-opt-partition-key"
#: Where the annotations of a record begin: every record has them first.
_ANNOTATIONS_AT: Final = 3
_NULL: Final = 0x40
_EMPTY_BINARIES: Final = (b"\xa0\x00", b"\xb0\x00\x00\x00\x00", b"\x40")
_DIGEST_BYTES: Final = 16
#: Keys remembered in one go; what follows waits for the next.
KEYS_MAX: Final = 50_000
#: Events looked at before others have a turn, and how long that is.
STEP_EVENTS: Final = 256
PAUSE_S: Final = 0.005
#: New events must be this part of the log to be worth reading all of it…
_WORTH_ONE_IN: Final = 3
#: …or have waited so long.
_WAIT_S_MAX: Final = 3_600.0
LOOK_EVERY_S: Final = 60.0
#: After a start logs are looked at over this time, not all at once.
_FIRST_LOOK_SPREAD_S: Final = 55
_FIRST_LOOK_S: Final = 5.0
#: H-19: producers are remembered so long at least.
PRODUCERS_MS_MIN: Final = 24 * 3_600_000
#: Where events stay for ever.
_PRODUCERS_MS_MAX: Final = 90 * PRODUCERS_MS_MIN
_PRODUCERS_LOOK_EVERY_MS: Final = 3_600_000


class Compaction:
    """Of one log."""

    __slots__ = ("_has_tombstones", "_log", "_ran_at", "_steps", "keys_max")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._ran_at = log.runtime.clock.monotonic()
        #: As far as is known.
        self._has_tombstones = True
        self._steps = 0
        self.keys_max = KEYS_MAX

    async def run(self) -> bool:
        """If it is due. True when events have left. Raises StoreError, and what a failed commit gives."""
        log = self._log
        waited = log.runtime.clock.monotonic() - self._ran_at >= _WAIT_S_MAX
        if not log.settings.compacts or not (waited or self._is_worth_it()):
            return False
        self._ran_at = log.runtime.clock.monotonic()
        latest: dict[bytes, int] = {}
        end = await self._read_keys(latest)
        has_dropped = False
        if latest or (waited and self._has_tombstones):
            has_dropped = await self._rewrite(latest, end)
        if log.is_usable() and end > log.counters.compacted_to:
            log.counters.compacted_to = end
            log.watch(log.batch())
        return has_dropped

    def _is_worth_it(self) -> bool:
        log = self._log
        fresh = log.durable_end - max(log.counters.compacted_to, log.counters.first_number)
        return fresh > 0 and fresh * _WORTH_ONE_IN >= log.counters.events

    # -- what is last

    async def _read_keys(self, latest: dict[bytes, int]) -> int:
        """Key → its last number, from what was never compacted. Returns where that ends."""
        log = self._log
        old_enough_ms = log.runtime.clock.wall_ms() - log.settings.compaction_lag_ms
        end = log.durable_end
        number = max(log.counters.compacted_to, log.counters.first_number)
        while number < end and log.is_usable():
            before = number
            page = await log.store.chunks(log.key, number, PAGE_BYTES_MAX)
            for chunk in readable(page):
                for place in range(chunk.index_of(number), chunk.count):
                    number = chunk.number(place)
                    if number >= end or chunk.at_ms(place) > old_enough_ms or len(latest) >= self.keys_max:
                        return min(number, end)
                    key = key_of(chunk, place)
                    if key is not None:
                        latest[key] = number
                    number += 1
                    await self._step()
            number = _behind(page, number)
            if number == before:
                return number if page.chunks else end  # it cannot be read, or nothing is left
        return min(number, end)

    # -- what stays

    async def _rewrite(self, latest: dict[bytes, int], end: int) -> bool:
        """Page by page. True when events have left."""
        log = self._log
        has_dropped, has_tombstones = False, False
        number = log.counters.first_number
        while number < end and log.is_usable():
            before = number
            page = await log.store.chunks(log.key, number, PAGE_BYTES_MAX)
            for stretch in stretches(page, log.durable_end):
                kept = Remainder()
                for chunk in stretch:
                    await self._sort(chunk, latest, end, kept)
                if not log.is_usable():
                    return has_dropped
                has_tombstones = has_tombstones or kept.has_tombstones
                if kept.dropped > 0:
                    has_dropped = True
                    self._replace(stretch, kept)
                    await log.durable()
                number = stretch[-1].last_number + 1
            number = _behind(page, number)
            if number == before:
                break  # it cannot be read, or nothing is left
        self._has_tombstones = has_tombstones
        return has_dropped

    async def _sort(self, chunk: Chunk, latest: dict[bytes, int], end: int, kept: Remainder) -> None:
        settings, now_ms = self._log.settings, self._log.runtime.clock.wall_ms()
        for place in range(chunk.count):
            await self._step()
            number, key = chunk.number(place), None
            if number < end:
                key = key_of(chunk, place)
            if key is not None:
                if latest.get(key, -1) > number:
                    kept.dropped += 1
                    continue
                if is_tombstone(chunk, place):
                    if now_ms - chunk.at_ms(place) >= settings.tombstone_ms:
                        kept.dropped += 1
                        continue
                    kept.has_tombstones = True
            kept.builder.add(number, chunk.at_ms(place), chunk.record(place), chunk.body_in_record(place))

    def _replace(self, stretch: list[Chunk], kept: Remainder) -> None:
        """One chunk in the place of several."""
        log = self._log
        batch = log.batch()
        logs = batch.logs
        if logs is None:
            logs = batch.logs = LogChanges()
        for chunk in stretch:
            logs.deleted.append((log.key, chunk.first_number))
            log.counters.bytes -= len(chunk.data)
        log.counters.events -= kept.dropped
        if kept.builder.count > 0:
            size_bytes = kept.builder.size_bytes()
            logs.chunks.append((log.key, kept.builder))
            log.counters.bytes += size_bytes
            batch.bytes += size_bytes
        log.cursors.tail.chunks_changed(stretch[-1].last_number + 1)
        log.watch(batch)

    async def _step(self) -> None:
        """Others have a turn now and then."""
        self._steps += 1
        if self._steps % STEP_EVENTS:
            return
        runtime = self._log.runtime
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runtime.timers.at(runtime.clock.monotonic() + PAUSE_S, lambda: _resume(waiter))
        await waiter


class Remainder:
    """What stays of some chunks."""

    __slots__ = ("builder", "dropped", "has_tombstones")

    def __init__(self) -> None:
        self.builder = ChunkBuilder()
        self.dropped = 0
        self.has_tombstones = False


def _resume(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def readable(page: ChunkPage) -> list[Chunk]:
    """Up to the first that is no chunk."""
    chunks: list[Chunk] = []
    for data in page.chunks:
        try:
            chunks.append(Chunk(data))
        except ChunkDamaged:
            break
    return chunks


def stretches(page: ChunkPage, durable_end: int) -> list[list[Chunk]]:
    """Neighbouring chunks whose commit is reported; a damaged one keeps its neighbours apart."""
    found: list[list[Chunk]] = []
    last = -1
    for chunk in readable(page):
        if chunk.first_number >= durable_end:
            break
        if not found or _lies_between(page.damaged, last, chunk.first_number):
            found.append([])
        found[-1].append(chunk)
        last = chunk.last_number
    return found


def _behind(page: ChunkPage, number: int) -> int:
    """The number, or behind the damage that the page tells of."""
    return max([number, *(head.last_number + 1 for head in page.damaged)])


def _lies_between(damaged: list[ChunkHead], after: int, before: int) -> bool:
    return any(after < head.first_number < before for head in damaged)


def key_of(chunk: Chunk, place: int) -> bytes | None:
    """A digest of the event's partition key; None when it has none."""
    record = chunk.record(place)
    if _PARTITION_KEY not in record:
        return None
    try:
        end = skip_value(record, _ANNOTATIONS_AT, len(record))
        count, at = map_start(record, _ANNOTATIONS_AT, end)
        for _ in range(count >> 1):
            value_at = skip_value(record, at, end)
            after = skip_value(record, value_at, end)
            if text_bytes(record, at, value_at) == _PARTITION_KEY:
                key = text_bytes(record, value_at, after)
                return None if key is None else blake2b(key, digest_size=_DIGEST_BYTES).digest()
            at = after
    except DecodeError:
        return None
    return None


def is_tombstone(chunk: Chunk, place: int) -> bool:
    """No body, a null, or no bytes in it."""
    at = chunk.body_at(place)
    if at >= 0:
        return at == chunk.end(place)
    record = chunk.record(place)
    try:
        cut = scan(record)
    except DecodeError:
        return False
    if cut.body_kind == VALUE:
        return record[cut.body_at] == _NULL
    if cut.body_kind == DATA:
        return record[cut.body_at : cut.body_end] in _EMPTY_BINARIES
    return cut.body_kind == 0


_log = logging.getLogger(__name__)


class Retention:
    """Of one log."""

    __slots__ = ("_compaction", "_is_running", "_log", "_oldest_at_ms", "_producers_looked_at_ms", "_timer")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._compaction = Compaction(log)
        self._timer: Timer | None = None
        self._is_running = False
        #: The time of the last event in the oldest chunk; -1 = not known.
        self._oldest_at_ms = -1
        self._producers_looked_at_ms = 0

    def start(self) -> None:
        self._arm(_FIRST_LOOK_S + self._log.key % _FIRST_LOOK_SPREAD_S)

    def stop(self) -> None:
        self._log.runtime.timers.cancel(self._timer)
        self._timer = None

    def settings_changed(self) -> None:
        """The next look finds out what that means."""
        self._oldest_at_ms = -1

    def _arm(self, delay_s: float) -> None:
        runtime = self._log.runtime
        runtime.timers.cancel(self._timer)
        self._timer = runtime.timers.at(runtime.clock.monotonic() + delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._log.is_usable() or self._is_running:
            self._arm(LOOK_EVERY_S)
            return
        self._is_running = True
        self._log.runtime.spawn(self._work())

    async def _work(self) -> None:
        log = self._log
        try:
            await self._expire()
            if log.is_usable() and await self._compaction.run():
                self._oldest_at_ms = -1
                await find_begin(log)
            self._forget_producers()
        except (StoreError, ChunkDamaged) as error:
            _log.warning("Cannot look after old events of %s: %s", log.name, error)
        except BrokerError as error:
            _log.warning("Cannot remove old events of %s: %s", log.name, error.sentence)
        finally:
            self._is_running = False
            if not log.is_closed:
                self._arm(LOOK_EVERY_S)

    # -- chunks

    async def _expire(self) -> None:
        log = self._log
        while self._may_have_old():
            seen_end = log.durable_end
            heads = await log.store.chunk_heads(
                log.key, log.counters.first_number, log.runtime.limits.sweep_rows_max
            )
            if not log.is_usable():
                return
            log.counters.first_number = heads[0].first_number if heads else seen_end
            gone = self._old(heads)
            self._oldest_at_ms = heads[len(gone)].last_at_ms if len(gone) < len(heads) else -1
            if not gone:
                return
            remove_chunks(log, log.batch(), gone)
            log.counters.first_number = (
                heads[len(gone)].first_number if len(gone) < len(heads) else gone[-1].last_number + 1
            )
            await log.durable()

    def _may_have_old(self) -> bool:
        log = self._log
        settings = log.settings
        if not log.is_usable() or log.counters.first_number >= log.durable_end:
            return False
        if 0 < settings.bytes_max < log.counters.bytes:
            return True
        return settings.retention_ms >= 0 and (self._oldest_at_ms < 0 or self._is_old(self._oldest_at_ms))

    def _is_old(self, at_ms: int) -> bool:
        log = self._log
        return 0 <= log.settings.retention_ms <= log.runtime.clock.wall_ms() - at_ms

    def _old(self, heads: list[ChunkHead]) -> list[ChunkHead]:
        """Those that must leave, from the oldest on."""
        log = self._log
        bytes_max = log.settings.bytes_max
        excess_bytes = log.counters.bytes - bytes_max if bytes_max > 0 else 0
        gone: list[ChunkHead] = []
        for head in heads:
            is_newest = head.last_number >= log.durable_end - 1
            if head.first_number >= log.durable_end:
                break  # its commit is not reported yet
            if not self._is_old(head.last_at_ms) and (excess_bytes <= 0 or is_newest):
                break
            excess_bytes -= head.size_bytes
            gone.append(head)
        return gone

    # -- producers

    def _forget_producers(self) -> None:
        log = self._log
        now_ms = log.runtime.clock.wall_ms()
        if now_ms - self._producers_looked_at_ms < _PRODUCERS_LOOK_EVERY_MS or log.durable_end == 0:
            return
        self._producers_looked_at_ms = now_ms
        if log.is_usable():
            kept_ms = log.settings.retention_ms if log.settings.retention_ms >= 0 else _PRODUCERS_MS_MAX
            log.producers.forget_before(now_ms - max(PRODUCERS_MS_MIN, kept_ms))


def remove_chunks(log: PartitionLog, batch: CommitBatch, heads: list[ChunkHead]) -> None:
    """They leave with the batch."""
    logs = batch.logs
    if logs is None:
        logs = batch.logs = LogChanges()
    counters = log.counters
    for head in heads:
        logs.deleted.append((log.key, head.first_number))
        counters.events -= head.events
        counters.bytes -= head.size_bytes
        log.cursors.tail.chunks_changed(head.last_number + 1)
    log.watch(batch)


async def find_begin(log: PartitionLog) -> None:
    """The first event has left: which one is first now?"""
    seen_end = log.durable_end
    heads = await log.store.chunk_heads(log.key, log.counters.first_number, 1)
    if log.is_usable():
        log.counters.first_number = heads[0].first_number if heads else seen_end
        log.watch(log.batch())
