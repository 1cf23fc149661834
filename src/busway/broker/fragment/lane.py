"""One ordered stream of messages, the next of them in memory, and the receivers that wait for it.

A fragment without sessions has one lane; a fragment with sessions has one for each accepted session, with that
session's receiver. Receivers wait in order of their credit's arrival (R-8): whoever was served goes to the end of
the line, so a receiver with much credit cannot starve the others. Serving is synchronous as long as the window has
messages: lock, hand over, next. When the window runs low a read is started and the lane serves again after it.
Only one read per lane is under way.

Theory of operation of the window. It shows a prefix of a stream of active rows: those of a fragment, or of one
session in it. `end` is its edge: every active row up to `end` is in `messages`, or locked, or named in `returned`,
or on its way out. Rows beyond `end` are only in the store, unless `is_at_tail`: then there are none, and what
commits next enters directly. So consumers that keep up never cause a read, and a backlog never sits in memory.
What comes back (abandoned, lock ended, put back) and what arrives below the edge (dead-lettered in any order) is
remembered by number alone in the heap `returned`, and fetched by number. When too many are remembered the window
rewinds below them and reads the rows again, skipping locked ones. Messages are counted in a byte budget shared by
all windows of the process. A window nobody waits for may keep what it has until others need the room.

Reads take time; meanwhile life goes on. During a read, runs that commit are kept in `_committed_meanwhile` and
numbers that arrive in `_arrived_meanwhile`; when the page comes, both are laid behind it. `epoch` tells a page
that was read for a window that has been rewound since: it is dropped. A row whose commit is not reported yet is
never shown, even if a read has seen it: rows above `Horizon.committed_high` and rows in `Horizon.arriving` are cut
off.
"""

from __future__ import annotations

import heapq
import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.expiry_and_schedule import expire
from busway.broker.fragment.journal import COMPLETE, RECEIVE
from busway.broker.fragment.locks import NO_DEADLINE, Delivery, Receiver
from busway.broker.fragment.message_states import MessageInput, MessageState, step_of
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import NEVER_MS, PLACE_ACTIVE, Message
from busway.store.contract import Page, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.message_sessions import MessageSession

_log = logging.getLogger(__name__)

#: What a message costs in memory besides its bytes: the object, its integers, its place in the deque.
MESSAGE_OVERHEAD_BYTES: Final = 300
#: A window may always hold this much, so that a full budget slows everybody down but stops nobody.
_WINDOW_BYTES_MIN: Final = 64 * 1024
_FETCH_NUMBERS_MAX: Final = 256
#: One read; larger reads would hold up the first delivery.
_PAGE_MESSAGES_MAX: Final = 512
_PAGE_BYTES_MAX: Final = 4 * 1024 * 1024


