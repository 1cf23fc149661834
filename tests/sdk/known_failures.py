"""Operations that do not work, by a fault of the SDK: `program/way/operation`, parts may be `*`, with the reason."""

from __future__ import annotations

from fnmatch import fnmatch

KNOWN: dict[str, str] = {
    "java-service-bus-older/*/first_rule_of_a_subscription": (
        "the SDK sends it as the element RuleDescription; the service and later versions know DefaultRuleDescription"
    ),
    "java-service-bus-older/*/missing_subscription_does_not_exist": (
        "the SDK asks for the subscription and lets the 404 through; later versions take it for an answer"
    ),
    # fe2o3-amqp 0.16: what is above the link's bound becomes a second delivery, before the last frame of the first.
    "rust-event-hubs/*/too_large_event_is_told": "the SDK cuts it in two, and waits on when its link is closed",
}


def reason(program: str, way: str, operation: str) -> str | None:
    """The first that fits: strict, so what begins to work must leave the list."""
    name = f"{program}/{way}/{operation}"
    return next((why for pattern, why in KNOWN.items() if fnmatch(name, pattern)), None)
