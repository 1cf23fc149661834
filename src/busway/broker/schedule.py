"""Scheduled messages become active at their time (S-30…S-36): never early, less than a second late.

One `Activator` for each store: it sleeps until the earliest scheduled time in the store, asks which rows are
due and hands them to their fragments, which give them new numbers. Fragments tell it when an earlier time joins.

A row that has joined and is not committed yet is not shown by a look at the store, and its time may have been later
than the one the look was made for. So before it asks for the next time it waits for all that has joined by then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from busway.broker.expiry import FragmentOf
from busway.broker.wall_alarm import WallAlarm
from busway.message import Message
from busway.store.contract import PLACE_SCHEDULED, FragmentKey, Store, StoreError, StoreState

if TYPE_CHECKING:
    from busway.broker.runtime import BrokerRuntime

_log = logging.getLogger(__name__)

#: A row that is due but whose own commit is not reported yet: soon again, within S-35's second.
_LOOK_AGAIN_MS: Final = 50
_RETRY_MS: Final = 1_000


class Activator:
    """See the head of this file. `fragment_of` loads a fragment if need be; None when there is none."""

    __slots__ = ("_alarm", "_fragment_of", "_is_active", "_is_stopped", "_runtime", "_store")

    def __init__(self, store: Store, fragment_of: FragmentOf, runtime: BrokerRuntime) -> None:
        self._store = store
        self._fragment_of = fragment_of
        self._runtime = runtime
        self._alarm = WallAlarm(runtime, self._ring)
        self._is_active = False
        self._is_stopped = False
        runtime.activators[store.name] = self

    def start(self) -> None:
        """The store has been opened, or opened again."""
        self._alarm.no_later_than(0)

    def stop(self) -> None:
        """The store is out of service; another one is made when it is back."""
        self._is_stopped = True
        self._alarm.stop()

    def joined(self, scheduled_at_ms: int) -> None:
        self._alarm.no_later_than(scheduled_at_ms)

    def _look_in(self, delay_ms: int) -> None:
        if not self._is_stopped:
            self._alarm.no_later_than(self._runtime.clock.wall_ms() + delay_ms)

    def _ring(self) -> None:
        if self._is_active:  # it may have passed the rows this is about
            self._look_in(_LOOK_AGAIN_MS)
        elif self._store.state is StoreState.OPEN:
            self._is_active = True
            self._runtime.spawn(self._activate_due())

    async def _activate_due(self) -> None:
        try:
            while await self._activate_slice():
                pass
            await self._store.flush()
            next_ms = await self._store.next_due_ms()
            if next_ms is not None:
                delay_ms = next_ms - self._runtime.clock.wall_ms()
                self._look_in(delay_ms if delay_ms > 0 else _LOOK_AGAIN_MS)
        except StoreError as error:
            _log.warning("Cannot activate scheduled messages of store %s: %s", self._store.name, error)
            self._look_in(_RETRY_MS)
        finally:
            self._is_active = False

    async def _activate_slice(self) -> bool:
        """True when it got anything done, so that it is worth looking for more."""
        rows_max = self._runtime.limits.sweep_rows_max
        due = await self._store.due(self._runtime.clock.wall_ms(), rows_max)
        grouped: dict[FragmentKey, list[int]] = {}
        for key, number, _ in due:
            grouped.setdefault(key, []).append(number)
        activated = 0
        for key, numbers in grouped.items():
            fragment = await self._fragment_of(key)
            if fragment is not None:
                page = await self._store.by_number(key, PLACE_SCHEDULED, numbers)
                page.messages.sort(key=_time_and_number)
                activated += fragment.activate(page.messages)
        return activated > 0


def _time_and_number(message: Message) -> tuple[int, int]:
    """Messages become active in the order of their times; those of one instant as they were sent."""
    return message.scheduled_at_ms, message.sequence_number
