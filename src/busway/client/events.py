"""Events of one partition of an event hub: published, each once (H-18), and read.

Theory of operation of publishing. A producer shows an id, an epoch and the number of its last event when it
attaches, and the server answers with what counts: for an id and epoch that it knows, how far that producer came.
Events are numbered behind that. Whoever cannot tell what was stored attaches with the same id and epoch, learns
it, and sends the rest; what was sent twice nonetheless is stored once. A server that knows no such producers
offers nothing in its answer; then events are only numbered here, and a repeat is stored again.

Groups travel one behind the other without waiting for answers. When one is refused those behind it are refused
too, for their numbers leave a gap, so what is stored is always a beginning of what was sent.

Reading takes nothing away: another reader sees the same events.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from busway.amqp.encode import encode_value
from busway.amqp.events import ConnectionEvent, DeliveriesArrived
from busway.amqp.performatives import RECEIVER_FIRST, SENDER_SETTLED, SENDER_UNSETTLED, Source, Target
from busway.amqp.sections import BATCH_FORMAT, AmqpMessage, encode_message
from busway.amqp.types import Described, Int, Long, Short, Symbol
from busway.client.errors import Refused
from busway.client.messages import ServiceBusReceivedMessage, encode_batch
from busway.client.sender import SendingEnd, batches
from busway.client.wire import LinkEnd, OneLink

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection
    from busway.client.wire import Wire

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


class EventProducer(OneLink[SendingEnd]):
    """Made by `ServiceBusClient.get_event_producer`; an asynchronous context manager."""

    what = "producer"

    def __init__(
        self,
        connection: "ClientConnection",
        hub_name: str,
        partition_id: str,
        claim: ProducerClaim | None = None,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._hub_name = hub_name
        self._address = f"{hub_name}/Partitions/{partition_id}"
        self._claim = claim
        self._under_way: list[asyncio.Future[None]] = []
        #: Whether the server keeps the count.
        self.is_idempotent = False
        #: Of the last event that was stored before, or handed to `send` since.
        self.last_number = 0 if claim is None else claim.last_number

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
        await super().close()

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


DEFAULT_GROUP: Final = "$Default"
SELECTOR: Final = Symbol("apache.org:selector-filter:string")
#: Events on their way that nobody has taken yet: few as long as their size is not known, then about so many bytes.
PREFETCH: Final = 300
_PREFETCH_MIN: Final = 16
_PREFETCH_MAX: Final = 4_000
_PREFETCH_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class StartPosition:
    """Where a reader begins: made by `first`, `latest`, `at_number`, `since`."""

    expression: str

    @classmethod
    def first(cls) -> "StartPosition":
        return cls("amqp.annotation.x-opt-offset > '-1'")

    @classmethod
    def latest(cls) -> "StartPosition":
        return cls("amqp.annotation.x-opt-offset > '@latest'")

    @classmethod
    def at_number(cls, sequence_number: int) -> "StartPosition":
        """With that event."""
        return cls(f"amqp.annotation.x-opt-sequence-number >= '{sequence_number}'")

    @classmethod
    def since(cls, at_ms: int) -> "StartPosition":
        """With the first event of that time or later."""
        return cls(f"amqp.annotation.x-opt-enqueued-time >= '{at_ms}'")


class PartitionReader(OneLink["_ReadingEnd"]):
    """Made by `ServiceBusClient.get_event_reader`; an asynchronous context manager."""

    what = "reader"

    def __init__(
        self,
        connection: "ClientConnection",
        hub_name: str,
        partition_id: str,
        start: StartPosition,
        consumer_group: str = DEFAULT_GROUP,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._hub_name = hub_name
        self.partition_id = partition_id
        self._address = f"{hub_name}/ConsumerGroups/{consumer_group}/Partitions/{partition_id}"
        self._start = start

    async def open(self) -> None:
        wire = await self._connection.wire_for(self._hub_name)
        self._end = _ReadingEnd(wire)
        await self._end.attach(
            is_sender=False,
            source=Source(
                address=self._address,
                filter={SELECTOR: Described(SELECTOR, self._start.expression)},
            ),
            target=Target(address=f"busway-reader-{self._address}"),
            snd_settle_mode=SENDER_SETTLED,
            rcv_settle_mode=RECEIVER_FIRST,
        )

    async def receive(self, max_wait_time: float | None = None) -> list[ServiceBusReceivedMessage]:
        """What has come since the last call; waits for the first event, at most so long (for ever with None)."""
        return [ServiceBusReceivedMessage(payload) for payload in await self.receive_encoded(max_wait_time)]

    async def receive_encoded(
        self, max_wait_time: float | None = None, wanted: int | None = None
    ) -> list[bytes]:
        """As `receive`, each event as the AMQP message that came. Whoever wants no more than so many events says so:
        then hardly more are sent."""
        return await self._opened().receive(max_wait_time, _PREFETCH_MAX if wanted is None else wanted)


class _ReadingEnd(LinkEnd):
    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self._arrived: list[bytes] = []
        self._credit = 0
        self._prefetch = PREFETCH

    async def receive(self, wait_s: float | None, wanted: int) -> list[bytes]:
        missing = min(self._prefetch, wanted - len(self._arrived))
        if missing > 0 and self._credit <= missing // 2:
            self._credit = missing
            self.link.grant_credit(missing)
            self._wire.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._arrived:
                    await self.changed()
        taken, self._arrived = self._arrived, []
        if taken:
            event_bytes = sum(map(len, taken)) // len(taken) + 1
            self._prefetch = min(max(_PREFETCH_BYTES // event_bytes, _PREFETCH_MIN), _PREFETCH_MAX)
        return taken

    def happened_while_open(self, event: ConnectionEvent) -> None:
        if isinstance(event, DeliveriesArrived):
            self._credit -= len(event.deliveries)
            self._arrived.extend(delivery.payload for delivery in event.deliveries)
