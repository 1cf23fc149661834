"""The transactions of a client (TX-1…TX-20): each one, and those that a connection has open, by id (TX-5).

Theory of operation. An open transaction only gathers. What it sends is checked and waits in memory; what it
settles is claimed (`gathered`) but has not happened; nobody sees anything (TX-8). The commit is one step without a
wait: everything that could be in the way is looked at, then all of it joins the store's open batch, so the batch
is durable as a whole or not at all. The client is told when it is.

Some things can hold the commit up before that step, never inside it: a look into the history of ids where
duplicates are detected, a topic that takes nothing just now, and a publish that is so large that its copies are
made over several turns of the loop. Afterwards all checks are made again.

All of it lies in one fragment of one entity, or in what stands beside it in the same store: the dead-letter queue,
the subscriptions of the topic (TX-2, TX-17).

Time: the limit counts from the first operation (TX-6). A transaction that has run out is rolled back at once and
stays known until it is discharged, so that the client learns why.

A transaction belongs to the control link that declared it: nobody else can discharge it, and it is rolled back
when that link goes, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.intake import Preparation
from busway.broker.fragment.runtime import broker_error
from busway.broker.fragment.sent_run import SentRun
from busway.broker.transaction.gathered import (
    OTHER_FRAGMENT,
    TransactionClaims,
    TransactionSends,
    place_of_messages,
    place_of_numbers,
    place_of_tokens,
    via_index,
)
from busway.broker.transaction.rules import RuleStep as RuleStep
from busway.broker.transaction.rules import RuleWork, TransactionRules
from busway.message.message import Message
from busway.model.entity_path import EntityAddress, path_key, topic_path_of
from busway.model.errors import (
    BrokerError,
    InvalidOperation,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
)
from busway.model.settlement import Settlement, Verb
from busway.store.contract import CommitBatch, FragmentIndex, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.fragment.runtime import BrokerRuntime
    from busway.timers import Timer

#: Called once, when the end is certain: None for a commit that is durable.
Discharged = Callable[[BrokerError | None], None]

OTHER_ENTITY: Final = "Local transactions cannot span multiple top-level entities such as queue or topic."

_KNOWN_PATHS_MAX: Final = 1_024
#: What a message weighs in memory beside its bytes, roughly.
_MESSAGE_BYTES: Final = 512

_OPEN: Final = 0
_COMMITTING: Final = 1
_JOINED: Final = 2
_OVER: Final = 3


class PayloadRoom:
    """What the open transactions of one connection hold in memory (TX-24)."""

    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def check(self, size_bytes: int) -> None:
        if self.held_bytes + size_bytes > self._bytes_max:
            raise QuotaExceeded(
                f"The open transactions of this connection hold {self.held_bytes} bytes of messages already;"
                f" at most {self._bytes_max} are allowed."
            )


class Transaction:
    """See the head of this file."""

    __slots__ = (
        "_claims",
        "_done",
        "_fault",
        "_first",
        "_gathered",
        "_held",
        "_index",
        "_partition_key",
        "_room",
        "_rules",
        "_runtime",
        "_scheduled",
        "_sends",
        "_session",
        "_state",
        "_timer",
        "_top_key",
        "_top_path",
        "_transfers",
        "txn_id",
    )

    def __init__(
        self, txn_id: bytes, runtime: BrokerRuntime, room: PayloadRoom, session: object = None
    ) -> None:
        self.txn_id = txn_id
        #: Links that belong to it may send to other entities (TX-22).
        self._session = session
        #: Operations under way that the commit waits for.
        self._held = 0
        self._runtime = runtime
        self._room = room
        self._state = _OPEN
        #: Why it is over already, or cannot be committed; None while it can.
        self._fault: BrokerError | None = None
        self._timer: Timer | None = None
        self._done: Discharged | None = None
        # Where it takes place; None before the first operation.
        self._first: Fragment | None = None
        self._top_key: str | None = None
        self._top_path: str | None = None
        self._index = FragmentIndex(0)
        #: TX-13: the key that every message sent to a partitioned entity must have.
        self._partition_key: str | None = None
        # What it will do. Transfers are messages that go to another entity by way of this one (TX-3).
        self._sends: TransactionSends | None = None
        self._transfers: TransactionSends | None = None
        #: Both; those of the entity itself first: only a topic can still refuse at the last moment.
        self._gathered: list[TransactionSends] = []
        self._claims: dict[Fragment, TransactionClaims] = {}
        self._rules: TransactionRules | None = None
        #: What it scheduled, while it joins.
        self._scheduled: list[Message] = []

    # -- gathering

    def send(self, outlet: Outlet, messages: list[Message]) -> None:
        """All of them or none. Raises why they are refused; nothing has changed then, and whoever asked decides
        what becomes of the transaction (`doom`)."""
        self._send(outlet, messages, are_scheduled=False)

    def schedule(self, outlet: Outlet, messages: list[Message]) -> list[int]:
        """S-37: their numbers, which are theirs from the commit on."""
        self._send(outlet, messages, are_scheduled=True)
        return [message.sequence_number for message in messages]

    def send_via(
        self, outlet: Outlet, transfers: Outlet, messages: list[Message], via_key: str | None
    ) -> None:
        """TX-3: messages for another entity, by way of this one, whose transfers lie in the same fragment."""
        self.check_open()
        index = via_index(outlet, via_key, None if self._top_key is None else self._index)
        self._enter(outlet.member(index), 0)
        gathered = self._gather(self._transfers, transfers.member(index), messages)
        if self._transfers is None:
            self._transfers = gathered
            self._gathered.append(gathered)
        self._begin(outlet.member(index))

    async def cancel(self, outlet: Outlet, numbers: list[int]) -> None:
        """S-37: all of them or none. What the transaction itself has scheduled can be cancelled too."""
        fragment = place_of_numbers(outlet, numbers)
        self._enter(fragment, 0)
        sends = self._sends
        own = {} if sends is None else sends.scheduled()
        others = [number for number in numbers if number not in own]
        if others:
            found = await fragment.reads.cancellable(others)
            self._enter(fragment, len(found))
            self._begin(fragment)
            self._claims.setdefault(fragment, TransactionClaims(fragment)).cancel(found)
        dropped = [own[number] for number in set(numbers) if number in own]
        if dropped and sends is not None:
            self._room.held_bytes -= sends.drop(dropped) + len(dropped) * _MESSAGE_BYTES

    def settle(
        self, outlet: Outlet, tokens: list[bytes], settlement: Settlement, session_id: str | None
    ) -> list[tuple[int, BrokerError]]:
        """Claims the locks; refused ones are told by index. Raises what concerns all of them. Messages of another
        partition than the transaction's are given up by that: they come again, and their locks are lost."""
        fragment = place_of_tokens(outlet, tokens)
        try:
            self._enter(fragment, len(tokens))
        except InvalidOperation as error:
            if error.sentence == OTHER_FRAGMENT:
                outlet.settle(tokens, Settlement(Verb.ABANDON), _ignored, session_id)
            raise
        claims = self._claims.get(fragment)
        if claims is None:
            claims = TransactionClaims(fragment)
        refused = claims.settle(tokens, settlement, session_id)
        if len(refused) < len(tokens):
            self._begin(fragment)
            self._claims[fragment] = claims
        return refused

    def change_rules(self, outlet: Outlet, work: RuleWork, step: RuleStep) -> None:
        """T-13: with the commit. `outlet` is that of the subscription. Raises InvalidOperation (TX-20)."""
        if outlet.settings.is_partitioned:
            raise InvalidOperation(
                f"'{outlet.settings.path}' is partitioned: its rules cannot be changed in a transaction."
            )
        fragment = outlet.member(FragmentIndex(0))
        self._enter(fragment, 1)
        if self._rules is None:
            self._rules = TransactionRules(work)
        self._rules.add(step)
        self._begin(fragment)

    def check_open(self) -> None:
        """Raises why nothing can join it any more."""
        if self._fault is not None:
            raise self._fault
        if self._state != _OPEN:
            raise TransactionUnknown

    def via_path(self, outlet: Outlet, session: object) -> str | None:
        """TX-22: the entity by whose way a link of that session sends to another one; None when it need not."""
        if self._top_path is None or session is None or session is not self._session or outlet is self._first:
            return None
        return self._top_path if _top_of(outlet.settings.path)[1] != self._top_key else None

    def top_path(self) -> str | None:
        """The queue or topic that it takes place in; None before its first operation."""
        return self._top_path

    def hold(self) -> None:
        """An operation has come that needs some time: a commit waits for `unhold`."""
        self._held += 1

    def unhold(self) -> None:
        self._held -= 1
        if self._held == 0 and self._done is not None and self._state == _OPEN:
            self._start_commit()

    def doom(self, error: BrokerError) -> None:
        """A part of it was refused: it cannot be committed without it."""
        if self._fault is None and self._state == _OPEN:
            self._fault = _rolled_back(error)

    def _enter(self, fragment: Fragment, claims: int) -> None:
        """Checks that an operation may take place there. Changes nothing."""
        self.check_open()
        if self._top_key is not None and fragment is not self._first:
            if _top_of(fragment.settings.path)[1] != self._top_key:
                raise InvalidOperation(OTHER_ENTITY)
            if fragment.index != self._index:
                raise InvalidOperation(OTHER_FRAGMENT)
        if claims:
            self._check_claims(claims)

    def _check_claims(self, claims: int) -> None:
        for each in self._claims.values():
            claims += len(each)
        claims_max = self._runtime.limits.transaction_settlements_max
        if self._rules is not None:
            claims += len(self._rules)
        if claims > claims_max:
            raise QuotaExceeded(f"A transaction settles and cancels at most {claims_max} messages.")

    def _begin(self, fragment: Fragment) -> None:
        """An operation has taken place."""
        if self._top_key is not None:
            return
        self._first = fragment
        self._top_path, self._top_key = _top_of(fragment.settings.path)
        self._index = fragment.index
        deadline = self._runtime.clock.monotonic() + self._runtime.limits.transaction_s
        self._timer = self._runtime.timers.at(deadline, self._timed_out)

    def _send(self, outlet: Outlet, messages: list[Message], *, are_scheduled: bool) -> None:
        self.check_open()
        fragment, key = place_of_messages(outlet, messages, self._partition_key)
        self._enter(fragment, 0)
        gathered = self._gather(self._sends, fragment, messages, are_scheduled=are_scheduled)
        if self._sends is None:
            self._sends = gathered
            self._gathered.insert(0, gathered)
        self._partition_key = key
        self._begin(fragment)

    def _gather(
        self,
        sends: TransactionSends | None,
        fragment: Fragment,
        messages: list[Message],
        *,
        are_scheduled: bool = False,
    ) -> TransactionSends:
        """What was sent into the fragment so far, with these."""
        if sends is None:
            sends = TransactionSends(fragment)
        elif sends.fragment is not fragment:
            raise ServerBusy("The entity was opened anew since the transaction began. Please try again.")
        count = len(messages)
        for each in self._gathered:
            count += len(each.messages)
        messages_max = self._runtime.limits.transaction_messages_max
        if count > messages_max:
            raise InvalidOperation(f"Cannot send more than {messages_max} messages in a single transaction")
        size_bytes = 0
        for message in messages:
            size_bytes += message.size()
        weight_bytes = len(messages) * _MESSAGE_BYTES
        self._room.check(size_bytes + weight_bytes)
        self._room.held_bytes += sends.admit(messages, are_scheduled=are_scheduled) + weight_bytes
        return sends

    # -- commit

    def commit(self, done: Discharged) -> None:
        """Tells `done` once, perhaps at once: None, or why it was rolled back instead."""
        self._done = done
        if self._held == 0 or self._state != _OPEN:
            self._start_commit()

    def _start_commit(self) -> None:
        self._stop_timer()
        if self._fault is not None or self._state != _OPEN:
            self._end(self._fault or TransactionUnknown())
            return
        self._state = _COMMITTING
        if self._rules is None:
            self._advance()
        else:
            self._runtime.spawn(self._rules.commit(self._advance))

    def _advance(self) -> None:
        """Goes on with the commit; called again when something that held it up is over."""
        if not self._can_join():
            return
        sends = self._sends
        if sends is None or not sends.fragment.settings.detects_duplicates:
            self.join(None)
            return
        run = sends.run(self._refused)
        run.may_join, run.hand_over = self.may_join, self.join
        sends.hand_over()
        sends.fragment.duplicates.submit(run)

    def may_join(self) -> bool:
        """Asked after the look into the history of ids; `join` follows when it is True."""
        if self._state != _COMMITTING or self._sends is None:
            return False
        self._sends.take_back()
        return self._can_join()

    def _can_join(self) -> bool:
        """False when it was rolled back instead, or waits and will be asked again."""
        fault = self._obstacle()
        if fault is not None:
            self._end(_rolled_back(fault))
            return False
        return not any(sends.must_wait(self._advance) for sends in self._gathered)

    def _obstacle(self) -> BrokerError | None:
        for sends in self._gathered:
            fault = sends.obstacle()
            if fault is not None:
                return fault
        for claims in self._claims.values():
            fault = _unusable(claims.fragment) or claims.fault()
            if fault is not None:
                return fault
        return None if self._rules is None or self._first is None else _unusable(self._first)

    def join(self, run: SentRun | None) -> None:
        """The one step, or what has to be done before it. `run`: the entity's own sends, without duplicates."""
        if self._rules is not None:
            fault = self._rules.carry_out()
            if fault is not None:
                self._end(_rolled_back(fault))
                return
        sends = self._sends
        if sends is None:
            self._join(None, None)
            return
        if run is None:
            run = sends.run(self._refused)
        self._scheduled = sends.take_scheduled(run)
        intake = sends.fragment.intake
        try:
            preparation = intake.prepare(run)
        except BrokerError as error:
            self._end(_rolled_back(error))
            return
        if preparation is None or preparation.is_ready:
            self._join(run, preparation)
        else:
            intake.begin(preparation, self._prepared)

    def _prepared(self, preparation: Preparation, error: BrokerError | None) -> None:
        """What it publishes can join in this very step, or cannot. Everything else is looked at again."""
        fault = error or self._obstacle()
        if fault is None:
            self._join(preparation.run, preparation)
        else:
            self._end(_rolled_back(fault))

    def _join(self, run: SentRun | None, preparation: Preparation | None) -> None:
        """The one step. Nothing in it waits. `run`: the entity's own sends."""
        batch = self._open_batch()
        if batch is None:
            self._end(None)
            return
        if self._rules is not None:
            self._rules.decide(batch)
        for sends in self._gathered:
            if sends is self._sends and run is not None:
                sends.join(run, preparation)
            else:
                sends.join(sends.run(self._refused), None)
            if self._state == _OVER:  # refused at the last moment
                return
            if sends is self._sends:
                sends.join_scheduled(self._scheduled, batch)
        self._state = _JOINED
        for claims in self._claims.values():
            claims.join(batch)
        batch.callbacks.append(self._committed)

    def _open_batch(self) -> CommitBatch | None:
        """None for a transaction in which nothing happened."""
        for sends in self._gathered:
            return sends.fragment.batch()
        for fragment in self._claims:
            return fragment.batch()
        return None if self._rules is None or self._first is None else self._first.batch()

    def _refused(self, refused: list[tuple[int, BrokerError]]) -> None:
        """A run of sends is over. Once all have joined, the transaction's own callback tells the rest."""
        if refused and self._state == _COMMITTING:
            self._end(_rolled_back(refused[0][1]))

    def _committed(self, error: StoreError | None) -> None:
        for claims in self._claims.values():
            claims.committed(error)
        if error is None:
            for sends in self._gathered:
                sends.show_scheduled()
            self._end(None)
            return
        failure = broker_error(error)
        self._end(failure if isinstance(failure, StoreOutcomeUnknown) else _rolled_back(failure))

    # -- rollback

    def roll_back(self) -> None:
        """Everything is as if it had not been (TX-9). Idempotent; one that is being committed goes on."""
        if self._state == _OPEN:
            self._stop_timer()
            self._undo()
            self._state = _OVER

    def _stop_timer(self) -> None:
        self._runtime.timers.cancel(self._timer)
        self._timer = None  # it refers to us: nobody should have to collect the two

    def _timed_out(self) -> None:
        """TX-6: rolled back at once; its discharge says why."""
        if self._state == _OPEN:
            self._undo()
            self._state = _OVER
            seconds = self._runtime.limits.transaction_s
            self._fault = TransactionTimedOut(
                f"The transaction took longer than {seconds:g} seconds and was rolled back."
            )

    def _end(self, error: BrokerError | None) -> None:
        done, self._done = self._done, None
        if self._rules is not None and self._first is not None:
            self._rules.ended(error, self._first.store.name)
        if self._state != _OVER:
            self._undo()
            self._state = _OVER
        if done is not None:
            done(error)

    def _undo(self) -> None:
        """Gives back whatever it holds; after a commit that is memory only."""
        for sends in self._gathered:
            if self._state != _JOINED:
                sends.release()
            self._room.held_bytes -= sends.bytes + len(sends.messages) * _MESSAGE_BYTES
        if self._state != _JOINED:
            for claims in self._claims.values():
                claims.release()
        self._sends = self._transfers = None
        self._scheduled = []
        self._gathered.clear()
        self._claims.clear()


