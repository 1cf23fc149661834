"""A store on a disk with moods: the memory store with latencies and faults that a seed decides.

Theory of operation. What is committed lies in the memory store's dicts, which play the disk: they outlive a crash of
the broker (`after_crash` is the same disk under a new process, and the old object never opens again). A commit takes
a while and then ends well or badly; meanwhile the next batch gathers. What became of a commit that was under way at a
crash, or whose outcome is unknown, is drawn by lot.

Reads are as unkind as the contract allows. Half of them answer from the rows as they were when the read was called,
corrected only by what joined batches take away; the others from the rows at their end. A read that began before the
store failed is never answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from busway.store.contract import CommitBatch, FragmentKey, StoreError, StoreState, StoreUnavailable
from busway.store.shadow import Shadow, Shadows
from tests.harness.memory_store import MemoryStore, _Fragment, _freeze

#: A commit that takes longer makes the store a slow one.
_SLOW_S: Final = 0.5
#: Small enough for one burst of sends to fill it.
_BATCH_BYTES_MAX: Final = 8_000

#: Told with the name of a store that goes out of service, and when it is back.
Witness = Callable[[str, bool], None]


class Mood:
    """How a disk is at the moment. Faults change it; `settle_down` ends them all."""

    def __init__(self) -> None:
        self.settle_down()

    def settle_down(self) -> None:
        #: Times the usual latency of commits and of reads.
        self.commit_factor = 1.0
        self.read_factor = 1.0
        #: The next commit takes so much longer.
        self.hang_s = 0.0
        #: How the next commit ends: "", "refused", "unknown and applied", "unknown and not applied".
        self.next_end = ""
        #: Until then it cannot be opened.
        self.away_until = 0.0
        #: Reads that fail though the store is well.
        self.failing_reads = 0


class SimulatedStore(MemoryStore):
    """See the head of this file."""

    def __init__(self, name: str, chance: Random, mood: Mood, witness: Witness) -> None:
        super().__init__(name, batch_bytes_max=_BATCH_BYTES_MAX)
        self.mood = mood
        self.commits = 0
        self._chance = chance
        self._witness = witness
        self._is_dead = False
        self._in_flight_since = 0.0
        #: Counts openings: a read that spans two of them has no answer.
        self._life = 0
        #: For each read under way the batches that were committed since it was called.
        self._since: list[list[CommitBatch]] = []
        #: What corrects the read that is just being answered.
        self._corrections: list[CommitBatch] = []
        self._is_stale = False

    def after_crash(self) -> SimulatedStore:
        """The process has died. What it had handed to the disk may have arrived there."""
        if self._in_flight is not None and self._chance.random() < 0.5:
            self._apply(self._in_flight)
        self._tell_gone()
        self.crash()
        self._is_dead = True
        heir = SimulatedStore(self.name, self._chance, self.mood, self._witness)
        heir._fragments = self._fragments
        heir._dropped = self._dropped
        heir._transfer_marks = self._transfer_marks
        heir._catalogue = self._catalogue
        heir._catalogue_version = self._catalogue_version
        heir._next_key = self._next_key
        heir.commits = self.commits
        heir.accepts_new_payload = self.accepts_new_payload
        return heir

    # -- life

    async def open(self) -> None:
        await asyncio.sleep(self._chance.random() * 0.05)
        if self._is_dead or self._loop_time() < self.mood.away_until:
            raise StoreError(f"The disk of {self.name} does not answer.")
        await super().open()
        self._life += 1
        self._witness(self.name, True)

    async def close(self) -> None:
        """As the real ones: those who joined were told."""
        while self.state is StoreState.OPEN and (self._in_flight is not None or not self._open.is_empty()):
            try:
                self._schedule()
                await self.flush()
            except StoreError:
                break
        self._tell_gone()
        self.state = StoreState.CLOSED

    def lose(self, seconds: float) -> None:
        """The disk is gone, in the middle of whatever it did, and cannot be opened for a while."""
        self.mood.away_until = max(self.mood.away_until, self._loop_time() + seconds)
        if self.state is not StoreState.OPEN:
            return
        if self._in_flight is None:
            self._fail(CommitBatch(), StoreUnavailable(f"The disk of {self.name} is gone."))
        else:
            self.lose_next_commit(is_applied=self._chance.random() < 0.5)
            super()._finish(self._in_flight)

    def _tell_gone(self) -> None:
        if self.state is StoreState.OPEN:
            self._witness(self.name, False)

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    # -- writing

    def is_slow(self) -> bool:
        return self._in_flight is not None and self._loop.time() - self._in_flight_since > _SLOW_S

    def _start(self) -> None:
        self._is_scheduled = False
        if self._in_flight is not None or self._open.is_empty() or self.state is not StoreState.OPEN:
            return
        batch, self._open = self._open, CommitBatch()
        _freeze(batch)
        self._in_flight = batch
        self._in_flight_since = self._loop.time()
        self._loop.call_later(self._commit_s(), self._finish, batch)

    def _commit_s(self) -> float:
        mood, draw = self.mood, self._chance.random()
        hang_s, mood.hang_s = mood.hang_s, 0.0
        return (0.0005 + 0.004 * draw * draw) * mood.commit_factor + hang_s

    def _finish(self, batch: CommitBatch) -> None:
        if batch is not self._in_flight:
            return
        end, self.mood.next_end = self.mood.next_end, ""
        if end == "refused":
            self.refuse_next_commit()
        elif end:
            self.lose_next_commit(is_applied=end == "unknown and applied")
        self.commits += 1
        super()._finish(batch)

    def _apply(self, batch: CommitBatch) -> StoreError | None:
        error = super()._apply(batch)
        for since in self._since:
            since.append(batch)
        return error

    def _fail(self, batch: CommitBatch, outcome: StoreError) -> None:
        self._tell_gone()
        super()._fail(batch, outcome)

    # -- reading

    async def _turn(self) -> None:
        self._require_open()
        await self._wait()
        self._corrections = []
        self._is_stale = False

    async def _wait(self) -> None:
        life, mood = self._life, self.mood
        await asyncio.sleep(self._chance.random() * 0.002 * mood.read_factor)
        self._require_open()
        if life != self._life:
            raise StoreUnavailable(f"The store {self.name} failed during a read.")
        if mood.failing_reads > 0:
            mood.failing_reads -= 1
            raise StoreError(f"The disk of {self.name} could not be read.")

    async def _rows(self, fragment: FragmentKey) -> _Fragment:
        if self._chance.random() < 0.5:
            return await super()._rows(fragment)
        self._require_open()
        rows = _copied(self._fragment(fragment))
        since: list[CommitBatch] = []
        self._since.append(since)
        try:
            await self._wait()
        finally:
            self._since = [other for other in self._since if other is not since]
        self._corrections = since
        self._is_stale = True
        return rows

    def _shadows(self) -> Shadows:
        joined = [*self._corrections, self._open]
        if self._in_flight is not None:
            joined.insert(-1, self._in_flight)
        return Shadows([Shadow(batch, 0) for batch in joined])

    async def known_ids(self, fragment: FragmentKey, ids: Iterable[str], since_ms: int) -> set[str]:
        """A stale one tells no id that joined after the call."""
        rows = await self._rows(fragment)
        shadows = self._shadows()
        known = (
            dict(rows.duplicate_ids) if self._is_stale else rows.duplicate_ids | shadows.joined_ids(fragment)
        )
        since_ms = max(since_ms, shadows.forgotten_before_ms(fragment))
        return {message_id for message_id in ids if known.get(message_id, -1) >= since_ms}

    # -- for the end of a run

    def rows_left(self) -> dict[str, int]:
        """By owner how many messages are stored in its fragments."""
        left: dict[str, int] = {}
        for fragment in self._fragments.values():
            count = sum(len(place) for place in fragment.places)
            if count:
                left[fragment.row.owner] = left.get(fragment.row.owner, 0) + count
        return left

    def marks_left(self) -> int:
        return len(self._transfer_marks)


def _copied(fragment: _Fragment) -> _Fragment:
    """The rows of this moment. Messages themselves are never changed in place once committed."""
    twin = _Fragment(fragment.row)
    active, deferred, scheduled = fragment.places
    twin.places = (dict(active), dict(deferred), dict(scheduled))
    twin.session_index = dict(fragment.session_index)
    twin.expiry_entries = dict(fragment.expiry_entries)
    twin.states = dict(fragment.states)
    twin.duplicate_ids = dict(fragment.duplicate_ids)
    twin.log = fragment.log  # chunks are read as they are at the end
    return twin
