"""How batches become durable, whatever the database: gathering, in flight, reported.

Theory of operation. One batch gathers while the one before is in flight. When a commit is done its callbacks are
told, over several turns of the loop when they are many, and the next starts with the loop's next turn if anything has
joined; there is no timer.

    gathering ──_start──▶ in flight ──(a thread)──▶ _committed ──▶ reported ──_go_on──▶ the next

How a batch is written and committed is the store's own: `_start` hands the open one over (`_take_batch`) and sees to
it that `_committed` is called on the loop. What came of an earlier opening is told by its generation and passed over.

Any error of a batch makes the store FAILED: what the database holds and what the owner remembers may differ, so the
owner loads anew after `reopen`.

A commit that takes long makes the store a slow one for a while: whoever can choose goes elsewhere. One that takes
very long makes it stuck: nobody waits behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from busway.clock import Clock
from busway.event_loop import LOOP
from busway.store.contract import (
    COUNTER_BITS,
    CommitBatch,
    CommitCallback,
    CommitRefused,
    FragmentKey,
    StoreError,
    StoreState,
    StoreTaken,
    StoreUnavailable,
)
from busway.store.reads import CorrectedReads
from busway.store.shadow import Shadow
from busway.store.spans import Spans

#: Keys above would not fit into the upper part of a row key.
FRAGMENT_KEY_MAX: Final = (1 << 63 - COUNTER_BITS) - 1

#: Of a bell that are heard at once.
_RINGS_MAX: Final = 4_096
#: A commit in flight for longer than this is a slow one.
_SLOW_COMMIT_S: Final = 0.05
#: A commit in flight for longer than this is stuck: nobody waits behind it.
_STUCK_COMMIT_S: Final = 2.0
#: The longest time that a store is passed by after a slow commit.
_SLOW_PAUSE_S_MAX: Final = 5.0

#: A batch may have thousands of callbacks: after about this time others get a turn of the loop.
_TURN_S: Final = 0.01
#: The clock is looked at after so many.
_LOOK_AFTER: Final = 32


class CommitThread:
    """The thread in which commits run: one job after the other, in the order of `submit`. Jobs tell their outcome
    themselves and must not raise. (A pool's future for each job costs about 25 µs that every send would wait for.)

    It sleeps at a pipe: whoever writes to that lets go of the GIL meanwhile, so the thread that wakes has it at once.
    A lock, or a queue, wakes it into a wait for the GIL, which costs a lone message about 20 µs."""

    def __init__(self, name: str) -> None:
        self._jobs: deque[Callable[[], None] | None] = deque()
        self._rings, self._bell = os.pipe()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None] | None) -> None:
        self._jobs.append(job)
        os.write(self._bell, b"\0")

    def stop(self) -> None:
        """Returns when everything submitted is done. Blocks: call it off the loop, once, after the last `submit`."""
        self.submit(None)
        self._thread.join()
        os.close(self._rings)
        bell, self._bell = self._bell, -1  # ringing it again is an error, and nobody else's file
        os.close(bell)

    def _run(self) -> None:
        while True:
            os.read(self._rings, _RINGS_MAX)
            while self._jobs:
                job = self._jobs.popleft()
                if job is None:
                    return
                job()


class CommitCycle:
    """The writing half of `contract.Store` that SQL stores share, as their base class: what joins goes through no
    call more than it must."""

    def __init__(self, name: str, clock: Clock, spans: Spans[Any], batch_bytes_max: int) -> None:
        self.name = name
        self.state = StoreState.CLOSED
        self.lost_commits = 0
        self.epoch: int | None = None
        self._clock = clock
        self._batch_bytes_max = batch_bytes_max
        self._spans = spans
        self._shadows = spans.shadows
        self._next_key = 1
        self._turn = asyncio.Lock()  # open, close and reopen one after the other
        self._loop: asyncio.AbstractEventLoop
        # Of one opening; see _begin_cycle.
        self._batch = CommitBatch()
        self._sweep_rows = 0  # rows of dropped fragments the open batch removes
        self._in_flight: Shadow | None = None
        self._in_flight_since = 0.0
        #: It is durable, and those who joined it are being told.
        self._reporting: CommitBatch | None = None
        #: The last commit was a slow one.
        self._is_suspect = False
        self._slow_until = 0.0
        self._is_scheduled = False
        self._is_writer_busy = False
        #: Fragments that wait for the sweep.
        self._dropped: set[int] = set()

    def _take_over_reads(self, reads: CorrectedReads[Any]) -> None:
        """The reads of the contract are methods of another object, with no call in between."""
        self.messages = reads.messages
        self.by_number = reads.by_number
        self.sizes = reads.sizes
        self.session_messages = reads.session_messages
        self.peek = reads.peek
        self.due = reads.due
        self.next_due_ms = reads.next_due_ms
        self.expired_entries = reads.expired_entries
        self.next_expiry_ms = reads.next_expiry_ms
        self.session = reads.session
        self.next_sessions = reads.next_sessions
        self.sessions = reads.sessions
        self.chunks = reads.chunks
        self.chunk_heads = reads.chunk_heads
        self.first_number_since = reads.first_number_since
        self.producers = reads.producers
        self.known_ids = reads.known_ids
        self.transfer_marks = reads.transfer_marks
        self.fragments = reads.fragments
        self.catalogue = reads.catalogue

    def _begin_cycle(self, commit_number: int) -> None:
        """The database is open: from here on the store takes batches."""
        self._spans.begin(commit_number)
        self._in_flight = self._reporting = None
        self._is_scheduled = self._is_writer_busy = False
        self._gather_anew()
        self.state = StoreState.OPEN

    def _require_open(self) -> None:
        if self.state is not StoreState.OPEN:
            raise StoreUnavailable(f"The store {self.name} is {self.state.value}.")

    # -- what a store adds
    def _start(self, generation: int) -> None:
        """A commit may start, if anything has joined."""
        raise NotImplementedError

    def _stored(self) -> None:
        """The batch in flight is durable, and nobody knows it yet."""

    def _reported(self, batch: CommitBatch) -> None:
        """Everybody knows it."""

    def _idle(self) -> None:
        """Nothing waits to be written."""

    def _failed(self) -> None:
        """The store takes nothing any more; those who joined are about to be told."""

    # -- joining
    def batch(self) -> CommitBatch:
        if self.state is not StoreState.OPEN:
            self._require_open()
        if not self._is_scheduled:
            self._schedule()
        return self._batch

    def is_congested(self) -> bool:
        return self._batch.bytes >= self._batch_bytes_max

    def is_slow(self) -> bool:
        """Also for a while after a slow commit, and then while one commit tries the disk again: a sick disk gets few
        messages to sit on, now and then."""
        now = self._clock.monotonic()
        if self._in_flight is not None and (self._is_suspect or now - self._in_flight_since > _SLOW_COMMIT_S):
            return True
        return self._is_suspect and (now < self._slow_until or not self._batch.is_empty())

    def is_stuck(self) -> bool:
        return (
            self._in_flight is not None and self._clock.monotonic() - self._in_flight_since > _STUCK_COMMIT_S
        )

    async def flush(self) -> None:
        self._require_open()
        if self._has_work():
            last = self._batch
        elif self._in_flight is not None:
            last = self._in_flight.batch
        elif self._reporting is not None:
            last = self._reporting
        else:
            return
        waiter = self._loop.create_future()
        last.callbacks.append(resolving(waiter))
        await waiter

    def next_fragment_key(self) -> FragmentKey:
        if self._next_key > FRAGMENT_KEY_MAX:
            raise StoreError(f"The store {self.name} has given out all its fragment keys.")
        key = FragmentKey(self._next_key)
        self._next_key += 1
        return key

    def loss_is_met(self) -> None:
        """The contract's. A file forgets its loss as its high-water mark is written next."""

    async def sweep_dropped(self, limit: int) -> bool:
        self._require_open()
        if not self._dropped and not any(shadow.batch.fragments_dropped for shadow in self._shadows):
            return False
        self.batch()
        self._sweep_rows = max(self._sweep_rows, limit, 1)
        await self.flush()
        return bool(self._dropped)

    # -- committing
    def _schedule(self) -> None:
        """A commit starts with the loop's next turn, unless one is under way: its end starts the next."""
        if not self._is_writer_busy and self._reporting is None:
            self._is_scheduled = True
            self._loop.call_soon(self._start, self._spans.generation)

    def _gather_anew(self) -> None:
        self._batch = CommitBatch()
        self._sweep_rows = 0
        number = self._spans.commit_number + (1 if self._in_flight is None else 2)
        self._shadows.append(Shadow(self._batch, number))

    def _take_batch(self) -> None:
        """The open batch is in flight; another gathers."""
        self._in_flight = self._shadows[-1]
        self._in_flight_since = self._clock.monotonic()
        self._is_writer_busy = True
        self._gather_anew()

    def _tell_loop(self, tell: Callable[..., None], *values: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is there to be told.
            self._loop.call_soon_threadsafe(tell, *values)

    def _committed(
        self, generation: int, shadow: Shadow, outcome: StoreError | None, is_writer_free: bool
    ) -> None:
        if generation != self._spans.generation or self.state is not StoreState.OPEN:
            return
        began_s = LOOP.now()
        batch = shadow.batch
        self._in_flight = None
        self._note_duration()
        self._is_writer_busy = not is_writer_free
        if outcome is not None:
            self._fail(batch, outcome)
            return
        self._stored()
        self._spans.reported(shadow.number)
        self._reporting = batch
        count = len(batch.callbacks)
        self._report(batch, 0, generation)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, f"telling {count:,} that a commit of {self.name} is durable")

    def _report(self, batch: CommitBatch, start: int, generation: int) -> None:
        """Tells those who joined, over several turns of the loop when they are many. The next commit waits for it:
        its callbacks come later."""
        if generation != self._spans.generation:
            return
        told = report_some(self._loop, batch.callbacks, start, self._clock)
        if told < len(batch.callbacks):
            self._loop.call_soon(self._report, batch, told, generation)
            return
        self._reporting = None
        batch.callbacks.clear()  # they know their batch: memory is given back without the cyclic collector
        if self.state is StoreState.OPEN:
            self._reported(batch)
            self._go_on()

    def _note_duration(self) -> None:
        now = self._clock.monotonic()
        took_s = now - self._in_flight_since
        self._is_suspect = took_s > _SLOW_COMMIT_S
        if self._is_suspect:
            self._slow_until = now + min(took_s, _SLOW_PAUSE_S_MAX)

    def _go_on(self) -> None:
        """The writer may be free: whatever waits starts now."""
        if self._is_writer_busy or self._is_scheduled or self._reporting is not None:
            return
        if self._has_work():
            self._schedule()
        else:
            self._idle()

    def _fail(self, batch: CommitBatch, outcome: StoreError) -> None:
        """Nothing may join any more; everybody who did is told."""
        self.state = StoreState.TAKEN if isinstance(outcome, StoreTaken) else StoreState.FAILED
        gathered = self._batch
        self._batch = CommitBatch()
        self._failed()
        report(self._loop, batch.callbacks, outcome)
        if gathered is not batch:
            report(
                self._loop,
                gathered.callbacks,
                CommitRefused(f"An earlier commit of store {self.name} failed; this one was not tried."),
            )

    def _is_quiet(self) -> bool:
        return self._batch.is_empty() and self._in_flight is None and self._reporting is None

    def _has_work(self) -> bool:
        """Something has joined."""
        return not self._batch.is_empty() or self._sweep_rows > 0


def report(
    loop: asyncio.AbstractEventLoop, callbacks: list[CommitCallback], outcome: StoreError | None
) -> None:
    """Calls each callback; one that raises is a bug of its owner and must not keep the others uninformed. They are
    forgotten then: whoever waits for a batch may know it, and memory is given back without the cyclic collector."""
    for callback in callbacks:
        _call(loop, callback, outcome)
    callbacks.clear()


def report_some(
    loop: asyncio.AbstractEventLoop, callbacks: Sequence[CommitCallback], start: int, clock: Clock
) -> int:
    """The same for a batch that is durable, from one place on, for as long as a turn of the loop may last. The place
    of the first that is not told yet. Others may be added meanwhile, at the end."""
    ends_at = clock.monotonic() + _TURN_S
    at = start
    while at < len(callbacks):
        _call(loop, callbacks[at], None)
        at += 1
        if at % _LOOK_AFTER == 0 and clock.monotonic() >= ends_at:
            break
    return at


def _call(loop: asyncio.AbstractEventLoop, callback: CommitCallback, outcome: StoreError | None) -> None:
    try:
        callback(outcome)
    except Exception as error:
        loop.call_exception_handler({"message": "A commit callback failed.", "exception": error})


def resolving(waiter: asyncio.Future[None]) -> Callable[[StoreError | None], None]:
    """A callback that ends the wait of a coroutine."""

    def resolve(outcome: StoreError | None) -> None:
        if waiter.done():  # The coroutine was cancelled meanwhile.
            return
        if outcome is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(outcome)

    return resolve
