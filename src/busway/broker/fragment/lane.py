"""One ordered stream of messages and the receivers that wait for it.

A fragment without sessions has one lane; a fragment with sessions has one for each accepted session, with that
session's receiver. Receivers wait in order of their credit's arrival (R-8): whoever was served goes to the end
of the line, so a receiver with much credit cannot starve the others.

Serving is synchronous as long as the window has messages: lock, hand over, next. When the window runs low a
read is started and the lane serves again after it. Only one read per lane is under way.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.expiry import expire
from busway.broker.fragment.journal import COMPLETE, RECEIVE
from busway.broker.fragment.locks import NO_DEADLINE
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.ready_window import ReadyWindow
from busway.broker.fragment.receiver import Delivery, Receiver
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.message_sessions import MessageSession

_log = logging.getLogger(__name__)

#: Handed to one receiver before the next one's turn.
_RUN_MESSAGES_MAX: Final = 256
_READ_RETRY_S: Final = 1.0
_CONSUMED: Final = step_of(MessageState.ACTIVE, MessageInput.CONSUMED)


class Lane:
    """See the head of this file."""

    __slots__ = (
        "_is_filling",
        "_is_serving",
        "fragment",
        "promised",
        "receivers",
        "session",
        "waiting",
        "window",
    )

    def __init__(self, fragment: Fragment, window: ReadyWindow, session: MessageSession | None) -> None:
        self.fragment = fragment
        self.window = window
        self.session = session
        #: Every receiver on this lane; the order has no meaning.
        self.receivers: dict[Receiver, None] = {}
        #: Those that may have room, in order of arrival.
        self.waiting: OrderedDict[Receiver, None] = OrderedDict()
        #: Messages whose deletion is being committed for a receive-and-delete receiver.
        self.promised: dict[Receiver, int] = {}
        self._is_serving = False
        self._is_filling = False

    def add(self, receiver: Receiver) -> None:
        self.receivers[receiver] = None
        self.window.set_idle(False)

    def remove(self, receiver: Receiver) -> None:
        self.receivers.pop(receiver, None)
        self.waiting.pop(receiver, None)
        if not self.receivers:
            self.window.set_idle(True)

    def start_over(self, window: ReadyWindow) -> None:
        """M-37: the stream is empty and its numbers begin anew. A read still on its way belongs to the old
        window and ends there."""
        self.window.close()
        self.window = window
        window.starts_at_tail(0)

    def read_again(self) -> None:
        """Rows may be shown that were hidden, or are no longer to be shown."""
        self.window.rewind(0)
        self.serve()

    def wake(self, receiver: Receiver) -> None:
        self.waiting[receiver] = None
        self.serve()

    def committed(self, run: list[Message], run_bytes: int) -> None:
        self.window.committed(run, run_bytes)
        if self.waiting:
            self.serve()
        elif not self.receivers:
            self.window.set_idle(True)

    def is_fetching(self, receiver: Receiver) -> bool:
        return (self._is_filling and receiver in self.waiting) or receiver in self.promised

    def serve(self) -> None:
        """Hands out what is in memory to those who wait, and has more read if that was not enough."""
        if self._is_serving or not self.fragment.is_usable():
            return
        self._is_serving = True
        try:
            while self.waiting and self._serve_first() and not self.window.is_drained():
                pass
        finally:
            self._is_serving = False
        if self.waiting and not self._is_filling and self.window.needs_read():
            self._is_filling = True
            self.fragment.runtime.spawn(self._fill())

    def _serve_first(self) -> bool:
        """Serves the first in line; False when nothing can be handed out now."""
        receiver = next(iter(self.waiting))
        room = receiver.room()
        if self.promised:
            room -= self.promised.get(receiver, 0)
        if room <= 0:
            del self.waiting[receiver]
            return True
        if self._hand_out(receiver, min(room, _RUN_MESSAGES_MAX)) == 0:
            return False
        if receiver in self.waiting:
            self.waiting.move_to_end(receiver)
        return True

    def _hand_out(self, receiver: Receiver, room: int) -> int:
        if receiver.deletes:
            messages = self._take(room)
            if messages:
                self._consume(receiver, messages)
        else:
            messages = self._take(min(room, self.fragment.locks_free()))
            if messages:
                self._lock(receiver, messages)
        return len(messages)

    def offer(self, receiver: Receiver, limit: int) -> int:
        """Hands out up to so many messages that are in memory, unless somebody else stands in line. How many."""
        if self._is_serving or not self.window.messages or not self.fragment.is_usable():
            return 0
        if self.waiting and next(iter(self.waiting)) is not receiver:
            return 0
        room = receiver.room() - self.promised.get(receiver, 0)
        if room <= 0:
            return 0
        self._is_serving = True
        try:
            return self._hand_out(receiver, min(room, limit))
        finally:
            self._is_serving = False

    def _take(self, count: int) -> list[Message]:
        """Up to `count` messages that have not expired (M-42); expired ones leave on the way."""
        fragment = self.fragment
        while True:
            taken = self.window.take(count)
            if not taken or fragment.settings.is_dead_letter:
                return taken
            now_ms = fragment.runtime.clock.wall_ms()
            fresh = [message for message in taken if message.expires_at_ms > now_ms]
            if len(fresh) == len(taken):
                return fresh
            expired = [message for message in taken if message.expires_at_ms <= now_ms]
            self.window.release_bytes(sum(message.size() for message in expired), len(expired))
            expire(fragment, expired)
            if fresh:
                return fresh

    def _lock(self, receiver: Receiver, messages: list[Message]) -> None:
        fragment = self.fragment
        session = self.session
        if session is None:
            now = fragment.runtime.clock.monotonic()
            duration_ms = fragment.settings.lock_duration_ms
            deadline = now + duration_ms / 1000
            until_ms = fragment.runtime.clock.wall_ms() + duration_ms
        else:
            deadline = NO_DEADLINE
            until_ms = session.locked_until_ms
        deliveries = fragment.locks.lock_run(messages, PLACE_ACTIVE, session, deadline, until_ms)
        run_bytes = fragment.locks.run_bytes
        self.window.release_bytes(run_bytes, len(messages))
        if session is None:
            fragment.settling.watch(deadline)
        epoch = self.window.epoch
        refused = receiver.deliver(deliveries)
        if refused:
            self.waiting.pop(receiver, None)
            run_bytes -= _bytes_of(refused)
            self._take_back(refused, epoch)
            messages = _without(messages, refused)
        fragment.flow.handed_out(len(messages), run_bytes)
        if fragment.runtime.journal is not None:
            fragment.tell(RECEIVE, messages)

    def _take_back(self, refused: list[Delivery], epoch: int) -> None:
        """Handed over but not sent: unlocked without a count, and still in memory for the next in line."""
        locks = self.fragment.locks
        now = self.fragment.runtime.clock.monotonic()
        unlocked = [delivery.message for delivery in refused if locks.pop(delivery.token, now) is not None]
        self.window.put_first(unlocked, epoch)

    def _consume(self, receiver: Receiver, messages: list[Message]) -> None:
        run_bytes = sum([message.size() for message in messages])
        self.window.release_bytes(run_bytes, len(messages))
        self.promised[receiver] = self.promised.get(receiver, 0) + len(messages)
        ConsumedRun(self, receiver, messages, run_bytes).begin()

    async def _fill(self) -> None:
        try:
            while self.waiting and self.fragment.is_usable() and self.window.needs_read():
                await self.window.read()
                self.serve()
        except StoreError as error:
            _log.warning("Cannot read messages of %s: %s", self.fragment.settings.path, error)
            timers = self.fragment.runtime.timers
            timers.at(self.fragment.runtime.clock.monotonic() + _READ_RETRY_S, self.serve)
        finally:
            self._is_filling = False
            for receiver in list(self.waiting):
                if receiver not in self.promised:
                    receiver.caught_up()


class ConsumedRun(FragmentWrite):
    """Messages of a receive-and-delete receiver while their deletion is being committed (R-1)."""

    __slots__ = ("bytes", "lane", "messages", "receiver")

    def __init__(self, lane: Lane, receiver: Receiver, messages: list[Message], run_bytes: int) -> None:
        super().__init__(lane.fragment)
        self.lane = lane
        self.receiver = receiver
        self.messages = messages
        self.bytes = run_bytes

    def begin(self) -> None:
        """The deletion first."""
        self.batch = self.fragment.batch()
        self.fragment.consuming += len(self.messages)
        self.remove(_CONSUMED, self.messages)
        self.join()

    def committed(self, error: StoreError | None) -> None:
        lane, receiver = self.lane, self.receiver
        promised = lane.promised.pop(receiver) - len(self.messages)
        if promised:
            lane.promised[receiver] = promised
        if error is not None:
            lane.fragment.commit_failed(error)
            return
        deliveries = [Delivery(message, b"", 0) for message in self.messages]
        refused = receiver.deliver(deliveries) if receiver in lane.receivers else deliveries
        if refused:
            lane.waiting.pop(receiver, None)
            self.bytes -= _bytes_of(refused)
            lane.fragment.put_back([delivery.message for delivery in refused])
        lane.fragment.flow.handed_out(len(deliveries) - len(refused), self.bytes)
        if lane.fragment.runtime.journal is not None:
            taken = _without(self.messages, refused)
            lane.fragment.tell(RECEIVE, taken)
            lane.fragment.tell(COMPLETE, taken)
        lane.fragment.consumed(len(self.messages))
        if not lane.is_fetching(receiver):
            receiver.caught_up()


def _without(messages: list[Message], refused: list[Delivery]) -> list[Message]:
    if not refused:
        return messages
    back = {id(delivery.message) for delivery in refused}
    return [message for message in messages if id(message) not in back]


def _bytes_of(deliveries: list[Delivery]) -> int:
    return sum([delivery.message.size() for delivery in deliveries])
