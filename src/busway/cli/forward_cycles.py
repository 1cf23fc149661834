"""Forwards that lead back to where they began (F-14).

They are allowed: a message goes round until it has been forwarded as often as it may (F-6) and is dead-lettered.
Rarely is that what somebody wanted, so the verbs that make one say so.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.client.entity_entry import EntityEntry

#: From the path of an entity to those its messages can go on to.
Forwards = Mapping[str, Iterable[str]]


def cycle_through(start: str, forwards: Forwards) -> list[str] | None:
    """The shortest way from `start` back to it, both ends included. Names are compared without case."""
    goal = start.lower()
    known = {path.lower(): [target for target in targets if target] for path, targets in forwards.items()}
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        longer: list[list[str]] = []
        for way in ways:
            for target in known.get(way[-1].lower(), ()):
                if target.lower() == goal:
                    return [*way, target]
                if target.lower() not in seen:
                    seen.add(target.lower())
                    longer.append([*way, target])
        ways = longer
    return None


def warn_of_cycle(client: "ServiceBusAdministrationClient", path: str) -> None:
    """On standard error, when the entity's forwards lead back to it."""
    way = cycle_through(path, forwards_of(client))
    if way is not None:
        warn(way)


def warn(way: list[str]) -> None:
    typer.echo(
        f"busway: warning: forwarding goes in a circle: {' → '.join(way)}. A message that goes round is"
        " dead-lettered after 4 hops.",
        err=True,
    )


def forwards_of(client: "ServiceBusAdministrationClient") -> dict[str, list[str]]:
    forwards = {queue.name: targets_of(queue) for queue in client.list_queues()}
    for topic in client.list_topics():
        forwards[topic.name] = []
        for subscription in client.list_subscriptions(topic.name):
            path = f"{topic.name}/Subscriptions/{subscription.name}"
            forwards[topic.name].append(path)
            forwards[path] = targets_of(subscription)
    return forwards


def targets_of(entity: "EntityEntry") -> list[str]:
    named = (entity.properties.get(name) for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"))
    return [target for target in named if isinstance(target, str) and target]


def has_forward(properties: Mapping[str, object]) -> bool:
    return bool(properties.get("ForwardTo") or properties.get("ForwardDeadLetteredMessagesTo"))
