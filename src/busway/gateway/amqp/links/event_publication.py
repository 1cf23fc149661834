"""From the bytes of a publication to the events in it and the key that they share (H-10, H-17).

A publication is one event or one batch envelope. A key in the envelope is the key of every event that has none; the
envelope itself is never stored. All events of a batch go to one partition, so they cannot have different keys.
"""

from __future__ import annotations

from busway.amqp.decode import DecodeError
from busway.amqp.section_order import scan_in_order
from busway.amqp.sections import DATA, batch_contents
from busway.broker.errors import BadArgument, InvalidOperation
from busway.message.event_record import Event, event_of


def events_of_batch(payload: bytes) -> list[Event]:
    """One or more. Raises DecodeError."""
    payload, found = scan_in_order(payload)
    if found.body_kind != DATA:
        raise DecodeError("A batch holds no data sections")
    events = [event_of(inner) for inner in batch_contents(payload, found)]
    if found.message_annotations_at >= 0:
        # What stands before the body is a message without one.
        key = event_of(payload[: found.message_annotations_end]).partition_key
        if key is not None:
            for event in events:
                if event.partition_key is None:
                    event.set_partition_key(key)
    return events


def shared_key(events: list[Event]) -> str | None:
    """The key of those events that have one. Raises InvalidOperation when they differ."""
    shared: str | None = None
    for event in events:
        key = event.partition_key
        if key is None or key == shared:
            continue
        if shared is not None:
            raise InvalidOperation(
                "The events of a batch go to one partition, so they cannot have different partition keys."
            )
        shared = key
    return shared


def check_key(key: str | None, characters_max: int) -> None:
    """Raises BadArgument."""
    if key is not None and len(key) > characters_max:
        raise BadArgument(
            f"PartitionKey is {len(key)} characters long; at most {characters_max} are allowed."
        )
