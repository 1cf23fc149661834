"""Scheduled messages become active at their time (S-30…S-36): never early, less than a second late.

One `Activator` for each store: it sleeps until the earliest scheduled time in the store, walks the rows that are
due by their time, a page at a time, and hands them to their fragments, which give them new numbers. Fragments tell it
when an earlier time joins.

A fragment may refuse: one of its topic's subscriptions is being updated, there are no numbers left. It is left
alone for this walk, which goes on to the others, and tried again soon. So are rows that an open transaction will
cancel. The time of the next row that is not due yet is kept exactly all the while.

A row that has joined and is not committed yet is not shown by a look at the store, and its time may have been later
than the one the look was made for, or have come meanwhile. So it waits for all that has joined before the first look,
and again before it asks for the next time; and after each page, so that a crowd that is due at once does not become
one huge batch.
"""

from __future__ import annotations

import logging
from typing import Final

from busway.broker.fragment.expiry import FragmentOf, by_fragment
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.store_sweep import StoreSweep
from busway.message.message import PLACE_SCHEDULED, Message
from busway.model.errors import BrokerError
from busway.store.contract import FragmentKey, Store, TimedRow

_log = logging.getLogger(__name__)

#: Something that is due could not become active: soon again, within S-35's second, and less and less often.
_LOOK_AGAIN_MS: Final = 50
_RETRY_MS: Final = 1_000
#: Rows are read with their payloads: so many at once.
_READ_ROWS_MAX: Final = 100


class Activator(StoreSweep):
    """See the head of this file. `fragment_of` loads a fragment if need be; None when there is none."""

    def __init__(self, store: Store, fragment_of: FragmentOf, runtime: BrokerRuntime) -> None:
        super().__init__(
            "activate scheduled messages",
            store,
            runtime.wall_timers,
            runtime.clock,
            runtime.spawn,
            again_ms=_LOOK_AGAIN_MS,
        )
        self._fragment_of = fragment_of
        self._rows_max = runtime.limits.sweep_rows_max
        #: Until the next look at what could not become active.
        self._pause_ms = _LOOK_AGAIN_MS
        runtime.activators[store.name] = self

    async def walk(self) -> None:
        now_ms = self._clock.wall_ms()
        rows_max = self._rows_max
        refusing: set[FragmentKey] = set()
        activated, left = 0, 0
        after: TimedRow | None = None
        await self._store.flush()  # a commit may take longer than the time that its rows wait for
        while True:
            due = await self._store.due(now_ms, rows_max, after)
            for key, numbers in by_fragment(due).items():
                count = await self._activate(key, numbers, refusing)
                activated += count
                left += len(numbers) - count
            await self._store.flush()
            if len(due) < rows_max:
                break
            after = due[-1]
        self.look_at(await self._store.next_due_ms(now_ms))
        if activated or not left:
            self._pause_ms = _LOOK_AGAIN_MS
        if left:
            self.look_in(self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, _RETRY_MS)

    async def _activate(self, key: FragmentKey, numbers: list[int], refusing: set[FragmentKey]) -> int:
        """How many of them became active."""
        activated = 0
        for start in range(0, len(numbers), _READ_ROWS_MAX):
            fragment = None if key in refusing else await self._fragment_of(key)
            if fragment is None:
                break
            movable = [n for n in numbers[start : start + _READ_ROWS_MAX] if fragment.intake.may_leave(n)]
            if not movable:
                continue
            page = await self._store.by_number(key, PLACE_SCHEDULED, movable)
            page.messages.sort(key=_time_and_number)
            try:
                activated += await fragment.activate(page.messages)
            except BrokerError as error:
                refusing.add(key)
                if self._pause_ms == _LOOK_AGAIN_MS:  # once, not at each try
                    path = fragment.settings.path
                    _log.warning(
                        "Scheduled messages of %s wait although it is time: %s", path, error.sentence
                    )
        return activated


def _time_and_number(message: Message) -> tuple[int, int]:
    """Messages become active in the order of their times; those of one instant as they were sent."""
    return message.scheduled_at_ms, message.sequence_number