class WindowBudget:
    """Bytes that all ready windows of a process may hold together."""

    __slots__ = ("_idle", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        #: Windows that hold messages nobody waits for, the longest idle first.
        self._idle: OrderedDict[ReadyWindow, None] = OrderedDict()

    def has_room(self, amount: int) -> bool:
        """Room for so many bytes, made by emptying idle windows if need be."""
        while self.bytes_used + amount > self.bytes_max and self._idle:
            window, _ = self._idle.popitem(last=False)
            window.give_back()
        return self.bytes_used + amount <= self.bytes_max

    def set_idle(self, window: ReadyWindow, idle: bool) -> None:
        if idle:
            self._idle[window] = None
        else:
            self._idle.pop(window, None)


class Horizon:
    """Which of a fragment's rows may be shown: up to where they are known to be durable, and which are held back."""

    __slots__ = ("arriving", "committed_high", "held_back", "held_back_up_to")

    def __init__(self, committed_high: int) -> None:
        #: Numbers given out by this fragment up to here are durable.
        self.committed_high = committed_high
        #: Numbers on their way here from another fragment, their commit not yet reported.
        self.arriving: set[int] = set()
        #: Numbers of rows that may have been moved elsewhere already (`transfers`); and up to here all of them.
        self.held_back: set[int] = set()
        self.held_back_up_to = 0

    def hides(self, number: int) -> bool:
        return number > self.committed_high or number in self.arriving or self.holds_back(number)

    def holds_back(self, number: int) -> bool:
        return number <= self.held_back_up_to or number in self.held_back

    def holds_any_back(self) -> bool:
        return self.held_back_up_to > 0 or bool(self.held_back)


class ReadyWindow:
    """See the head of this file."""

    __slots__ = (
        "_arrived_meanwhile",
        "_budget",
        "_bytes",
        "_committed_meanwhile",
        "_end_high",
        "_fetching_first",
        "_horizon",
        "_is_reading",
        "_key",
        "_locks",
        "_messages_max",
        "_overran",
        "_returned_max",
        "_session_id",
        "_store",
        "end",
        "epoch",
        "is_at_tail",
        "messages",
        "returned",
    )

    def __init__(self, fragment: Fragment, session_id: str | None) -> None:
        self._store = fragment.store
        self._key = fragment.key
        self._session_id = session_id
        self._locks = fragment.locks
        self._horizon = fragment.horizon
        self._budget = fragment.runtime.window_budget
        self._messages_max = fragment.runtime.limits.window_messages_max
        self._returned_max = fragment.runtime.limits.returned_numbers_max
        self.messages: deque[Message] = deque()
        self.returned: list[int] = []
        self.end = 0
        self.is_at_tail = False
        self._bytes = 0
        #: The furthest `end` was before it was rewound: rows beyond it cannot be locked.
        self._end_high = 0
        #: Changes whenever messages are dropped from memory to be read again.
        self.epoch = 0
        self._is_reading = False
        #: The lowest returned number whose row is being fetched, 0 for none: nothing after it may go before it.
        self._fetching_first = 0
        self._committed_meanwhile: list[Message] = []
        self._arrived_meanwhile: list[int] = []
        #: More committed during a read than is worth keeping.
        self._overran = False

    # -- what fills it

    def starts_at_tail(self, last_number: int) -> None:
        """There are no rows up to this number: no read is needed before the first message."""
        self.end = last_number
        self.is_at_tail = True

    def committed(self, run: list[Message], run_bytes: int) -> None:
        """New messages, in order, are durable. Those up to the edge are known already."""
        if self._is_reading and not self.is_at_tail:
            self._keep_for_later(run)
        elif self.is_at_tail:
            if run[0].sequence_number <= self.end:
                run = [message for message in run if message.sequence_number > self.end]
                run_bytes = _bytes_of(run)
            if run:
                self._extend_or_leave(run, run_bytes + MESSAGE_OVERHEAD_BYTES * len(run))

    def arrived(self, number: int) -> None:
        """A row is durable that entered not at the end, or whose payload is only in the store."""
        if number <= self.end:
            self.give_number_back(number)
        elif self.is_at_tail:
            self.end = number
            self.give_number_back(number)
        elif self._is_reading:
            self._arrived_meanwhile.append(number)

    def give_number_back(self, number: int) -> None:
        """A row that was handed out is available again. Beyond the edge a later read will find it."""
        if number > self.end:
            return
        heapq.heappush(self.returned, number)
        if len(self.returned) > self._returned_max:
            self.rewind(self._first_number() - 1)

    def _give_numbers_back(self, numbers: list[int]) -> None:
        for number in numbers:
            self.give_number_back(number)

    # -- what empties it

    def take(self, count: int) -> list[Message]:
        """Up to `count` messages in order; fewer when a lower number must be fetched first."""
        messages = self.messages
        count = min(count, len(messages))
        if not self.returned and self._fetching_first == 0:
            return [messages.popleft() for _ in range(count)]
        lowest_missing = self._lowest_missing()
        taken: list[Message] = []
        while len(taken) < count and messages[0].sequence_number < lowest_missing:
            taken.append(messages.popleft())
        return taken

    def _lowest_missing(self) -> int:
        """The lowest number that is available but not in memory. There must be one."""
        if self._fetching_first == 0:
            return self.returned[0]
        return min(self._fetching_first, self.returned[0]) if self.returned else self._fetching_first

    def put_first(self, messages: list[Message], epoch: int) -> None:
        """Messages just taken, in order, were not delivered after all. `epoch`: that of the moment they were
        taken; if the window was rewound since, they will be read again."""
        if epoch != self.epoch:
            for message in messages:
                self.give_number_back(message.sequence_number)
            return
        self.messages.extendleft(reversed(messages))
        self._account(_bytes_of(messages) + MESSAGE_OVERHEAD_BYTES * len(messages))

    def release_bytes(self, message_bytes: int, count: int) -> None:
        """Messages that were taken have left memory."""
        amount = message_bytes + MESSAGE_OVERHEAD_BYTES * count
        self._bytes -= amount
        self._budget.bytes_used -= amount

    def discard(self, numbers: set[int]) -> None:
        """Rows that leave the store by other ways: expired, deleted in a batch."""
        gone = [message for message in self.messages if message.sequence_number in numbers]
        if gone:
            kept = [message for message in self.messages if message.sequence_number not in numbers]
            self.messages = deque(kept)
            self.release_bytes(_bytes_of(gone), len(gone))
        if self.returned:
            self.returned = [number for number in self.returned if number not in numbers]
            heapq.heapify(self.returned)

    def rewind(self, end: int) -> None:
        """Forgets everything above `end`; it will be read again."""
        self._drop_messages()
        self.returned.clear()
        self._end_high = max(self._end_high, self.end)
        self.end = end
        self.is_at_tail = False
        self.epoch += 1

    def give_back(self) -> None:
        """Returns its memory. An empty window keeps its edge, which costs nothing."""
        if self.messages:
            self.rewind(self._first_number() - 1)

    def _first_number(self) -> int:
        """The lowest number that is in memory, as a message or by itself. There must be one."""
        if not self.messages:
            return self.returned[0]
        first = self.messages[0].sequence_number
        return min(first, self.returned[0]) if self.returned else first

    def close(self) -> None:
        """For good: a page still on its way is dropped too."""
        self.rewind(0)
        self._budget.set_idle(self, False)

    def set_idle(self, idle: bool) -> None:
        self._budget.set_idle(self, idle and bool(self.messages))

    # -- reading

    def is_drained(self) -> bool:
        """There is nothing to hand out, here or in the store."""
        return self.is_at_tail and not self.messages and not self.returned

    def first_enqueued_ms(self) -> int:
        """When the message came in that is next to be handed out; 0 when it must be read first, and the end of time
        when there is none."""
        if self.messages:
            return self.messages[0].enqueued_at_ms
        return NEVER_MS if self.is_drained() else 0

    def needs_read(self) -> bool:
        """True when someone waits and memory cannot serve much longer."""
        if self._is_reading:
            return False
        if self.returned:
            return not self.messages or self.returned[0] < self.messages[0].sequence_number
        return not self.is_at_tail and len(self.messages) <= self._messages_max // 4

    async def read(self) -> None:
        """One read: returned numbers first, else the next page. Raises StoreError."""
        self._is_reading = True
        try:
            if self.returned:
                await self._fetch_returned()
            else:
                await self._read_page()
        finally:
            self._is_reading = False
            self._overran = False
            self._committed_meanwhile = []
            self._arrived_meanwhile = []

    async def _fetch_returned(self) -> None:
        epoch = self.epoch
        count = min(len(self.returned), _FETCH_NUMBERS_MAX)
        numbers = [heapq.heappop(self.returned) for _ in range(count)]
        self._fetching_first = numbers[0]
        try:
            page = await self._store.by_number(self._key, PLACE_ACTIVE, numbers)
        except BaseException:
            self._give_numbers_back(numbers)
            raise
        finally:
            self._fetching_first = 0
        if epoch != self.epoch:
            self._give_numbers_back(numbers)
            return
        self._report_damage(page)
        if page.messages:
            self._merge(page.messages)
        self._lay_behind(not self.is_at_tail)

    async def _read_page(self) -> None:
        epoch = self.epoch
        after = max(self.end, self._horizon.held_back_up_to)
        seen_high = self._horizon.committed_high
        rows_max = min(self._messages_max, _PAGE_MESSAGES_MAX)
        if self._session_id is None:
            page = await self._store.messages(
                self._key, PLACE_ACTIVE, after, rows_max, self._page_bytes_max()
            )
        else:
            page = await self._store.session_messages(
                self._key, self._session_id, after, rows_max, self._page_bytes_max()
            )
        if epoch != self.epoch:
            return
        self._report_damage(page)
        self._accept_page(page, seen_high)

    def _accept_page(self, page: Page, seen_high: int) -> None:
        """`seen_high`: whatever was durable up to there when the read began is in the page."""
        rows = [message for message in page.messages if message.sequence_number <= seen_high]
        has_more = page.more and len(rows) == len(page.messages)
        if has_more:
            last = max(rows[-1].sequence_number if rows else 0, max(page.damaged, default=0))
            self.end = max(self.end, last)
        elif page.messages:
            # Either all rows, or cut at seen_high: everything durable up to there has been seen.
            self.end = max(self.end, min(seen_high, page.messages[-1].sequence_number))
        arriving = self._horizon.arriving
        if arriving:
            rows = [message for message in rows if message.sequence_number not in arriving]
        if self._horizon.holds_any_back():
            rows = [message for message in rows if not self._horizon.holds_back(message.sequence_number)]
        if rows and rows[0].sequence_number <= self._end_high:
            locked = self._locks.numbers()
            rows = [message for message in rows if message.sequence_number not in locked]
        self.messages.extend(rows)
        self._account(_bytes_of(rows) + MESSAGE_OVERHEAD_BYTES * len(rows))
        self._lay_behind(has_more)

    def _lay_behind(self, has_more: bool) -> None:
        """What committed or arrived during the read follows what was read, if the read reached the tail."""
        if not has_more and not self._overran:
            self.is_at_tail = True
            run = [m for m in self._committed_meanwhile if m.sequence_number > self.end]
            if run:
                self._extend_or_leave(run, _bytes_of(run) + MESSAGE_OVERHEAD_BYTES * len(run))
        if not self._arrived_meanwhile:
            return
        arrived, self._arrived_meanwhile = self._arrived_meanwhile, []
        shown = {message.sequence_number for message in self.messages}
        for number in arrived:
            if number not in shown and (number <= self.end or self.is_at_tail):
                self.arrived(number)

    def _merge(self, rows: list[Message]) -> None:
        self._account(_bytes_of(rows) + MESSAGE_OVERHEAD_BYTES * len(rows))
        if not self.messages or rows[-1].sequence_number < self.messages[0].sequence_number:
            self.messages.extendleft(reversed(rows))
        else:
            self.messages = deque(heapq.merge(rows, self.messages, key=_number_of))

    def _extend_or_leave(self, run: list[Message], amount: int) -> None:
        """At the tail: takes the run into memory if there is room, else leaves it in the store."""
        if len(self.messages) + len(run) > self._messages_max or not self._has_room(amount):
            self.is_at_tail = False
        if self.is_at_tail:  # making room may have emptied this very window
            self.messages.extend(run)
            self.end = run[-1].sequence_number
            self._account(amount)

    def _keep_for_later(self, run: list[Message]) -> None:
        if len(self._committed_meanwhile) + len(run) > self._messages_max:
            self._overran = True
            self._committed_meanwhile.clear()
        if not self._overran:
            self._committed_meanwhile.extend(run)

    def _has_room(self, amount: int) -> bool:
        return self._bytes + amount <= _WINDOW_BYTES_MIN or self._budget.has_room(amount)

    def _page_bytes_max(self) -> int:
        free = self._budget.bytes_max - self._budget.bytes_used
        return max(_WINDOW_BYTES_MIN, min(free, _PAGE_BYTES_MAX))

    def _account(self, amount: int) -> None:
        self._bytes += amount
        self._budget.bytes_used += amount

    def _drop_messages(self) -> None:
        self._budget.bytes_used -= self._bytes
        self._bytes = 0
        self.messages = deque()

    def _report_damage(self, page: Page) -> None:
        for number in page.damaged:
            _log.error(
                "A stored message is damaged and out of service: fragment %d, sequence number %d",
                self._key,
                number,
            )


def _bytes_of(messages: list[Message]) -> int:
    return sum([message.size() for message in messages])


def _number_of(message: Message) -> int:
    return message.sequence_number


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

    def __init__(self, fragment: Fragment, session: MessageSession | None) -> None:
        self.fragment = fragment
        self.session = session
        self.window = ReadyWindow(fragment, None if session is None else session.session_id)
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

    def start_over(self) -> None:
        """M-37: the stream is empty and its numbers begin anew. A read still on its way belongs to the old
        window and ends there."""
        self.window.close()
        self.window = ReadyWindow(self.fragment, None if self.session is None else self.session.session_id)
        self.window.starts_at_tail(0)

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
        if self.fragment.is_suspended():
            return 0  # `Fragment.resume` serves again
        if receiver.deletes:
            messages = self._take(room)
            if messages:
                self._consume(receiver, messages)
        else:
            messages = self._take(min(room, self.fragment.locks.free()))
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
            run_bytes -= _bytes_delivered(refused)
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
        self.fragment.consumption.count += len(self.messages)
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
            self.bytes -= _bytes_delivered(refused)
            lane.fragment.consumption.put_back([delivery.message for delivery in refused])
        lane.fragment.flow.handed_out(len(deliveries) - len(refused), self.bytes)
        if lane.fragment.runtime.journal is not None:
            taken = _without(self.messages, refused)
            lane.fragment.tell(RECEIVE, taken)
            lane.fragment.tell(COMPLETE, taken)
        lane.fragment.consumption.over(len(self.messages))
        if not lane.is_fetching(receiver):
            receiver.caught_up()


def _without(messages: list[Message], refused: list[Delivery]) -> list[Message]:
    if not refused:
        return messages
    back = {id(delivery.message) for delivery in refused}
    return [message for message in messages if id(message) not in back]


def _bytes_delivered(deliveries: list[Delivery]) -> int:
    return sum([delivery.message.size() for delivery in deliveries])
