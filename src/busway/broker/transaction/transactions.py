"""The open transactions of one connection, by id (TX-5).

A transaction belongs to the control link that declared it: nobody else can discharge it, and it is rolled back when
that link goes, whatever the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.transaction.rules import RuleStep as RuleStep
from busway.broker.transaction.transaction import Discharged, PayloadRoom
from busway.broker.transaction.transaction import Transaction as Transaction
from busway.model.errors import InvalidOperation, QuotaExceeded, TransactionUnknown

if TYPE_CHECKING:
    from busway.broker.fragment.runtime import BrokerRuntime

_ID_BYTES: Final = 16
_IDS_PER_DRAW: Final = 64
_BASIC: Final = "Basic"


class Transactions:
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
