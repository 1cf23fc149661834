"""A room with event hubs, and what publishers and readers of events say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.link import Link
from busway.amqp.performatives import Fields, Source, Target
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Described, Long, Symbol
from busway.gateway.amqp.attach.event_attaching import SELECTOR_FILTER
from busway.gateway.amqp.gateway import AmqpGateway
from busway.gateway.amqp.shared import GatewaySettings
from busway.model.limits import Limits
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.harness.manual_clock import SeededEntropy
from tests.unit.gateway.amqp_peer import Peer, Room

PARTITION_KEY = Symbol("x-opt-partition-key")
#: Positions as clients write them.
START = "amqp.annotation.x-opt-offset > '-1'"
LATEST = "amqp.annotation.x-opt-offset > '@latest'"


class EventRoom(Room):
    """A namespace with event hubs and its gateway."""

    def __init__(self, settings: GatewaySettings | None = None, limits: Limits | None = None) -> None:
        super().__init__(settings, limits)
        self.hubs = EventHubs(self.namespace, self.clock, SeededEntropy(3))
        self._positions_on = asyncio.Event()
        self._chunks_on = asyncio.Event()

    async def open_hubs(self, *hubs: EventHubDescription) -> None:
        await self.namespace.open()
        self.gateway = AmqpGateway(
            self.namespace, self.clock, SeededEntropy(2), self.settings, self.call_later, self.hubs
        )
        for hub in hubs:
            await self.hubs.create(hub)

    def hold_positions(self) -> None:
        """From now on the store does not answer which event is the first of a time."""
        answer = self.store.first_number_since

        async def answer_later(*question: Any) -> Any:
            await self._positions_on.wait()
            return await answer(*question)

        self.store.first_number_since = answer_later

    def release_positions(self) -> None:
        self._positions_on.set()

    def hold_chunks(self) -> None:
        """From now on the store reads no chunks."""
        answer = self.store.chunks

        async def answer_later(*question: Any) -> Any:
            await self._chunks_on.wait()
            return await answer(*question)

        self.store.chunks = answer_later

    def release_chunks(self) -> None:
        self._chunks_on.set()


def in_event_room(
    scenario: Callable[[EventRoom], Coroutine[Any, Any, None]],
    *hubs: EventHubDescription,
    settings: GatewaySettings | None = None,
    limits: Limits | None = None,
) -> None:
    """Runs a scenario in a fresh room with these hubs; with one of two partitions when none is named."""

    async def run() -> None:
        room = EventRoom(settings, limits)
        await room.open_hubs(*(hubs or (EventHubDescription("hub", partition_count=2),)))
        try:
            await scenario(room)
        finally:
            await room.close()

    asyncio.run(run())


def event(body: bytes, key: str | None = None, **sections: Any) -> bytes:
    annotations: dict[Any, Any] = dict(sections.pop("message_annotations", {}))
    if key is not None:
        annotations[PARTITION_KEY] = key
    return encode_message(AmqpMessage([body], DATA, message_annotations=annotations or None, **sections))


def envelope(*inner: bytes, key: str | None = None) -> bytes:
    annotations = None if key is None else {PARTITION_KEY: key}
    return encode_message(AmqpMessage(list(inner), DATA, message_annotations=annotations))


async def publish(peer: Peer, address: str, *payloads: bytes, is_batch: bool = False) -> list[object]:
    """On a link of its own; returns the outcomes."""
    link = await peer.sender(address)
    message_format = BATCH_FORMAT if is_batch else 0
    outcomes = await peer.sent(link, *payloads, message_format=message_format)
    link.detach()
    return outcomes


async def reader(
    peer: Peer,
    partition: int | str = 0,
    selector: str | None = START,
    *,
    group: str = "$Default",
    hub: str = "hub",
    epoch: int | None = None,
    name: str | None = None,
    credit: int = 100,
    **more: Any,
) -> Link:
    """As Python's client attaches."""
    filters = None if selector is None else {SELECTOR_FILTER: Described(SELECTOR_FILTER, selector)}
    properties: Fields = {}
    if epoch is not None:
        properties[Symbol("com.microsoft:epoch")] = Long(epoch)
    if name is not None:
        properties[Symbol("com.microsoft:receiver-name")] = name
    link = peer.session.attach(
        f"r-{len(peer.events)}-{partition}",
        is_sender=False,
        source=Source(f"{hub}/ConsumerGroups/{group}/Partitions/{partition}", filter=filters),
        target=Target("there"),
        snd_settle_mode=0,
        rcv_settle_mode=0,
        properties=properties or None,
        **more,
    )
    await peer.attach(link)
    if credit:
        link.grant_credit(credit)
        await peer.room.turns()
    return link


def message(delivery: IncomingDelivery) -> AmqpMessage:
    return decode_message(delivery.payload)


def bodies(peer: Peer, link: Link) -> list[bytes]:
    return [b"".join(message(delivery).body) for delivery in peer.deliveries(link)]


def annotations_of(delivery: IncomingDelivery) -> dict[Any, Any]:
    return message(delivery).message_annotations or {}
