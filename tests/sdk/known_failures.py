"""Operations that do not work yet: `program/way/operation`, each part may be `*`, with the reason. Points are those of
the list "Every client"."""

from __future__ import annotations

from fnmatch import fnmatch

KNOWN: dict[str, str] = {
    "go-*/websocket/*": "point 3: the subprotocol amqp is refused",
    "java-*/websocket/*": "point 2: an upgrade with an absolute target is refused",
    "*/deferring_counts": "point 11: deferring does not raise the delivery count",
    "*/dead_letters_do_not_count": "point 11: the count rises in a dead-letter queue",
    "go-service-bus/*/scheduled_message_comes_in_time": "point 11: a message that was scheduled comes as active",
    "*/empty_session_state_is_none": "point 11: a state of no bytes is no bytes",
    "go-service-bus/*/session_state_is_cleared": "point 11: this SDK clears with no bytes",
    "*/rules_are_listed_by_name": "point 12: rules are listed as they were made",
    "*/unused_topic_was_accessed": "point 12: AccessedAt is the year 1",
    "*/unused_subscription_was_accessed": "point 12: AccessedAt is the year 1",
    "*/forward_to_comes_back_as_sent": "point 12: comes back as sb://",
    "*/authorization_rules": "point 12: rights come back in another order",
    "go-event-hubs/*/missing_partition_is_told": "point 18: the sentence names the partition",
    "go-event-hubs/*/publishing_to_a_missing_partition_is_told": "point 18: the sentence names the partition",
}


def reason(program: str, way: str, operation: str) -> str | None:
    """The first that fits: strict, so what begins to work must leave the list."""
    name = f"{program}/{way}/{operation}"
    return next((why for pattern, why in KNOWN.items() if fnmatch(name, pattern)), None)
