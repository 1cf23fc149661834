"""Publishers of an event hub: whoever sends by a path of its own (H-13)."""

from __future__ import annotations

from busway.broker.errors import InvalidOperation
from busway.message.event_record import Event


def put_publisher(events: list[Event], publisher: str) -> None:
    """The publisher is the key of everything it sends, and readers see who it was. Raises InvalidOperation for an
    event with another key."""
    for event in events:
        if event.partition_key is None:
            event.set_partition_key(publisher)
        elif event.partition_key != publisher:
            raise InvalidOperation(
                "A publisher's name is the partition key of its events: they cannot have another one."
            )
        event.set_publisher(publisher)
