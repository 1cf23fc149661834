"""Where a batch has brought a query: its sources of our formats, out of Spark's report of the batch.

Spark tells of each source where the batch began and ended and, where the source says so (`reportLatestOffset`), how
far there is something to read. These are the offsets of our readers (`eventhubs.offsets`, `servicebus.claim`) and are
known by their members; sources of other formats are passed over. Beside its latest offset a reader tells which bus it
reads and as which consumer group, so that two buses with entities of the same name are not mistaken for each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

Json = dict[str, Any]

BUS: Final = "bus"
CONSUMER_GROUP: Final = "consumerGroup"


class SourceProgress(Protocol):
    """As Spark tells it; offsets are JSON, as text or read already."""

    @property
    def endOffset(self) -> object: ...
    @property
    def latestOffset(self) -> object: ...
    @property
    def numInputRows(self) -> int | None: ...


@dataclass(frozen=True)
class ReadPosition:
    """Of one entity."""

    entity: str
    consumer_group: str = ""
    created_at_ms: int = 0
    #: Of a hub: partition → number of the event that is read next.
    next_numbers: Mapping[str, int] = field(default_factory=dict)
    #: Of a hub: partition → number that its next event gets, when the batch was planned.
    end_numbers: Mapping[str, int] = field(default_factory=dict)
    #: Of a queue or subscription: messages that the last batch holds, and those that wait behind them.
    held: int = 0
    waiting: int | None = None

    def behind(self) -> dict[str, int]:
        """Partition → events that wait, as Spark knows it: at the moment in which the batch was planned."""
        if not self.end_numbers:
            return {} if self.waiting is None else {"": self.waiting}
        return {name: max(end - self.next_numbers.get(name, 0), 0) for name, end in self.end_numbers.items()}

    def to_json(self) -> Json:
        """As the bus is told."""
        told: Json = {"entity": self.entity}
        if self.next_numbers:
            told["consumerGroup"] = self.consumer_group
            told["createdAtMs"] = self.created_at_ms
            told["positions"] = dict(self.next_numbers)
        else:
            told["held"] = self.held
        return told


def positions_of(sources: Iterable[SourceProgress], authority: str | None) -> list[ReadPosition]:
    """`authority`: of the bus that is meant; sources that say they read another one are passed over."""
    found: list[ReadPosition] = []
    for source in sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if authority is not None and latest.get(BUS, authority) != authority:
            continue
        if isinstance(end.get("hub"), str) and isinstance(end.get("partitions"), dict):
            found.append(_of_hub(end, latest))
        elif isinstance(end.get("entity"), str) and isinstance(end.get("claim"), int):
            available = latest.get("available")
            waiting = available if isinstance(available, int) else None
            found.append(ReadPosition(end["entity"], held=source.numInputRows or 0, waiting=waiting))
    return found


def _of_hub(end: Json, latest: Json) -> ReadPosition:
    created = end.get("createdAt")
    return ReadPosition(
        end["hub"],
        str(latest.get(CONSUMER_GROUP, "")),
        created if isinstance(created, int) else 0,
        _numbers(end["partitions"]),
        _numbers(latest.get("partitions")),
    )


def _offset(given: object) -> Json:
    """Nothing where it cannot be read: a source of another format may write what it likes."""
    try:
        read = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _numbers(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    return {str(name): number for name, number in given.items() if isinstance(number, int)}
