"""Sending to a queue or a topic."""

import asyncio
from typing import TYPE_CHECKING, Final

from busway.amqp.deliveries import OutgoingDelivery
from busway.amqp.events import ConnectionEvent, OutcomesArrived
from busway.amqp.performatives import (
    RECEIVER_FIRST,
    SENDER_UNSETTLED,
    Accepted,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.sections import BATCH_FORMAT
from busway.client.errors import ClientError, Refused, error_of
from busway.client.messages import ServiceBusMessage, encode_batch
from busway.client.wire import LinkEnd, OneLink

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection
    from busway.client.wire import Wire

#: When the server names no limit.
_BATCH_BYTES_DEFAULT: Final = 256 * 1024
#: What an envelope and one more data section cost at most.
_ENVELOPE_BYTES: Final = 64
_SECTION_BYTES: Final = 8


class ServiceBusSender(OneLink["SendingEnd"]):
    """Made by `ServiceBusClient.get_queue_sender` or `get_topic_sender`; an asynchronous context manager."""

    what = "sender"

    def __init__(self, connection: "ClientConnection", queue_name: str) -> None:
        super().__init__()
        self._connection = connection
        self._queue_name = queue_name

    async def open(self) -> None:
        wire = await self._connection.wire_for(self._queue_name)
        self._end = SendingEnd(wire)
        await self._end.attach(
            is_sender=True,
            source=Source(address=f"busway-sender-{self._queue_name}"),
            target=Target(address=self._queue_name),
            snd_settle_mode=SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
        )

    @property
    def batch_bytes_max(self) -> int:
        """The largest message, and so the largest batch, that the server takes here."""
        return self._opened().batch_bytes_max()

    async def send_messages(self, messages: ServiceBusMessage | list[ServiceBusMessage]) -> None:
        """Returns when the server has stored them. Several messages travel in as few batches as fit; each
        batch is all or nothing (S-20)."""
        given = messages if isinstance(messages, list) else [messages]
        await self.send_encoded([message.encode() for message in given])

    async def send_encoded(self, payloads: list[bytes]) -> None:
        """As `send_messages`, for messages that are encoded already."""
        end = self._opened()
        state = self._connection.transaction_state()
        if len(payloads) == 1:
            await end.send(payloads[0], 0, state)
            return
        cut = batches(payloads, end.batch_bytes_max())
        sends = [end.send(encode_batch(batch), BATCH_FORMAT, state) for batch in cut]
        for result in await asyncio.gather(*sends, return_exceptions=True):
            if result is not None:
                raise result

    async def post(self, payload: bytes, *, is_batch: bool) -> "asyncio.Future[None]":
        """Returns with an encoded message, or the data sections of a batch, on its way; the answer tells what became
        of it. What is posted in order arrives in order."""
        message_format = BATCH_FORMAT if is_batch else 0
        return await self._opened().post(payload, message_format, self._connection.transaction_state())

    async def send_each(self, payloads: list[bytes]) -> list[ClientError | None]:
        """For each encoded message None, or why the server refused it. Those of a refused batch are sent once more
        one by one, so that a message that cannot be sent keeps no other from it. Raises when the connection or the
        link is lost: what arrived is unknown then."""
        end = self._opened()
        state = self._connection.transaction_state()
        results: list[ClientError | None] = []
        for batch in batches(payloads, end.batch_bytes_max()):
            if len(batch) > 1 and await end.refusal(encode_batch(batch), BATCH_FORMAT, state) is None:
                results += [None] * len(batch)
            else:
                results += [await end.refusal(payload, 0, state) for payload in batch]
        return results

    async def schedule_messages(
        self, messages: ServiceBusMessage | list[ServiceBusMessage], schedule_time_ms: int
    ) -> list[int]:
        """The sequence numbers, with which scheduled messages can be cancelled."""
        given = messages if isinstance(messages, list) else [messages]
        return await self._connection.get_management(self._queue_name).schedule_messages(
            given, schedule_time_ms
        )

    async def cancel_scheduled_messages(self, sequence_numbers: list[int]) -> None:
        await self._connection.get_management(self._queue_name).cancel_scheduled_messages(sequence_numbers)


def batches(payloads: list[bytes], bytes_max: int) -> list[list[bytes]]:
    """Cuts in order, each batch as full as fits. A payload larger than the limit stands alone: the server says so."""
    cut: list[list[bytes]] = []
    size = bytes_max
    for payload in payloads:
        size += len(payload) + _SECTION_BYTES
        if size > bytes_max - _ENVELOPE_BYTES or not cut:
            cut.append([])
            size = len(payload) + _SECTION_BYTES
        cut[-1].append(payload)
    return cut


class SendingEnd(LinkEnd):
    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self._tags = 0
        self._outcomes: set[asyncio.Future[None]] = set()

    def batch_bytes_max(self) -> int:
        peer = self.link.peer
        announced = None if peer is None else peer.max_message_size
        return announced if announced else _BATCH_BYTES_DEFAULT

    async def send(
        self, payload: bytes, message_format: int, state: TransactionalState | None = None
    ) -> None:
        await (await self.post(payload, message_format, state))

    async def post(
        self, payload: bytes, message_format: int, state: TransactionalState | None = None
    ) -> asyncio.Future[None]:
        """Waits for room to send; whoever has the answer waits for the outcome."""
        while self.link.room() < 1:
            await self.changed()
        self.check()
        self._tags += 1
        delivery = self.link.send(
            self._tags.to_bytes(4, "big"), payload, settled=False, message_format=message_format, state=state
        )
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        delivery.owner = outcome
        self._outcomes.add(outcome)
        outcome.add_done_callback(self._outcomes.discard)
        self._wire.flush()
        return outcome

    async def refusal(
        self, payload: bytes, message_format: int, state: TransactionalState | None
    ) -> ClientError | None:
        """The server's reason not to take it, None when it did."""
        try:
            await self.send(payload, message_format, state)
        except ClientError as error:
            if self.failure is not None:
                raise
            return error
        return None

    def happened_while_open(self, event: ConnectionEvent) -> None:
        if isinstance(event, OutcomesArrived):
            for delivery in event.deliveries:
                _tell(delivery, event.state)
            if not event.settled:
                self.link.answer(event.deliveries, event.state)

    def ended(self, failure: ClientError) -> None:
        for outcome in list(self._outcomes):
            if not outcome.done():
                outcome.set_exception(failure)


def _tell(delivery: OutgoingDelivery, state: object) -> None:
    outcome = delivery.owner
    if not isinstance(outcome, asyncio.Future) or outcome.done():
        return
    if isinstance(state, TransactionalState):
        state = state.outcome
    if isinstance(state, Accepted):
        outcome.set_result(None)
    elif isinstance(state, Rejected) and state.error is not None:
        outcome.set_exception(error_of(state.error))
    else:
        outcome.set_exception(Refused("The server did not accept the message."))
