"""Places in a hub: positions in options, offsets of streams, and the ranges of events between them.

What a hub tells about itself and its partitions is asked for over AMQP: the same question on Busway and on Azure
(H-27). A hub that was deleted and made again under its name has another time of creation. That time is the hub's
identity in offsets, so that numbers of the old hub are never taken for numbers of the new one.

A position has the form of azure-event-hubs-spark: `{"offset": "-1"|"@latest"|…, "seqNo": n, "enqueuedTime": ISO
time, "isInclusive": bool}`, of which one of the first three counts; the last is true where it is left out. A
number needs no question; an offset or a time is asked for by opening a reader there and looking at the first event
that comes.

An offset of a stream has of each partition the number of the next event, and which hub it was:

    {"version": 1, "hub": "orders", "createdAt": 1763200000000, "partitions": {"0": 17, "1": 4}}

The end of the first batch also tells where that batch begins ("begin"): Spark asks a stream for its beginning
again when its first batch is repeated, and "latest" means another place by then.

A range between two offsets holds the same events whenever it is read, as long as the hub keeps them. What a hub no
longer keeps is lost for one of two reasons, which are told apart: retention went past the reader, or the hub was
deleted and made again, which its time of creation shows.

Offsets without a version are older than versions; they read the same. One of a later version is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from busway.amqp.types import Array
from busway.client.client_connection import RequestLinks
from busway.client.errors import ClientError, Refused, TimedOut
from busway.client.events import StartPosition
from busway.client.management import read_answer
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.bus import Bus, ask
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


_FIELDS: Final = frozenset({"offset", "seqNo", "enqueuedTime", "isInclusive"})
_OFFSET_CHARACTERS_MAX: Final = 64
Json = dict[str, object]
_VERSION: Final = 1


@dataclass(frozen=True)
class GivenPosition:
    """One of offset, number and time is set."""

    offset: str | None = None
    number: int | None = None
    at_ms: int | None = None
    is_inclusive: bool = True

    @classmethod
    def of_json(cls, value: object) -> GivenPosition:
        """Raises ValueError."""
        if not isinstance(value, dict) or not set(value) <= _FIELDS:
            raise ValueError(f"a position is a JSON object of {', '.join(sorted(_FIELDS))}.")
        offset, number, time = value.get("offset"), value.get("seqNo"), value.get("enqueuedTime")
        is_inclusive = value.get("isInclusive", True)
        if not isinstance(is_inclusive, bool):
            raise ValueError("isInclusive must be true or false.")
        if offset is not None:
            return cls(offset=_offset(offset), is_inclusive=is_inclusive)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return cls(number=number, is_inclusive=is_inclusive)
        if time is not None:
            return cls(at_ms=_at_ms(time), is_inclusive=True)
        raise ValueError("a position needs an offset, a seqNo or an enqueuedTime.")


#: With the oldest event, behind the newest one.
START: Final = GivenPosition(offset="-1")
END: Final = GivenPosition(offset="@latest")


def _offset(value: object) -> str:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not 0 < len(text) <= _OFFSET_CHARACTERS_MAX or not text.isascii() or "'" in text:
        raise ValueError("offset must be a short text.")
    return text


def _at_ms(value: object) -> int:
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("enqueuedTime must be a time like 2026-01-31T12:00:00.000Z.") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


@dataclass(frozen=True)
class PositionFinder:
    """Asks one hub for what positions come to."""

    client: ServiceBusClient
    hub: str
    consumer_group: str
    timeout_s: float

    async def number_at(self, position: GivenPosition, facts: PartitionFacts) -> int:
        """The number of the first event at or behind the position; `next_number` when it comes yet."""
        if position.number is not None:
            return position.number + (0 if position.is_inclusive else 1)
        if position.at_ms is not None:
            return await self.number_since(position.at_ms, facts)
        return await self._number_at_offset(str(position.offset), position.is_inclusive, facts)

    async def number_since(self, at_ms: int, facts: PartitionFacts) -> int:
        """The first event enqueued at that time or later."""
        if facts.is_empty or facts.last_at_ms < at_ms:
            return facts.next_number
        return await self._first_number(StartPosition.since(at_ms), facts)

    async def _number_at_offset(self, offset: str, is_inclusive: bool, facts: PartitionFacts) -> int:
        if offset == "-1":
            return facts.first_number
        if offset == "@latest" or facts.is_empty:
            return facts.next_number
        if offset == facts.last_offset:
            return facts.next_number - (1 if is_inclusive else 0)
        comparison = ">=" if is_inclusive else ">"
        start = StartPosition(f"amqp.annotation.x-opt-offset {comparison} '{offset}'")
        return await self._first_number(start, facts)

    async def _first_number(self, start: StartPosition, facts: PartitionFacts) -> int:
        """There is such an event, so it comes."""
        reader = self.client.get_event_reader(self.hub, facts.partition, start, self.consumer_group)
        async with reader:
            for message in await reader.receive(self.timeout_s):
                if message.sequence_number is not None:
                    return message.sequence_number
        raise TimedOut(f"Partition {facts.partition} of '{self.hub}' sent no event in {self.timeout_s:g} s.")


class DataLoss(RuntimeError):
    """Events that were due are gone; the text says why and what to do."""

    @classmethod
    def by_retention(cls, hub: str, partition: str, wanted: int, first: int) -> DataLoss:
        return cls(
            f"Events {wanted} to {first - 1} of partition {partition} of the hub '{hub}' are gone: retention went"
            " past this reader. Lengthen the hub's retention or read faster; with failOnDataLoss=false reading goes"
            f" on at event {first}."
        )

    @classmethod
    def by_creation(cls, hub: str) -> DataLoss:
        return cls(
            f"The hub '{hub}' was deleted and made again since this stream read it last: what it had not read is"
            " gone, and the numbers in its checkpoint mean other events now. Begin with a new checkpoint; with"
            " failOnDataLoss=false reading goes on at the new hub's first event."
        )

    @classmethod
    def by_rewind(cls, hub: str, partition: str, wanted: int, next_number: int) -> DataLoss:
        return cls(
            f"This stream has read partition {partition} of the hub '{hub}' up to event {wanted - 1}, but the"
            f" partition now ends before event {next_number}: the server came back with older data. Begin with a new"
            f" checkpoint; with failOnDataLoss=false reading goes on at event {next_number}."
        )


@dataclass(frozen=True)
class HubOffset:
    hub: str
    created_at_ms: int
    next_numbers: dict[str, int]
    #: Of the first batch of a stream, whose end this is.
    begin: dict[str, int] | None = None

    def to_json(self) -> Json:
        told: Json = {
            "version": _VERSION,
            "hub": self.hub,
            "createdAt": self.created_at_ms,
            "partitions": dict(self.next_numbers),
        }
        return told if self.begin is None else {**told, "begin": dict(self.begin)}

    @classmethod
    def of_json(cls, given: Mapping[str, object]) -> HubOffset:
        """Raises ValueError for what no stream of ours wrote."""
        if given.get("version", _VERSION) != _VERSION:
            raise ValueError(
                "The checkpoint holds an offset of a later version of Busway: read it with that version, or begin"
                " with a new checkpoint."
            )
        hub, created, partitions = given.get("hub"), given.get("createdAt"), given.get("partitions")
        if not isinstance(hub, str) or not isinstance(created, int) or not isinstance(partitions, dict):
            raise ValueError("The checkpoint holds an offset that is not one of the format 'eventhubs'.")
        begin = given.get("begin")
        return cls(hub, created, _numbers(partitions), _numbers(begin) if isinstance(begin, dict) else None)

    def is_of(self, facts: HubFacts) -> bool:
        return self.created_at_ms == facts.created_at_ms

    def check_hub(self, hub: str) -> None:
        if self.hub.lower() != hub.lower():
            raise ValueError(
                f"The checkpoint belongs to the hub '{self.hub}', not to '{hub}': each hub needs one of its own."
            )

    def number_of(self, partition: str) -> int:
        """A partition that came to the hub later is read from its first event."""
        return self.next_numbers.get(partition, 0)


def _numbers(given: Mapping[object, object]) -> dict[str, int]:
    return {str(name): int(str(number)) for name, number in given.items()}


@dataclass(frozen=True)
class EventRange:
    """Numbers from `first` up to, not including, `end`."""

    partition: str
    first: int
    end: int

    @property
    def count(self) -> int:
        return max(self.end - self.first, 0)


def limited(start: Mapping[str, int], end: Mapping[str, int], events_max: int) -> dict[str, int]:
    """Ends that take at most so many events: one of each partition where something waits, so that none is starved by
    another, and of the rest in proportion to what waits. Where there are more partitions than that, one of each."""
    waiting = {name: max(number - start[name], 0) for name, number in end.items()}
    shares = {name: min(count, 1) for name, count in waiting.items()}
    behind = {name: count - shares[name] for name, count in waiting.items()}
    total = sum(behind.values())
    left = events_max - sum(shares.values())
    if total <= left:
        return dict(end)
    if left > 0:
        for name, count in behind.items():
            shares[name] += count * left // total
        left = max(events_max - sum(shares.values()), 0)
        for name in sorted(waiting, key=lambda name: (-waiting[name], name))[:left]:
            shares[name] += 1
    return {name: start[name] + shares[name] for name in end}


def split(ranges: list[EventRange], pieces_min: int) -> list[EventRange]:
    """At least so many ranges, as long as there are events for them: large ranges are cut into equal pieces."""
    filled = [one for one in ranges if one.count > 0]
    total = sum(one.count for one in filled)
    if total == 0 or len(filled) >= pieces_min:
        return filled
    cut: list[EventRange] = []
    for one in filled:
        pieces = max(1, min(one.count, round(one.count * pieces_min / total)))
        bounds = [one.first + one.count * index // pieces for index in range(pieces + 1)]
        cut += [EventRange(one.partition, a, b) for a, b in pairwise(bounds)]
    return cut
