"""Duplicate detection (S-40…S-45).

Theory of operation. The history of ids lies in the store; looking into it suspends. So sends of an entity that
detects duplicates wait in one line: while a look is under way, further sends queue up, and the next look serves
all of them at once. Order is kept (S-4), also for messages without an id.

A look sees every id whose commit was reported before it began. Ids that joined later are remembered here:
`_joined` until their commit is reported, then `_reported` until the next look begins. So what a look has found stays
true until the next one begins, and its sends may wait for a batch that takes them, or for a large one before them
that is on its way still: they wait in line.

An id joins in the same step and the same batch as the rows it stands for (`SentRun.joined`), after everything that
can refuse them: an id without its message would make a duplicate of the sender's next try.

A transaction that sends waits in the same line when it is committed; it joins as a whole or not at all.

A duplicate is accepted and dropped. It is told only with the commit of the batch that is open then, which is
never earlier than the commit of the message it repeats (S-1).

Old ids are forgotten in slices of bounded size: a slice ends after so many ids, and is forgotten once it has
left the window (S-44).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.sent_run import SentRun
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy
from busway.store.contract import StoreError
from busway.timers import Timer

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_log = logging.getLogger(__name__)

_SLICES_MAX: Final = 10_000
#: What an earlier life left behind is forgotten in so many steps.
_SLICES_AT_START: Final = 20
#: Between two slices that are due: other work goes on, and forgetting keeps up with any rate of sends.
_SLICE_EVERY_S: Final = 0.02


class DuplicateFilter:
    """The line of sends of one fragment that wait for a look into the history."""

    __slots__ = (
        "_fragment",
        "_is_looking",
        "_joined",
        "_line",
        "_newest_count",
        "_newest_ms",
        "_purge_timer",
        "_reported",
        "_slices",
    )

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._line: deque[SentRun] = deque()
        self._is_looking = False
        self._joined: set[str] = set()
        self._reported: set[str] = set()
        #: (time of the latest id, count) of ids that wait to be forgotten, a heap by time: the clock may be set back.
        self._slices: list[tuple[int, int]] = []
        #: The same of those that came last, whose slice is not full yet.
        self._newest_ms = 0
        self._newest_count = 0
        self._purge_timer: Timer | None = None

    def start(self) -> None:
        """Ids of an earlier life, whose times are unknown, are forgotten step by step."""
        settings = self._fragment.settings
        if not settings.detects_duplicates or self._purge_timer is not None:
            return
        now_ms = self._fragment.runtime.clock.wall_ms()
        step_ms = settings.duplicate_window_ms // _SLICES_AT_START
        for step in range(_SLICES_AT_START + 1):
            heapq.heappush(self._slices, (now_ms - settings.duplicate_window_ms + step * step_ms, 0))
        self._arm()

    def stop(self, error: BrokerError) -> None:
        """Sends that wait fail: nothing of them is stored."""
        self._fragment.runtime.timers.cancel(self._purge_timer)
        runs = list(self._line)
        self._line.clear()
        for run in runs:
            run.fail(ServerBusy(error.sentence))

    def submit(self, run: SentRun) -> None:
        self._line.append(run)
        if not self._is_looking:
            self._is_looking = True
            self._fragment.runtime.spawn(self._look())

    def waiting_messages(self) -> int:
        """How many messages wait in line. Walks the line: for rare moments only."""
        return sum(len(run.messages) for run in self._line)

    async def _look(self) -> None:
        try:
            while self._line and self._fragment.is_usable():
                await self._look_once()
        except StoreError as error:
            _log.warning("Cannot read the history of ids of %s: %s", self._fragment.settings.path, error)
        finally:
            self._is_looking = False
            self._fail_line()  # whoever is left: nobody waits for a look that does not come

    async def _look_once(self) -> None:
        fragment = self._fragment
        looked_at = list(self._line)
        found = [self._identity(message) for run in looked_at for message in run.messages]
        ids = {identity for identity in found if identity is not None}
        self._reported.clear()  # their commits were reported before this look: it will see them
        known: set[str] = set()
        if ids:
            since_ms = fragment.runtime.clock.wall_ms() - fragment.settings.duplicate_window_ms
            known = await fragment.store.known_ids(fragment.key, ids, since_ms)
        for run in looked_at:
            if fragment.intake.is_busy():
                await self._room()
            if not self._line or self._line[0] is not run:  # stopped meanwhile
                return
            self._line.popleft()
            self._join(run, known)

    async def _room(self) -> None:
        """Returns when what comes joins in the same step. Nobody else joins for this fragment meanwhile."""
        free = asyncio.Event()
        while self._fragment.intake.must_wait(free.set):
            await free.wait()
            free.clear()

    def _join(self, run: SentRun, known: set[str]) -> None:
        fragment = self._fragment
        fragment.intake.pending_bytes -= run.bytes
        if run.may_join is not None and not run.may_join():
            return  # S-46: it leaves no trace in the history
        new_ids: list[str] = []
        fresh: list[Message] = []
        places: list[int] = []
        seen: set[str] = set()
        for place, message in enumerate(run.messages):
            message_id = self._identity(message)
            if message_id is not None:
                if message_id in known or message_id in seen or self._is_remembered(message_id):
                    run.bytes -= message.size()
                    if run.dropped is None:
                        run.dropped = []
                    run.dropped.append(message)
                    continue
                seen.add(message_id)
                new_ids.append(message_id)
            fresh.append(message)
            places.append(place)
        if run.dropped is not None:
            before = run.message_places()
            run.places = [before[place] for place in places]
        run.messages = run.active = fresh
        run.active_bytes = run.bytes
        run.ids = new_ids or None
        if run.hand_over is None:
            fragment.intake.join(run)
        else:
            run.hand_over(run)

    def _identity(self, message: Message) -> str | None:
        """What is compared: the id; on a partitioned entity the id and the key (S-41)."""
        message_id = message.message_id
        if message_id is None or not self._fragment.settings.is_partitioned:
            return message_id
        key = message.partition_key if message.session_id is None else message.session_id
        return f":{message_id}" if key is None else f"{len(key)}:{key}{message_id}"

    def _is_remembered(self, message_id: str) -> bool:
        return message_id in self._joined or message_id in self._reported

    def remember(self, write: FragmentWrite, new_ids: list[str]) -> None:
        """Their messages have joined its batch."""
        now_ms = self._fragment.runtime.clock.wall_ms()
        write.remember_ids(new_ids)
        self._joined.update(new_ids)
        write.batch.callbacks.append(_RememberedIds(self, new_ids).committed)
        self._count_in_slice(now_ms, len(new_ids))

    def reported(self, ids: list[str]) -> None:
        self._joined.difference_update(ids)
        self._reported.update(ids)

    def _fail_line(self) -> None:
        runs = list(self._line)
        self._line.clear()
        for run in runs:
            self._fragment.intake.pending_bytes -= run.bytes
            run.fail(ServerBusy.without("The history of message ids"))

    # -- forgetting

    def _count_in_slice(self, now_ms: int, count: int) -> None:
        if self._newest_count and now_ms < self._newest_ms:  # the clock was set back: those leave first
            self._end_slice()
        self._newest_ms = now_ms
        self._newest_count += count
        if self._newest_count >= self._fragment.runtime.limits.sweep_rows_max:
            self._end_slice()
        if self._purge_timer is None:
            self._arm()

    def _end_slice(self) -> None:
        heapq.heappush(self._slices, (self._newest_ms, self._newest_count))
        self._newest_count = 0
        if len(self._slices) > _SLICES_MAX:
            self._merge_slices()

    def _merge_slices(self) -> None:
        """Half as many, twice as large: memory stays bounded whatever the window and the rate."""
        ordered = sorted(self._slices)
        merged = [
            (ordered[i + 1][0], ordered[i][1] + ordered[i + 1][1]) for i in range(0, len(ordered) - 1, 2)
        ]
        if len(ordered) % 2:
            merged.append(ordered[-1])
        self._slices = merged

    def _arm(self) -> None:
        runtime = self._fragment.runtime
        if not self._slices and not self._newest_count:
            return
        first_ms = self._slices[0][0] if self._slices else self._newest_ms
        leaves_ms = first_ms + self._fragment.settings.duplicate_window_ms + 1
        delay_s = max(_SLICE_EVERY_S, (leaves_ms - runtime.clock.wall_ms()) / 1000)
        self._purge_timer = runtime.timers.at(runtime.clock.monotonic() + delay_s, self._purge)

    def _purge(self) -> None:
        self._purge_timer = None
        fragment = self._fragment
        if not self._slices and self._newest_count:
            self._end_slice()
        left_ms = fragment.runtime.clock.wall_ms() - fragment.settings.duplicate_window_ms
        if self._slices and self._slices[0][0] < left_ms and fragment.is_usable():
            end_ms = heapq.heappop(self._slices)[0]
            write = fragment.write()
            write.forget_ids(end_ms + 1)
            write.join()
        self._arm()


class _RememberedIds:
    """Ids on their way into the history."""

    __slots__ = ("_filter", "_ids")

    def __init__(self, duplicates: DuplicateFilter, ids: list[str]) -> None:
        self._filter = duplicates
        self._ids = ids

    def committed(self, error: StoreError | None) -> None:
        if error is None:
            self._filter.reported(self._ids)
