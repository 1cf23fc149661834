"""Addresses inside an event hub (H-10…H-13, H-20).

  hub                                     the hub: the broker chooses the partition
  hub/Partitions/n                        one partition, for publishers
  hub/Publishers/p                        a publisher of that name
  hub/ConsumerGroups/g/Partitions/n       one partition, for readers

`addresses` has made a path of what the client wrote. Keywords and names are compared without their case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PARTITIONS: Final = "partitions"
_PUBLISHERS: Final = "publishers"
_GROUPS: Final = "consumergroups"


@dataclass(frozen=True)
class EventAddress:
    """What a path means when its first segment is the name of a hub. Names as they were written."""

    hub_path: str
    partition_id: str | None = None
    publisher: str | None = None
    group: str | None = None


def event_address(path: str) -> EventAddress | None:
    """None when a path means nothing inside a hub, however the hub is called."""
    hub, *rest = path.split("/")
    if hub == "" or "" in rest:
        return None
    keywords = [segment.lower() for segment in rest[::2]]
    if not rest:
        return EventAddress(hub)
    if len(rest) == 2 and keywords == [_PARTITIONS]:
        return EventAddress(hub, partition_id=rest[1])
    if len(rest) == 2 and keywords == [_PUBLISHERS]:
        return EventAddress(hub, publisher=rest[1])
    if len(rest) == 4 and keywords == [_GROUPS, _PARTITIONS]:
        return EventAddress(hub, group=rest[1], partition_id=rest[3])
    return None


def hub_path_of(path: str) -> str:
    """The name of the hub that a path would lie in."""
    return path.partition("/")[0]