def _ignored(_refused: list[tuple[int, BrokerError]]) -> None:
    """Nobody waits for it."""


@lru_cache(maxsize=_KNOWN_PATHS_MAX)
def _top_of(path: str) -> tuple[str, str]:
    """Path and key of the queue or topic that a fragment with this path belongs to."""
    top_path = topic_path_of(EntityAddress.parse(path).path)
    return top_path, path_key(top_path)


def _unusable(fragment: Fragment) -> BrokerError | None:
    if fragment.is_usable():
        return None
    return ServerBusy.without("The store")


def _rolled_back(reason: BrokerError) -> TransactionRolledBack:
    return TransactionRolledBack(f"The transaction was rolled back. {reason.sentence}")


_ID_BYTES: Final = 16
_IDS_PER_DRAW: Final = 64
_BASIC: Final = "Basic"


class Transactions:
    """The open transactions of one connection, by id (TX-5)."""

    __slots__ = ("_draw", "_open", "_owners", "_room", "_runtime")

    def __init__(self, runtime: BrokerRuntime) -> None:
        self._runtime = runtime
        self._room = PayloadRoom(runtime.limits.transaction_bytes_per_connection_max)
        #: Random bytes for ids to come: asking for each alone costs more.
        self._draw = b""
        self._open: dict[bytes, Transaction] = {}
        self._owners: dict[bytes, object] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """What they hold in memory."""
        return self._room.held_bytes

    def check_offered(self) -> None:
        """Raises InvalidOperation in a namespace that has no transactions (TX-21)."""
        if self._runtime.limits.sku == _BASIC:
            raise InvalidOperation("Transactions are not offered by a namespace of the tier Basic.")

    def declare(self, owner: object, session: object = None) -> bytes:
        """A new transaction of that control link. Links of the same AMQP session may send to other entities in it
        (TX-22)."""
        open_max = self._runtime.limits.transactions_per_connection_max
        if len(self._open) >= open_max:
            raise QuotaExceeded(f"The connection has {open_max} open transactions already.")
        txn_id = self._new_id()
        self._open[txn_id] = Transaction(txn_id, self._runtime, self._room, session)
        self._owners[txn_id] = owner
        return txn_id

    def _new_id(self) -> bytes:
        if not self._draw:
            self._draw = self._runtime.entropy.bytes(_ID_BYTES * _IDS_PER_DRAW)
        txn_id, self._draw = self._draw[:_ID_BYTES], self._draw[_ID_BYTES:]
        return txn_id

    def find(self, txn_id: bytes) -> Transaction:
        """Raises TransactionUnknown."""
        found = self._open.get(txn_id)
        if found is None:
            raise TransactionUnknown
        return found

    def discharge(self, owner: object, txn_id: bytes, *, fail: bool, done: Discharged) -> None:
        """Commits, or with `fail` rolls back. From now on the id is unknown. Raises TransactionUnknown."""
        if self._owners.get(txn_id) is not owner:
            raise TransactionUnknown
        transaction = self._forget(txn_id)
        if fail:
            transaction.roll_back()
            done(None)
        else:
            transaction.commit(done)

    def owner_gone(self, owner: object) -> None:
        for txn_id in [txn_id for txn_id, declarer in self._owners.items() if declarer is owner]:
            self._forget(txn_id).roll_back()

    def _forget(self, txn_id: bytes) -> Transaction:
        del self._owners[txn_id]
        return self._open.pop(txn_id)
