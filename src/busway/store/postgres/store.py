"""A store in a PostgreSQL database, which holds others too.

Theory of operation. What joins gathers and is reported as in every SQL store (`commit_cycle`); but the store does not
commit by itself: it registers with its database, gives a part when asked, and is told what became of it.

    gathering ──_start──▶ registered ──give_part──▶ in flight ──part_settled──▶ reported

Every opening, and every opening again after a failure, raises the store's epoch before it reads: what may still be on
its way from before comes too late then. A store whose commits are refused because somebody else has raised it says so
and is TAKEN.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import Final, TypeVar

import psycopg

from busway.clock import Clock
from busway.store.commit_cycle import FRAGMENT_KEY_MAX, CommitCycle
from busway.store.contract import CommitRefused, FragmentKey, StoreError, StoreState, first_number_base
from busway.store.postgres.commit_part import KEY_BLOCK, CommitPart, PartMaker
from busway.store.postgres.committer import PATIENCE_S, ServerFull, TakenStore
from busway.store.postgres.database import PostgresDatabase
from busway.store.postgres.reader import StoreFacts
from busway.store.postgres.reads import PostgresReads, StoreReaders
from busway.store.spans import Spans

log = logging.getLogger(__name__)

T = TypeVar("T")

_MIB: Final = 1 << 20
#: Of an opening, of a batch: nobody else draws the same.
_ID_BYTES: Final = 12
#: New messages are refused for so long after the server had no room.
_FULL_PAUSE_S: Final = 5.0


class PostgresStore(CommitCycle):
    """`contract.Store`: the store of that number in a database.

    `lost_commits` is more than 0 when the database is, or may be, older than what was reported (`loss`).
    """

    def __init__(
        self, database: PostgresDatabase, number: int, clock: Clock, *, batch_bytes_max: int = 32 * _MIB
    ) -> None:
        self._readers = StoreReaders(database.readers, number)
        name = database.url.store_name(number)
        super().__init__(name, clock, Spans(name, self._readers, self._require_open), batch_bytes_max)
        self.number = number
        self.url = f"{database.url.shown}?store={name}"
        self._database = database
        self._maker = PartMaker(number)
        self._reads = PostgresReads(self._spans, self._maker)
        self._take_over_reads(self._reads)
        self._has_entered = False
        #: What it belongs to, while a batch has yet to say so.
        self._lineage = ""
        self._meets_loss = False
        self._full_until = 0.0
        # Of one opening.
        self._key_written = 1
        self._keys_end = 1
        self._spare_key = 1
        self._asked_for_keys = False

    # -- life
    async def open(self) -> None:
        async with self._turn:
            if self.state is not StoreState.OPEN:
                await self._open()

    async def reopen(self) -> None:
        async with self._turn:
            if self.state is not StoreState.OPEN:
                await self._open()

    async def close(self) -> None:
        async with self._turn:
            while self.state is StoreState.OPEN and not self._is_quiet():
                with contextlib.suppress(StoreError):  # Those who joined were told.
                    await self.flush()
            self.state = StoreState.CLOSED
            if self._has_entered:
                self._has_entered = False
                await self._database.leave()

    async def disable(self) -> None:
        """Takes the store out of service until `reopen`."""
        await self.close()
        self.state = StoreState.DISABLED

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._has_entered:
            await self._database.enter()
            self._has_entered = True
        try:
            taken = await self._database.take(self.number, self._database.entropy.bytes(_ID_BYTES))
            maker = PartMaker(self.number)
            facts = await self._loop.run_in_executor(
                self._readers.threads,
                self._database.readers.run,
                partial(StoreFacts, self.number, maker.payload_bounds()),
            )
        except psycopg.Error as error:
            raise StoreError(f"The store {self.name} cannot be read: {error}.") from error
        self._begin(taken, maker, facts)

    def _begin(self, taken: TakenStore, maker: PartMaker, facts: StoreFacts) -> None:
        maker.sharing, maker.dropped = facts.sharing, facts.dropped
        maker.begin_heads(facts.heads, facts.highest)
        maker.versions = facts.versions
        maker.with_sessions, maker.with_expiry = facts.with_sessions, facts.with_expiry
        maker.number_bases = {key: first_number_base(index) for key, index in facts.number_indexes.items()}
        maker.last_payload = max(maker.last_payload, facts.last_payload)
        self._maker = maker
        self.lost_commits, self._lineage, self._meets_loss = taken.lost, taken.lineage, False
        if self.lost_commits:
            log.error(
                "The store %s has lost commits that were reported, %d or more: its database was restored, or a"
                " standby took over that did not have them all. No number that was given out is given out again; it"
                " goes on at commit %d.",
                self.name,
                self.lost_commits,
                taken.commit_number,
            )
        self._dropped = maker.dropped
        self.epoch = taken.epoch
        self._next_key = self._key_written = taken.next_key
        self._keys_end, self._spare_key = taken.keys_end, taken.spare_key
        self._asked_for_keys = False
        self._reads.begin_with(maker)
        self._begin_cycle(max(taken.commit_number, 0))
        self._database.mark_has_moved()

    # -- joining
    def accepts_payload(self) -> bool:
        return self._batch.bytes < self._batch_bytes_max and self._clock.monotonic() >= self._full_until

    def is_stuck(self) -> bool:
        """A commit has an outcome within its patience: until then an outage of the database is a pause."""
        in_flight = self._in_flight
        return in_flight is not None and self._clock.monotonic() - self._in_flight_since > PATIENCE_S

    def loss_is_met(self) -> None:
        self.batch()
        self._meets_loss = self.lost_commits > 0

    def next_fragment_key(self) -> FragmentKey:
        if self._next_key >= self._keys_end:
            if self._spare_key < self._keys_end or self._spare_key > FRAGMENT_KEY_MAX:
                raise StoreError(f"The store {self.name} has no fragment key left at this moment.")
            self._next_key, self._keys_end = self._spare_key, self._spare_key + KEY_BLOCK
        return super().next_fragment_key()

    # -- committing
    def _start(self, generation: int) -> None:
        raise NotImplementedError("the database starts commits")

    def _schedule(self) -> None:
        if not self._is_writer_busy and self._reporting is None:
            self._is_scheduled = True
            self._database.wants_commit(self)

    def give_part(self) -> CommitPart | None:
        self._is_scheduled = False
        if self._is_writer_busy or self._reporting is not None:
            return None
        if not self._has_work() or self.state is not StoreState.OPEN:
            return None
        shadow, sweep_rows = self._shadows[-1], self._sweep_rows
        try:
            part = self._maker.make(shadow, sweep_rows, self._database.entropy.bytes(_ID_BYTES))
        except Exception as error:  # Whatever it is: nothing of the batch was sent.
            self._fail_unsent(error)
            return None
        self._write_keys(part)
        if self._meets_loss:
            part.rows["lineages"] = [(self.number, self._lineage)]
            self._meets_loss = False
        self._take_batch()
        return part

    def _fail_unsent(self, error: Exception) -> None:
        log.error("A batch of store %s failed: %s: %s.", self.name, type(error).__name__, error)
        self._fail(self._batch, CommitRefused(f"The store {self.name} could not write: {error}."))

    def _write_keys(self, part: CommitPart) -> None:
        if self._next_key != self._key_written:
            part.rows["keys"] = [(self.number, self._next_key, self._keys_end)]
            self._key_written = self._next_key
        has_spare = self._spare_key >= self._keys_end
        if not self._asked_for_keys and not has_spare:
            self._asked_for_keys = part.wants_keys = True

    def part_settled(self, part: CommitPart) -> None:
        if part.shadow is not self._in_flight:  # of an earlier opening
            return
        self.epoch = self._database.epoch_of(self.number)  # raised when an answer was lost
        if isinstance(part.outcome, ServerFull):
            self._full_until = self._clock.monotonic() + _FULL_PAUSE_S
        if part.outcome is None:
            self._maker.committed(part)
            mark = self._database.high_water.mark(self.number)
            mark.number = part.number
            if part.reserved is not None:
                self._spare_key = part.reserved
                mark.keys_end = max(mark.keys_end, part.reserved + KEY_BLOCK)
                self._asked_for_keys = False
            if "lineages" in part.rows:
                mark.lost = 0
            self._database.mark_has_moved()
        self._committed(self._spans.generation, part.shadow, part.outcome, True)

    def _has_work(self) -> bool:
        return super()._has_work() or bool(self._maker.purges) or self._meets_loss
