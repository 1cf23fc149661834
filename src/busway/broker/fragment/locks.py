"""What a receiver offers and is given, and its claims on messages (R-2…R-5, R-17, R-19, R-30).

A fragment pulls: it asks a receiver for its `room()` and hands over at most so many messages in one `deliver`.
Nothing is locked beyond what the peer can take right now. When room grows (credit, session window, socket drained)
the receiver's owner calls `outlet.wake(receiver)`.

Theory of operation of locks. A lock is found by its 16-byte token: two bytes fragment_index, fourteen random ones.
It holds what the end of the lock needs to know about the message, never the payload. Locks live in memory only and
belong to the fragment, not to a link.

Whoever takes a lock out of `live` owns the message's outcome: owner check and removal are one step, so a message
completed on one connection and expiring at the same instant has exactly one fate.

Deadlines are kept per run, not per message: a heap of (deadline, tokens of the run). A settled token stays in its
run until the run's time has come; when such leftovers outnumber live locks the heap is built anew, so its memory
follows the number of live locks. Messages of a session have no deadline of their own (X-13): the session's lock is
theirs.

A transaction that will settle a message takes its lock out of `live` into `reserved`: nobody else can settle it,
and its time runs on (TX-10, TX-23). It returns with a rollback, as it was (TX-9).
"""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import mypyc_attr

from busway.clock import Entropy
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, Message
from busway.model.errors import BrokerError
from busway.store.contract import FragmentIndex


class Delivery:
    """A message on its way to a receiver. Under peek-lock `token` is its lock; in receive-and-delete it is
    already deleted and `token` is empty."""

    __slots__ = ("locked_until_ms", "message", "token")

    def __init__(self, message: Message, token: bytes, locked_until_ms: int) -> None:
        self.message = message
        self.token = token
        self.locked_until_ms = locked_until_ms


@mypyc_attr(allow_interpreted_subclasses=True)
class Attachment:
    """Something a client holds open on an entity: a sending link, a receiving link, a waiting session accept."""

    def evict(self, error: BrokerError) -> None:
        """The entity is gone, disabled or its store failed: detach with this error. Called once; the entity
        has already forgotten the attachment."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver(Attachment):
    """A receiving link, implemented by gateways. All calls come on the event loop."""

    #: True for receive-and-delete: deletion is committed before `deliver` is called (R-1).
    deletes: bool = False

    def room(self) -> int:
        """How many messages it can take now: credit, session window, output buffer, all considered."""
        raise NotImplementedError

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Takes the messages and returns those it could not send after all (its credit was withdrawn
        meanwhile). Returned ones are unlocked, or put back under their number, without a count."""
        raise NotImplementedError

    def caught_up(self) -> None:
        """A read or a deletion that was under way for it has ended: what there was has been handed over. A drain
        that waited for it can be answered now (R-9). Nothing has to be done here."""


#: Deadline of a lock that ends only with its session.
NO_DEADLINE: Final = float("inf")
_RANDOM_BYTES: Final = 14
_TOKENS_PER_DRAW: Final = 256
_LEFTOVERS_MIN: Final = 4_096


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionLock:
    """The lock of a session, which is the lock of all its messages (X-13)."""

    __slots__ = ("deadline", "locked_until_ms", "session_id", "tokens")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        #: Its end: for clients, and for us.
        self.locked_until_ms = 0
        self.deadline = 0.0
        #: Locks that end with this one.
        self.tokens: set[bytes] = set()

    def give_back(self, number: int) -> None:
        """A message of the session can be had again."""
        raise NotImplementedError

    def serve(self) -> None:
        """Its holder gets what was given back."""
        raise NotImplementedError


class Lock:
    """One claim."""

    __slots__ = (
        "changes",
        "deadline",
        "delivery_count",
        "enqueued_at_ms",
        "expires_at_ms",
        "number",
        "place",
        "session",
        "size",
    )

    def __init__(
        self,
        number: int,
        place: int,
        delivery_count: int,
        expires_at_ms: int,
        size: int,
        changes: bytes | None,
        session: SessionLock | None,
        deadline: float,
        enqueued_at_ms: int,
    ) -> None:
        self.number = number
        self.place = place
        self.delivery_count = delivery_count
        self.expires_at_ms = expires_at_ms
        self.size = size
        self.changes = changes
        self.session = session
        self.deadline = deadline
        self.enqueued_at_ms = enqueued_at_ms


