"""What a hub tells about itself and its partitions, asked over AMQP: the same question on Busway and on Azure (H-27).

A hub that was deleted and made again under its name has another time of creation. That time is the hub's identity in
offsets, so that numbers of the old hub are never taken for numbers of the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from busway.amqp.types import Array
from busway.client.errors import ClientError, Refused
from busway.client.management import read_answer
from busway.client.request_links import RequestLinks
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.bridge import ask
from busway_spark.wire.bus import Bus
from busway_spark.wire.patience import OPERATION_S

_NODE: Final = "$management"
_HUB: Final = "com.microsoft:eventhub"
_PARTITION: Final = "com.microsoft:partition"


@dataclass(frozen=True)
class PartitionFacts:
    partition: str
    #: The oldest event that is there; when there is none, the number that the next one gets.
    first_number: int
    #: The number that the next event gets.
    next_number: int
    last_offset: str
    last_at_ms: int

    @property
    def is_empty(self) -> bool:
        return self.first_number >= self.next_number


@dataclass(frozen=True)
class HubFacts:
    name: str
    created_at_ms: int
    partition_count: int
    #: Those that were asked for.
    partitions: dict[str, PartitionFacts]


def read_hub(
    bus: Bus, hub: str, wanted: Collection[str] | None = None, operation_s: float = OPERATION_S
) -> HubFacts:
    """The hub with all partitions, or those that are wanted. Raises ClientError."""
    return ask(bus, operation_s, lambda client: ask_hub(client, bus, hub, wanted))


async def ask_hub(
    client: ServiceBusClient, bus: Bus, hub: str, wanted: Collection[str] | None = None
) -> HubFacts:
    questions = _Questions(client, bus, hub)
    await questions.open()
    try:
        return await _asked(questions, hub, wanted)
    finally:
        await questions.close()


async def _asked(questions: _Questions, hub: str, wanted: Collection[str] | None) -> HubFacts:
    about = await questions.ask(_HUB)
    created, ids = about.get("created_at"), about.get("partition_ids")
    names = [str(name) for name in (ids.items if isinstance(ids, Array) else [])]
    if not isinstance(created, int) or not names:
        raise Refused(f"The server tells neither age nor partitions of the hub '{hub}'.")
    asked = names if wanted is None else [name for name in names if name in wanted]
    found = await asyncio.gather(*(questions.partition(name) for name in asked))
    return HubFacts(hub, int(created), len(names), {facts.partition: facts for facts in found})


class _Questions:
    def __init__(self, client: ServiceBusClient, bus: Bus, hub: str) -> None:
        self._client = client
        self._bus = bus
        self._hub = hub
        self._links: RequestLinks | None = None

    async def open(self) -> None:
        self._links = RequestLinks(await self._client.wire_for(self._hub), _NODE)
        await self._links.open()

    async def close(self) -> None:
        assert self._links is not None
        if not self._links.is_over:
            with contextlib.suppress(ClientError):
                await self._links.close()

    async def ask(self, kind: str, **more: object) -> dict[str, object]:
        assert self._links is not None
        properties: dict[str, object] = {
            "operation": "READ",
            "type": kind,
            "name": self._hub,
            "security_token": self._bus.authorization(self._hub),
            **more,
        }
        return read_answer(await self._links.ask(properties, None))

    async def partition(self, name: str) -> PartitionFacts:
        about = await self.ask(_PARTITION, partition=name)
        begin = _whole(about, "begin_sequence_number")
        last = _whole(about, "last_enqueued_sequence_number")
        is_empty = about.get("is_partition_empty") is True or last < 0
        return PartitionFacts(
            name,
            last + 1 if is_empty else begin,
            last + 1,
            str(about.get("last_enqueued_offset")),
            _whole(about, "last_enqueued_time_utc"),
        )


def _whole(about: dict[str, object], name: str) -> int:
    value = about.get(name)
    if not isinstance(value, int):
        raise Refused(f"The server's answer about a partition lacks {name}.")
    return int(value)
