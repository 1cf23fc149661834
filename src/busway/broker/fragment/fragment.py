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
from busway.broker.fragment.lane import Horizon, Lane
from busway.broker.fragment.locks import Delivery, LockTable, Receiver
from busway.broker.fragment.message_sessions import MessageSession, MessageSessions
from busway.broker.fragment.outlet import Onward, Origin, Outlet
from busway.broker.fragment.read_requests import ReadRequests, read
from busway.broker.fragment.runtime import UNLIMITED, BrokerRuntime, FragmentId, broker_error
from busway.broker.fragment.sent_run import nobody_waits
from busway.broker.fragment.settings import FragmentSettings
from busway.broker.fragment.settling import Consumption, Settling
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
    FragmentIndex,
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


class Lanes:
    """Who receives from a fragment, and on which of its lanes each stands."""

    __slots__ = ("_access_written_ms", "_fragment", "_lane_of")

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._lane_of: dict[Receiver, Lane] = {}
        self._access_written_ms = 0

    def receivers(self) -> list[Receiver]:
        return list(self._lane_of)

    def check_room(self) -> None:
        """Raises ServerBusy when there are as many receivers as there may be."""
        fragment = self._fragment
        receivers_max = fragment.runtime.limits.receivers_per_entity_max
        if len(self._lane_of) + fragment.sessions.waiting_count() >= receivers_max:
            raise ServerBusy(
                f"'{fragment.settings.path}' has {receivers_max} receivers already; no more are allowed."
            )

    def stand(self, receiver: Receiver, lane: Lane) -> None:
        self._lane_of[receiver] = lane
        lane.add(receiver)

    def leave(self, receiver: Receiver) -> None:
        lane = self._lane_of.pop(receiver, None)
        if lane is not None:
            lane.remove(receiver)

    def remove(self, receiver: Receiver) -> None:
        """The link is gone. Its locks stay until their end (R-19); a session is freed at once (X-11)."""
        lane = self._lane_of.get(receiver)
        if lane is not None and lane.session is not None:
            lane.session.close()
        else:
            self.leave(receiver)

    def evict(self, error: BrokerError) -> None:
        """Everybody, and whoever waits for a session."""
        receivers = self.receivers()
        self._lane_of.clear()
        for receiver in receivers:
            self._fragment.lane.remove(receiver)
        self._fragment.sessions.close_all(error)
        for receiver in receivers:
            receiver.evict(error)

    def wake(self, receiver: Receiver) -> None:
        lane = self._lane_of.get(receiver)
        if lane is not None:
            self.touch()
            lane.wake(receiver)

    def touch(self) -> None:
        """A receive request is a use (E-41)."""
        fragment = self._fragment
        now_ms = fragment.runtime.clock.wall_ms()
        fragment.touch(now_ms)
        if now_ms - self._access_written_ms >= _ACCESS_WRITTEN_EVERY_MS and fragment.is_usable():
            self._access_written_ms = now_ms
            fragment.write().join()

    def is_fetching(self, receiver: Receiver) -> bool:
        lane = self._lane_of.get(receiver)
        return lane is not None and lane.is_fetching(receiver)

    def serve_all(self) -> None:
        """There is room for locks again."""
        for lane in dict.fromkeys(self._lane_of.values()):
            lane.serve()


