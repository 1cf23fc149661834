"""Receiving from a queue or its dead-letter queue, settling what came, and sessions."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final
from uuid import UUID

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import ConnectionEvent, CreditDrained, DeliveriesArrived, SettlementsAnswered
from busway.amqp.performatives import (
    RECEIVER_FIRST,
    RECEIVER_SECOND,
    SENDER_SETTLED,
    SENDER_UNSETTLED,
    Accepted,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.types import Symbol, UInt
from busway.client.client_connection import transaction_of
from busway.client.errors import ClientError, LockLost, Refused, error_of
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.wire import ATTACH_TIMEOUT_S, LinkEnd, OneLink

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection
    from busway.client.management import Management
    from busway.client.wire import Wire

RECEIVE_AND_DELETE: Final = "receive-and-delete"
PEEK_LOCK: Final = "peek-lock"
SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
_DRAIN_TIMEOUT_S: Final = 10.0
_SETTLE_TIMEOUT_S: Final = 60.0


class ServiceBusReceiver(OneLink["_ReceivingEnd"]):
    """Made by `ServiceBusClient.get_queue_receiver`; an asynchronous context manager.

    `session_id`: a text accepts that session, True the next one that has messages, None is for queues without
    sessions.
    """

    what = "receiver"

    def __init__(
        self,
        connection: "ClientConnection",
        queue_name: str,
        receive_mode: str,
        session_id: str | bool | None,
        session_wait: float,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._queue_name = queue_name
        self._deletes = receive_mode == RECEIVE_AND_DELETE
        self._wanted_session = session_id
        self._session_wait = session_wait

    async def open(self) -> None:
        """Raises TimedOut when the next session was asked for and none has messages."""
        wire = await self._connection.wire_for(self._queue_name)
        end = _ReceivingEnd(wire)
        await end.attach(
            is_sender=False,
            source=Source(address=self._queue_name, filter=self._filter()),
            target=Target(address=f"busway-receiver-{self._queue_name}"),
            snd_settle_mode=SENDER_SETTLED if self._deletes else SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST if self._deletes else RECEIVER_SECOND,
            properties=self._attach_properties(),
            timeout_s=ATTACH_TIMEOUT_S + self._session_wait,
        )
        self._end = end

    @property
    def session_id(self) -> str | None:
        """The session that was accepted."""
        source = self._opened().link.source
        accepted = None if source is None else (source.filter or {}).get(SESSION_FILTER)
        return accepted if isinstance(accepted, str) else None

    async def receive_messages(
        self, max_message_count: int = 1, max_wait_time: float = 5.0
    ) -> list[ServiceBusReceivedMessage]:
        """Waits for the first message only; then takes what is there, at most so many (R-71)."""
        deliveries = await self._opened().receive(max_message_count, max_wait_time)
        return [
            ServiceBusReceivedMessage(
                delivery.payload,
                lock_token=None if self._deletes or len(delivery.tag) != 16 else UUID(bytes_le=delivery.tag),
                delivery_id=delivery.delivery_id,
            )
            for delivery in deliveries
        ]

    async def peek_messages(
        self, max_message_count: int = 1, sequence_number: int = 0
    ) -> list[ServiceBusReceivedMessage]:
        session_id = self.session_id if self._wanted_session is not None else None
        return await self._management().peek_messages(max_message_count, sequence_number, session_id)

    async def receive_deferred_messages(self, sequence_numbers: list[int]) -> list[ServiceBusReceivedMessage]:
        return await self._management().receive_deferred_messages(
            sequence_numbers,
            deletes=self._deletes,
            session_id=self.session_id if self._wanted_session is not None else None,
            link_name=self._opened().link.name,
        )

    # -- settling
    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, Accepted(), "completed")

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, Modified(delivery_failed=True, undeliverable_here=False), "abandoned")

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        await self._settle(message, Modified(delivery_failed=True, undeliverable_here=True), "defered")

    async def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        info = {
            Symbol("DeadLetterReason"): reason,
            Symbol("DeadLetterErrorDescription"): error_description,
        }
        error = AmqpError(Condition.DEAD_LETTER, error_description, info)
        changes: dict[str, object] = {
            "deadletter-reason": reason,
            "deadletter-description": error_description,
        }
        await self._settle(message, Rejected(error), "suspended", changes)

    async def renew_message_lock(self, message: ServiceBusReceivedMessage) -> int:
        """The lock's new end, in milliseconds since 1970."""
        return await self._management().renew_message_lock(_token(message))

    async def _settle(
        self,
        message: ServiceBusReceivedMessage,
        state: Accepted | Modified | Rejected,
        disposition: str,
        changes: dict[str, object] | None = None,
    ) -> None:
        token = _token(message)
        if message.is_settled:
            raise Refused("The message is settled already.")
        transaction = transaction_of(self._connection)
        if message.delivery_id is not None:
            await self._opened().settle(
                message.delivery_id, state if transaction is None else transaction.state(state)
            )
        else:
            session = {} if self._wanted_session is None else {"session-id": self.session_id}
            await self._management().settle(token, disposition, {**(changes or {}), **session})
        message.is_settled = True
        if transaction is not None:
            transaction.includes(message)

    # -- the session
    async def renew_session_lock(self) -> int:
        return await self._management().renew_session_lock(self._session(), self._opened().link.name)

    async def get_session_state(self) -> bytes | None:
        return await self._management().get_session_state(self._session(), self._opened().link.name)

    async def set_session_state(self, state: bytes | None) -> None:
        await self._management().set_session_state(self._session(), state, self._opened().link.name)

    def _session(self) -> str:
        session_id = self.session_id
        if session_id is None:
            raise Refused("The receiver holds no session.")
        return session_id

    def _management(self) -> "Management":
        return self._connection.get_management(self._queue_name)

    def _filter(self) -> dict[object, object] | None:
        if self._wanted_session is None:
            return None
        return {SESSION_FILTER: self._wanted_session if isinstance(self._wanted_session, str) else None}

    def _attach_properties(self) -> dict[object, object] | None:
        if self._wanted_session is None:
            return None
        return {_TIMEOUT: UInt(max(1, int(self._session_wait * 1000)))}


