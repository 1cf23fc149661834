"""Of the events with one key only the last stays (H-31).

Theory of operation. What was never compacted, from `compacted_end` on, is read first: it gives the last number of
each key among the events that are old enough (a bounded number of keys at a time, each as a digest). Then the log is
read from its beginning to the end of that stretch, and every page that holds events with later ones of the same key
is written again without them, in place of its chunks and in one commit. Numbers, offsets and order stay. Events
without a key stay. An event without a body is a *tombstone*: it takes those before it away like any other, and leaves
itself when it is old enough.

This is work for idle moments: it is done when enough has come to be worth it, in steps of a few hundred events with a
pause after each, and only one page is in memory. Nobody else takes chunks of the log away meanwhile (`retention`);
what is appended lies behind. A crash leaves the log compacted up to some page, which is as good as before.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import DecodeError, skip_value
from busway.amqp.sections import DATA, VALUE, scan
from busway.message.bare import map_start, text_bytes
from busway.message.event_chunk import Chunk, ChunkBuilder, ChunkDamaged
from busway.store.log_contract import ChunkHead, ChunkPage, LogChanges
from busway.streams.cursor import PAGE_BYTES_MAX

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
        if log.is_usable() and end > log.compacted_end:
            log.compacted_end = end
            log.watch(log.batch())
        return has_dropped

    def _is_worth_it(self) -> bool:
        log = self._log
        fresh = log.durable_end - max(log.compacted_end, log.begin_number)
        return fresh > 0 and fresh * _WORTH_ONE_IN >= log.counters.active

    # -- what is last

    async def _read_keys(self, latest: dict[bytes, int]) -> int:
        """Key → its last number, from what was never compacted. Returns where that ends."""
        log = self._log
        old_enough_ms = log.runtime.clock.wall_ms() - log.settings.compaction_lag_ms
        end = log.durable_end
        number = max(log.compacted_end, log.begin_number)
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
        number = log.begin_number
        while number < end and log.is_usable():
            before = number
            page = await log.store.chunks(log.key, number, PAGE_BYTES_MAX)
            for stretch in stretches(page, log.durable_end):
                kept = Kept()
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

    async def _sort(self, chunk: Chunk, latest: dict[bytes, int], end: int, kept: Kept) -> None:
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

    def _replace(self, stretch: list[Chunk], kept: Kept) -> None:
        """One chunk in the place of several."""
        log = self._log
        batch = log.batch()
        logs = batch.logs
        if logs is None:
            logs = batch.logs = LogChanges()
        for chunk in stretch:
            logs.deleted.append((log.key, chunk.first_number))
            log.counters.bytes -= len(chunk.data)
        log.counters.active -= kept.dropped
        if kept.builder.count > 0:
            size_bytes = kept.builder.size_bytes()
            logs.chunks.append((log.key, kept.builder))
            log.counters.bytes += size_bytes
            batch.bytes += size_bytes
        log.chunks_changed(stretch[-1].last_number + 1)
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


class Kept:
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
