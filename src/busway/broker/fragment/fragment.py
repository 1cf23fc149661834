"""A fragment: one share of an entity, a small state machine with one owner.

Theory of operation. The durable truth is rows in one store. In memory lie only things with a bound: the lanes
(ready windows and those who wait), the locks, a few deadlines, and `counters`, which the store writes with
every batch that names them.

Writing is one step: take the store's open batch, change memory, add rows and counters, leave one callback for
the run. Nothing suspends between, so memory and batch always tell the same story. What a client is told, and
what receivers get to see, waits for the callback. What leaves (deleted, moved, locked) is gone from memory at
once: a store never shows a row that a joined batch removes.

Reading suspends. After each await the code looks at memory again before it acts on what it read.

When a commit fails memory is ahead of the truth and worth nothing: `failed` drops it and the owner loads the
fragment anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from busway.broker.fragment.duplicates import DuplicateFilter
from busway.broker.fragment.expiry_and_schedule import HeadExpiry
from busway.broker.fragment.intake import Intake
from busway.broker.fragment.journal import OperationRow
from busway.broker.fragment.lane import Horizon, Lane, ReadyWindow
from busway.broker.fragment.locks import Delivery, LockTable, Receiver
from busway.broker.fragment.message_sessions import MessageSession, MessageSessions
from busway.broker.fragment.outlet import Onward, Origin, Outlet
from busway.broker.fragment.read_requests import ReadRequests, read
from busway.broker.fragment.runtime import BrokerRuntime, broker_error
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.fragment.settling import Settling
from busway.broker.fragment.write import FragmentWrite
from busway.message.message import Message
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    InvalidOperation,
    ServerBusy,
)
from busway.model.settlement import RunDone, SendReport, Settlement, Verb
from busway.store.contract import (
    CommitBatch,
    Counters,
    FragmentKey,
    Store,
    StoreError,
    StoreState,
    StoreUnavailable,
    first_number_base,
)

#: Rows of a dead-letter fragment bear numbers that another fragment gave out: all of them may be shown.
_ALL_NUMBERS: Final = 1 << 62
#: The time of the last use is written at least so often while only receivers use the entity (E-41).
_ACCESS_WRITTEN_EVERY_MS: Final = 60_000


class Fragment(Outlet):
    """See the head of this file. A plain queue is received from through its fragment."""

    __slots__ = (
        "_access_written_ms",
        "_lanes",
        "consuming",
        "counters",
        "dead_letter",
        "duplicates",
        "flow",
        "forwarder",
        "head_expiry",
        "horizon",
        "index",
        "intake",
        "is_failed",
        "key",
        "lane",
        "locks",
        "number_base",
        "reads",
        "runtime",
        "sessions",
        "settings",
        "settling",
        "store",
    )

    def __init__(
        self,
        key: FragmentKey,
        index: int,
        counters: Counters,
        store: Store,
        settings: FragmentSettings,
        runtime: BrokerRuntime,
        dead_letter: Fragment | None = None,
    ) -> None:
        self.key = key
        self.index = index
        #: Its numbers begin behind it (M-36).
        self.number_base = first_number_base(index)
        self.counters = counters
        self.store = store
        self.settings = settings
        self.runtime = runtime
        #: Where its dead letters go; None for a dead-letter fragment itself.
        self.dead_letter = dead_letter
        #: The counts of the whole entity.
        self.flow = runtime.flows.of_fragment(settings.path)
        self.is_failed = False
        #: Set when what arrives moves on to another entity.
        self.forwarder: Onward | None = None
        self.locks = LockTable(index, runtime.entropy)
        self.horizon = Horizon(_ALL_NUMBERS if settings.is_dead_letter else counters.last_counter)
        self.lane = Lane(self, self.new_window(None), None)
        if counters.active == 0:
            self.lane.window.starts_at_tail(counters.last_counter)
        #: Every registered receiver and the lane it stands on.
        self._lanes: dict[Receiver, Lane] = {}
        self.sessions = MessageSessions(self)
        self.duplicates = DuplicateFilter(self)
        self.intake = Intake(self)
        self.head_expiry = HeadExpiry(self)
        self.reads = ReadRequests(self)
        self.settling = Settling(self)
        self._access_written_ms = 0
        #: Messages whose deletion for receive-and-delete is not yet delivered: they may come back.
        self.consuming = 0

    # -- life

    def fragments(self) -> list[Fragment]:
        return [self]

    def member(self, index: int) -> Fragment:
        del index  # there is no other
        return self

    def start(self) -> None:
        """Once, after it was loaded from the store: sets up what time must bring."""
        self.head_expiry.start()
        self.duplicates.start()
        self.put_strays_back()

    def is_usable(self) -> bool:
        return not self.is_failed and self.store.state is StoreState.OPEN

    def replace_settings(self, settings: FragmentSettings) -> None:
        """The entity was updated; existing locks keep their time (R-32)."""
        self.settings = settings
        self.duplicates.start()

    def failed(self, error: BrokerError) -> None:
        """Memory is worth nothing any more: drops it and evicts everybody. Idempotent."""
        if self.is_failed:
            return
        self.is_failed = True
        self.settling.stop()
        self.head_expiry.stop()
        self.duplicates.stop(error)
        if self.forwarder is not None:
            self.forwarder.stop()
        self.evict(error)
        self.locks.clear()
        self.lane.window.close()

    def evict(self, error: BrokerError) -> None:
        """Detaches every receiver and ends every waiting accept with this error (E-84, E-86)."""
        receivers = list(self._lanes)
        self._lanes.clear()
        for receiver in receivers:
            self.lane.remove(receiver)
        self.sessions.close_all(error)
        for receiver in receivers:
            receiver.evict(error)

    def receivers(self) -> list[Receiver]:
        return list(self._lanes)

    def commit_failed(self, error: StoreError) -> None:
        """Called by whatever waited for a commit that failed."""
        if not self.is_failed:
            self.failed(broker_error(error))
            self.runtime.store_failed(self.store, error)

    def batch(self) -> CommitBatch:
        """The store's open batch. Raises ServerBusy while there is none."""
        if self.is_failed:
            raise ServerBusy(f"'{self.settings.path}' is not available just now. Please try again.")
        try:
            return self.store.batch()
        except StoreUnavailable:
            raise ServerBusy(f"The store of '{self.settings.path}' is not available just now.") from None

    def write(self) -> FragmentWrite:
        """In the store's open batch. Raises ServerBusy while there is none."""
        return self.write_in(self.batch())

    def write_in(self, batch: CommitBatch) -> FragmentWrite:
        write = FragmentWrite(self)
        write.batch = batch
        return write

    async def durable(self) -> None:
        """Returns when everything joined so far is durable. Raises ServerBusy, StoreOutcomeUnknown."""
        try:
            await self.store.flush()
        except StoreError as error:
            self.commit_failed(error)
            raise broker_error(error) from None

    def new_window(self, session_id: str | None) -> ReadyWindow:
        limits = self.runtime.limits
        return ReadyWindow(
            self.store,
            self.key,
            session_id,
            self.locks,
            self.horizon,
            self.runtime.window_budget,
            limits.window_messages_max,
            limits.returned_numbers_max,
        )

    # -- numbers

    def holds_nothing(self) -> bool:
        """No row in any place, and none that may come back."""
        counters = self.counters
        return (
            counters.active == 0
            and counters.deferred == 0
            and counters.scheduled == 0
            and self.consuming == 0
            and not self.locks.live
            and not self.horizon.arriving
            and not self.horizon.holds_any_back()
        )

    def start_numbers_again(self) -> None:
        """M-37: it holds nothing, durably. Whatever remembers numbers starts over with them."""
        self.counters.last_counter = self.number_base
        self.counters.expiry_high_ms = 0
        if not self.settings.is_dead_letter:
            self.horizon.committed_high = self.number_base
        self.lane.start_over(self.new_window(None))
        self.sessions.start_over()

    # -- counting

    def entity_bytes(self) -> int:
        """Bytes of the entity: dead letters count too (D-3)."""
        return self.counters.bytes + (0 if self.dead_letter is None else self.dead_letter.counters.bytes)

    def touch(self, now_ms: int) -> None:
        """A send or a receive request: the entity is in use (E-41)."""
        if now_ms > self.counters.accessed_at_ms:
            self.counters.accessed_at_ms = now_ms

    def touch_for_send(self, now_ms: int) -> None:
        """Whatever the status is by now: the next message must not be enqueued before this one (M-16)."""
        if self.settings.arrivals_are_uses:
            self.touch(now_ms)

    def touch_for_receive(self) -> None:
        now_ms = self.runtime.clock.wall_ms()
        self.touch(now_ms)
        if now_ms - self._access_written_ms >= _ACCESS_WRITTEN_EVERY_MS and self.is_usable():
            self._access_written_ms = now_ms
            self.write().join()

    # -- sending

    def is_congested(self) -> bool:
        return self.store.is_congested()

    def takes(self, size_bytes: int) -> bool:
        """Whether it and its store would take a send of this size; a keyless one goes elsewhere if not (P-10)."""
        return self.is_usable() and self.intake.takes(size_bytes)

    def append(
        self,
        messages: list[Message],
        done: RunDone,
        *,
        atomically: bool = False,
        origin: Origin | None = None,
        source_numbers: list[int] | None = None,
    ) -> None:
        """Stores messages in order (S-4). `atomically`: all of them or none (S-20). `origin`: they come from
        another entity, which is told when they join a batch (F-1), and where they had these numbers."""
        del source_numbers  # there is no fragment to choose
        self.intake.append(messages, done, atomically, origin)

    def append_in_parts(self, messages: list[Message], report: SendReport) -> None:
        """There is one part."""
        self.intake.append(messages, report.done, False)

    async def activate(self, messages: list[Message]) -> int:
        """Scheduled rows, just read, whose time has come, become active (S-34). Returns how many."""
        return await self.intake.activate(messages) if self.is_usable() else 0

    def activates_at(self, scheduled_at_ms: int) -> None:
        """A scheduled row has joined."""
        activator = self.runtime.activators.get(self.store.name)
        if activator is not None:
            activator.joined(scheduled_at_ms)

    def expires_out_of_order(self, expires_at_ms: int) -> None:
        """A row with an expiry entry of its own has joined."""
        sweeper = self.runtime.sweepers.get(self.store.name)
        if sweeper is not None:
            sweeper.joined(expires_at_ms)

    # -- the journal, of what is durable already, or memory only

    def tell(self, operation: int, messages: list[Message]) -> None:
        journal = self.runtime.journal
        if journal is not None and messages:
            journal.messages(operation, self.settings.path, self.index, messages)

    def tell_session(self, operation: int, session_id: str) -> None:
        journal = self.runtime.journal
        if journal is not None:
            journal.rows(operation, self.settings.path, self.index, [OperationRow(session_id=session_id)])

    # -- what has become durable

    def sent(self, messages: list[Message], message_bytes: int) -> None:
        """A run is durable: receivers may have it."""
        if self.forwarder is not None:
            self.forwarder.wake()
        elif self.settings.requires_session:
            self.sessions.sent(messages)
        else:
            self.lane.committed(messages, message_bytes)

    def arrived(self, entries: list[tuple[int, str | None]]) -> None:
        """Rows are durable that came by a move or were put back: (number, session id)."""
        self.horizon.arriving.difference_update([number for number, _ in entries])
        if self.forwarder is not None:
            self.forwarder.arrived([number for number, _ in entries])
            return
        if self.settings.requires_session:
            self.sessions.arrived(entries)
            return
        for number, _ in entries:
            self.lane.window.arrived(number)
        self.lane.serve()

    # -- receiving

    def add_receiver(self, receiver: Receiver) -> None:
        self.check_receivable()
        if self.settings.requires_session:
            raise InvalidOperation(
                "It is not possible for an entity that requires sessions to create a non-sessionful"
                " message receiver."
            )
        self._check_receivers_max()
        self._lanes[receiver] = self.lane
        self.lane.add(receiver)
        self.touch_for_receive()

    def check_receivable(self) -> None:
        """Raises InvalidOperation where messages move on (F-4, D-20); else as `check_readable`."""
        self.check_readable()
        if self.settings.forwards:
            raise InvalidOperation(
                f"Nobody can receive from '{self.settings.path}': its messages are forwarded automatically."
            )

    def check_readable(self) -> None:
        """Raises EntityDisabled (E-82, E-85) or ServerBusy."""
        if not self.settings.allows_receive:
            raise EntityDisabled
        if not self.is_usable():
            raise ServerBusy(f"'{self.settings.path}' is not available just now. Please try again.")

    def _check_receivers_max(self) -> None:
        receivers_max = self.runtime.limits.receivers_per_entity_max
        if len(self._lanes) + self.sessions.waiting_count() >= receivers_max:
            raise ServerBusy(
                f"'{self.settings.path}' has {receivers_max} receivers already; no more are allowed."
            )

    def register(self, receiver: Receiver, lane: Lane) -> None:
        """A session was accepted: its receiver stands on the session's lane."""
        self._lanes[receiver] = lane
        lane.add(receiver)

    def unregister(self, receiver: Receiver) -> None:
        lane = self._lanes.pop(receiver, None)
        if lane is not None:
            lane.remove(receiver)

    def remove_receiver(self, receiver: Receiver) -> None:
        """The link is gone. Its locks stay until their end (R-19); a session is freed at once (X-11)."""
        lane = self._lanes.get(receiver)
        if lane is not None and lane.session is not None:
            lane.session.close()
        else:
            self.unregister(receiver)

    def wake(self, receiver: Receiver) -> None:
        lane = self._lanes.get(receiver)
        if lane is not None:
            self.touch_for_receive()
            lane.wake(receiver)

    def is_fetching(self, receiver: Receiver) -> bool:
        """True while messages may be on their way to it, by a read or by a deletion that is being committed.
        A drain is answered when it is False; until then `Receiver.caught_up` will come (R-9)."""
        lane = self._lanes.get(receiver)
        return lane is not None and lane.is_fetching(receiver)

    def locks_free(self) -> int:
        return self.runtime.limits.locks_per_fragment_max - len(self.locks.live) - len(self.locks.reserved)

    def consumed(self, count: int) -> None:
        """The deletion is durable and the messages are delivered, or put back."""
        self.consuming -= count
        if self.consuming == 0 and self.counters.active == 0:
            self.counters.expiry_high_ms = 0

    def put_back(self, messages: list[Message]) -> None:
        """Deleted for receive-and-delete, but never sent: back under their numbers, by its successor when the
        fragment is no longer in use."""
        try:
            write = self.write()
        except ServerBusy:
            self.runtime.strays.add((self.store.name, self.key), messages)
            return
        write.put_back(messages)
        write.join()

    def put_strays_back(self) -> None:
        """It was loaded, or strays of its kind have come."""
        messages = self.runtime.strays.take((self.store.name, self.key))
        if messages:
            self.put_back(messages)

    def undeliver(self, deliveries: list[Delivery]) -> None:
        """Handed over but never written to the socket: unlocked without a count, or put back."""
        deleted = [delivery.message for delivery in deliveries if not delivery.token]
        if deleted:
            self.put_back(deleted)
        tokens = [delivery.token for delivery in deliveries if delivery.token]
        if tokens:
            self.settle(tokens, Settlement(Verb.RELEASE), _nobody_waits)

    # -- settling

    def settle(
        self, tokens: list[bytes], settlement: Settlement, done: RunDone, session_id: str | None = None
    ) -> None:
        self.settling.settle(tokens, settlement, done, session_id)

    async def renew(self, tokens: list[bytes]) -> list[int]:
        return self.settling.renew(tokens)

    def locked_number(self, token: bytes) -> int | None:
        lock = self.locks.get(token, self.runtime.clock.monotonic())
        return None if lock is None else lock.number

    def serve_all(self) -> None:
        """There is room for locks again."""
        for lane in dict.fromkeys(self._lanes.values()):
            lane.serve()

    # -- rows that leave without a lock

    def withdraw(self, messages: list[Message]) -> None:
        """Takes rows out of the windows that may show them."""
        if self.settings.requires_session:
            self.sessions.withdraw(messages)
        else:
            self.lane.window.discard({message.sequence_number for message in messages})

    # -- requests that begin with a read

    async def peek(self, from_number: int, count: int, session_id: str | None = None) -> list[Message]:
        found = self.reads.peek(from_number, count, self.runtime.limits.peek_bytes_max, session_id)
        return (await read(self.settings.path, found)).messages

    async def receive_by_number(
        self, numbers: list[int], *, deletes: bool, session_id: str | None = None
    ) -> list[Delivery]:
        return await read(self.settings.path, self.reads.receive_by_number(numbers, deletes, session_id))

    async def delete_messages(
        self,
        count: int,
        enqueued_before_ms: int,
        session_id: str | None = None,
        holds_session: Callable[[str], bool] | None = None,
    ) -> int:
        deleted = self.reads.delete_messages(count, enqueued_before_ms, session_id, holds_session)
        return await read(self.settings.path, deleted)

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        await read(self.settings.path, self.reads.cancel_scheduled(numbers))

    async def cancellable(self, numbers: list[int]) -> list[Message]:
        """For a transaction that will cancel them. Raises MessageNotFound."""
        return await read(self.settings.path, self.reads.cancellable(numbers))

    # -- sessions

    async def accept_session(
        self, receiver: Receiver, session_id: str | None, timeout_s: float
    ) -> MessageSession:
        """X-3…X-8. The receiver is registered for that session."""
        self.check_receivable()
        self._check_receivers_max()
        self.touch_for_receive()
        return await read(self.settings.path, self.sessions.accept(receiver, session_id, timeout_s))

    async def renew_session(self, session_id: str) -> int:
        return self.sessions.renew(session_id)

    async def session_state(self, session_id: str) -> bytes | None:
        return await read(self.settings.path, self.sessions.state(session_id))

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        await read(self.settings.path, self.sessions.set_state(session_id, state))

    async def list_sessions(self, state_set_after_ms: int | None, skip: int, top: int) -> list[str]:
        return await read(self.settings.path, self.sessions.ids(state_set_after_ms, skip, top))


def _nobody_waits(refused: list[tuple[int, BrokerError]]) -> None:
    """A settlement of our own: whether it came too late does not matter."""
