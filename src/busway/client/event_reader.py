"""Reading the events of one partition. Nothing is taken away: another reader sees the same events."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from busway.amqp.events import DeliveriesArrived, Event
from busway.amqp.performatives import RECEIVER_FIRST, SENDER_SETTLED, Source, Target
from busway.amqp.types import Described, Symbol
from busway.client.errors import Refused
from busway.client.link_end import LinkEnd
from busway.client.messages import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from busway.client.client_connection import ClientConnection
    from busway.client.wire import Wire

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


class EventReader:
    """Made by `ServiceBusClient.get_event_reader`; an asynchronous context manager."""

    def __init__(
        self,
        connection: "ClientConnection",
        hub_name: str,
        partition_id: str,
        start: StartPosition,
        consumer_group: str = DEFAULT_GROUP,
    ) -> None:
        self._connection = connection
        self._hub_name = hub_name
        self.partition_id = partition_id
        self._address = f"{hub_name}/ConsumerGroups/{consumer_group}/Partitions/{partition_id}"
        self._start = start
        self._end: _ReadingEnd | None = None

    async def __aenter__(self) -> "EventReader":
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

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

    async def close(self) -> None:
        if self._end is not None:
            await self._end.detach()
            self._end = None

    async def receive(self, max_wait_time: float | None = None) -> list[ServiceBusReceivedMessage]:
        """What has come since the last call; waits for the first event, at most so long (for ever with None)."""
        return [ServiceBusReceivedMessage(payload) for payload in await self.receive_encoded(max_wait_time)]

    async def receive_encoded(
        self, max_wait_time: float | None = None, wanted: int | None = None
    ) -> list[bytes]:
        """As `receive`, each event as the AMQP message that came. Whoever wants no more than so many events says so:
        then hardly more are sent."""
        if self._end is None:
            raise Refused("The reader is not open.")
        return await self._end.receive(max_wait_time, _PREFETCH_MAX if wanted is None else wanted)


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

    def happened_while_open(self, event: Event) -> None:
        if isinstance(event, DeliveriesArrived):
            self._credit -= len(event.deliveries)
            self._arrived.extend(delivery.payload for delivery in event.deliveries)