class Fragment(Outlet):
    """See the head of this file. A plain queue is received from through its fragment."""

    __slots__ = (
        "consumption",
        "counters",
        "dead_letter",
        "duplicates",
        "flow",
        "forwarder",
        "head_expiry",
        "horizon",
        "id",
        "index",
        "intake",
        "is_failed",
        "key",
        "lane",
        "lanes",
        "lease",
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
        index: FragmentIndex,
        counters: Counters,
        store: Store,
        settings: FragmentSettings,
        runtime: BrokerRuntime,
        dead_letter: Fragment | None = None,
    ) -> None:
        self.key = key
        self.id: FragmentId = (store.name, key)
        self.index = index
        #: Its numbers begin behind it (M-36).
        self.number_base = first_number_base(index)
        self.counters = counters
        self.store = store
        self.settings = settings
        self.runtime = runtime
        #: Until when the store is certainly ours.
        self.lease = runtime.leases.get(store.name, UNLIMITED)
        #: Where its dead letters go; None for a dead-letter fragment itself.
        self.dead_letter = dead_letter
        #: The counts of the whole entity.
        self.flow = runtime.flows.of_fragment(settings.path)
        self.is_failed = False
        #: Set when what arrives moves on to another entity.
        self.forwarder: Onward | None = None
        self.locks = LockTable(index, runtime.entropy, runtime.limits.locks_per_fragment_max)
        self.horizon = Horizon(_ALL_NUMBERS if settings.is_dead_letter else counters.last_counter)
        self.lane = Lane(self, None)
        if counters.active == 0:
            self.lane.window.starts_at_tail(counters.last_counter)
        self.lanes = Lanes(self)
        self.sessions = MessageSessions(self)
        self.duplicates = DuplicateFilter(self)
        self.intake = Intake(self)
        self.head_expiry = HeadExpiry(self)
        self.reads = ReadRequests(self)
        self.settling = Settling(self)
        self.consumption = Consumption(self)

    # -- life

    def fragments(self) -> list[Fragment]:
        return [self]

    def member(self, index: FragmentIndex) -> Fragment:
        del index  # there is no other
        return self

    def start(self) -> None:
        """Once, after it was loaded from the store: sets up what time must bring."""
        self.head_expiry.start()
        self.duplicates.start()
        self.consumption.put_undelivered_back()

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
        self.lanes.evict(error)

    def receivers(self) -> list[Receiver]:
        return self.lanes.receivers()

    def commit_failed(self, error: StoreError) -> None:
        """Called by whatever waited for a commit that failed."""
        if not self.is_failed:
            self.failed(broker_error(error))
            self.runtime.store_failed(self.store, error)

    def batch(self) -> CommitBatch:
        """The store's open batch. Raises ServerBusy while there is none."""
        if self.is_failed:
            raise ServerBusy.without(f"'{self.settings.path}'")
        try:
            return self.store.batch()
        except StoreUnavailable:
            raise ServerBusy(f"The store of '{self.settings.path}' is not available just now.") from None

    def write(self, batch: CommitBatch | None = None) -> FragmentWrite:
        """In this batch, or in the store's open one. Raises ServerBusy while there is none."""
        write = FragmentWrite(self)
        write.batch = self.batch() if batch is None else batch
        return write

    async def durable(self) -> None:
        """Returns when everything joined so far is durable. Raises ServerBusy, StoreOutcomeUnknown."""
        try:
            await self.store.flush()
        except StoreError as error:
            self.commit_failed(error)
            raise broker_error(error) from None

    def touch(self, now_ms: int) -> None:
        """A send or a receive request: the entity is in use (E-41)."""
        if now_ms > self.counters.accessed_at_ms:
            self.counters.accessed_at_ms = now_ms

    # -- sending

    def is_congested(self) -> bool:
        return self.store.is_congested()

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

    def tell(self, operation: int, messages: list[Message]) -> None:
        """The journal, of what is durable already, or memory only."""
        journal = self.runtime.journal
        if journal is not None and messages:
            journal.messages(operation, self.settings.path, self.index, messages)

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
        self.lanes.check_room()
        self.lanes.stand(receiver, self.lane)
        self.lanes.touch()

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
            raise ServerBusy.without(f"'{self.settings.path}'")

    def is_suspended(self) -> bool:
        """Another server may have the store: nothing is locked, granted or handed out."""
        return self.lease.is_bounded and self.lease.is_over()

    def check_lease(self) -> None:
        """Raises ServerBusy while nothing may be locked or granted, because another server may have the store."""
        if self.is_suspended():
            raise ServerBusy(
                f"The database of '{self.settings.path}' has not answered for some time, so nothing can be locked"
                " just now. Please try again."
            )

    def resume(self) -> None:
        """The store's lease was over, and is renewed: whoever waits is served."""
        self.lanes.serve_all()
        self.sessions.resume()

    def remove_receiver(self, receiver: Receiver) -> None:
        self.lanes.remove(receiver)

    def wake(self, receiver: Receiver) -> None:
        self.lanes.wake(receiver)

    def is_fetching(self, receiver: Receiver) -> bool:
        """True while messages may be on their way to it, by a read or by a deletion that is being committed.
        A drain is answered when it is False; until then `Receiver.caught_up` will come (R-9)."""
        return self.lanes.is_fetching(receiver)

    def undeliver(self, deliveries: list[Delivery]) -> None:
        """Handed over but never written to the socket: unlocked without a count, or put back."""
        deleted = [delivery.message for delivery in deliveries if not delivery.token]
        if deleted:
            self.consumption.put_back(deleted)
        tokens = [delivery.token for delivery in deliveries if delivery.token]
        if tokens:
            self.settle(tokens, Settlement(Verb.RELEASE), nobody_waits)

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

    async def delete_by_number(self, numbers: list[int]) -> list[int]:
        return await read(self.settings.path, self.reads.delete_by_number(numbers))

    async def cancel_scheduled(self, numbers: list[int]) -> None:
        await read(self.settings.path, self.reads.cancel_scheduled(numbers))

    # -- sessions

    async def accept_session(
        self, receiver: Receiver, session_id: str | None, timeout_s: float
    ) -> MessageSession:
        """X-3…X-8. The receiver is registered for that session."""
        self.check_receivable()
        self.lanes.check_room()
        self.lanes.touch()
        return await read(self.settings.path, self.sessions.accept(receiver, session_id, timeout_s))

    async def renew_session(self, session_id: str) -> int:
        return self.sessions.renew(session_id)

    async def session_state(self, session_id: str) -> bytes | None:
        return await read(self.settings.path, self.sessions.state(session_id))

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        await read(self.settings.path, self.sessions.set_state(session_id, state))

    async def list_sessions(self, state_set_after_ms: int | None, skip: int, top: int) -> list[str]:
        return await read(self.settings.path, self.sessions.ids(state_set_after_ms, skip, top))
