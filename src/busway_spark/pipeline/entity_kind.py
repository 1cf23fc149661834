"""What an entity is: a hub, a queue, a topic or a subscription. Asked of the server, over AMQP and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from busway.client.atom_entries import QUEUE
from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Unreachable
from busway_spark.eventhubs.offsets import read_hub
from busway_spark.pipeline.job import JobFailed
from busway_spark.wire.bus import Bus, administration

HUB: Final = "hub"
QUEUE_KIND: Final = "queue"
TOPIC_KIND: Final = "topic"
SUBSCRIPTION_KIND: Final = "subscription"
_SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(frozen=True)
class EntityFacts:
    name: str
    kind: str
    #: Of a hub; else 0.
    created_at_ms: int = 0
    partition_count: int = 0
    #: Of a queue or topic: whether a message that is sent twice is kept once.
    detects_duplicates: bool = False
    is_partitioned: bool = False


def find_entity(bus: Bus, name: str) -> EntityFacts:
    """Raises JobFailed when there is none, or the key may not know."""
    try:
        if _SUBSCRIPTIONS in name.lower():
            return _subscription(bus, name)
        return _hub(bus, name) or _queue_or_topic(bus, name)
    except EntityMissing:
        raise JobFailed(f"There is no hub, queue or topic '{name}'.") from None
    except ClientError as error:
        raise JobFailed(f"The server does not tell what '{name}' is: {error}") from error


def _hub(bus: Bus, name: str) -> EntityFacts | None:
    try:
        facts = read_hub(bus, name, ())
    except (Unreachable, NotAuthorised):
        raise
    except ClientError:
        return None
    return EntityFacts(name, HUB, facts.created_at_ms, facts.partition_count)


def _queue_or_topic(bus: Bus, name: str) -> EntityFacts:
    with administration(bus) as client:
        entry = client.get_queue_or_topic(name)
    return EntityFacts(
        name,
        QUEUE_KIND if entry.kind == QUEUE else TOPIC_KIND,
        detects_duplicates=_is_true(entry.properties.get("RequiresDuplicateDetection")),
        is_partitioned=_is_true(entry.properties.get("EnablePartitioning")),
    )


def _subscription(bus: Bus, name: str) -> EntityFacts:
    at = name.lower().index(_SUBSCRIPTIONS)
    with administration(bus) as client:
        client.get_subscription(name[:at], name[at + len(_SUBSCRIPTIONS) :])
    return EntityFacts(name, SUBSCRIPTION_KIND)


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() == "true"
