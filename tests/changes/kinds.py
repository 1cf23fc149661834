"""The kinds of entities whose change is tried, and which properties each of them has."""

from __future__ import annotations

from typing import Final

from busway.model.descriptions import Description, QueueDescription, SubscriptionDescription, TopicDescription

HUB: Final = "hub"
_PLAIN: Final[dict[str, type[Description]]] = {
    "queue": QueueDescription,
    "session queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
}

#: Everything but hubs → what describes it. A partitioned subscription is one of a partitioned topic.
DESCRIBED_BY: Final[dict[str, type[Description]]] = {
    **_PLAIN,
    **{f"partitioned {kind}": described for kind, described in _PLAIN.items()},
}
KINDS: Final = (*DESCRIBED_BY, HUB)


def is_partitioned(kind: str) -> bool:
    return kind.startswith("partitioned")


def is_queue(kind: str) -> bool:
    return DESCRIBED_BY.get(kind) is QueueDescription


def is_session_queue(kind: str) -> bool:
    return kind.endswith("session queue")


def is_topic(kind: str) -> bool:
    return DESCRIBED_BY.get(kind) is TopicDescription


def is_subscription(kind: str) -> bool:
    return DESCRIBED_BY.get(kind) is SubscriptionDescription


def all_but(*possible: str) -> tuple[str, ...]:
    """The kinds that are none of these."""
    return tuple(kind for kind in KINDS if kind not in possible)


QUEUES: Final = tuple(kind for kind in KINDS if is_queue(kind))
TOPICS: Final = tuple(kind for kind in KINDS if is_topic(kind))
SUBSCRIPTIONS: Final = tuple(kind for kind in KINDS if is_subscription(kind))
