"""`busway queue|topic|subscription create|update|show|list|delete`: the rows of these three kinds.

Each has one option for each property, its name in kebab-case. The table is the one that ATOM bodies are written
from, so neither can lack what the other has.

Forwards may lead back to where they began (F-14). That is allowed: a message goes round until it has been
forwarded as often as it may (F-6) and is dead-lettered. Rarely is that what somebody wanted, so the verbs that
make such a cycle say so.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import typer

from busway.cli.entity_family import (
    ChangeVerb,
    Client,
    Deletion,
    EntityFamily,
    Given,
    Listing,
    Names,
    Parts,
    Show,
    option,
)
from busway.client.entity_properties import (
    QUEUE_PROPERTIES,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    EntityOption,
    OptionKind,
    Value,
)

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.client.atom_entries import EntityEntry

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


#: Heads of the columns and the numbers below them.
_QUEUE_COLUMNS: Final = {
    "ACTIVE": "ActiveMessageCount",
    "DEAD-LETTERED": "DeadLetterMessageCount",
    "SCHEDULED": "ScheduledMessageCount",
    "BYTES": "SizeInBytes",
}
_TOPIC_COLUMNS: Final = {
    "SUBSCRIPTIONS": "SubscriptionCount",
    "SCHEDULED": "ScheduledMessageCount",
    "BYTES": "SizeInBytes",
}
_SUBSCRIPTION_COLUMNS: Final = {
    "ACTIVE": "ActiveMessageCount",
    "DEAD-LETTERED": "DeadLetterMessageCount",
}
_FRAGMENT_COLUMNS: Final = {
    "FRAGMENT": "index",
    "STORE": "store",
    "HEALTH": "health",
    "ACTIVE": "active",
    "DEAD-LETTERED": "deadLettered",
    "SCHEDULED": "scheduled",
    "DEFERRED": "deferred",
    "BYTES": "sizeInBytes",
}
_TYPES: Final[Mapping[OptionKind, object]] = {OptionKind.BOOLEAN: bool | None, OptionKind.INTEGER: int | None}

Properties = Mapping[str, Value]


def _option(known: EntityOption) -> inspect.Parameter:
    if known.kind is OptionKind.BOOLEAN:
        name = f"--{known.option}/--no-{known.option}"
        return option(known.parameter, bool | None, name, help=known.meaning, show_default=False)
    kind = _TYPES.get(known.kind, str | None)
    return option(known.parameter, kind, f"--{known.option}", help=known.meaning, metavar=known.kind.value)


def _at_creation(properties: Sequence[EntityOption]) -> list[inspect.Parameter]:
    return [_option(known) for known in properties]


def _changeable(properties: Sequence[EntityOption]) -> list[inspect.Parameter]:
    return [_option(known) for known in properties if known.changeable]


def _by_element(properties: Sequence[EntityOption]) -> Callable[[Names, Given], Properties]:
    """What was given, under the names of ATOM bodies."""
    elements = {known.parameter: known.element for known in properties}
    return lambda _, given: {elements[parameter]: value for parameter, value in given.items()}


def _warn_of_cycle(client: Client, names: Names, properties: Properties) -> None:
    if has_forward(properties):
        warn_of_cycle(client, "/Subscriptions/".join(names))


def _row(columns: Mapping[str, str]) -> "Callable[[EntityEntry], Sequence[object]]":
    def row(entity: "EntityEntry") -> Sequence[object]:
        numbers = (entity.numbers.get(key) for key in columns.values())
        return [entity.name, entity.properties.get("Status"), *numbers]

    return row


def _as_object(entity: "EntityEntry") -> Mapping[str, object]:
    """Keys stay behind: `busway key list --show-keys` has them."""
    written: dict[str, object] = {"name": entity.name, **entity.properties, **entity.numbers}
    if entity.kind.word != "subscription":
        written["AuthorizationRules"] = [
            {"name": rule.name, "rights": list(rule.rights)} for rule in entity.rules
        ]
    return written


def _as_lines(entity: "EntityEntry") -> Mapping[str, object]:
    names = ", ".join(rule.name for rule in entity.rules) or None
    return {key: names if key == "AuthorizationRules" else value for key, value in _as_object(entity).items()}


def _fragments_of(get: "Callable[[Client, Names], EntityEntry]") -> Parts:
    def fragments(client: Client, names: Names) -> Sequence[Mapping[str, object]]:
        get(client, names)  # one of another kind is not meant
        return client.fragments(*names)

    return Parts(
        "--fragments", "Show each fragment: store, health, counts, size.", fragments, _FRAGMENT_COLUMNS
    )


def _subscriptions(client: Client, names: Names) -> "Sequence[EntityEntry]":
    client.get_topic(*names)  # a topic that does not exist has no subscriptions either
    return list(client.list_subscriptions(*names))


QUEUE: "Final[EntityFamily[EntityEntry, Properties]]" = EntityFamily(
    word="queue",
    about="Create, show, list, change and delete queues.",
    example="busway queue create orders --lock-duration PT30S --max-delivery-count 5",
    subject="Queue {name}",
    arguments={"name": ("NAME", "The queue's path.")},
    as_object=_as_object,
    as_lines=_as_lines,
    create=ChangeVerb(
        "Create a queue. Properties that are not given have the service's defaults.",
        "busway queue create orders --lock-duration PT30S --max-delivery-count 5",
        _at_creation(QUEUE_PROPERTIES),
        _by_element(QUEUE_PROPERTIES),
        lambda client, names, wish: client.create_queue(names[0], wish),
        _warn_of_cycle,
    ),
    update=ChangeVerb(
        "Change properties of a queue; the others stay as they are.",
        "busway queue update orders --status ReceiveDisabled",
        _changeable(QUEUE_PROPERTIES),
        _by_element(QUEUE_PROPERTIES),
        lambda client, names, wish: client.update_queue(client.get_queue(*names).changed(wish)),
        _warn_of_cycle,
        hint="--user-metadata TEXT",
    ),
    show=Show(
        "Show a queue's properties and counts, or its fragments.",
        "busway queue show orders --json",
        lambda client, names: client.get_queue(*names),
        _fragments_of(lambda client, names: client.get_queue(*names)),
    ),
    listing=Listing(
        "List all queues with their counts.",
        "busway queue list",
        lambda client, _: client.list_queues(),
        ("NAME", "STATUS", *_QUEUE_COLUMNS),
        _row(_QUEUE_COLUMNS),
    ),
    deletion=Deletion(
        "Delete a queue with all its messages.",
        "busway queue delete orders",
        lambda client, names: client.delete_queue(*names),
    ),
)

TOPIC: "Final[EntityFamily[EntityEntry, Properties]]" = EntityFamily(
    word="topic",
    about="Create, show, list, change and delete topics.",
    example="busway topic create news --default-message-time-to-live P1D",
    subject="Topic {name}",
    arguments={"name": ("NAME", "The topic's path.")},
    as_object=_as_object,
    as_lines=_as_lines,
    create=ChangeVerb(
        "Create a topic. Properties that are not given have the service's defaults.",
        "busway topic create news --default-message-time-to-live P1D",
        _at_creation(TOPIC_PROPERTIES),
        _by_element(TOPIC_PROPERTIES),
        lambda client, names, wish: client.create_topic(names[0], wish),
    ),
    update=ChangeVerb(
        "Change properties of a topic; the others stay as they are.",
        "busway topic update news --status SendDisabled",
        _changeable(TOPIC_PROPERTIES),
        _by_element(TOPIC_PROPERTIES),
        lambda client, names, wish: client.update_topic(client.get_topic(*names).changed(wish)),
        hint="--user-metadata TEXT",
    ),
    show=Show(
        "Show a topic's properties and counts, or its fragments.",
        "busway topic show news --json",
        lambda client, names: client.get_topic(*names),
        _fragments_of(lambda client, names: client.get_topic(*names)),
    ),
    listing=Listing(
        "List all topics with their counts.",
        "busway topic list",
        lambda client, _: client.list_topics(),
        ("NAME", "STATUS", *_TOPIC_COLUMNS),
        _row(_TOPIC_COLUMNS),
    ),
    deletion=Deletion(
        "Delete a topic with its subscriptions and all their messages.",
        "busway topic delete news",
        lambda client, names: client.delete_topic(*names),
    ),
)

SUBSCRIPTION: "Final[EntityFamily[EntityEntry, Properties]]" = EntityFamily(
    word="subscription",
    about="Create, show, list, change and delete subscriptions of topics.",
    example="busway subscription create news sport",
    subject="Subscription {name} of {topic}",
    arguments={"topic": ("TOPIC", "The topic's path."), "name": ("NAME", "The subscription's name.")},
    as_object=_as_object,
    create=ChangeVerb(
        "Create a subscription. It gets every message until rules say otherwise (busway rule create).",
        "busway subscription create news sport --max-delivery-count 5 --forward-to inbox",
        _at_creation(SUBSCRIPTION_PROPERTIES),
        _by_element(SUBSCRIPTION_PROPERTIES),
        lambda client, names, wish: client.create_subscription(names[0], names[1], wish),
        _warn_of_cycle,
    ),
    update=ChangeVerb(
        "Change properties of a subscription; the others stay as they are.",
        "busway subscription update news sport --status ReceiveDisabled",
        _changeable(SUBSCRIPTION_PROPERTIES),
        _by_element(SUBSCRIPTION_PROPERTIES),
        lambda client, names, wish: client.update_subscription(
            names[0], client.get_subscription(*names).changed(wish)
        ),
        _warn_of_cycle,
        hint="--lock-duration PT30S",
    ),
    show=Show(
        "Show a subscription's properties and counts.",
        "busway subscription show news sport --json",
        lambda client, names: client.get_subscription(*names),
    ),
    listing=Listing(
        "List a topic's subscriptions with their counts.",
        "busway subscription list news",
        _subscriptions,
        ("NAME", "STATUS", *_SUBSCRIPTION_COLUMNS),
        _row(_SUBSCRIPTION_COLUMNS),
    ),
    deletion=Deletion(
        "Delete a subscription with all its messages.",
        "busway subscription delete news sport",
        lambda client, names: client.delete_subscription(*names),
    ),
)
