"""The connection of a client, with its tokens, its links for requests, and its transactions.

It is opened with its first use and again after a loss, with tokens for the entities in use, links for management
and the one for transactions.

`RequestLinks` are a pair of links on a node that answers: `$cbs`, or an entity's `$management`.

What is sent and settled inside a transaction happens together or not at all:

    async with client.transaction():
        await receiver.complete_message(order)
        await sender.send_messages(invoice)

Whatever the code inside the block sends, schedules, cancels or settles with senders and receivers of that client
takes part, also in tasks that it starts. Leaving the block commits; an exception rolls back: then nothing was
sent, and the messages are still locked and can be settled again.
"""

import asyncio
import contextlib
import time
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Final
from uuid import uuid4

from busway.amqp.events import ConnectionEvent, DeliveriesArrived, OutcomesArrived
from busway.amqp.performatives import (
    RECEIVER_FIRST,
    SENDER_SETTLED,
    SENDER_UNSETTLED,
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Properties,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.sections import VALUE, AmqpMessage, decode_message, encode_composite, encode_message
from busway.amqp.types import Symbol
from busway.client.connection_string import LIFETIME_S, ConnectionString, token_for
from busway.client.errors import ClientError, Refused, TimedOut, error_of
from busway.client.management import Management, read_answer
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.wire import LinkEnd, Wire, open_wire

ANSWER_TIMEOUT_S: Final = 60.0
_CREDIT: Final = 100


class RequestLinks:
    """A pair of links on a node that answers: `$cbs`, or an entity's `$management`."""

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire = wire
        self._address = address
        self._reply_to = str(uuid4())
        self._waiting: dict[str, asyncio.Future[AmqpMessage]] = {}
        self._answers = _Answers(wire, self._waiting)
        self._requests = _Requests(wire, self._waiting)

    async def open(self) -> None:
        await self._answers.attach(
            is_sender=False,
            source=Source(address=self._address),
            target=Target(address=self._reply_to),
            snd_settle_mode=SENDER_SETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
        )
        self._answers.link.grant_credit(_CREDIT)
        await self._requests.attach(
            is_sender=True,
            source=Source(address=self._reply_to),
            target=Target(address=self._address),
            snd_settle_mode=SENDER_SETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
        )

    @property
    def is_over(self) -> bool:
        return self._answers.failure is not None or self._requests.failure is not None

    async def ask(
        self, properties: dict[str, object], body: object, state: TransactionalState | None = None
    ) -> AmqpMessage:
        """Sends one request, in a transaction when there is a state for it, and returns its answer."""
        message_id = str(uuid4())
        request = AmqpMessage(
            body,
            VALUE,
            properties=Properties(message_id=message_id, reply_to=self._reply_to),
            application_properties=properties,
        )
        answer: asyncio.Future[AmqpMessage] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = answer
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while self._requests.link.room() < 1:
                    await self._requests.changed()
                self._requests.check()
                tag = message_id.encode()[:32]
                self._requests.link.send(tag, encode_message(request), settled=True, state=state)
                self._wire.flush()
                return await answer
        except TimeoutError:
            raise TimedOut("The server did not answer a request in time.") from None
        finally:
            self._waiting.pop(message_id, None)

    async def close(self) -> None:
        await self._requests.detach()
        await self._answers.detach()


class _Waiters(LinkEnd):
    def __init__(self, wire: Wire, waiting: dict[str, asyncio.Future[AmqpMessage]]) -> None:
        super().__init__(wire)
        self._waiting = waiting

    def ended(self, failure: ClientError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(failure)


class _Requests(_Waiters):
    def happened_while_open(self, event: ConnectionEvent) -> None:
        if isinstance(event, OutcomesArrived) and isinstance(event.state, Rejected) and event.state.error:
            self.ended(error_of(event.state.error))


class _Answers(_Waiters):
    def happened_while_open(self, event: ConnectionEvent) -> None:
        if not isinstance(event, DeliveriesArrived):
            return
        for delivery in event.deliveries:
            answer = decode_message(delivery.payload)
            correlation_id = None if answer.properties is None else answer.properties.correlation_id
            waiter = self._waiting.get(str(correlation_id))
            if waiter is not None and not waiter.done():
                waiter.set_result(answer)
        if self.link.credit() < _CREDIT // 2:
            self.link.grant_credit(_CREDIT)


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

    def happened_while_open(self, event: ConnectionEvent) -> None:
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


#: A new token is put when three quarters of the old one's life are over.
_RENEW_AFTER_S: Final = LIFETIME_S * 3 / 4
#: When one could not be renewed: there is time for several tries before it ends.
_RENEW_AGAIN_AFTER_S: Final = 60.0


class ClientConnection:
    """With `plain_login` it logs in by SASL PLAIN instead of tokens."""

    def __init__(self, target: ConnectionString, ca_file: Path | None, *, plain_login: bool) -> None:
        self._target = target
        self._ca_file = ca_file
        self._plain_login = plain_login
        self._wire: Wire | None = None
        self._cbs: RequestLinks | None = None
        self._audiences: set[str] = set()
        self._managements: dict[str, _LazyLinks] = {}
        self._control: ControlEnd | None = None
        self._renewal: asyncio.Task[None] | None = None
        #: Two coroutines that need the connection at once open it once.
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
            self._renewal = None
        if self._wire is not None:
            await self._wire.close()
            self._wire = None

    def get_management(self, queue_name: str) -> Management:
        links = self._managements.get(queue_name)
        if links is None:
            links = self._managements[queue_name] = _LazyLinks(self, queue_name)
        return Management(links, self.transaction_state)

    def transaction_state(self) -> TransactionalState | None:
        """What transfers bear inside the block of a transaction; None outside."""
        transaction = transaction_of(self)
        return None if transaction is None else transaction.state()

    async def control_link(self) -> ControlEnd:
        """One for the connection; its loss rolls back what is open."""
        async with self._opening:
            wire = await self._connected()
            control = self._control
            if control is None or control.failure is not None:
                control = ControlEnd(wire)
                await control.open()
                self._control = control
        return control

    async def wire_for(self, entity: str) -> Wire:
        """The open connection, with a token put for the entity."""
        async with self._opening:
            wire = await self._connected()
            if not self._plain_login and entity not in self._audiences:
                await self._put_token(entity)
                self._audiences.add(entity)
        return wire

    async def _connected(self) -> Wire:
        wire = self._wire
        return await self._open() if wire is None or wire.failure is not None else wire

    async def _open(self) -> Wire:
        self._audiences.clear()
        self._managements.clear()
        if self._wire is not None:
            await self._wire.close()
        self._wire = wire = await open_wire(self._target, self._ca_file, plain_login=self._plain_login)
        if not self._plain_login:
            self._cbs = RequestLinks(wire, "$cbs")
            await self._cbs.open()
            if self._renewal is None:
                self._renewal = asyncio.create_task(self._renew_tokens())
        return wire

    async def _put_token(self, entity: str) -> None:
        if self._cbs is None:
            return
        audience = self._target.audience(entity)
        token = token_for(self._target, audience, time.time())
        properties: dict[str, object] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        read_answer(await self._cbs.ask(properties, token))

    async def _renew_tokens(self) -> None:
        pause_s = _RENEW_AFTER_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _RENEW_AFTER_S
            for entity in list(self._audiences):
                try:
                    await self._put_token(entity)
                except ClientError:  # one that lasts shows itself to whoever uses the connection next
                    pause_s = _RENEW_AGAIN_AFTER_S


class _LazyLinks:
    """Links to a management node that open with the first request, and again after a loss."""

    def __init__(self, connection: ClientConnection, entity: str) -> None:
        self._connection = connection
        self._entity = entity
        self._opened: RequestLinks | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, properties: dict[str, object], body: object, state: TransactionalState | None = None
    ) -> AmqpMessage:
        async with self._opening:
            if self._opened is None or self._opened.is_over:
                wire = await self._connection.wire_for(self._entity)
                self._opened = RequestLinks(wire, f"{self._entity}/$management")
                await self._opened.open()
        return await self._opened.ask(properties, body, state)
