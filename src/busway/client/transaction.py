"""Transactions: what is sent and settled inside one happens together or not at all.

    async with client.transaction():
        await receiver.complete_message(order)
        await sender.send_messages(invoice)

Whatever the code inside the block sends, schedules, cancels or settles with senders and receivers of that client
takes part, also in tasks that it starts. Leaving the block commits; an exception rolls back: then nothing was sent,
and the messages are still locked and can be settled again.
"""

import asyncio
import contextlib
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Final

from busway.amqp.events import Event, OutcomesArrived
from busway.amqp.performatives import (
    RECEIVER_FIRST,
    SENDER_UNSETTLED,
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Source,
    TransactionalState,
)
from busway.amqp.sections import encode_composite
from busway.amqp.types import Symbol
from busway.client.errors import ClientError, Refused, TimedOut, error_of
from busway.client.link_end import LinkEnd
from busway.client.messages import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection
    from busway.client.wire import Wire

_ANSWER_TIMEOUT_S: Final = 60.0
_LOCAL: Final = Symbol("amqp:local-transactions")


class ServiceBusTransaction:
    """Made by `ServiceBusClient.transaction`; an asynchronous context manager, good for one block."""

    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection
        self._control: ControlEnd | None = None
        self._txn_id: bytes | None = None
        self._entered: Token[tuple[ServiceBusTransaction, ...]] | None = None
        #: Messages whose settlement is part of it.
        self._settled: list[ServiceBusReceivedMessage] = []

    async def __aenter__(self) -> "ServiceBusTransaction":
        if self._entered is not None or transaction_of(self._connection) is not None:
            raise Refused("A transaction is open already: they cannot be nested, and each is for one block.")
        self._control = await self._connection.control_link()
        self._txn_id = await self._control.declare()
        self._entered = _entered.set((*_entered.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered is not None
        assert self._control is not None
        assert self._txn_id is not None
        _entered.reset(self._entered)
        txn_id, self._txn_id = self._txn_id, None
        try:
            if error is None:
                await self._control.discharge(txn_id, fail=False)
                return
            # The block's own exception is the one to raise; a server that is gone rolls back by itself.
            with contextlib.suppress(ClientError):
                await self._control.discharge(txn_id, fail=True)
        except BaseException:
            self._take_back()
            raise
        self._take_back()

    def state(self, outcome: Accepted | Modified | Rejected | None = None) -> TransactionalState:
        """What a transfer, or with an outcome a disposition, bears that takes part."""
        if self._txn_id is None:
            raise Refused("The transaction is over: its block has been left.")
        return TransactionalState(self._txn_id, outcome)

    def includes(self, message: ServiceBusReceivedMessage) -> None:
        """The message is settled as part of it."""
        self._settled.append(message)

    def _take_back(self) -> None:
        """The locks are as before. The server has forgotten the deliveries, so it is told by lock token next time."""
        for message in self._settled:
            message.is_settled = False
            message.delivery_id = None


#: The transactions whose blocks the running code is in; of each client at most one.
_entered: ContextVar[tuple[ServiceBusTransaction, ...]] = ContextVar("_entered", default=())


def transaction_of(connection: "ClientConnection") -> ServiceBusTransaction | None:
    """The transaction of that client in whose block the running code is."""
    for transaction in _entered.get():
        if transaction._connection is connection:
            return transaction
    return None


class ControlEnd(LinkEnd):
    """The control link: declares and discharges."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self._tags = 0
        self._waiting: set[asyncio.Future[object]] = set()

    async def open(self) -> None:
        await self.attach(
            is_sender=True,
            source=Source(address="busway-controller"),
            target=Coordinator([_LOCAL]),
            snd_settle_mode=SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
        )

    async def declare(self) -> bytes:
        outcome = await self._ask(Declare())
        if not isinstance(outcome, Declared):
            raise _refusal(outcome)
        return outcome.txn_id

    async def discharge(self, txn_id: bytes, *, fail: bool) -> None:
        outcome = await self._ask(Discharge(txn_id, fail))
        if not isinstance(outcome, Accepted):
            raise _refusal(outcome)

    async def _ask(self, request: Declare | Discharge) -> object:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                while self.link.room() < 1:
                    await self.changed()
                return await self._sent(encode_composite(request))
        except TimeoutError:
            raise TimedOut("The server did not answer about a transaction in time.") from None

    async def _sent(self, payload: bytes) -> object:
        self.check()
        self._tags += 1
        delivery = self.link.send(self._tags.to_bytes(4, "big"), payload, settled=False)
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        delivery.owner = outcome
        self._waiting.add(outcome)
        self._wire.flush()
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    def happened_while_open(self, event: Event) -> None:
        if not isinstance(event, OutcomesArrived):
            return
        for delivery in event.deliveries:
            waiting = delivery.owner
            if isinstance(waiting, asyncio.Future) and not waiting.done():
                waiting.set_result(event.state)
        if not event.settled:
            self.link.answer(event.deliveries, event.state)

    def ended(self, failure: ClientError) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(failure)


def _refusal(outcome: object) -> ClientError:
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return error_of(outcome.error)
    return Refused("The server did not do what was asked of its transaction coordinator.")
