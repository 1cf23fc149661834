"""Publishing to one partition of an event hub, each event once (H-18).

Theory of operation. A producer shows an id, an epoch and the number of its last event when it attaches, and the
server answers with what counts: for an id and epoch that it knows, how far that producer came. Events are numbered
behind that. Whoever cannot tell what was stored attaches with the same id and epoch, learns it, and sends the rest;
what was sent twice nonetheless is stored once. A server that knows no such producers offers nothing in its answer;
then events are only numbered here, and a repeat is stored again.

Groups travel one behind the other without waiting for answers. When one is refused those behind it are refused too,
for their numbers leave a gap, so what is stored is always a beginning of what was sent.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from busway.amqp.encode import encode_value
from busway.amqp.performatives import RECEIVER_FIRST, SENDER_UNSETTLED, Source, Target
from busway.amqp.sections import BATCH_FORMAT, AmqpMessage, encode_message
from busway.amqp.types import Int, Long, Short, Symbol
from busway.client.errors import Refused
from busway.client.messages import encode_batch
from busway.client.sender import SendingEnd, batches

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection

_WISH: Final = Symbol("com.microsoft:idempotent-producer")
_ID: Final = Symbol("com.microsoft:producer-id")
_EPOCH: Final = Symbol("com.microsoft:producer-epoch")
_NUMBER: Final = Symbol("com.microsoft:producer-sequence-number")
#: Groups whose answers are not there yet.
_UNDER_WAY_MAX: Final = 4


@dataclass(frozen=True)
class ProducerClaim:
    """Who a producer is. Counting begins behind `last_number` with each new epoch."""

    producer_id: int
    epoch: int
    last_number: int = 0


class EventProducer:
    """Made by `ServiceBusClient.get_event_producer`; an asynchronous context manager."""

    def __init__(
        self,
        connection: "ClientConnection",
        hub_name: str,
        partition_id: str,
        claim: ProducerClaim | None = None,
    ) -> None:
        self._connection = connection
        self._hub_name = hub_name
        self._address = f"{hub_name}/Partitions/{partition_id}"
        self._claim = claim
        self._end: SendingEnd | None = None
        self._under_way: list[asyncio.Future[None]] = []
        #: Whether the server keeps the count.
        self.is_idempotent = False
        #: Of the last event that was stored before, or handed to `send` since.
        self.last_number = 0 if claim is None else claim.last_number

    async def __aenter__(self) -> "EventProducer":
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        wire = await self._connection.wire_for(self._hub_name)
        self._end = end = SendingEnd(wire)
        await end.attach(
            is_sender=True,
            source=Source(address=f"busway-producer-{self._address}"),
            target=Target(address=self._address),
            snd_settle_mode=SENDER_UNSETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
            properties=self._properties(),
            desired_capabilities=None if self._claim is None else [_WISH],
        )
        peer = end.link.peer
        offered = None if peer is None else peer.offered_capabilities
        self.is_idempotent = self._claim is not None and offered is not None and _WISH in offered
        if self.is_idempotent and peer is not None:
            self.last_number = _stored(dict(peer.properties or {}))

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way.clear()
        if self._end is not None:
            await self._end.detach()
            self._end = None

    async def send(self, events: list[AmqpMessage]) -> None:
        """Under the numbers behind the last. Returns with them on their way; `flush` tells whether they arrived."""
        end = self._opened()
        payloads = [self._encode(event) for event in events]
        for batch in batches(payloads, end.batch_bytes_max()):
            await self._post(encode_batch(batch))

    @property
    def batch_bytes_max(self) -> int:
        """The largest group that the server takes."""
        return self._opened().batch_bytes_max()

    def marks(self) -> bytes:
        """Encoded annotations that each event bears, up to the value of the last one, its number (an int); nothing
        when the server does not count."""
        if not self.is_idempotent or self._claim is None:
            return b""
        named = (_ID, Long(self._claim.producer_id)), (_EPOCH, Short(self._claim.epoch))
        known = b"".join(encode_value(part) for entry in named for part in entry)
        return known + encode_value(_NUMBER)

    async def send_group(self, sections: bytes, count: int) -> None:
        """As `send`, for so many events that are encoded already, each in a data section and under its number."""
        self._opened()
        self.last_number += count
        await self._post(sections)

    async def flush(self) -> None:
        """Returns when everything is stored; raises what the server refused with."""
        while self._under_way:
            await self._under_way.pop(0)

    async def _post(self, sections: bytes) -> None:
        while len(self._under_way) >= _UNDER_WAY_MAX:
            await self._under_way.pop(0)
        self._under_way.append(await self._opened().post(sections, BATCH_FORMAT))

    def _opened(self) -> SendingEnd:
        if self._end is None:
            raise Refused("The producer is not open.")
        return self._end

    def _properties(self) -> dict[object, object] | None:
        claim = self._claim
        if claim is None:
            return None
        return {
            _ID: Long(claim.producer_id),
            _EPOCH: Short(claim.epoch),
            _NUMBER: Int(claim.last_number),
        }

    def _encode(self, event: AmqpMessage) -> bytes:
        self.last_number += 1
        if self.is_idempotent and self._claim is not None:
            event.message_annotations = {
                **(event.message_annotations or {}),
                _ID: Long(self._claim.producer_id),
                _EPOCH: Short(self._claim.epoch),
                _NUMBER: Int(self.last_number),
            }
        return encode_message(event)


def _stored(properties: dict[object, object]) -> int:
    number = properties.get(_NUMBER)
    if not isinstance(number, int):
        raise Refused("The server's answer to a producer lacks the number of its last event.")
    return int(number)