def _token(message: ServiceBusReceivedMessage) -> UUID:
    if message.lock_token is None:
        raise Refused("The message holds no lock: it was peeked, or deleted when it was received.")
    return message.lock_token


class _ReceivingEnd(LinkEnd):
    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self._arrived: list[IncomingDelivery] = []
        self._is_drained = True
        self._answers: dict[int, asyncio.Future[None]] = {}

    async def receive(self, count: int, wait_s: float) -> list[IncomingDelivery]:
        self._is_drained = False
        self.link.grant_credit(count)
        self._wire.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._arrived:
                    await self.changed()
        if len(self._arrived) < count:
            await self._drain()
        taken, self._arrived = self._arrived, []
        return taken

    async def _drain(self) -> None:
        """Takes what the server has at hand and gives the rest of the credit back, so that nothing is sent
        (and locked, or deleted) while nobody waits."""
        self.link.grant_credit(self.link.credit(), drain=True)
        self._wire.flush()
        # A server that is late with its answer costs nothing: what comes later waits for the next call.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                while not self._is_drained and self.link.credit() > 0:
                    await self.changed()

    async def settle(
        self, delivery_id: int, state: Accepted | Modified | Rejected | TransactionalState
    ) -> None:
        self.check()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers[delivery_id] = answer
        self.link.settle(delivery_id, delivery_id, state, settled=False)
        self._wire.flush()
        try:
            async with asyncio.timeout(_SETTLE_TIMEOUT_S):
                await answer
        except TimeoutError:
            raise LockLost("The server did not confirm the settlement in time.") from None
        finally:
            self._answers.pop(delivery_id, None)

    def happened_while_open(self, event: ConnectionEvent) -> None:
        match event:
            case DeliveriesArrived(deliveries=deliveries):
                self._arrived.extend(deliveries)
            case CreditDrained():
                self._is_drained = True
            case SettlementsAnswered(delivery_ids=delivery_ids, state=state):
                for delivery_id in delivery_ids:
                    self._tell_answer(delivery_id, state)
            case _:
                pass

    def _tell_answer(self, delivery_id: int, state: object) -> None:
        answer = self._answers.get(delivery_id)
        if answer is None or answer.done():
            return
        # A rejection that carries an error is a failure; without one it echoes a dead-lettering.
        if isinstance(state, Rejected) and state.error is not None:
            answer.set_exception(error_of(state.error))
        else:
            answer.set_result(None)

    def ended(self, failure: ClientError) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(failure)
