"""The end of a fragment's sequence numbers, and their new beginning (M-37).

Theory of operation. A row key holds COUNTER_BITS of a number; a larger number would be another row's. The last
2^32 numbers are the reserve. Once the counter is in it, sends come by here first. As soon as neither the fragment
nor its dead-letter fragment holds a row, the counter starts again at 0; while rows are left it goes on through
the reserve; when that is used up sends are refused until the rows are gone. Above those bits stands the fragment's
index, which never changes: all of this is about the bits below it.

Empty in memory is not enough: a delete that joined a batch but is not durable names a number that would soon be
given out again, and a batch may not put and delete one number. So the send that finds everything empty is held,
with those behind it, until what joined so far is durable. Copies of a topic cannot be held, they join with the
topic's batch; for their sake an empty moment is also looked for now and then. What comes in while such a look waits
for its commit shows in the counters, and the next look tries again.

A scheduled message takes a second number when its time comes. That one is set aside from its arrival on, so an
activation never finds the numbers used up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.runtime import broker_error
from busway.message.message import Message
from busway.model.errors import BrokerError, QuotaExceeded, ServerBusy
from busway.model.settlement import RunDone
from busway.store.contract import COUNTER_BITS, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Origin

_log = logging.getLogger(__name__)

NUMBER_MAX: Final = (1 << COUNTER_BITS) - 1
#: From this number on the counter looks for a moment to start again.
RESERVE_FROM: Final = NUMBER_MAX - (1 << 32)
_LOOK_EVERY_S: Final = 1.0


class HeldSend:
    """A call of `Intake.append` that comes again."""

    __slots__ = ("done", "is_atomic", "messages", "origin")

    def __init__(
        self, messages: list[Message], done: RunDone, is_atomic: bool, origin: Origin | None
    ) -> None:
        self.origin = origin
        self.messages = messages
        self.done = done
        self.is_atomic = is_atomic

    def fail(self, error: BrokerError) -> None:
        count = 1 if self.is_atomic else len(self.messages)
        self.done([(index, error) for index in range(count)])


class Numbering:
    """Of one fragment. Only a fragment in its reserve asks here."""

    __slots__ = ("_fragment", "_held", "_is_told", "_is_watching")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        #: Sends that wait for the new beginning, in order.
        self._held: list[HeldSend] = []
        #: The log knows that the reserve is in use.
        self._is_told = False
        self._is_watching = False

    def holds(self, messages: list[Message], done: RunDone, is_atomic: bool, origin: Origin | None) -> bool:
        """True when the send waits for the new beginning; it is then taken care of."""
        if not self._held and not self._asks():
            return False
        self._held.append(HeldSend(messages, done, is_atomic, origin))
        return True

    def refusal(self, count: int) -> BrokerError | None:
        """Whether so many more messages find numbers, though all of them be scheduled."""
        fragment = self._fragment
        promised = fragment.counters.scheduled + 2 * fragment.duplicates.waiting_messages()
        if fragment.counters.last_counter + promised + 2 * count <= fragment.number_base + NUMBER_MAX:
            return None
        return QuotaExceeded(
            f"'{fragment.settings.path}' has used up its sequence numbers. Receive or delete what is left in it and"
            " in its dead-letter queue: once both are empty the numbers start again and it goes on."
        )

    def take(self, count: int) -> None:
        """A run joins with numbers of the reserve. Raises QuotaExceeded."""
        refusal = self.refusal(count)
        if refusal is not None:
            raise refusal
        self._tell_once()
        self._watch()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            runtime = self._fragment.runtime
            runtime.timers.at(runtime.clock.monotonic() + _LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._is_watching = False
        if self._is_in_reserve():
            if not self._held:
                self._asks()
            self._watch()

    def _asks(self) -> bool:
        """Has itself told when the emptiness of this moment is durable; False when there is none."""
        if not self._is_empty():
            return False
        try:
            self._fragment.batch().callbacks.append(self._emptied)
        except ServerBusy:  # the store failed at this very moment; whoever sends will find out
            return False
        return True

    def _is_in_reserve(self) -> bool:
        fragment = self._fragment
        used = fragment.counters.last_counter - fragment.number_base
        return fragment.is_usable() and used >= RESERVE_FROM

    def _is_empty(self) -> bool:
        """No row in memory's eyes, and none on its way in or back."""
        fragment = self._fragment
        dead_letter = fragment.dead_letter
        return (
            _holds_nothing(fragment)
            and not fragment.duplicates.waiting_messages()
            and (dead_letter is None or _holds_nothing(dead_letter))
        )

    def _emptied(self, error: StoreError | None) -> None:
        """What joined before it was asked for is durable, or has failed."""
        held, self._held = self._held, []
        if error is not None:
            for send in held:
                send.fail(broker_error(error))
            self._fragment.commit_failed(error)
            return
        if self._is_in_reserve() and self._is_empty():
            self._start_again()
        for send in held:
            self._fragment.intake.append(send.messages, send.done, send.is_atomic, send.origin)

    def _start_again(self) -> None:
        fragment = self._fragment
        for part in (fragment, fragment.dead_letter):
            if part is not None:
                write = part.write(fragment.batch())
                _forget_numbers(part)
                write.join()
        self._is_told = False
        _log.warning("The sequence numbers of %s start again: the next one is 1", fragment.settings.path)

    def _tell_once(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        fragment = self._fragment
        _log.warning(
            "%s has %d sequence numbers left. They start again as soon as it and its dead-letter queue are empty",
            fragment.settings.path,
            fragment.number_base + NUMBER_MAX - fragment.counters.last_counter,
        )


def _holds_nothing(fragment: Fragment) -> bool:
    """No row in any place, and none that may come back."""
    counters = fragment.counters
    return (
        counters.active == 0
        and counters.deferred == 0
        and counters.scheduled == 0
        and fragment.consumption.count == 0
        and not fragment.locks.live
        and not fragment.horizon.arriving
        and not fragment.horizon.holds_any_back()
    )


def _forget_numbers(fragment: Fragment) -> None:
    """It holds nothing, durably. Whatever remembers numbers starts over with them."""
    fragment.counters.last_counter = fragment.number_base
    fragment.counters.expiry_high_ms = 0
    if not fragment.settings.is_dead_letter:
        fragment.horizon.committed_high = fragment.number_base
    fragment.lane.start_over()
    fragment.sessions.start_over()
