"""Operations that do not work yet: `program/way/operation`, each part may be `*`, with the reason. Points are those
of the list "Every client"."""

from __future__ import annotations

from fnmatch import fnmatch

KNOWN: dict[str, str] = {
    "go-*/websocket/*": "point 3: the subprotocol amqp is refused",
    "qpid-jms/websocket/*": "point 3: the subprotocol amqp is refused",
    "rust-event-hubs/websocket/*": "point 3: the subprotocol amqp is refused",
    "java-*/websocket/*": "point 2: an upgrade with an absolute target is refused",
    "java-event-hubs/*/by_key": "point 1: $management is refused before a token",
    "java-event-hubs/*/buffered_producer*": "point 1: $management is refused before a token",
    "java-event-hubs/*/properties_of_a_hub": "point 1: $management is refused before a token",
    "java-event-hubs/*/properties_of_an_empty_partition": "point 1: $management is refused before a token",
    "java-event-hubs/*/partition_ids": "point 1: $management is refused before a token",
    "java-event-hubs/*/all_partitions": "point 1: $management is refused before a token",
    "java-event-hubs/*/questions_of_a_consumer": "point 1: $management is refused before a token",
    "java-event-hubs/*/*processor*": "point 1: $management is refused before a token",
    "rust-event-hubs/*/properties_of_a*partition": "point 5: no epochs of sequence numbers",
    "javascript-service-bus/*/shared_access_signature": "point 4: AMQP without a SASL layer is refused",
    "javascript-*/*/footer": "point 6: a footer before the body is refused",
    "javascript-event-hubs/*/body_null": "point 7: a data section that holds null is refused",
    **{
        f"rust-service-bus/tls/{name}": "point 8: BrokerProperties without TimeToLive"
        for name in (
            "peek_lock_and_delete",
            "broker_properties",
            "unlocked_comes_again",
            "renew_lock",
            "lost_lock_is_told",
            "message_with_properties",
            "subscription_peek_lock",
        )
    },
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
    "*-event-hubs/*/missing_partition_is_told": "point 18: the sentence names the partition",
    "go-event-hubs/*/publishing_to_a_missing_partition_is_told": "point 18: the sentence names the partition",
    "*-jms/*/selector": "point 19: a selector on a queue is ignored",
    "*-jms/*/selector_waits_for_what_fits": "point 19: a selector on a queue is ignored",
    "*-jms/*/browse": "point 19: a browser locks what it shows",
    "*-jms/*/delayed_delivery": "point 19: the capability is not offered",
    "*-jms/*/temporary_*": "point 19: no dynamic nodes",
    "*-jms/*/request_and_reply": "point 19: no dynamic nodes",
    "*-jms/*/*durable_subscription*": "point 19: subscriptions of JMS",
    "java-service-bus-older/*/first_rule_of_a_subscription": "the SDK names it by a wrong element",
    "java-service-bus-older/*/missing_subscription_does_not_exist": "the SDK does not expect a 404",
}
#: Now and then: the older Java stack attaches `$management` while its token is still under way; and what nobody has
#: traced yet.
RACING: dict[str, str] = {
    "java-service-bus-older/*": "point 1: $management is refused before a token, which may come in time",
    "rust-event-hubs/*/higher_owner_takes_over": "not traced: the SDK waits on, though its link was detached",
}


def reason(program: str, way: str, operation: str) -> str | None:
    """The first that fits: strict, so what begins to work must leave the list."""
    name = f"{program}/{way}/{operation}"
    return next((why for pattern, why in KNOWN.items() if fnmatch(name, pattern)), None)


def closed(program: str, way: str) -> str | None:
    """A way by which nothing works."""
    of_all = {pattern.removesuffix("/*"): why for pattern, why in KNOWN.items() if pattern.endswith("/*")}
    return next((why for pattern, why in of_all.items() if fnmatch(f"{program}/{way}", pattern)), None)


def may_fail(program: str, way: str, operation: str) -> str | None:
    """What fails on some days only, and is no test until it is mended."""
    name = f"{program}/{way}/{operation}"
    return next((why for pattern, why in RACING.items() if fnmatch(name, pattern)), None)