class LockTable:
    """All locks of one fragment."""

    __slots__ = (
        "_draw",
        "_draw_at",
        "_entropy",
        "_locks_max",
        "_order",
        "_prefix",
        "_runs",
        "_runs_tokens",
        "deferred",
        "live",
        "reserved",
        "run_bytes",
    )

    def __init__(self, fragment_index: FragmentIndex, entropy: Entropy, locks_max: int) -> None:
        self._prefix = fragment_index.to_bytes(2, "big")
        self._entropy = entropy
        self._locks_max = locks_max
        self._draw = b""
        self._draw_at = 0
        self.live: dict[bytes, Lock] = {}
        #: Locks that open transactions will settle.
        self.reserved: dict[bytes, Lock] = {}
        #: Numbers of locked deferred messages (R-52: locked now means not found).
        self.deferred: set[int] = set()
        #: (deadline, order, tokens); tokens may be settled or renewed since.
        self._runs: list[tuple[float, int, list[bytes]]] = []
        self._runs_tokens = 0
        self._order = 0
        #: Message bytes of the run locked last.
        self.run_bytes = 0

    def free(self) -> int:
        """How many more there may be."""
        return self._locks_max - len(self.live) - len(self.reserved)

    def lock_run(
        self,
        messages: list[Message],
        place: int,
        session: SessionLock | None,
        deadline: float,
        locked_until_ms: int,
    ) -> list[Delivery]:
        """Locks messages that nobody holds. The caller checked that."""
        live = self.live
        deliveries: list[Delivery] = []
        tokens = self._tokens(len(messages))
        run_bytes = 0
        for token, message in zip(tokens, messages, strict=True):
            changes = message.changes
            size = len(message.head) + len(message.bare)
            if changes is not None:
                size += len(changes)
            run_bytes += size
            live[token] = Lock(
                message.sequence_number,
                place,
                message.delivery_count,
                message.expires_at_ms,
                size,
                changes,
                session,
                deadline,
                message.enqueued_at_ms,
            )
            deliveries.append(Delivery(message, token, locked_until_ms))
        self.run_bytes = run_bytes
        if place == PLACE_DEFERRED:
            self.deferred.update(message.sequence_number for message in messages)
        if session is None:
            self._remember(deadline, tokens)
        else:
            session.tokens.update(tokens)
        return deliveries

    def pop(self, token: bytes, now: float) -> Lock | None:
        """The lock, owned by the caller from here on; None when there is none or its time (or its session's)
        is over. One whose time is over stays until its end is handled, which counts the failed delivery."""
        lock = self.live.pop(token, None)
        if lock is None:
            return None
        session = lock.session
        if lock.deadline <= now or (session is not None and session.deadline <= now):
            self.live[token] = lock
            return None
        if lock.place != PLACE_ACTIVE:
            self.deferred.discard(lock.number)
        if session is not None:
            session.tokens.discard(token)
        return lock

    def pop_session(self, session: SessionLock) -> list[Lock]:
        """All locks that end with the session, by number."""
        locks = [self.live.pop(token) for token in session.tokens]
        session.tokens.clear()
        for token in [token for token, lock in self.reserved.items() if lock.session is session]:
            locks.append(self.reserved.pop(token))
        self.deferred.difference_update(lock.number for lock in locks if lock.place != PLACE_ACTIVE)
        locks.sort(key=_number_of)
        return locks

    def get(self, token: bytes, now: float) -> Lock | None:
        lock = self.live.get(token)
        if lock is None or lock.deadline <= now:
            return None
        return None if lock.session is not None and lock.session.deadline <= now else lock

    def renewable(self, token: bytes, now: float) -> bool:
        """Renewal is open to reserved locks too (TX-23)."""
        lock = self.reserved.get(token)
        return self.get(token, now) is not None if lock is None else lock.deadline > now

    def renew(self, tokens: list[bytes], deadline: float) -> None:
        """Moves the end of locks (R-30). The caller checked that each is renewable."""
        for token in tokens:
            lock = self.live.get(token)
            if lock is None:
                lock = self.reserved[token]
            lock.deadline = deadline
        self._remember(deadline, tokens)

    # -- transactions

    def reserve(self, token: bytes, now: float) -> Lock | None:
        """The lock, out of everybody's reach until `unreserve` or `pop_reserved`; None as for `pop`."""
        lock = self.get(token, now)
        if lock is None:
            return None
        self.reserved[token] = self.live.pop(token)
        if lock.session is not None:
            lock.session.tokens.discard(token)
        return lock

    def is_reserved(self, token: bytes, lock: Lock, now: float) -> bool:
        """Whether this very lock is still there and its time is not over."""
        if self.reserved.get(token) is not lock or lock.deadline <= now:
            return False
        return lock.session is None or lock.session.deadline > now

    def pop_reserved(self, token: bytes) -> Lock:
        """Owned by the caller from here on."""
        lock = self.reserved.pop(token)
        if lock.place != PLACE_ACTIVE:
            self.deferred.discard(lock.number)
        return lock

    def unreserve(self, token: bytes, lock: Lock) -> None:
        """TX-9: as it was, unless it has ended meanwhile."""
        if self.reserved.get(token) is not lock:
            return
        self.live[token] = self.reserved.pop(token)
        if lock.session is not None:
            lock.session.tokens.add(token)

    # -- the end

    def take_ended(self, now: float, limit: int) -> list[Lock]:
        """Takes out locks whose time is over, about `limit` of them (whole runs), by number."""
        ended: list[Lock] = []
        while self._runs and self._runs[0][0] <= now and len(ended) < limit:
            tokens = heapq.heappop(self._runs)[2]
            self._runs_tokens -= len(tokens)
            for token in tokens:
                lock = self.live.get(token)
                if lock is not None and lock.deadline <= now:
                    ended.append(self.live.pop(token))
            if self.reserved:
                self._take_reserved(tokens, now, ended)
        self.deferred.difference_update(lock.number for lock in ended if lock.place != PLACE_ACTIVE)
        ended.sort(key=_number_of)
        return ended

    def _take_reserved(self, tokens: list[bytes], now: float, ended: list[Lock]) -> None:
        for token in tokens:
            lock = self.reserved.get(token)
            if lock is not None and lock.deadline <= now:
                ended.append(self.reserved.pop(token))

    def next_deadline(self) -> float | None:
        """When the next run must be looked at; all of it may be settled by then."""
        return self._runs[0][0] if self._runs else None

    def numbers(self) -> set[int]:
        """Numbers of locked active messages. Walks all locks: for rare moments only."""
        locked = {lock.number for lock in self.live.values() if lock.place == PLACE_ACTIVE}
        if self.reserved:
            locked.update(lock.number for lock in self.reserved.values() if lock.place == PLACE_ACTIVE)
        return locked

    def drop(self, numbers: set[int]) -> None:
        """These active messages are gone: whoever holds one has lost it."""
        for held in (self.live, self.reserved):
            gone = [t for t, lock in held.items() if lock.place == PLACE_ACTIVE and lock.number in numbers]
            for token in gone:
                lock = held.pop(token)
                if lock.session is not None:
                    lock.session.tokens.discard(token)

    def clear(self) -> None:
        self.live.clear()
        self.reserved.clear()
        self.deferred.clear()
        self._runs.clear()
        self._runs_tokens = 0

    def _tokens(self, count: int) -> list[bytes]:
        prefix = self._prefix
        draw, at = self._draw, self._draw_at
        wanted = count * _RANDOM_BYTES
        if len(draw) - at < wanted:
            draw = self._entropy.bytes(max(wanted, _RANDOM_BYTES * _TOKENS_PER_DRAW))
            at = 0
        end = at + wanted
        tokens = [prefix + draw[start : start + _RANDOM_BYTES] for start in range(at, end, _RANDOM_BYTES)]
        self._draw, self._draw_at = draw, end
        return tokens

    def _remember(self, deadline: float, tokens: list[bytes]) -> None:
        self._order += 1
        heapq.heappush(self._runs, (deadline, self._order, tokens))
        self._runs_tokens += len(tokens)
        if self._runs_tokens > 2 * len(self.live) + _LEFTOVERS_MIN:
            self._forget_leftovers()

    def _forget_leftovers(self) -> None:
        by_deadline: dict[float, list[bytes]] = {}
        for held in (self.live, self.reserved):
            for token, lock in held.items():
                if lock.session is None:
                    by_deadline.setdefault(lock.deadline, []).append(token)
        runs = enumerate(by_deadline.items(), self._order + 1)
        self._runs = [(deadline, order, tokens) for order, (deadline, tokens) in runs]
        self._order += len(self._runs)
        heapq.heapify(self._runs)
        self._runs_tokens = sum(len(run[2]) for run in self._runs)


def _number_of(lock: Lock) -> int:
    return lock.number
