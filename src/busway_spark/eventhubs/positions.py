"""Positions in a partition, as options give them, and the sequence numbers that they come to.

The form is that of azure-event-hubs-spark: `{"offset": "-1"|"@latest"|…, "seqNo": n, "enqueuedTime": ISO time,
"isInclusive": bool}`, of which one of the first three counts; the last is true where it is left out. A number needs
no question; an offset or a time is asked for by opening a reader there and looking at the first event that comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from busway.client.errors import TimedOut
from busway.client.event_reader import StartPosition
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.eventhubs.facts import PartitionFacts

_FIELDS: Final = frozenset({"offset", "seqNo", "enqueuedTime", "isInclusive"})
_OFFSET_CHARACTERS_MAX: Final = 64


@dataclass(frozen=True)
class Position:
    """One of offset, number and time is set."""

    offset: str | None = None
    number: int | None = None
    at_ms: int | None = None
    is_inclusive: bool = True

    @classmethod
    def of_json(cls, value: object) -> Position:
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
START: Final = Position(offset="-1")
END: Final = Position(offset="@latest")


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

    async def number_at(self, position: Position, facts: PartitionFacts) -> int:
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
