"""A pair of links on a node that answers: `$cbs`, or an entity's `$management`."""

import asyncio
from typing import Final
from uuid import uuid4

from busway.amqp.events import DeliveriesArrived, Event, OutcomesArrived
from busway.amqp.performatives import (
    RECEIVER_FIRST,
    SENDER_SETTLED,
    Properties,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.sections import VALUE, AmqpMessage, decode_message, encode_message
from busway.client.errors import ClientError, TimedOut, error_of
from busway.client.link_end import LinkEnd
from busway.client.wire import Wire

ANSWER_TIMEOUT_S: Final = 60.0
_CREDIT: Final = 100


class RequestLinks:
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
    def happened_while_open(self, event: Event) -> None:
        if isinstance(event, OutcomesArrived) and isinstance(event.state, Rejected) and event.state.error:
            self.ended(error_of(event.state.error))


class _Answers(_Waiters):
    def happened_while_open(self, event: Event) -> None:
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
