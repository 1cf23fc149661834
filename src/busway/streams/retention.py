"""Old events leave a log: by time, and above a size (H-30).

Theory of operation. Whole chunks leave, the oldest first: those whose last event is older than the retention time,
and those that keep the log above its size, but never the newest. So an event may stay somewhat longer than it must.
Every log is looked at about once a minute; the look costs nothing while its oldest chunk is known to be young enough.

Chunks leave in slices, each of which is durable before the next begins. Compaction (`compaction`) and the producers'
memory (H-19) come after, in the same coroutine: so nobody else takes chunks away while one of them works.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from busway.broker.errors import BrokerError
from busway.broker.fragment.timers import Timer
from busway.message.event_chunk import ChunkDamaged
from busway.store.contract import CommitBatch, StoreError
from busway.store.log_contract import ChunkHead, LogChanges
from busway.streams.compaction import Compaction

if TYPE_CHECKING:
    from busway.streams.partition_log import PartitionLog

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 60.0
#: After a start logs are looked at over this time, not all at once.
_FIRST_LOOK_SPREAD_S: Final = 55
_FIRST_LOOK_S: Final = 5.0
#: H-19: producers are remembered so long at least.
PRODUCERS_MS_MIN: Final = 24 * 3_600_000
#: Where events stay for ever.
_PRODUCERS_MS_MAX: Final = 90 * PRODUCERS_MS_MIN
_PRODUCERS_LOOK_EVERY_MS: Final = 3_600_000


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
            heads = await log.store.chunk_heads(log.key, log.begin_number, log.runtime.limits.sweep_rows_max)
            if not log.is_usable():
                return
            log.begin_number = heads[0].first_number if heads else seen_end
            gone = self._old(heads)
            self._oldest_at_ms = heads[len(gone)].last_at_ms if len(gone) < len(heads) else -1
            if not gone:
                return
            remove_chunks(log, log.batch(), gone)
            log.begin_number = (
                heads[len(gone)].first_number if len(gone) < len(heads) else gone[-1].last_number + 1
            )
            await log.durable()

    def _may_have_old(self) -> bool:
        log = self._log
        settings = log.settings
        if not log.is_usable() or log.begin_number >= log.durable_end:
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
        counters.active -= head.events
        counters.bytes -= head.size_bytes
        log.chunks_changed(head.last_number + 1)
    log.watch(batch)


async def find_begin(log: PartitionLog) -> None:
    """The first event has left: which one is first now?"""
    seen_end = log.durable_end
    heads = await log.store.chunk_heads(log.key, log.begin_number, 1)
    if log.is_usable():
        log.begin_number = heads[0].first_number if heads else seen_end
        log.watch(log.batch())
